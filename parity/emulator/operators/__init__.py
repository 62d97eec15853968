"""What Sentis computes for each operator, one form per operator.

A form is `identical` where the CPU backend computes what ONNX says, up to rounding; `emulated` where it computes
something else, which the form writes out; `not emulated` where that is not known or cannot be repeated, with why.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from parity.emulator.node import Node
from parity.emulator.prediction import Unknown

How = Literal["identical", "emulated", "not emulated"]
MODULES = (
    "activations", "binary", "convolution", "detection", "indexing", "logic", "maths", "matrices", "normalisation",
    "pooling", "randoms", "recurrent", "reductions", "resize", "shapes", "signal", "sorting", "types",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    """How one operator is computed.

    Attributes:
        op: operator, or a layer that the optimiser makes.
        how: `identical`, `emulated` or `not emulated`.
        says: the formula, or why there is none.
        where: part of the package it was read in: `kernel`, `importer`, `inference` or `optimiser`.
        write: writes it into the graph.
    """

    op: str
    how: How
    says: str
    where: str
    write: Callable[[Node], None]


FORMS: dict[str, Form] = {}


def form(
    *ops: str, how: How = "emulated", says: str = "", where: str = "kernel"
) -> Callable[[Callable[[Node], None]], Callable[[Node], None]]:
    """Register a function as the form of some operators."""

    def register(write: Callable[[Node], None]) -> Callable[[Node], None]:
        for op in ops:
            assert op not in FORMS, op
            FORMS[op] = Form(op, how, says, where, write)
        return write

    return register


def form_of(op: str) -> Callable[[Node], None]:
    """Return what writes an operator.

    Raises:
        Unknown: it has no form.
    """
    if op not in FORMS:
        raise Unknown(f"{op} is not emulated")
    return FORMS[op].write


for _name in MODULES:
    importlib.import_module(f"parity.emulator.operators.{_name}")
