"""Which constants `ModelQuantizer` replaces, and what a model's constants weigh.

It runs on the optimised model: a constant counts by the layer that reads it in the end, not by the ONNX node. Every
float constant that is any input of a named layer is replaced, for all of its readers; which layers, the facts say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from converters.facts import Facts, facts
from converters.fusions import optimise
from converters.fusions.importing import imported
from converters.fusions.layers import Constant, LayerGraph
from converters.onnx_file import read_skeleton
from parity.emulator.prediction import Throws
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

WIDE_BYTES = 4  # Sentis holds float32 and int32
BIAS = ":bias"  # behind the output of a product's Add: how the prediction of layers names a bias made of a scalar
STORED_BYTES = {"float16": 2, "uint8": 1}


@dataclass(frozen=True)
class Chosen:
    """A constant that is replaced.

    Attributes:
        name: of the value; an initialiser's mostly.
        layers: Sentis' layers that make it one, operator to how many.
        sizes: its dims.
    """

    name: str
    layers: Mapping[str, int]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return Constant("float", self.sizes).count


@dataclass(frozen=True)
class Fold:
    """A layer whose numbers the optimiser makes of several layers in a row.

    Attributes:
        op: `Conv` or `Dense`.
        nodes: labels of the ONNX nodes of the row.
        x: what it reads.
        output: what it puts out.
        weight: name of its weights.
        weight_sizes: their dims.
        bias: name of its bias; made up where the layers' prediction has none.
        bias_given: whether it has.
        activation: label of the node that it applies as well; empty for none.
    """

    op: str
    nodes: tuple[str, ...]
    x: str
    output: str
    weight: str
    weight_sizes: tuple[int, ...]
    bias: str
    bias_given: bool
    activation: str = ""


@dataclass(frozen=True)
class Selection:
    """What is replaced and what stays.

    Attributes:
        sentis: the version.
        verified: whether the optimiser was read in this version, on whose result the choice hangs.
        source: where `ModelQuantizer` was read.
        chosen: what is replaced, in the order of the layers.
        floats: all float constants that layers read in the end, chosen ones included.
        other_bytes: constants that stay as they are.
        fills: name of a bias that the optimiser may have made of a scalar, to the output of the node that adds it.
        folds: layers whose numbers are made of several.
    """

    sentis: str
    verified: bool
    source: str
    chosen: tuple[Chosen, ...]
    floats: tuple[str, ...]
    other_bytes: int
    fills: Mapping[str, str] = field(default_factory=dict)
    folds: tuple[Fold, ...] = ()

    @property
    def elements(self) -> int:
        return sum(one.count for one in self.chosen)

    def stored_bytes(self, how: str | None = None) -> int:
        """Return what all constants take in the file and at rest in memory; None for unquantised ones."""
        return self.other_bytes + self.elements * (WIDE_BYTES if how is None else STORED_BYTES[how])

    @property
    def widest_bytes(self) -> int:
        """What the largest chosen constant takes as float32, which it becomes again each time its layer runs."""
        return max((one.count for one in self.chosen), default=0) * WIDE_BYTES

    def by_layer(self) -> dict[str, int]:
        """Return layer to how many constants it makes one of the chosen."""
        found: dict[str, int] = {}
        for one in self.chosen:
            for op in one.layers:
                found[op] = found.get(op, 0) + 1
        return found


def selection(path: Path, version: str = "2.6") -> Selection:
    """Return which constants of a model file are replaced; no weight is read.

    Raises:
        StageError: unreadable, a version without facts, or a model that does not import.
    """
    try:
        return selection_of(read_skeleton(path).model, facts(version))
    except Throws as reason:
        what = f"{path}: there is nothing to quantise, Sentis {version} does not import it: {reason}"
        raise StageError(what, hint=f"mlx-sentis scan {path} --sentis {version}") from None


def selection_of(model: onnx.ModelProto, known: Facts) -> Selection:
    """Return which constants of a model are replaced.

    Args:
        model: with or without the data of large tensors.
        known: the facts of a version.

    Raises:
        Throws: it does not import.
    """
    graph, unknown = imported(model, known)
    if not unknown:
        optimise(graph, known)
    if faults := [*unknown, *graph.faults]:
        raise Throws(faults[0] + (f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""))
    tensors = {name for node in model.graph.node for name in node.output}
    return _of_layers(graph, known, tensors | {tensor.name for tensor in model.graph.initializer})


def _of_layers(graph: LayerGraph, known: Facts, tensors: set[str]) -> Selection:
    read: dict[str, dict[str, int]] = {}
    for layer in graph.layers:
        for name in dict.fromkeys(filter(None, layer.inputs)):
            if name in graph.constants:
                ops = read.setdefault(name, {})
                ops[layer.op] = ops.get(layer.op, 0) + 1
    layers = set(known["quantiser"]["layers"])
    floats = [name for name in read if graph.constants[name].kind == "float"]
    chosen = []
    for name in floats:
        if mine := {op: count for op, count in read[name].items() if op in layers}:
            chosen.append(Chosen(name, mine, graph.constants[name].sizes))
    kept = set(read) - {one.name for one in chosen}
    kept |= {name for name in graph.outputs if name in graph.constants and name not in read}
    unknown = {one.name for one in chosen} - tensors  # what the ONNX graph has no name for
    fills = {name: name.removesuffix(BIAS) for name in unknown if name.endswith(BIAS)}
    return Selection(
        known.version,
        "optimiser" in known["read"],
        known["quantiser"]["source"],
        tuple(chosen),
        tuple(floats),
        sum(graph.constants[name].count for name in kept) * WIDE_BYTES,
        fills,
        tuple(_folds(graph, unknown - set(fills))),
    )


def _folds(graph: LayerGraph, unknown: set[str]) -> Iterator[Fold]:
    """Yield the Conv and Dense layers that read constants which the optimiser made of several."""
    for layer in graph.layers:
        if layer.op not in ("Conv", "Dense") or not unknown.intersection(layer.inputs[1:]):
            continue
        given = len(layer.inputs) > 2 and bool(layer.inputs[2])
        bias = layer.inputs[2] if given else f"{layer.output}:2"
        sizes = graph.constants[layer.inputs[1]].sizes
        last = layer.nodes[-1] if layer.literals.get("activation") else ""
        yield Fold(layer.op, layer.nodes, layer.inputs[0], layer.output, layer.inputs[1], sizes, bias, given, last)
