"""Assembly definitions of the kit (Unity manual, Assembly Definitions): runtime, editor, tests of the editor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from weights_bridge.errors import StageError

PACKAGE = "com.unity.ai.inference"
SENTIS, TOKENIZATION = "Unity.InferenceEngine", "Unity.InferenceEngine.Tokenization"
TOKENIZER_READER = "2.5"  # the first version that reads tokenizer.json
FOLDERS = {"Runtime": "", "Editor": ".Editor", "Tests/Editor": ".Tests"}  # and what their assemblies end in


def assembly_files(namespace: str, sources: Mapping[str, str]) -> dict[str, str]:
    """Return path to text of the assembly definitions that sources need, and of the friends that see internals.

    Args:
        namespace: also the name of the runtime assembly.
        sources: path to text; which packages are referenced follows from what they use.
    """
    used = [
        package for package in (SENTIS, TOKENIZATION) if any(f"using {package};" in text for text in sources.values())
    ]
    files = {}
    for folder, suffix in FOLDERS.items():
        if any(name.startswith(f"{folder}/") for name in sources):
            own = [] if folder == "Runtime" else [namespace]
            definition = _definition(f"{namespace}{suffix}", [*own, *used], folder)
            files[f"{folder}/{namespace}{suffix}.asmdef"] = definition
    return files | {"Runtime/AssemblyInfo.cs": _friends([f"{namespace}.Editor", f"{namespace}.Tests"])}


def require_no_other_assembly(out: Path, files: Mapping[str, str]) -> None:
    """Refuse a folder that holds another assembly definition: Unity allows one in a folder.

    Raises:
        StageError: the kit of another namespace, or of somebody else, lies there.
    """
    for folder in FOLDERS:
        for other in sorted((out / folder).glob("*.asmdef")):
            if f"{folder}/{other.name}" not in files:
                raise StageError(
                    f"{other}: the assembly {other.stem} is defined in this folder, and Unity allows one in a folder",
                    hint=f"write with --namespace {other.stem.removesuffix('.Tests').removesuffix('.Editor')}, "
                    "choose another --out, or take the old kit away",
                )


def _definition(name: str, references: list[str], folder: str) -> str:
    tests = folder == "Tests/Editor"
    runners = ["UnityEngine.TestRunner", "UnityEditor.TestRunner"] if tests else []
    reader = {"name": PACKAGE, "expression": TOKENIZER_READER, "define": "MLX_SENTIS_TOKENIZER"}
    document = {
        "name": name,
        "rootNamespace": name,
        "references": [*references, *runners],
        "includePlatforms": [] if folder == "Runtime" else ["Editor"],
        "excludePlatforms": [],
        "allowUnsafeCode": False,
        "overrideReferences": tests,
        "precompiledReferences": ["nunit.framework.dll"] if tests else [],
        "autoReferenced": not tests,
        "defineConstraints": ["UNITY_INCLUDE_TESTS"] if tests else [],
        "versionDefines": [reader] if TOKENIZATION in references else [],
        "noEngineReferences": False,
    }
    return json.dumps(document, indent=4) + "\n"


def _friends(names: list[str]) -> str:
    lines = "".join(f'[assembly: InternalsVisibleTo("{name}")]\n' for name in names)
    return f"using System.Runtime.CompilerServices;\n\n{lines}"
