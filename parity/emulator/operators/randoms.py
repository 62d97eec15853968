"""Random numbers: the package has a generator of its own, which is not known."""

from __future__ import annotations

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Unknown

WHY = "the package's own random generator: its numbers repeat neither ONNX Runtime's nor numpy's"


@form(
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    how="not emulated", says=WHY,
)  # fmt: skip
def random(n: Node) -> None:
    raise Unknown(f"{n.op} {n.label!r}: {WHY}")
