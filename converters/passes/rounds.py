"""The body of a Loop, Scan or SequenceMap, written into the graph around it, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.fold import Folder
from converters.passes.select_branch import copied
from converters.scan.graphs import names_read
from converters.scan.view import array_of, constant_value

if TYPE_CHECKING:
    import onnx


class Body:
    """Writes copies of a body.

    Attributes:
        graph: the body.
        emit: takes the nodes and the body's constants.
        folder: learns every node that is written, so that it can say what later rounds hang on.
    """

    def __init__(self, graph: onnx.GraphProto, emit: Emit, folder: Folder) -> None:
        self.graph, self.emit, self.folder = graph, emit, folder
        if graph.sparse_initializer:
            raise Refusal("its body holds sparse constants")
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._held = {tensor.name: self._hoisted(tensor) for tensor in graph.initializer}

    def _hoisted(self, tensor: onnx.TensorProto) -> str:
        import onnx

        copy = onnx.TensorProto.FromString(tensor.SerializeToString())
        copy.name = self._fresh(tensor.name)
        self.emit.constants[copy.name] = copy
        self.folder.view.initialisers[copy.name] = copy
        return copy.name

    def _fresh(self, name: str, number: int | None = None) -> str:
        """Return a name that nothing has, made of a body's name and the round's number."""
        taken = self.emit.taken
        fresh = stem = name if number is None else f"{name}/{number}"
        more = 0
        while fresh in taken:
            more += 1
            fresh = f"{stem}_{more}"
        taken.add(fresh)
        return fresh

    def constant(self, values: np.ndarray) -> str:
        """Return a constant of the graph around, known to the folder."""
        name = self.emit.array(values)
        self.folder.view.initialisers[name] = self.emit.constants[name]
        return name

    def keeps(self, given: int, output: int) -> bool:
        """Tell whether an output of the body is one of its inputs, or true in every round."""
        name = self.graph.output[output].name
        while (maker := self._makers.get(name)) is not None and maker.op_type in ("Identity", "Cast"):
            name = maker.input[0]
        if name == self.graph.input[given].name:
            return True
        if maker is not None:
            held = constant_value(maker) if maker.op_type == "Constant" else None
        else:
            held = next((array_of(tensor) for tensor in self.graph.initializer if tensor.name == name), None)
        return held is not None and held.size == 1 and bool(held.reshape(()))

    def round(self, number: int, given: list[str]) -> list[str]:
        """Write one round.

        Args:
            number: of the round, for names.
            given: what stands for each of the body's inputs.

        Returns:
            The names of the body's outputs in this round.
        """
        if len(given) != len(self.graph.input):
            raise Refusal(f"its body takes {len(self.graph.input)} inputs, {len(given)} are given")
        renamed = self._held | {value.name: name for value, name in zip(self.graph.input, given, strict=True)}
        renamed |= {name: self._fresh(name, number) for name in self._makers}
        for node in self.graph.node:
            copy = copied(node, renamed)
            copy.name = self._fresh(node.name or f"{node.op_type}", number)
            self.emit.nodes.append(copy)
            self.folder.view.makers.update({name: copy for name in copy.output if name})
        return [renamed.get(value.name, value.name) for value in self.graph.output]

    def results(self, carried: list[str], collected: list[list[str]], axes: list[int], turned: list[bool]) -> None:
        """Write a loop's outputs.

        Args:
            carried: what the last round handed on.
            collected: for each further output its values of all rounds.
            axes: the axis on which each is collected.
            turned: whether the last round comes first.
        """
        outputs = [*self.emit.place.node.output]
        outputs += [""] * (len(carried) + len(collected) - len(outputs))
        for parts, axis, back, output in zip(collected, axes, turned, outputs[len(carried) :], strict=True):
            if output and not parts:
                raise Refusal("it has no rounds, so that the shape of what it collects is not known")
            if output:
                rows = [self.emit.unsqueezed(part, [axis]) for part in (reversed(parts) if back else parts)]
                self.emit("Concat", *rows, to=output, axis=axis)
        for name, output in zip(carried, outputs, strict=False):
            if output:
                self._name(name, output, once=carried.count(name) == 1)

    def _name(self, name: str, output: str, *, once: bool) -> None:
        """Let a tensor bear an output's name: what made it in the last round, else an Identity."""
        maker = next((node for node in reversed(self.emit.nodes) if name in node.output), None)
        if maker is None or not once or any(name in set(names_read(node)) for node in self.emit.nodes):
            self.emit("Identity", name, to=output)
        else:
            maker.output[list(maker.output).index(name)] = output
