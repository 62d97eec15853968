"""Which layers Sentis makes of an ONNX graph, predicted from the recorded facts about its importer and optimiser.

The importer turns each node into a layer or a few (`importing`), the optimiser matches patterns (`patterns`) and then
rewrites in a fixed order (`simplify`, `folding`, `rows`). Patterns, pairs and order are data of `converters/sentis/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from converters.facts import Facts, facts
from converters.fusions import folding, rows, simplify
from converters.fusions.einsum import einsum
from converters.fusions.importing import imported
from converters.fusions.layers import Fused, Layer, LayerGraph
from converters.fusions.near import Miss, misses
from converters.fusions.near_rows import missed_rows
from converters.fusions.patterns import matches, parsed
from converters.scan.model import graph_findings
from converters.scan.view import View

if TYPE_CHECKING:
    import onnx

UNSOUND = ("GRAPH.DUPLICATE", "GRAPH.UNDEFINED", "GRAPH.CYCLE")  # the import aborts
FACTS = ("imports", "tracked_elements", "optimiser", "fusions", "spellings")


@dataclass
class Prediction:
    """What Sentis makes of a model.

    Attributes:
        sentis: the version.
        verified: whether its optimiser was read, not handed on from an earlier version.
        source: where the facts were read.
        imported: layer to count, before anything is optimised.
        layers: layer to count in the end; empty where nothing is predicted.
        fused: what the optimiser does.
        misses: what it nearly does.
        not_predicted: why nothing is predicted, or what stops the import.
    """

    sentis: str
    verified: bool = False
    source: str = ""
    imported: dict[str, int] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)
    fused: list[Fused] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    not_predicted: list[str] = field(default_factory=list)

    @property
    def layer_count(self) -> int:
        return sum(self.layers.values())


def predict(model: onnx.ModelProto, sentis: str = "2.6") -> Prediction:
    """Predict the layers of a model.

    Args:
        model: with or without the data of large tensors, which are not read.
        sentis: the package version.

    Raises:
        StageError: a version without facts.
    """
    known = facts(sentis)
    optimiser_read = "optimiser" in known["read"]
    prediction = Prediction(sentis, optimiser_read, known["source"])
    if missing := [name for name in FACTS if name not in known.data]:
        prediction.not_predicted.append(f"the facts of {sentis} hold no {', '.join(missing)}")
        return prediction
    unsound = [one for one in graph_findings(View(model.graph), known) if one.id in UNSOUND]
    told = [f"{one.node!r}: {one.what}" for one in unsound]
    if any(one.id == "GRAPH.CYCLE" for one in unsound):  # there is no order to import in
        prediction.not_predicted = told
        return prediction
    graph, unknown = imported(model, known)
    prediction.imported = graph.counts()
    prediction.not_predicted = [f"{one}, the import stops" for one in unknown] + told
    if prediction.not_predicted:  # an importer error: the optimiser never runs
        return prediction
    optimise(graph, known)
    if graph.faults:
        prediction.not_predicted += graph.faults
        return prediction
    prediction.layers, prediction.fused = graph.counts(), graph.fused
    prediction.misses = [*misses(model, known), *missed_rows(graph, known)]
    return prediction


def optimise(graph: LayerGraph, known: Facts) -> None:
    """Run the optimiser's passes in their order over a graph of layers."""
    for name in known["optimiser"]:
        _PASSES[name](graph, known)


def contract_patterns(graph: LayerGraph, known: Facts) -> None:
    """Replace each pattern's layers by the one they stand for, pattern by pattern."""
    for row in known["fusions"]:
        if "match" not in row:
            continue
        root = parsed(row["match"])
        for match in matches(root, graph):
            static = row.get("static", ())
            graph.faults += [
                f"{row['name']} {match.root.nodes[0]!r}: {name} is no constant, the import throws"
                for name in static
                if graph.static(match.value(name)) is None
            ]
            inputs = [match.values[node] for node in root.walk() if node.name and node.name not in static]
            nodes = tuple(node for layer in sorted(match.layers, key=graph.layers.index) for node in layer.nodes)
            graph.note(row, row["becomes"], match.root.output, nodes)
            given = {name: graph.static(match.value(name)) for name in static}
            literals = {name: one.numbers[0] for name, one in given.items() if one is not None and one.numbers}
            graph.replace(match.layers, Layer(row["becomes"], inputs, match.root.outputs, literals, nodes))


_PASSES: dict[str, Callable[[LayerGraph, Facts], None]] = {
    "patterns": contract_patterns,
    "einsum": einsum,
    "fold_constants": folding.fold_constants,
    "drop_no_ops": simplify.drop_no_ops,
    "drop_unused": simplify.drop_unused,
    "merge_transposes": rows.merge_transposes,
    "simplify": simplify.simplify,
    "constant_reshapes": folding.constant_reshapes,
    "dense": rows.dense,
    "linear": rows.linear,
    "activations": rows.activations,
    "duplicates": rows.duplicates,
}
