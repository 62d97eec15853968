"""The graph of layers that Sentis makes of an ONNX graph, and how its optimiser rewrites it.

Values bear the names of the ONNX tensors they stand for. Small constants are known by their numbers, as Sentis tracks
them (16 elements and fewer), large ones by kind and size only: no weight is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Size = int | str | None  # a number, a named size, or not known


@dataclass(frozen=True)
class Constant:
    """A constant.

    Attributes:
        kind: `float` or `int`.
        sizes: its dims.
        numbers: its elements in order, None where there are too many to be tracked.
    """

    kind: str
    sizes: tuple[int, ...]
    numbers: tuple[float, ...] | None = None

    @property
    def count(self) -> int:
        count = 1
        for size in self.sizes:
            count *= size
        return count


@dataclass(eq=False)
class Layer:
    """One layer.

    Attributes:
        op: Sentis' name.
        inputs: value names, empty for one that is not given.
        outputs: value names, empty for one that nobody asks for.
        literals: what is no tensor (`axis`, `keepdims`).
        nodes: the ONNX nodes it stands for.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    literals: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        return self.outputs[0]


@dataclass(frozen=True)
class Fused:
    """Something that the optimiser did.

    Attributes:
        fusion: the row of the facts.
        layer: what it becomes; empty where it goes.
        value: the value that the layer puts out.
        nodes: the ONNX nodes it stands for.
        numbers: what changes in the numbers; empty for nothing.
    """

    fusion: str
    layer: str
    value: str
    nodes: tuple[str, ...]
    numbers: str = ""


@dataclass
class LayerGraph:
    """Layers in the order they run.

    Attributes:
        layers: in order.
        constants: value name to constant.
        inputs: names that the caller feeds.
        outputs: names that the model puts out.
        sizes: value name to sizes, where at least the rank is known.
        kinds: value name to `float` or `int`.
        fused: what has been done to it.
        elements: value name to its elements, as far as they are sizes.
        faults: what makes the optimiser throw.
    """

    layers: list[Layer] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    sizes: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    fused: list[Fused] = field(default_factory=list)
    elements: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    _makers: dict[str, Layer] = field(default_factory=dict)
    _readers: dict[str, list[Layer]] = field(default_factory=dict)

    def add(self, layer: Layer) -> str:
        """Add a layer at the end and return its first output."""
        self.layers.append(layer)
        self._link(layer)
        return layer.output

    def _link(self, layer: Layer) -> None:
        for name in filter(None, layer.outputs):
            self._makers[name] = layer
        for name in dict.fromkeys(filter(None, layer.inputs)):
            self._readers.setdefault(name, []).append(layer)

    def maker(self, name: str) -> Layer | None:
        """Return the layer that makes a value, None for inputs and constants."""
        return self._makers.get(name)

    def readers(self, name: str) -> list[Layer]:
        """Return the layers that read a value, each once."""
        return list(self._readers.get(name, ()))

    def used_once(self, name: str) -> bool:
        """Tell whether one layer reads a value and the model does not put it out."""
        return len(self._readers.get(name, ())) == 1 and name not in self.outputs

    def replace(self, old: Iterable[Layer], new: Layer) -> None:
        """Put a layer in the place of the last of some layers, all others of which go."""
        gone = set(map(id, old))
        at = max(index for index, layer in enumerate(self.layers) if id(layer) in gone)
        for layer in [layer for layer in self.layers if id(layer) in gone]:
            self._unlink(layer)
        self.layers[at] = new
        self.layers = [layer for layer in self.layers if id(layer) not in gone]
        self._link(new)

    def drop(self, layer: Layer, stands_for: str) -> None:
        """Take a layer out and let its readers read another value."""
        self._unlink(layer)
        self.layers.remove(layer)
        self.rename(layer.output, stands_for)

    def rename(self, old: str, new: str) -> None:
        """Let everything that reads one value read another."""
        for reader in self._readers.pop(old, ()):
            reader.inputs = [new if name == old else name for name in reader.inputs]
            if reader not in self._readers.setdefault(new, []):
                self._readers[new].append(reader)
        self.outputs = [new if name == old else name for name in self.outputs]

    def feed(self, layer: Layer, position: int, name: str) -> None:
        """Let a layer read another value at one position."""
        self._unlink(layer)
        layer.inputs[position] = name
        self._link(layer)

    def _unlink(self, layer: Layer) -> None:
        for name in filter(None, layer.outputs):
            if self._makers.get(name) is layer:
                del self._makers[name]
        for name in dict.fromkeys(filter(None, layer.inputs)):
            readers = self._readers.get(name, [])
            if layer in readers:
                readers.remove(layer)

    def remove(self, gone: Iterable[Layer]) -> None:
        """Take layers out that nobody reads."""
        ids = set()
        for layer in gone:
            self._unlink(layer)
            ids.add(id(layer))
        self.layers = [layer for layer in self.layers if id(layer) not in ids]

    def hold(self, name: str, constant: Constant) -> None:
        """Make a value a constant."""
        self.constants[name] = constant

    def find(self, *ops: str) -> Iterator[Layer]:
        """Yield the layers of some operators that are there when it begins and are still there when reached."""
        for layer in [layer for layer in self.layers if layer.op in ops]:
            if self._makers.get(layer.output) is layer:
                yield layer

    def rank(self, name: str) -> int | None:
        known = self.sizes.get(name)
        return None if known is None else len(known)

    def static(self, name: str) -> Constant | None:
        """Return a constant whose numbers are tracked, None for anything else."""
        constant = self.constants.get(name)
        return constant if constant is not None and constant.numbers is not None else None

    def note(self, fusion: dict[str, Any], layer: str, value: str, nodes: Iterable[str], numbers: str = "") -> None:
        """Record something that was done."""
        unique = tuple(dict.fromkeys(nodes))
        self.fused.append(Fused(fusion["name"], layer, value, unique, numbers or fusion["numbers"]))

    def counts(self) -> dict[str, int]:
        """Return operator to how many layers are of it, the most frequent first."""
        found = Counter(layer.op for layer in self.layers)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
