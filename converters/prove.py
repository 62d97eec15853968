"""Proof that a pass keeps the numbers: the model before and after it, in ONNX Runtime, on three kinds of inputs.

`spread` is drawn around 0 (half of it negative), `zeros` is zero, `large` is drawn at a scale of 1e4. Infinities must
stay where they are; where a model gives NaN it is undefined, and nothing is compared.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.ort_session import open_session
from converters.probe_inputs import elements, guessed_sizes, is_float, large, random_inputs, zeros
from weights_bridge.compare import Array, GateResult, compare_sets
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

Tensors = dict[str, Array]

BUDGET_DB = 100.0
HALF_BUDGET_DB = 55.0  # one rounding of fp16 is 2⁻¹¹ of a number, 66 dB; of a chain of them some more
MOST_EVALUATED = 64  # nodes; onnx's evaluator takes minutes for a real model
MOST_ELEMENTS = 1 << 21  # of all guessed inputs, unless the fixed sizes alone are more
HALVES = {10, 16}  # FLOAT16, BFLOAT16
BY_CHANCE = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")


@dataclass
class Reference:
    """What a model gave before it was changed.

    Attributes:
        inputs: name of the probe to the inputs that the changed model takes.
        outputs: name of the probe to what the model gave.
        runner: what ran it.
        budget_db: the least PSNR that passes; lower where the model computes in half precision.
    """

    inputs: dict[str, Tensors]
    outputs: dict[str, Tensors]
    runner: str = "ONNX Runtime"
    budget_db: float = BUDGET_DB


def reference_of(
    model: onnx.ModelProto, path: Path, fixture: Tensors | None = None, bound: Tensors | None = None
) -> Reference:
    """Run a file on the three probes, or on given inputs.

    Args:
        model: declares the inputs that are fed; its data is not looked at.
        path: the file.
        fixture: inputs to run instead.
        bound: inputs of the file that the model holds as constants.

    Raises:
        StageError: it runs with none of the inputs that were tried.
    """
    more = bound or {}
    if fixture is not None:
        outputs = {"fixture": outputs_of(path, fixture | more)}
        return Reference({"fixture": fixture}, outputs, budget_db=_budget_db(model))
    runner, why = "ONNX Runtime", ""
    try:
        run = _runner(path)
    except StageError as error:
        run, runner, why = _evaluator(path), "onnx's reference evaluator", error.message
    reference, said = _reference_on_guesses(model, run, runner, more)
    if reference is None and runner == "ONNX Runtime" and len(model.graph.node) <= MOST_EVALUATED:
        runner = "onnx's reference evaluator"  # ONNX Runtime refuses some that ONNX defines, long reflections say
        with contextlib.suppress(StageError):  # it does not know the operator: what ONNX Runtime said is the reason
            reference, _ = _reference_on_guesses(model, _evaluator(path), runner, more)
    if reference is None:
        why = why or said
        hint = "give recorded ones with --fixture F.npz, or fix the sizes that it runs with (graph fix-shape)"
        raise StageError(f"{path}: no random inputs run: {why}", hint=hint)
    return reference


def _reference_on_guesses(model: onnx.ModelProto, run: Any, runner: str, more: Tensors) -> tuple[Reference | None, str]:
    """Return what a model gives on the first guess of sizes that runs, else what the first and last are refused for."""
    most, refused = max(MOST_ELEMENTS, elements(model, {})), dict[str, str]()
    for sizes in guessed_sizes(model):
        if elements(model, sizes) > most:
            continue
        try:
            inputs = random_inputs(model, sizes)
            outputs = {"spread": run(inputs | more)}
        except StageError as error:
            refused.setdefault(error.message, ", ".join(f"{name} = {size}" for name, size in sizes.items()))
            continue
        probes = {"spread": inputs}
        for name, other in (("zeros", zeros(inputs)), ("large", large(model, sizes))):
            try:
                outputs[name] = run(other | more)
                probes[name] = other
            except StageError:
                continue  # a model may be undefined there
        return Reference(probes, outputs, runner, _budget_db(model)), ""
    told = [f"{sizes}: {why}" if sizes else why for why, sizes in refused.items()]
    return None, "; ".join([*told[:1], *told[1:][-1:]])


def runnable_inputs(model: onnx.ModelProto, path: Path) -> tuple[Tensors, Tensors]:
    """Return random inputs that a file runs with, and the outputs it gives for them.

    Raises:
        StageError: it runs with none of the inputs that were tried.
    """
    reference = reference_of(model, path)
    return reference.inputs["spread"], reference.outputs["spread"]


def _budget_db(model: onnx.ModelProto) -> float:
    declared = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    declared |= {tensor.data_type for tensor in model.graph.initializer}
    declared |= {a.i for node in model.graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    return HALF_BUDGET_DB if declared & HALVES else BUDGET_DB


def outputs_of(model: Path | bytes, inputs: Tensors) -> Tensors:
    """Run a model in ONNX Runtime without its optimisations and return its outputs by name."""
    return _runner(model)(inputs)


def _runner(model: Path | bytes) -> Any:
    """Return what runs a model in ONNX Runtime; operators that draw by chance draw the same for the same output.

    Raises:
        StageError: ONNX Runtime refuses it.
    """
    session = open_session(_seeded(model), "off")
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Tensors) -> Tensors:
        try:
            values: list[Any] = session.run(names, inputs)
        except Exception as error:  # ORT's exception classes share no public base
            raise StageError(f"ONNX Runtime cannot run it: {str(error).splitlines()[0]}") from None
        return dict(zip(names, values, strict=True))

    return run


def _seeded(model: Path | bytes) -> Path | bytes:
    """Return the model with a seed for each operator that draws by chance; itself where there is none."""
    import onnx

    from converters.onnx_file import read_skeleton

    if isinstance(model, bytes):
        return model
    if not any(node.op_type in BY_CHANCE for node in read_skeleton(model).model.graph.node):
        return model
    loaded = onnx.load(str(model))
    for node in loaded.graph.node:
        if node.op_type in BY_CHANCE and not any(attribute.name == "seed" for attribute in node.attribute):
            seed = sum(node.output[0].encode()) % 1000
            node.attribute.append(onnx.helper.make_attribute("seed", float(seed)))
    return loaded.SerializeToString()


def _evaluator(path: Path) -> Any:
    """Return what runs a model in onnx's own evaluator, which knows more types than ONNX Runtime on a CPU."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(onnx.load(str(path)))
    except Exception as error:  # whatever the model makes it raise
        message = f"{path}: neither ONNX Runtime nor onnx' evaluator runs it: {_first_line(error)}"
        raise StageError(
            message, hint="without a run nothing is proven; bring the model without that operator"
        ) from None

    def run(inputs: Tensors) -> Tensors:
        try:
            with np.errstate(all="ignore"):
                values = evaluator.run(None, inputs)
        except Exception as error:  # whatever the model makes it raise
            raise StageError(f"neither ONNX Runtime nor onnx' evaluator runs it: {_first_line(error)}") from None
        return {name: np.asarray(value) for name, value in zip(map(str, evaluator.output_names), values, strict=True)}

    return run


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def measured(reference: Reference, model: Path, label: str) -> list[GateResult]:
    """Compare a changed model's outputs with those before, at 100 dB or better, probe by probe."""
    run = _runner(model) if reference.runner == "ONNX Runtime" else _evaluator(model)
    results = []
    for probe, inputs in reference.inputs.items():
        before, after = reference.outputs[probe], run(inputs)
        results += compare_sets(*_finite(before, after), reference.budget_db, prefix=f"{label} / {probe} / ")
    return results


def _finite(before: Tensors, after: Tensors) -> tuple[Tensors, Tensors]:
    """Return both sides with zeros where both hold the same infinity or the first is NaN; empty ones as a zero each."""
    before, after = dict(before), dict(after)
    for name in before.keys() & after.keys():
        left, right = before[name], after[name]
        if left.shape != right.shape or left.dtype != right.dtype:
            continue
        if not left.size:
            before[name] = after[name] = np.zeros(1, left.dtype)
        elif is_float(left):
            open_ = np.isnan(left) | (np.isinf(left) & (left == right))
            if open_.any():
                before[name], after[name] = np.where(open_, 0, left), np.where(open_, 0, right)
    return before, after


def rerun(reference: Reference, model: Path) -> Reference:
    """Return the reference for what comes behind a pass that changes numbers: the model as it stands."""
    run = _runner(model) if reference.runner == "ONNX Runtime" else _evaluator(model)
    return replace(reference, outputs={name: run(inputs) for name, inputs in reference.inputs.items()})
