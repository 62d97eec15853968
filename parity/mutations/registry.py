"""The catalogue of bugs, and what bugs are made with.

Each bug is one that conversions really have. It is planted in a loaded model and taken away again; the gate then has
to miss and to name the place. `parity --self-test` plants those that a model can have in a copy of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parity.gate_request import FORWARD

Planted = Callable[[Any], Iterator[str]]


class DoesNotApplyError(Exception):
    """This model cannot have the bug; the message says why."""


@dataclass(frozen=True)
class Mutation:
    """One bug.

    Attributes:
        name: what is wrong, in a few words.
        direction: in which direction it must be found.
        plant: a generator of a model that plants the bug, yields the place that must be named, and takes it away
            again; it raises `DoesNotApplyError` before it changes anything.
    """

    name: str
    direction: str
    plant: Planted

    @contextmanager
    def planted(self, model: Any) -> Iterator[str]:
        """Plant the bug for as long as the block lasts; yields the place that must be named.

        Raises:
            DoesNotApplyError: this model cannot have it.
        """
        yield from self.plant(model)


MUTATIONS: dict[str, Mutation] = {}


def mutation(name: str, direction: str = FORWARD) -> Callable[[Planted], Planted]:
    """Register a bug."""

    def register(plant: Planted) -> Planted:
        MUTATIONS[name] = Mutation(name, direction, plant)
        return plant

    return register


@contextmanager
def changed(holder: Any, **values: Any) -> Iterator[None]:
    """Set attributes for as long as the block lasts."""
    before = {name: getattr(holder, name) for name in values}
    for name, value in values.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(holder, name, value)


@contextmanager
def calling(module: Any, call: Callable[[Callable[[Any], Any], Any], Any]) -> Iterator[None]:
    """Let one module compute `call(its own way, x)` for as long as the block lasts; its tensors keep their names."""
    kind = type(module)

    def instead(self: Any, x: Any) -> Any:
        return call(lambda y: kind.__call__(self, y), x)

    module.__class__ = type(kind.__name__, (kind,), {"__call__": instead})
    try:
        yield
    finally:
        module.__class__ = kind


def middle(model: Any) -> tuple[int, Any]:
    """Return the layer that bugs go into, with its number."""
    at = len(model.layers) // 2
    return at, model.layers[at]


def head_width(model: Any) -> int:
    """Return D."""
    config = model.folder.config
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def require(possible: Any, why: str) -> None:
    """Raise when a model cannot have a bug."""
    if not possible:
        raise DoesNotApplyError(why)
