"""One model under one version, as far as it is known before numbers flow: findings, verdict, the graph to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from converters.facts import Facts
from converters.finding import SEVERITIES, Finding
from converters.onnx_file import Skeleton
from converters.scan import skeleton_findings
from converters.wire import RAW_DATA
from parity.emulator.importer import Imported, import_model
from parity.emulator.prediction import Deviation, Throws, Unknown
from parity.emulator.running import Runner
from parity.emulator.verdict import as_deviations, fatal
from weights_bridge.compare import Array

WINDOW = "OPSET.WINDOW"
SMALL = 64  # elements of an input that may be sizes, axes or a number of boxes


@dataclass
class Case:
    """What is known.

    Attributes:
        verdict: empty where it is to be run.
        reason: why not.
        made: the graph, None where it is not run.
        deviations: those that are sure whatever the numbers are.
        notes: what may happen.
        open: whether sizes that are not known leave something undecided.
        runners: outputs to what runs them.
    """

    verdict: str = ""
    reason: str = ""
    made: Imported | None = None
    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    open: bool = False
    runners: dict[tuple[str, ...], Runner] = field(default_factory=dict)


@dataclass(frozen=True)
class How:
    """What a file is predicted under.

    Attributes:
        known: the facts of the version.
        quantise: a kind of `parity.emulator.quantise`; None leaves the weights.
        any_opset: also of an opset that the version does not document: what the importer's code does with it was read,
            but its makers promise nothing.
    """

    known: Facts
    quantise: str | None = None
    any_opset: bool = False


def case_of(path: Path, skeleton: Skeleton, how: How, given: Mapping[str, Array] | None = None) -> Case:
    """Return what is known of a file, or of it with inputs of known sizes."""
    known, quantise = how.known, how.quantise
    scanned = skeleton if given is None else with_inputs(skeleton, given, values=True)
    findings = sorted(skeleton_findings(scanned, path, known), key=lambda one: SEVERITIES.index(one.severity))
    if how.any_opset:
        findings = [one for one in findings if one.id != WINDOW]
    graph = skeleton.model.graph
    case = Case(*fatal(findings), deviations=as_deviations(findings, graph, known))
    case.notes = [f"may happen: {one.id} at {one.node!r}: {one.what}" for one in findings if one.severity == "warning"]
    case.open = any(is_open(one, known) for one in findings)
    if case.verdict:
        return case
    try:
        shaped = skeleton if given is None else with_inputs(skeleton, given, values=False)
        case.made = import_model(path, shaped, known, _by_node(findings))
    except Throws as reason:
        case.verdict, case.reason = "import fails", str(reason)
        return case
    if quantise is not None:
        from parity.emulator.quantise import quantised

        try:
            case.notes += quantised(case.made.graph, quantise, skeleton.model, known)
        except (Throws, Unknown) as reason:
            case.made, case.reason = None, str(reason)
            case.verdict = "import fails" if isinstance(reason, Throws) else "not predicted"
            return case
    told = {(one.output, one.rule) for one in case.deviations}
    case.deviations += [one for one in case.made.graph.deviations if (one.output, one.rule) not in told]
    case.open = case.open or any("not known" in reason for reason in case.made.unpredicted.values())
    return case


def is_open(finding: Finding, known: Facts) -> bool:
    """Tell whether a finding is a warning only because something is not known."""
    return finding.severity == "warning" and known.rules[finding.id].severity in ("error", "deviation")


def _by_node(findings: Sequence[Finding]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for one in findings:
        found[one.node] = found.get(one.node, frozenset()) | {one.id}
    return found


def with_inputs(skeleton: Skeleton, given: Mapping[str, Array], *, values: bool) -> Skeleton:
    """Return a model whose inputs have the sizes of some arrays, and where asked small ones are constants."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(skeleton.model)
    held = {tensor.name for tensor in model.graph.initializer}
    lengths = dict(skeleton.data_fields)
    for value in model.graph.input:
        array = given.get(value.name)
        if array is None or value.name in held or value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        tensor.shape.Clear()
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in array.shape)
        if values and array.ndim <= 1 and array.size <= SMALL:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, dtype), value.name))
            lengths[value.name] = {RAW_DATA: len(model.graph.initializer[-1].raw_data)}
    del model.graph.value_info[:]  # may tell other sizes
    return replace(skeleton, model=model, data_fields=lengths)


def signature(given: Mapping[str, Array]) -> tuple[object, ...]:
    """Return what a case depends on: sizes of all inputs, numbers of small ones."""
    parts: list[object] = []
    for name, array in sorted(given.items()):
        small = array.tobytes() if array.ndim <= 1 and array.size <= SMALL else b""
        parts.append((name, array.shape, small))
    return tuple(parts)
