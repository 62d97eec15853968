"""The onnx package's own cases under the emulator: `python tests/emulator_corpus.py` writes the golden file anew.

A case is run where all its operators are among those that Sentis imports. Its verdict is

- `equal`: what Sentis is predicted to put out is what ONNX says, at the tolerance of the package's own runner,
- `deviates RULE …`: it is something else, and these rules say so,
- `import fails RULE`, `not predicted WHY`,
- `differs`: something else without a rule. There must be none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from emulator_cases import own_cases

from converters.facts import facts
from converters.ort_session import open_session
from parity.emulator import Prediction, predict
from parity.emulator.node import as_kind
from weights_bridge.errors import StageError

GOLDEN = Path(__file__).parent / "parity" / "emulator" / "goldens" / "onnx_backend.json"
SENTIS = "2.6"
RTOL, ATOL, HALF_RTOL = 1e-3, 1e-6, 1e-2  # RTOL is the onnx runner's own


def cases(ops: Sequence[str] = ()) -> Iterator[tuple[str, onnx.ModelProto, list[Any], list[Any]]]:
    """Yield (name, model, inputs, outputs) of the cases whose operators Sentis imports; of some operators only."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        collected = collect_testcases(None)
    known = facts(SENTIS).operators
    for case in collected:
        if case.model is None or not case.data_sets:
            continue
        named = {node.op_type for node in case.model.graph.node}
        if not named <= set(known) or (ops and not named & set(ops)):
            continue
        inputs, outputs = case.data_sets[0]
        if all(isinstance(array, np.ndarray | np.generic) for array in (*inputs, *outputs)):
            yield case.name, documented(case.model), list(map(np.asarray, inputs)), list(map(np.asarray, outputs))
    for name, model, inputs, outputs in own_cases():
        if not ops or {node.op_type for node in model.graph.node} & set(ops):
            yield name, model, inputs, outputs


def documented(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model at an opset that Sentis documents, where its nodes mean the same there."""
    entry = next((entry for entry in model.opset_import if entry.domain == ""), None)
    low, high = facts(SENTIS)["opset_window"]
    if entry is None or low <= entry.version <= high:
        return model
    wanted = low if entry.version < low else high
    try:
        same = all(means_the_same(node, entry.version, wanted) for node in model.graph.node)
    except onnx.defs.SchemaError:
        return model
    if same:
        entry.version = wanted
    return model


def means_the_same(node: onnx.NodeProto, opset: int, wanted: int) -> bool:
    """Tell whether a node is one of both opsets: the same operator, or an older one that has all it uses."""
    is_now, was = (onnx.defs.get_schema(node.op_type, version, "") for version in (opset, wanted))
    if opset < wanted:
        return is_now.since_version == was.since_version
    used = {attribute.name for attribute in node.attribute}
    return used <= set(was.attributes) and len(node.input) <= was.max_input


def run(model: onnx.ModelProto, inputs: Sequence[np.ndarray], folder: Path, version: str = SENTIS) -> Prediction:
    """Predict one case."""
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    fed = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
    return predict(path, fed, version)


def verdict(model: onnx.ModelProto, inputs: list[np.ndarray], outputs: list[np.ndarray], folder: Path) -> str:
    """Return what became of one case."""
    try:
        found = run(model, inputs, folder)
    except StageError as error:
        return f"differs: {error.message[:200]}"
    if found.verdict != "predicted":
        return f"{found.verdict} {reason_of(found)}"
    rules = sorted({one.rule for one in found.deviations})
    names = [value.name for value in model.graph.output]
    unequal = [name for name, wanted in zip(names, outputs, strict=True) if not equal(found, name, wanted)]
    unequal = [name for name in unequal if name not in found.unpredicted]
    if not unequal:
        return "equal"
    if all(equal(found, name, other) for name, other in of_runtime(model, inputs, unequal).items()):
        return "equal to ONNX Runtime"
    return f"deviates {' '.join(rules)}" if rules else f"differs: {', '.join(unequal)}"


def of_runtime(model: onnx.ModelProto, inputs: list[np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    """Return ONNX Runtime's outputs: where it differs from the package's golden data, either is right."""
    fed = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
    try:
        return dict(zip(names, open_session(model.SerializeToString()).run(names, fed), strict=True))
    except Exception:  # it lacks the operator or the type
        return {name: np.array("nothing") for name in names}


def reason_of(found: Prediction) -> str:
    """Return the id of the rule that decides, or the reason without names."""
    first = found.reason.split(" ")[0]
    return first if first.isupper() and ("." in first or "_" in first) else found.reason[:90]


def equal(found: Prediction, name: str, wanted: np.ndarray) -> bool:
    """Tell whether an output is the golden one, as Sentis would hold it."""
    if name not in found.outputs or wanted.dtype.kind in "OSU":
        return False
    got, reference = found.outputs[name], as_kind(wanted)
    if got.shape != reference.shape or got.dtype != reference.dtype:
        return False
    half = wanted.dtype.name in ("float16", "bfloat16")
    return bool(np.allclose(got, reference, rtol=HALF_RTOL if half else RTOL, atol=ATOL, equal_nan=True))


def verdicts(ops: Sequence[str] = ()) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return each case's verdict, and per operator its counts and the attributes that a case with equal outputs has."""
    found: dict[str, str] = {}
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, inputs, outputs in cases(ops):
            told = found[name] = verdict(model, inputs, outputs, Path(folder))
            for node in model.graph.node:
                row = rows.setdefault(node.op_type, {"cases": {}, "attributes": set(), "alone": 0})
                row["cases"][name] = told.split(" ")[0].rstrip(":")
                if told.startswith("equal"):
                    row["attributes"] |= {attribute.name for attribute in node.attribute}
                    row["alone"] += len(model.graph.node) == 1
    return found, rows


def as_rows(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the table per operator as the golden file holds it."""
    table = {}
    for op, row in sorted(rows.items()):
        counts: dict[str, int] = {}
        for told in row["cases"].values():
            counts[told] = counts.get(told, 0) + 1
        table[op] = dict(sorted(counts.items())) | {"alone": row["alone"], "attributes": sorted(row["attributes"])}
    return table


def main() -> None:
    """Write the golden file, and print counts; operators given as arguments are only tried and printed."""
    found, rows = verdicts(sys.argv[1:])
    groups: dict[str, list[str]] = {}
    for name, told in sorted(found.items()):
        groups.setdefault(told, []).append(name)
    if not sys.argv[1:]:
        write_golden(groups, as_rows(rows))
    for told, names in sorted(groups.items()):
        print(f"{told}: {len(names)}" + (f" ({' '.join(names[:6])})" if told != "equal" else ""))


def write_golden(groups: dict[str, list[str]], table: dict[str, dict[str, Any]]) -> None:
    """Write what was found, with its passport."""
    passport = {
        "script": "python tests/emulator_corpus.py",
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "sentis": SENTIS,
        "date": datetime.now(UTC).date().isoformat(),
        "cases": sum(map(len, groups.values())),
    }
    told = [f"{json.dumps(told)}: {json.dumps(' '.join(names))}" for told, names in sorted(groups.items())]
    operators = [f"{json.dumps(op)}: {json.dumps(row)}" for op, row in table.items()]
    text = f'{{\n"passport": {json.dumps(passport)},\n"verdicts": {{\n' + ",\n".join(told)
    text += '\n},\n"operators": {\n' + ",\n".join(operators) + "\n}}\n"
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
