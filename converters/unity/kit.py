"""The folder for `Assets/`: model, tokenizer, sources that are always the same, sources written from the run, fixtures.

Files are written one by one and never deleted: Unity keeps a `.meta` file beside each, and a new one would break every
reference to a script. Large files come first, so that a full disk stops it before any source is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.facts import versions
from converters.unity import model, parity_inputs
from converters.unity.assemblies import assembly_files, require_no_other_assembly
from converters.unity.base import Base, base_of_run
from converters.unity.contract import NAME, Contract
from converters.unity.csharp import require_namespace
from converters.unity.helpers import helper_sources
from converters.unity.page import kit_page
from converters.unity.parts import HARNESS, JSON, Parts, base_parts, prompt_parts, run_parts, sources_of
from converters.unity.placing import alone_in, place_file
from converters.unity.probes.pack import FOLDER as PROBES
from converters.unity.probes.pack import write_probes
from converters.unity.requirements import require_finished
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.files import write_text
from weights_bridge.run_folder import RunFolder

NAMESPACE = "MlxSentis"  # of the sources as they lie in this package


@dataclass(frozen=True)
class KitSettings:
    """How a kit is written.

    Attributes:
        namespace: of the C# sources, also the name of their assembly.
        prompt_only: only what the prompt contract says; a run that was prepared is enough.
        base: the base weights of a run, which need no training.
        ungated: go on without a passed edge A; manifest and kit say so.
        link: a hard link to the run's model instead of a copy.
        helpers: of `helpers.HELPERS`, to come with it.
        probes: the probe pack of `probes.pack` as well.
    """

    namespace: str = NAMESPACE
    prompt_only: bool = False
    base: bool = False
    ungated: bool = False
    link: bool = False
    helpers: Sequence[str] = ()
    probes: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """What helpers and probes bring."""
        return (*helper_sources(self.helpers), *((*HARNESS, JSON) if self.probes else ()))


def write_kit(run: RunFolder, out: Path, namespace: str = NAMESPACE, **settings: Any) -> dict[str, Any]:
    """Write what a Unity project needs of a run.

    Args:
        run: a finished run; with `base` one whose export passed edge A, with `prompt_only` a prepared one.
        out: the folder, inside `Assets/` or to be copied there.
        namespace: of the C# sources.
        settings: the other fields of `KitSettings`.

    Returns:
        `files`, `contract_sha256`, `model_sha256`, `fixtures`, `gate` (whether there is one), `base`, `ungated`, and
        `other_openings`: kinds of samples whose system turn or tools differ from those that the prompt builder writes.

    Raises:
        UsedWronglyError: the namespace is none, or two settings exclude each other.
        BudgetMissedError: edge A has not passed for this model.
        StageError: the run is not finished, a file was altered, a template that no fixed pieces can stand for, the
            folder holds another kit, or it is being written to.
    """
    wanted = KitSettings(namespace, **settings)
    _require(out, wanted)
    _require_apart(run, out)
    base = base_of_run(run, ungated=wanted.ungated) if wanted.base else None
    if base is not None:
        inputs = [*base.inputs]
    else:
        inputs = [run.path(NAME)] if wanted.prompt_only else require_finished(run, ungated=wanted.ungated)
    with run.stage("unity", inputs) as stage:
        parts = base_parts(base) if base is not None else _run_parts(run, wanted)
        files = _write(out, parts, wanted)
        if out.resolve().is_relative_to(run.root.resolve()):  # what lies outside of the run is not the run's to verify
            stage.wrote(*(out / name for name in files))
        stage.facts |= {"out": str(out), "namespace": namespace, "files": files, "ungated": wanted.ungated}
        stage.facts |= {"base": wanted.base}
    return _facts(parts, wanted, files)


def write_base_kit(base: Base, out: Path, wanted: KitSettings) -> dict[str, Any]:
    """Write what a Unity project needs of an exported graph; as `write_kit`, but there is no run that records it."""
    _require(out, wanted)
    parts = base_parts(base)
    return _facts(parts, wanted, _write(out, parts, wanted))


def _run_parts(run: RunFolder, wanted: KitSettings) -> Parts:
    contract = Contract(run.path(NAME))
    return prompt_parts(contract) if wanted.prompt_only else run_parts(run, contract)


def _facts(parts: Parts, wanted: KitSettings, files: list[str]) -> dict[str, Any]:
    facts = {"namespace": wanted.namespace, "files": files, "ungated": wanted.ungated, "base": wanted.base}
    facts |= {"contract_sha256": parts.prompt_sha256 or None, "other_openings": parts.openings}
    if parts.fixtures:
        facts |= {"model_sha256": parts.fixtures[0].sha256, "fixtures": len(parts.fixtures[0].fixtures)}
        facts |= {"gate": parts.has_gate}
    return facts


def write_tools(out: Path, wanted: KitSettings) -> dict[str, Any]:
    """Write helpers and probes alone, without a run.

    Args:
        out: the folder, inside `Assets/` or to be copied there.
        wanted: `helpers`, `probes` or both.

    Returns:
        `namespace` and `files`.

    Raises:
        UsedWronglyError: neither is wanted, the namespace is none, or nobody knows a helper.
        StageError: as for `write_kit`.
    """
    if not wanted.sources:
        hint = "give a run, or --probes, or --helper NAME"
        raise UsedWronglyError("unity: nothing to write", hint=hint)
    _require(out, wanted)
    return {"namespace": wanted.namespace, "files": _write(out, Parts({}), wanted)}


def _require(out: Path, wanted: KitSettings) -> None:
    require_namespace(wanted.namespace)
    helper_sources(wanted.helpers)
    if wanted.base and wanted.prompt_only:
        raise UsedWronglyError("--base brings a model, --prompt-only none", hint="leave one of the two")
    if out.exists() and not out.is_dir():
        raise StageError(f"{out}: a file, wanted a folder", hint="choose another --out")


def _require_apart(run: RunFolder, out: Path) -> None:
    """Require that a kit lies outside of its run, or in `unity/` there: the other folders are other stages'."""
    inside, root = out.resolve(), run.root.resolve()
    if inside.is_relative_to(root) and not inside.is_relative_to(root / "unity"):
        hint = f"give {run.root / 'unity'}, or a folder of the Unity project"
        raise UsedWronglyError(f"--out {out}: lies among the files of the run {run.root}", hint=hint)


