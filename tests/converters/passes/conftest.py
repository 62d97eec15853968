"""How passes are tried: the scan, the pass, ONNX Runtime on three kinds of inputs, the scan again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from converters.passes import PASSES
from converters.passes.base import Context, Outcome
from converters.prove import measured, reference_of
from converters.scan import scan

PROBES = {"spread", "zeros", "large"}


@dataclass
class Tried:
    """What a pass made of a model.

    Attributes:
        model: as it is now.
        outcome: what the pass said.
        before: ids of the findings that the pass mends, before.
        after: ids of all findings, after.
        levels: PSNR in dB of each probe and output, None for exact.
    """

    model: onnx.ModelProto
    outcome: Outcome
    before: list[str]
    after: list[str]
    levels: dict[str, float | None]

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]

    def constant(self, name: str) -> Any:
        return next(onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer if t.name == name)


def _names(findings, name: str) -> list[str]:
    return [finding.id for finding in findings if name in finding.passes]


def _check(model: onnx.ModelProto, outputs) -> None:
    """Let onnx check a model whose outputs have the ranks that they were seen to have."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for value in copy.graph.output:
        for _ in range(next(iter(outputs.values()))[value.name].ndim - len(value.type.tensor_type.shape.dim)):
            value.type.tensor_type.shape.dim.add()
        value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copy)


@pytest.fixture
def mended(tmp_path: Path) -> Callable[..., Tried]:
    """Run a pass that must fire: numbers equal on three probes, its findings gone, a second run without change."""

    def run(
        name: str, model: onnx.ModelProto, changed: int = 1, *, sentis: str = "2.6", by_design: bool = False,
        notes: bool = False, inputs: dict[str, np.ndarray] | None = None,
    ) -> Tried:  # fmt: skip
        source, target = tmp_path / "before.onnx", tmp_path / "after.onnx"
        source.write_bytes(model.SerializeToString())
        before = _names(scan(source, sentis, notes=notes), name)
        assert before or PASSES[name].on_request, "the scan finds nothing that this pass mends"
        reference = reference_of(model, source, inputs)
        assert inputs is not None or set(reference.inputs) == PROBES
        copy = onnx.ModelProto.FromString(source.read_bytes())
        outcome = PASSES[name].run(copy, Context(tmp_path, sentis))
        assert outcome.changed == changed, outcome.left
        target.write_bytes(copy.SerializeToString())
        results = measured(reference, target, name)
        assert by_design == bool(PASSES[name].by_design)
        if not by_design:
            assert not [str(result) for result in results if not result.passed]
        found = scan(target, sentis, notes=notes)
        assert _names(found, name) == []
        assert PASSES[name].run(copy, Context(tmp_path, sentis)).changed == 0
        _check(copy, reference.outputs)
        return Tried(copy, outcome, before, [f.id for f in found], {r.tensor: r.psnr_db for r in results})

    return run


@pytest.fixture
def left(tmp_path: Path) -> Callable[..., str]:
    """Run a pass that must not fire, and return its reason; the model stays as it was."""

    def run(name: str, model: onnx.ModelProto, *, sentis: str = "2.6", growth: int = 1 << 20) -> str:
        before = model.SerializeToString(deterministic=True)
        outcome = PASSES[name].run(model, Context(tmp_path, sentis, growth))
        assert outcome.changed == 0
        assert model.SerializeToString(deterministic=True) == before
        return "; ".join(outcome.left.values())

    return run
