"""The folder for `Assets/`: sources that are always the same, sources written from the run, assembly definitions.

Files are written one by one and never deleted: Unity keeps a `.meta` file beside each, and a new one would break every
reference to a script.
"""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any

from converters.unity.contract import NAME, Contract
from converters.unity.csharp import require_namespace
from converters.unity.prompt import prompt_sources
from weights_bridge.errors import StageError
from weights_bridge.files import write_text
from weights_bridge.run_folder import RunFolder

NAMESPACE = "MlxSentis"  # of the sources as they lie in this package
FIXED = (
    "Runtime/PromptBuilder.cs",
    "Tests/Editor/ContractFile.cs",
    "Tests/Editor/FieldCheck.cs",
    "Tests/Editor/Json.cs",
    "Tests/Editor/PromptContractTests.cs",
    "Tests/Editor/TokenizerCheck.cs",
)


def write_kit(run: RunFolder, out: Path, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Write what a Unity project needs of a run.

    Args:
        run: a prepared run.
        out: the folder, inside `Assets/` or to be copied there.
        namespace: of the C# sources, also the name of their assembly.

    Returns:
        `files`, `contract_sha256`, and `other_openings`: kinds of samples whose system turn or tools differ from those
        that the prompt builder writes.

    Raises:
        UsedWronglyError: the namespace is none.
        StageError: no contract, one that was altered, or a template that no fixed pieces can stand for.
    """
    require_namespace(namespace)
    if out.exists() and not out.is_dir():
        raise StageError(f"{out}: a file, wanted a folder", hint="choose another --out")
    path = run.path(NAME)
    with run.stage("unity", [path]) as stage:
        contract = Contract(path)
        files = kit_files(contract, namespace)
        for name, text in files.items():
            write_text(out / name, text)
        if out.resolve().is_relative_to(run.root.resolve()):  # what lies outside of the run is not the run's to verify
            stage.wrote(*(out / name for name in files))
        stage.facts |= {"out": str(out), "namespace": namespace, "files": list(files)}
    facts = {"namespace": namespace, "files": list(files), "contract_sha256": contract.sha256}
    return facts | {"other_openings": other_openings(contract)}


def kit_files(contract: Contract, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return path to text of every file of the kit."""
    root = importlib.resources.files("converters.unity") / "sources"
    sources = {name: (root / name).read_text(encoding="utf-8") for name in FIXED} | prompt_sources(contract)
    return {
        f"Runtime/{namespace}.asmdef": _assembly(namespace),
        f"Tests/Editor/{namespace}.Tests.asmdef": _assembly(f"{namespace}.Tests", tested=namespace),
        f"Tests/Editor/{NAME}": contract.file_text,
    } | {name: _renamed(text, namespace) for name, text in sorted(sources.items())}


def _renamed(source: str, namespace: str) -> str:
    return source.replace(f"namespace {NAMESPACE}", f"namespace {namespace}")


def _assembly(name: str, *, tested: str = "") -> str:
    """Return an assembly definition; with `tested` one of tests in the editor (Unity manual, Assembly Definitions)."""
    runners = ["UnityEngine.TestRunner", "UnityEditor.TestRunner"]
    document = {
        "name": name,
        "rootNamespace": name,
        "references": [tested, *runners] if tested else [],
        "includePlatforms": ["Editor"] if tested else [],
        "excludePlatforms": [],
        "allowUnsafeCode": False,
        "overrideReferences": bool(tested),
        "precompiledReferences": ["nunit.framework.dll"] if tested else [],
        "autoReferenced": not tested,
        "defineConstraints": ["UNITY_INCLUDE_TESTS"] if tested else [],
        "versionDefines": [],
        "noEngineReferences": False,
    }
    return json.dumps(document, indent=4) + "\n"


def other_openings(contract: Contract) -> list[str]:
    """Return the kinds of samples that do not begin with the leading sample's system turn and tools."""
    leading = _opening(contract, ())
    return [kind for kind in contract.value("samples") if _opening(contract, ("samples", kind)) != leading]


def _opening(contract: Contract, keys: tuple[str, ...]) -> tuple[Any, Any]:
    first = contract.value(*keys, "messages")[:1]
    return [message for message in first if message.get("role") == "system"], contract.value(*keys, "tools")