def _write(out: Path, parts: Parts, wanted: KitSettings) -> list[str]:
    """Write a kit and return the paths of its files in it."""
    parts.texts |= sources_of(wanted.sources)
    parts.texts |= assembly_files(wanted.namespace, parts.texts)
    made = any(one.made for one in parts.fixtures)
    parts.texts |= {"README.md": kit_page(wanted.namespace, parts.texts, parts.files, made=made)}
    require_no_other_assembly(out, parts.texts)
    with alone_in(out):
        for name, source in parts.files.items():
            place_file(source, out / name, link=wanted.link and name == model.MODEL)
        if parts.fixtures:
            parity_inputs.write_parity_inputs(out / parity_inputs.FOLDER, parts.fixtures, parts.sentis)
        if wanted.probes:
            write_probes(out / PROBES, parts.sentis or versions()[-1])
        for name, text in sorted(parts.texts.items()):
            write_text(out / name, _renamed(text, wanted.namespace) if name.endswith(".cs") else text)
    folders = [parity_inputs.FOLDER] * bool(parts.fixtures) + [PROBES] * wanted.probes
    beside = [file for folder in folders for file in (out / folder).rglob("*") if file.is_file()]
    return sorted([*parts.files, *parts.texts, *(file.relative_to(out).as_posix() for file in beside)])


def _renamed(source: str, namespace: str) -> str:
    for before in ("namespace ", "-executeMethod "):
        source = source.replace(f"{before}{NAMESPACE}", f"{before}{namespace}")
    return source
