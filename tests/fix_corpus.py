"""The onnx package's own cases, fixed: does what `fix` writes still give the package's golden data?

`python tests/fix_corpus.py` writes the golden file anew. A case is tried where the scan finds an error or a deviation
that a pass mends and ONNX Runtime gives the golden data before; verdicts are `clean`, `mended in part`, `left`, and
`wrong`, which must not occur.
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

from converters.fix import fix_model
from converters.passes import PASSES
from converters.prove import outputs_of
from converters.scan import scan
from weights_bridge.errors import BudgetMissedError, StageError

GOLDEN = Path(__file__).parent / "converters" / "passes" / "goldens" / "onnx_backend.json"
SENTIS = "2.6"


def cases() -> Iterator[tuple[str, onnx.ModelProto, list[Any], list[Any]]]:
    """Yield (name, model, inputs, outputs) of cases with arrays only."""
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
    fed = dict(zip([value.name for value in model.graph.input], inputs, strict=False))
    names = [value.name for value in model.graph.output]
    try:
        if not equal(outputs_of(source, fed), outputs, names):
            return ""
    except StageError:
        return ""
    try:
        report = fix_model(source, target, sentis=SENTIS, inputs=fed, growth=1000)
    except BudgetMissedError as error:
        return f"wrong: {error.message[:160]}"
    except StageError as error:
        return f"refused: {error.message[:160]}"
    if not any(row["changed"] for row in report["passes"] if row["name"] != "drop_metadata"):
        return "left"
    kept = {name: array for name, array in fed.items() if name in {v.name for v in onnx.load(str(target)).graph.input}}
    by_design = any(row["changed"] and PASSES[row["name"]].by_design for row in report["passes"])
    if not by_design and not equal(outputs_of(target, kept), outputs, names):
        return "wrong: golden data differ"
    return (
        "mended in part"
        if any(finding["severity"] in ("error", "deviation") for finding in report["findings"]["after"])
        else "clean"
    )


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
