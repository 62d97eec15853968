"""Compiling a kit as Unity would: an assembly for each definition, with the references it names and no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

STUBS = Path(__file__).parent / "converters" / "unity" / "stubs"
ENGINE = "UnityEngine"  # what every assembly sees; NUnit is in it
ASSEMBLIES = {  # stub assembly: (its folder, its references), in order
    ENGINE: ("engine", ()),
    "Unity.InferenceEngine": ("sentis", (ENGINE,)),
    "Unity.InferenceEngine.Tokenization": ("tokenization", ()),
}
MONOS_OWN = "mono_thread_internal_"  # begins what Mono says on stdout of a scheduling policy that it does not know
STRICT = ("-langversion:7.2", "-warnaserror", "-warn:4")
MISSING = [name for name in ("mcs", "mono") if not shutil.which(name)]


def require_mono() -> None:
    """Skip without Mono, or fail under CI.

    Mono is no part of the product: who has none can still run all other tests. CI must not pass without it.
    """
    if MISSING:
        what = f"{' and '.join(MISSING)} not found: on Debian `apt-get install mono-mcs mono-runtime`"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


def build_stubs(folder: Path) -> None:
    """Compile the stubs of Unity's assemblies into a folder."""
    for name, (place, references) in ASSEMBLIES.items():
        _compile(folder / f"{name}.dll", (STUBS / place).glob("*.cs"), [folder / f"{one}.dll" for one in references])


def said_by(program: Path, *words: str) -> list[str]:
    """Run a program, which must end well, and return its lines."""
    ended = subprocess.run(["mono", program, *words], capture_output=True, text=True, check=True)
    return [line for line in ended.stdout.splitlines() if not line.startswith(MONOS_OWN)]


@dataclass(frozen=True)
class Built:
    """A kit's assemblies, compiled.

    Attributes:
        folder: where they lie, with the stubs.
        namespace: of the kit.
    """

    folder: Path
    namespace: str

    def program(self, name: str) -> Path:
        """Compile one of the programs in `stubs/programs` against them, and return it."""
        source = (STUBS / "programs" / f"{name}.cs").read_text(encoding="utf-8")
        text = source.replace("MlxSentis.", f"{self.namespace}.").replace("using MlxSentis", f"using {self.namespace}")
        copy, program = self.folder / f"{name}.cs", self.folder / f"{name}.exe"
        copy.write_text(text, encoding="utf-8")
        _compile(program, [copy], sorted(self.folder.glob("*.dll")), kind="exe")
        return program


def build_kit(kit: Path, stubs: Path, folder: Path, namespace: str, defines: Iterable[str] = ()) -> Built:
    """Compile a kit's assemblies; any warning is an error.

    Args:
        kit: the folder that was written.
        stubs: what `build_stubs` filled.
        folder: where the assemblies go.
        namespace: of the kit.
        defines: what Unity would define by `versionDefines`.
    """
    shutil.copytree(stubs, folder)
    waiting = {json.loads(file.read_text(encoding="utf-8"))["name"]: file for file in kit.rglob("*.asmdef")}
    assert waiting
    while waiting:
        before = len(waiting)
        for name, file in list(waiting.items()):
            asked = json.loads(file.read_text(encoding="utf-8"))["references"]
            if not waiting.keys() & set(asked):
                present = [folder / f"{one}.dll" for one in (ENGINE, *asked) if (folder / f"{one}.dll").exists()]
                _compile(folder / f"{name}.dll", file.parent.rglob("*.cs"), present, defines=defines)
                del waiting[name]
        assert len(waiting) < before, f"assemblies that wait for each other: {sorted(waiting)}"
    return Built(folder, namespace)


def _compile(
    out: Path,
    sources: Iterable[Path],
    references: Iterable[Path],
    *,
    kind: str = "library",
    defines: Iterable[str] = (),
) -> None:
    flags = [*STRICT, f"-target:{kind}", f"-out:{out}", *(f"-define:{name}" for name in defines)]
    words = [*flags, *(f"-r:{one}" for one in references), *map(str, sorted(sources))]
    ended = subprocess.run(["mcs", *words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
