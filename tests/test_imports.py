"""What is imported when: answers that need no framework come without one, and the trainer never names torch."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ROOT, call_alone

HEAVY = ("torch", "mlx", "mlx_lm", "transformers", "onnxruntime", "onnxscript", "matplotlib")


def loaded_by(*words: object) -> set[str]:
    """Return the top-level modules in memory after a command that ended well, in a process of its own."""
    return call_alone(*words)[1]


@pytest.mark.parametrize(
    "words", ["--version", "families", "models list", "fix --list", "run --help", "train --help", "export --help"]
)
def test_telling_loads_no_framework(words: str) -> None:
    assert not loaded_by(*words.split()) & set(HEAVY)


def test_help_alone_loads_only_click() -> None:
    assert not loaded_by("--help") & {*HEAVY, "onnx", "numpy", "tomlkit", "safetensors"}


def test_scan_loads_neither_torch_nor_mlx(tmp_path: Path) -> None:
    import onnx

    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }'
    )
    onnx.save(graph, tmp_path / "small.onnx")
    assert not loaded_by("scan", tmp_path / "small.onnx") & set(HEAVY)


def test_scan_of_a_model_directory_loads_neither_torch_nor_mlx(toy_model: Callable[[str], Path]) -> None:
    assert not loaded_by("scan", toy_model("llama")) & set(HEAVY)


def test_a_command_that_needs_a_framework_is_seen_to_load_it(toy_model: Callable[[str], Path]) -> None:
    assert {"numpy", "transformers"} <= loaded_by("recipe", toy_model("llama"))


def imports_of(package: str) -> dict[str, set[str]]:
    """Return file to the top-level modules it imports anywhere, inside functions too."""
    found = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        names: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
        found[file.relative_to(ROOT).as_posix()] = names
    return found


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("mlx_sentis", {"torch", "onnx", "onnxruntime", "onnxscript", "converters", "parity", "benchmarks"}),
        ("converters", {"mlx", "mlx_lm", "mlx_sentis", "parity", "benchmarks"}),
        ("weights_bridge", {*HEAVY, "onnx", "mlx_sentis", "converters", "parity", "benchmarks"}),
        ("parity", {"benchmarks", "cli"}),
    ],
)
def test_a_layer_never_imports_what_lies_above_or_beside_it(package: str, never: set[str]) -> None:
    found = imports_of(package)
    assert len(found) > 5
    assert not {file: names & never for file, names in found.items() if names & never}


def test_commands_modules_import_no_framework_at_the_top() -> None:
    files = [*ROOT.glob("*/*commands.py"), *ROOT.glob("*/*/commands.py"), ROOT / "cli.py", ROOT / "parity/doctor.py"]
    assert len(files) >= 8
    for file in files:
        body = ast.parse(file.read_text(encoding="utf-8")).body
        nodes = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name for node in nodes for name in _top_names(node)}
        assert not names & {*HEAVY, "onnx"}, file.name


def _top_names(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]}
