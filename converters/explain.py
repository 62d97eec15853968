"""What Sentis turns a model into, region by region, for people and machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from converters import onnx_file
from converters.facts import facts
from converters.finding import IMPORTED_ALL_THE_SAME
from converters.fusions import Prediction, predict
from converters.fusions.layers import Fused
from converters.fusions.near import Miss
from converters.scan.external import external_findings
from converters.scan.tensors import tensor_findings
from converters.scan.view import View
from weights_bridge.errors import counted, one_line

HALF = "float32 on import, exactly: the file is half as large, memory at run time is not"
REASONS_SHOWN = 10  # why nothing is predicted; --json has them all
NODES_SHOWN = 2  # of places where the same happens; --json has them all
BY_THE_WAY = {"ConstantFolding", "NoOp", "ScalarMad", "DivByConst", "PowConst", "Duplicate"}  # told in one line


@dataclass(frozen=True)
class Explanation:
    """A model and what Sentis makes of it.

    Attributes:
        path: the file.
        operators: ONNX operator to count.
        half_weights: how many initialisers are float16.
        prediction: of its layers.
        facts: how the version's facts were come by.
    """

    path: Path
    operators: dict[str, int]
    half_weights: int
    prediction: Prediction
    facts: str

    @property
    def nodes(self) -> int:
        return sum(self.operators.values())

    def as_json(self) -> dict[str, Any]:
        """Return the document of `--json`; `layers` is empty where nothing is predicted, `not_predicted` says why."""
        one = self.prediction
        head = {"model": str(self.path), "sentis": one.sentis, "predicted": not one.not_predicted}
        origin = {"verified": one.verified, "facts": self.facts, "source": one.source}
        counts = {"nodes": self.nodes, "operators": self.operators, "half_weights": self.half_weights}
        layers = {"imported": one.imported, "layers": one.layers, "layer_count": one.layer_count}
        places = {"fused": [asdict(fused) for fused in one.fused], "misses": [asdict(miss) for miss in one.misses]}
        return head | origin | counts | layers | places | {"not_predicted": one.not_predicted}

    def __str__(self) -> str:
        """Return it for a terminal, the verdict last."""
        one = self.prediction
        lines = [*_fused_lines(one.fused), *_miss_lines(one.misses)]
        if one.layers:
            lines.append("layers: " + ", ".join(f"{op} {count}" for op, count in one.layers.items()))
        lines += [f"not predicted: {why}" for why in one.not_predicted[:REASONS_SHOWN]]
        if (more := len(one.not_predicted) - REASONS_SHOWN) > 0:
            lines.append(f"not predicted: {counted(more, 'reason')} more")
        if self.half_weights:
            lines.append(f"{self.half_weights} fp16 weights: {HALF}")
        unread = "" if one.verified else f"; optimiser read in an earlier version, not verified for {one.sentis}"
        to = f" → {one.layer_count} layers" if one.layers else ""
        lines.append(f"{self.path.name}: {self.nodes} nodes{to} (Sentis {one.sentis}{unread})")
        return "\n".join(map(one_line, lines))


def explain(path: Path, sentis: str = "2.6") -> Explanation:
    """Predict the layers of a model file.

    Args:
        path: an ONNX file; its weights are not read.
        sentis: the package version.

    Raises:
        StageError: unreadable, or a version without facts.
    """
    skeleton = onnx_file.read_skeleton(path)
    model = skeleton.model
    operators = Counter(node.op_type for node in model.graph.node)
    half = sum(onnx_file.type_name(tensor.data_type) == "FLOAT16" for tensor in model.graph.initializer)
    prediction = predict(model, sentis)
    if faults := [*_weights_that_stop_the_import(skeleton, path, sentis)]:
        prediction = replace(prediction, layers={}, fused=[], misses=[])
        prediction.not_predicted += faults
    return Explanation(path, dict(sorted(operators.items())), half, prediction, facts(sentis)["status"])


def _weights_that_stop_the_import(skeleton: onnx_file.Skeleton, path: Path, sentis: str) -> Iterator[str]:
    """Yield what the importer throws at before the optimiser runs: missing side files, bytes that do not fit.

    Of weights of which the same is said, the first is named.
    """
    known, graph = facts(sentis), skeleton.model.graph
    found = (*external_findings(graph, path, known), *tensor_findings(skeleton, View(graph), known))
    alike: dict[str, list[str]] = {}
    for one in found:
        if one.severity == "error" and one.id not in IMPORTED_ALL_THE_SAME:
            alike.setdefault(one.what, []).append(one.node)
    for what, names in alike.items():
        yield f"{names[0]!r}{f' and {len(names) - 1} more' * (len(names) > 1)}: {what}"


def _fused_lines(fused: Sequence[Fused]) -> list[str]:
    groups: dict[tuple[str, str], list[Fused]] = {}
    for one in fused:
        groups.setdefault((one.fusion, one.layer), []).append(one)
    lines, aside = [], Counter[str]()
    for (fusion, layer), alike in groups.items():
        if fusion in BY_THE_WAY:
            aside[fusion] += len(alike)
            continue
        size = len(alike[0].nodes)
        nodes = f"{size} node" + "s" * (size != 1)
        becomes = f"{nodes} → {layer}" if layer != fusion else nodes
        lines.append(f"{fusion:<20} {len(alike):>5}  {becomes}  {_places([one.nodes[-1] for one in alike])}")
        if alike[0].numbers:
            lines.append(f"{'':<20} {'':>5}  numbers: {alike[0].numbers}")
    return lines + ([f"also: {', '.join(f'{fusion} {count}' for fusion, count in aside.items())}"] if aside else [])


def _places(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:NODES_SHOWN])
    return shown + (f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else "")


def _miss_lines(found: Iterable[Miss]) -> list[str]:
    groups: dict[tuple[Any, ...], list[Miss]] = {}
    for miss in found:
        groups.setdefault((miss.fusion, tuple((r.why, r.mend) for r in miss.reasons)), []).append(miss)
    lines = []
    for (fusion, reasons), alike in groups.items():
        lines.append(f"not fused: {fusion:<9} {len(alike):>5}  {_places([miss.nodes[-1] for miss in alike])}")
        lines += [f"{'':<20} {'':>5}  {why}" + (f"; {mend}" if mend else "") for why, mend in reasons]
        if alike[0].numbers:
            lines.append(f"{'':<20} {'':>5}  fused, the numbers would change: {alike[0].numbers}")
    return lines
