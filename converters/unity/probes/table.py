"""The probes as data (`probes.json`): a graph each, in ONNX text, and what it asks of the package.

Fusions whose pattern stands in the facts are not there: their graphs are made of the pattern (`from_pattern.py`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Probe:
    """One tiny model.

    Attributes:
        kind: `class` (of the taxonomy A to G), `fusion` or `attribute`.
        of: the class, the fusion's name, or `Operator.attribute`.
        asks: what its outputs tell.
        body: nodes as ONNX text.
        inputs: the graph's inputs.
        init: initialisers.
        opset: of the domain ''.
        output: the graph's outputs.
        values: inputs with numbers of their own, by fixture and input; others are drawn.
        reference: `body` and `init` that compute the same at opset 15, where ONNX Runtime has no such old operator.
        harmless: whether a package that drops the attribute computes the same.
    """

    kind: str
    of: str
    asks: str
    body: str
    inputs: str = ""
    init: str = ""
    opset: int = 15
    output: str = "float[] y"
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reference: Mapping[str, str] = field(default_factory=dict)
    harmless: bool = False

    @property
    def name(self) -> str:
        """A file's name: `attribute-maxpool-ceil_mode`."""
        return f"{self.kind}-{self.of}".lower().replace(".", "-").replace("'", "-benign")


@functools.cache
def table() -> tuple[tuple[Probe, ...], dict[str, str]]:
    """Return the probes, and the dropped attributes that have none of their own, each with its reason."""
    text = resources.files("converters.unity.probes").joinpath("probes.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return tuple(Probe(**row) for row in document["probes"]), document["no_probe"]
