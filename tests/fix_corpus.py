"""The onnx package's own cases, in memory and on disk, fixed: does what `fix` writes still give the golden data?

`python tests/fix_corpus.py` writes the golden file anew. A case is tried where the scan finds an error or a deviation
that a pass mends and ONNX Runtime gives the golden data before; verdicts are `clean`, `clean when bound` (sizes, axes
and conditions that are inputs of the case become constants, as with `--bind`), `mended in part`, `left`, and `wrong`,
which must not occur.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from scan_corpus import on_disk

from converters.fix import fix_model
from converters.passes import PASSES
from converters.prove import outputs_of
from converters.scan import scan
from weights_bridge.errors import BudgetMissedError, StageError

Arrays = dict[str, np.ndarray]
Case = tuple[str, onnx.ModelProto, list[Any], list[Any]]

GOLDEN = Path(__file__).parent / "converters" / "passes" / "goldens" / "onnx_backend.json"
SENTIS = "2.6"
BOUND_AT_MOST = 16
SAY_HOW = {"axis", "block_shape", "cond", "image_shape", "roi", "scales", "size", "sizes", "Splits", "trip_count"}


def cases() -> Iterator[Case]:
    """Yield the package's cases with arrays only."""
    yield from made_in_memory()
    for path in on_disk():
        model = onnx.load(str(path))
        values = [*model.graph.input, *model.graph.output]
        if all(value.type.WhichOneof("value") == "tensor_type" for value in values):
            light = path.parent.name == "light"
            yield "/".join(path.parts[-3:]), model, *(light_data(path, model) if light else data_beside(path))


def data_beside(path: Path) -> tuple[list[Any], list[Any]]:
    """Return the inputs and outputs that lie beside a model file."""
    folder = path.parent / "test_data_set_0"
    sides: dict[str, list[Any]] = {"input": [], "output": []}
    for side, arrays in sides.items():
        for at in range(len(list(folder.glob(f"{side}_*.pb")))):
            arrays.append(array_in(folder / f"{side}_{at}.pb"))
    return sides["input"], sides["output"]


def light_data(path: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    """Return a light model's output and the input that the package's runner makes it of: 0, 1/n, 2/n and so on."""
    given = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in given)
    sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
    count = int(np.prod(sizes))
    made = (np.arange(count).reshape(sizes) / count).astype(np.float32)
    return [made], [array_in(path.with_name(f"{path.stem}_output_0.pb"))]


def array_in(path: Path) -> Any:
    """Return the array in a file of the package."""
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def made_in_memory() -> Iterator[Case]:
    """Yield the cases that the package makes when it is asked."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        collected = collect_testcases(None)
    for case in collected:
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if all(isinstance(array, np.ndarray) for array in (*inputs, *outputs)):
            yield case.name, case.model, list(inputs), list(outputs)


def equal(found: dict[str, np.ndarray], outputs: list[np.ndarray], names: list[str]) -> bool:
    """Tell whether outputs are the golden ones, at the tolerance of the package's own runner."""
    for name, wanted in zip(names, outputs, strict=True):
        got = found.get(name)
        if got is None or got.shape != wanted.shape:
            return False
        if wanted.dtype.kind in "OSU":
            return False
        loose = 1e-2 if wanted.dtype.itemsize == 2 and wanted.dtype.kind == "f" else 1e-3
        if not np.allclose(
            np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=loose, atol=1e-5, equal_nan=True
        ):
            return False
    return True


def verdict(model: onnx.ModelProto, inputs: list[np.ndarray], outputs: list[np.ndarray], folder: Path) -> str:
    """Return what became of a case; empty where there was nothing to mend, or ONNX Runtime differs before."""
    source, target = folder / "in.onnx", folder / "out.onnx"
    source.write_bytes(model.SerializeToString())
    blocking = [finding for finding in scan(source, SENTIS) if finding.blocking]
    if not any(finding.passes for finding in blocking):
        return ""
    given = {tensor.name for tensor in model.graph.initializer}
    fed = dict(zip([value.name for value in model.graph.input if value.name not in given], inputs, strict=False))
    names = [value.name for value in model.graph.output]
    try:
        if not equal(outputs_of(source, fed), outputs, names):
            return ""
    except StageError:
        return ""
    told = fixed(source, target, fed, dict(zip(names, outputs, strict=True)), {})
    bound = {name: array for name, array in fed.items() if name in SAY_HOW and array.size <= BOUND_AT_MOST}
    if told in ("left", "mended in part") and bound:
        again = fixed(source, target, fed, dict(zip(names, outputs, strict=True)), bound)
        return "clean when bound" if again == "clean" else again if again.startswith("wrong") else told
    return told


def fixed(source: Path, target: Path, fed: Arrays, wanted: Arrays, bound: Arrays) -> str:
    """Return what `fix` made of a file, with some inputs as constants."""
    kept = {name: array for name, array in fed.items() if name not in bound}
    words = {name: ",".join(str(value) for value in array.reshape(-1).tolist()) for name, array in bound.items()}
    try:
        report = fix_model(source, target, sentis=SENTIS, inputs=kept, growth=1000, bind=words)
    except BudgetMissedError as error:
        return f"wrong: {error.message[:160]}"
    except StageError as error:
        return f"refused: {error.message[:160]}"
    if not any(row["changed"] for row in report["passes"] if row["name"] != "drop_metadata"):
        return "left"
    asked = {value.name for value in onnx.load(str(target)).graph.input}
    by_design = any(row["changed"] and PASSES[row["name"]].by_design for row in report["passes"])
    found = outputs_of(target, {name: array for name, array in kept.items() if name in asked})
    if not by_design and not equal(found, list(wanted.values()), list(wanted)):
        return "wrong: golden data differ"
    blocking = any(finding["severity"] in ("error", "deviation") for finding in report["findings"]["after"])
    return "mended in part" if blocking else "clean"


def verdicts() -> dict[str, str]:
    """Return each tried case's verdict."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, inputs, outputs in cases():
            if told := verdict(model, inputs, outputs, Path(folder)):
                found[name] = told
    return found


def main() -> None:
    """Write the golden file, and print counts."""
    found = verdicts()
    passport = {
        "script": "python tests/fix_corpus.py",
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "sentis": SENTIS,
        "date": datetime.now(UTC).date().isoformat(),
        "tried": len(found),
    }
    groups: dict[str, list[str]] = {}
    for name, told in sorted(found.items()):
        groups.setdefault(told.split(":")[0], []).append(name)
    lines = [f"{json.dumps(told)}: {json.dumps(' '.join(names))}" for told, names in sorted(groups.items())]
    text = f'{{\n"passport": {json.dumps(passport)},\n"verdicts": {{\n' + ",\n".join(lines) + "\n}}\n"
    GOLDEN.write_text(text, encoding="utf-8")
    for told, names in sorted(groups.items()):
        print(f"{told}: {len(names)}")


if __name__ == "__main__":
    main()
