"""One file under one version of Sentis, ready for one set of inputs after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import onnx_file
from converters.facts import facts
from parity.emulator.case import Case, How, case_of, signature
from parity.emulator.importer import Imported
from parity.emulator.prediction import Deviation, Prediction, Throws, Unknown
from parity.emulator.running import Runner, fed
from weights_bridge.compare import Array
from weights_bridge.errors import all_at_once, unknown_name

if TYPE_CHECKING:
    import onnx


class Emulation:
    """Imports once, predicts often.

    Args:
        model: an ONNX file.
        version: of the package.
        quantise: `float16` or `uint8`; None leaves the weights.
        threads: within one operator; None lets ONNX Runtime choose.
        any_opset: see `parity.emulator.case.How`.

    Raises:
        StageError: the file is unreadable, or the version has no facts.
    """

    def __init__(
        self,
        model: Path,
        version: str = "2.6",
        quantise: str | None = None,
        *,
        threads: int | None = None,
        any_opset: bool = False,
    ) -> None:
        self.model, self.threads = model, threads
        self.known = facts(version)
        self.how = How(self.known, quantise, any_opset)
        self.skeleton = onnx_file.read_skeleton(model)
        self.names = [value.name for value in self.skeleton.model.graph.output]
        self.declared = case_of(model, self.skeleton, self.how)
        self._cases: dict[tuple[object, ...], Case] = {}

    @property
    def made(self) -> Imported | None:
        """The graph of the model as it is declared."""
        return self.declared.made

    def predict(self, inputs: Mapping[str, Array], outputs: list[str] | None = None) -> Prediction:
        """Predict the outputs, see `parity.emulator.predict`."""
        wanted = list(self.names if outputs is None else outputs)
        for name in wanted:
            if name not in self.names:
                raise unknown_name("output", name, self.names)
        given = {name: np.asarray(array) for name, array in inputs.items()}
        check_sizes(self.skeleton.model.graph, given)
        case = self.case_for(given)
        if case.made is None:
            return self._prediction(case.verdict, case.reason, notes=case.notes)
        graph = case.made.graph
        missing = {name: case.made.unpredicted[name] for name in wanted if name not in graph.outputs}
        made = [name for name in wanted if name in graph.outputs]
        if not made:
            return self._unpredicted(case, missing)
        runner = self._runner(case, made)
        try:
            values, told = runner.run(fed(graph, given))
        except Throws as reason:
            return self._prediction("import fails", f"at run time: {reason}", notes=case.notes)
        except Unknown as reason:
            return self._unpredicted(case, dict.fromkeys(wanted, str(reason)))
        happened = [probe for probe in runner.probes if told[probe.value]]
        if unknown := [probe.unknown for probe in happened if probe.unknown]:
            return self._unpredicted(case, missing | dict.fromkeys(made, "; ".join(dict.fromkeys(unknown))))
        seen = [probe.deviation for probe in happened if probe.deviation is not None]
        notes = case.notes + [one.sentence(count) for one, count in graph.notes.items()]
        return self._prediction(
            "predicted", "", outputs=values, deviations=ordered(case.made, case.deviations + seen), notes=notes,
            unpredicted=missing,
        )  # fmt: skip

    def case_for(self, inputs: Mapping[str, Array]) -> Case:
        """Return what is known for some inputs: their sizes count where the model's own leave something open."""
        if not self.declared.open:
            return self.declared
        key = signature(inputs)
        if key not in self._cases:
            self._cases = {key: case_of(self.model, self.skeleton, self.how, inputs)}
        return self._cases[key]

    def _prediction(self, verdict: Any, reason: str, **given: Any) -> Prediction:
        return Prediction(self.known.version, verdict, reason, **given)

    def _unpredicted(self, case: Case, missing: dict[str, str]) -> Prediction:
        reason = "; ".join(dict.fromkeys(missing.values()))
        given = {"deviations": case.deviations, "notes": case.notes, "unpredicted": missing}
        return self._prediction("not predicted", reason, **given)

    def _runner(self, case: Case, outputs: list[str]) -> Runner:
        assert case.made is not None
        key = tuple(outputs)
        if key not in case.runners:
            case.runners[key] = Runner(case.made.graph, outputs, self.threads)
        return case.runners[key]


def check_sizes(graph: onnx.GraphProto, given: Mapping[str, Array]) -> None:
    """Refuse arrays whose sizes are not the declared ones, as Unity's assertions do.

    Raises:
        StageError: all of them.
    """
    faults = []
    for value in graph.input:
        array, tensor = given.get(value.name), value.type.tensor_type
        if array is None or not tensor.HasField("shape"):
            continue
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        fits = len(sizes) == array.ndim and all(
            size is None or size < 0 or size == found for size, found in zip(sizes, array.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("?" if size is None else str(size) for size in sizes)
            faults.append(f"{value.name}: found ({', '.join(map(str, array.shape))}), wanted ({wanted})")
    if faults:
        raise all_at_once("inputs do not have the declared sizes:", faults, hint="give arrays of the model's sizes")


def ordered(made: Imported, deviations: list[Deviation]) -> list[Deviation]:
    """Return deviations in the order in which the graph makes their outputs."""
    order = {name: at for at, step in enumerate(made.graph.steps) for name in step.outputs}
    return sorted(deviations, key=lambda one: order.get(one.output, -1))
