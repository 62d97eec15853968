"""What pyproject.toml puts into the wheel, without building one (.ci/run builds and compares)."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
DATA = {".json", ".jsonl", ".toml"}
LIBRARY_OF = {"PIL": "pillow", "google": "protobuf", "yaml": "pyyaml"}  # module: distribution


def shipped() -> set[Path]:
    """Return the files below the wheel's `only-include`, relative to the repository."""
    found: set[Path] = set()
    for entry in map(ROOT.joinpath, WHEEL["only-include"]):
        files = entry.rglob("*") if entry.is_dir() else [entry]
        found |= {file.relative_to(ROOT) for file in files if file.is_file() and "__pycache__" not in file.parts}
    return found


def test_the_wheel_takes_every_package_and_nothing_else() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(WHEEL["only-include"]) == packages | {"cli.py"}


def test_the_wheel_holds_the_data_that_the_code_opens() -> None:
    names = {path.as_posix() for path in shipped()}
    splits = ("train", "valid", "calibration", "holdout")
    assert {f"mlx_sentis/data/npc-commands/{split}.jsonl" for split in splits} <= names
    assert "mlx_sentis/data/npc-commands/tools.json" in names
    assert "parity/budgets/default.toml" in names
    cases = {"smollm2-135m.md", "verified_exports.md", "eval_log.md", "records/smollm2-135m.json"}
    assert {f"converters/cases/{name}" for name in cases} <= names
    assert {f"converters/sentis/{version}.json" for version in ("2.4", "2.5", "2.6")} <= names


def test_no_data_file_lies_outside_what_is_shipped() -> None:
    tops = {path.split("/")[0] for path in WHEEL["only-include"]} - {"cli.py"}
    data = {file.relative_to(ROOT) for top in tops for file in (ROOT / top).rglob("*") if file.suffix in DATA}
    assert data
    assert data <= shipped()


# taken where a user has it; no extra can bring it: it wants transformers below 4.58, we want 5.20 and above
ELSEWHERE = {"optimum"}


def test_nothing_keeps_data_files_out() -> None:
    assert not {"exclude", "packages", "include"} & set(WHEEL)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()  # hatchling honours it
    assert not [line for line in ignored if any(suffix in line for suffix in DATA)]
    assert "data/" not in ignored


def test_the_wheel_holds_no_tests() -> None:
    assert not [path for path in shipped() if path.name.startswith("test_") or "tests" in path.parts]


def test_the_script_leads_to_a_function() -> None:
    module, _, name = PROJECT["project"]["scripts"]["mlx-sentis"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_every_library_that_is_imported_is_a_declared_dependency() -> None:
    extras = {name: lines for name, lines in PROJECT["project"]["optional-dependencies"].items() if name != "dev"}
    lines = [*PROJECT["project"]["dependencies"], *(line for extra in extras.values() for line in extra)]
    declared = {re.split(r"[\[><=; ]", line)[0].replace("-", "_").lower() for line in lines}
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in shipped() if path.suffix == ".py"]
    imported = {name for source in sources for name in re.findall(r"^\s*(?:import|from) (\w+)[ .,\n]", source, re.M)}
    ours = {Path(entry).stem for entry in WHEEL["only-include"]}
    foreign = {LIBRARY_OF.get(name, name) for name in imported - set(sys.stdlib_module_names) - ours}
    assert {"torch", "mlx", "onnx", "click", "protobuf"} <= foreign
    assert foreign - ELSEWHERE <= declared


def test_everything_a_user_reads_is_in_the_source_archive() -> None:
    listed = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"])
    assert set(WHEEL["only-include"]) <= listed
    assert {"README.md", "LICENSE", "CHANGELOG.md", "ARCHITECTURE.md", "tests"} <= listed
    assert PROJECT["project"]["readme"] in listed
