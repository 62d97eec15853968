"""The loop around a graph with state, and the faults that such loops really have.

The same loop drives ONNX Runtime and the emulator of Sentis. A fault is a loop with one method changed: the tests plant
it, and a sequence that misses is held against each, so that the report can say which fault gives these very numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from parity.sequences.graph import Feed, Graph, check_graph, compared, fixed_inputs, initial_states
from parity.sequences.signal import frames, with_rank
from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array
from weights_bridge.errors import StageError


@dataclass(frozen=True)
class Loop:
    """The right loop: context from the step before, state carried.

    Attributes:
        reason: what a report says of a sequence that this loop explains; empty for the right loop.
    """

    reason: str = ""

    def context(self, before: Array) -> Array:
        """Return what goes in front of the new values; `before` is the end of the step before."""
        return before

    def state(self, step: int, carried: Feed, initial: Feed) -> Feed:
        """Return the states that a step is fed."""
        return carried


@dataclass(frozen=True)
class NoContext(Loop):
    """Zeros stand where the context belongs."""

    reason: str = "context dropped"

    def context(self, before: Array) -> Array:
        return np.zeros_like(before)


@dataclass(frozen=True)
class NoState(Loop):
    """Every step starts anew."""

    reason: str = "state not carried"

    def state(self, step: int, carried: Feed, initial: Feed) -> Feed:
        return initial


@dataclass(frozen=True)
class Reset(Loop):
    """The state is cleared before one step, or before every so many, and carried in between."""

    reason: str = "state reset"
    at: int = 1
    again: bool = False

    def state(self, step: int, carried: Feed, initial: Feed) -> Feed:
        return initial if step == self.at or (self.again and step % self.at == 0) else carried


@dataclass(frozen=True)
class Crossed(Loop):
    """States of one shape are fed to each other's inputs."""

    reason: str = "states crossed"
    to: Mapping[str, str] = field(default_factory=dict)

    def state(self, step: int, carried: Feed, initial: Feed) -> Feed:
        return {name: carried[self.to[name]] for name in carried}


def faults(spec: SequenceSpec, initial: Feed, first_step: int) -> Iterator[Loop]:
    """Yield every fault that a sequence can have which begins to differ at a step."""
    if spec.context:
        yield NoContext()
    if spec.state:
        yield NoState()
        if first_step > 1:
            yield Reset(at=first_step)
            yield Reset(at=first_step, again=True)
    yield from crossings(spec, initial)


def crossings(spec: SequenceSpec, initial: Feed) -> Iterator[Crossed]:
    """Yield every other way to pair up to four states of equal shapes."""
    names = list(spec.state)
    if not 2 <= len(names) <= 4:
        return
    for order in permutations(names):
        pairs = dict(zip(names, order, strict=True))
        if list(order) != names and all(initial[a].shape == initial[b].shape for a, b in pairs.items()):
            yield Crossed(to=pairs)


RIGHT = Loop()


def drive(graph: Graph, spec: SequenceSpec, signal: Array, loop: Loop = RIGHT) -> dict[str, Array]:
    """Run a graph over a whole signal.

    Args:
        graph: in any runtime.
        spec: how it is driven.
        signal: what `frames` cuts; leading sizes of 1 are added where the graph's input has more.
        loop: right, or with a fault.

    Returns:
        Output name to [steps, …] of every output that is compared.

    Raises:
        StageError: the graph's inputs and outputs are not those of the sequence file, or a step cannot be run.
    """
    kind, sizes = check_graph(graph, spec)
    pieces = frames(with_rank(signal, len(sizes), spec).astype(kind), spec)
    if not pieces:
        raise StageError(f"{spec.path}: the signal has no whole step of {spec.chunk}", hint="give a longer signal")
    initial, fixed = initial_states(graph, spec), fixed_inputs(graph, spec)
    names = compared(graph, spec)
    before, carried = np.zeros_like(np.take(_wide(pieces[0], spec), range(spec.context), spec.axis)), initial
    found: dict[str, list[Array]] = {name: [] for name in names}
    for at, new in enumerate(pieces):
        whole = np.concatenate([loop.context(before), new], spec.axis)
        outputs = graph.step({spec.input: whole, **loop.state(at, carried, initial), **fixed})
        carried = {given: np.asarray(outputs[output]) for given, output in spec.state.items()}
        seen = np.concatenate([before, new], spec.axis)
        length = seen.shape[spec.axis]
        before = np.take(seen, range(length - spec.context, length), spec.axis)
        for name in names:
            found[name].append(np.array(outputs[name]))
    return {name: _stacked(name, values, spec) for name, values in found.items()}


def _stacked(name: str, values: Sequence[Array], spec: SequenceSpec) -> Array:
    """Return an output's steps as one array [steps, …].

    Raises:
        StageError: its sizes change from step to step.
    """
    shapes = list(dict.fromkeys(array.shape for array in values))
    if len(shapes) > 1:
        found = " and ".join(str(list(shape)) for shape in shapes[:2])
        hint = "compare outputs of one size a step; name them under outputs"
        raise StageError(f"{spec.path}: output {name}: found sizes {found}, wanted the same in every step", hint=hint)
    return np.stack(values)


def _wide(piece: Array, spec: SequenceSpec) -> Array:
    """Return a step repeated until its axis holds a context."""
    times = -(-max(1, spec.context) // spec.chunk)
    return np.concatenate([piece] * times, spec.axis)
