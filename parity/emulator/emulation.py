"""One file under one version of Sentis, ready for one set of inputs after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from converters import onnx_file
from converters.facts import facts
from converters.scan import scan
from parity.emulator.importer import Imported, import_model
from parity.emulator.prediction import Deviation, Prediction, Throws, Unknown
from parity.emulator.running import Runner, fed
from parity.emulator.verdict import as_deviations, fatal
from weights_bridge.compare import Array
from weights_bridge.errors import unknown_name


class Emulation:
    """Imports once, predicts often.

    Args:
        model: an ONNX file.
        version: of the package.
        quantise: `float16` or `uint8`; None leaves the weights.
        threads: within one operator; None lets ONNX Runtime choose.

    Raises:
        StageError: the file is unreadable, or the version has no facts.
    """

    def __init__(
        self, model: Path, version: str = "2.6", quantise: str | None = None, *, threads: int | None = None
    ) -> None:
        self.model, self.version, self.threads = model, version, threads
        known = facts(version)
        graph = onnx_file.read_skeleton(model).model.graph
        self.names = [value.name for value in graph.output]
        findings = scan(model, version)
        self.verdict, self.reason = fatal(findings, graph)
        self.deviations = as_deviations(findings, graph, known)
        self.notes = [
            f"may happen: {one.id} at {one.node!r}: {one.what}" for one in findings if one.severity == "warning"
        ]
        self.made: Imported | None = None
        self._runners: dict[tuple[str, ...], Runner] = {}
        if not self.verdict:
            self._import(quantise)

    def _import(self, quantise: str | None) -> None:
        try:
            self.made = import_model(self.model, self.version)
        except Throws as reason:
            self.verdict, self.reason = "import fails", str(reason)
            return
        graph = self.made.graph
        if quantise is not None:
            from parity.emulator.quantise import quantised

            self.notes += quantised(graph, quantise)
        told = {(one.output, one.rule) for one in self.deviations}
        self.deviations += [one for one in graph.deviations if (one.output, one.rule) not in told]

    def predict(self, inputs: Mapping[str, Array], outputs: list[str] | None = None) -> Prediction:
        """Predict the outputs, see `parity.emulator.predict`."""
        wanted = list(self.names if outputs is None else outputs)
        for name in wanted:
            if name not in self.names:
                raise unknown_name("output", name, self.names)
        if self.made is None:
            return Prediction(self.version, self.verdict or "not predicted", self.reason, notes=self.notes)  # pyright: ignore[reportArgumentType]
        graph = self.made.graph
        missing = {name: self.made.unpredicted[name] for name in wanted if name not in graph.outputs}
        made = [name for name in wanted if name in graph.outputs]
        if not made:
            return self._unpredicted(missing)
        try:
            values, told = self._runner(made).run(fed(graph, inputs))
        except Throws as reason:
            return Prediction(self.version, "import fails", f"at run time: {reason}", notes=self.notes)
        except Unknown as reason:
            return self._unpredicted(dict.fromkeys(wanted, str(reason)))
        happened = [probe for probe in self._runner(made).probes if told[probe.value]]
        if unknown := [probe.unknown for probe in happened if probe.unknown]:
            return self._unpredicted(missing | dict.fromkeys(made, "; ".join(dict.fromkeys(unknown))))
        seen: list[Deviation] = [probe.deviation for probe in happened if probe.deviation is not None]
        notes = self.notes + [f"{count} × {text}" for text, count in graph.notes.items()]
        return Prediction(self.version, "predicted", "", values, self._ordered(self.deviations + seen), notes, missing)

    def _unpredicted(self, missing: dict[str, str]) -> Prediction:
        reason = "; ".join(dict.fromkeys(missing.values()))
        return Prediction(self.version, "not predicted", reason, {}, self.deviations, self.notes, missing)

    def _runner(self, outputs: list[str]) -> Runner:
        assert self.made is not None
        key = tuple(outputs)
        if key not in self._runners:
            self._runners[key] = Runner(self.made.graph, outputs, self.threads)
        return self._runners[key]

    def _ordered(self, deviations: list[Deviation]) -> list[Deviation]:
        """Return deviations in the order in which the graph makes their outputs."""
        assert self.made is not None
        order = {name: at for at, step in enumerate(self.made.graph.steps) for name in step.outputs}
        return sorted(deviations, key=lambda one: order.get(one.output, -1))
