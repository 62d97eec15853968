"""Where two graphs part: the first inner tensor that both have and that differs, with the node and both values.

A rewrite keeps the names of what it does not touch, so those tensors can be compared. Both graphs put out some of
them, evenly spaced; the stretch before the first that differs is looked into again, until the node is found.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import onnx_file
from converters.ort_session import open_session
from weights_bridge.compare import Array, GateResult, compare
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

Compared = Callable[[str, Array, Array, float], GateResult]
PROBES = 24  # inner tensors in one run: a few runs find the node, and only a few tensors are held


@dataclass(frozen=True)
class Divergence:
    """The first place where two graphs differ.

    Attributes:
        node: name of the node in the second graph, or its first output.
        op: its operator.
        tensor: what it puts out.
        before: the last compared tensor in front of it that agrees; empty where it is the first.
        at: index of the element that differs most; empty for a scalar, None where shapes differ.
        wanted: its value in the first graph.
        found: its value in the second.
        result: the comparison of the whole tensor.
    """

    node: str
    op: str
    tensor: str
    before: str
    at: tuple[int, ...] | None
    wanted: float
    found: float
    result: GateResult

    def __str__(self) -> str:
        if self.at is None:
            return f"first at {self.op} {self.node!r}: {self.tensor!r} is {self.result.reason}: {self.result.detail}"
        level = "" if self.result.psnr_db is None else f" ({self.result.psnr_db:.1f} dB)"
        where = f"{self.tensor!r}{list(self.at)}" if self.at else repr(self.tensor)
        behind = f", {self.before!r} before it agrees" if self.before else ""
        values = f"found {self.found!r}, wanted {self.wanted!r}"
        return f"first at {self.op} {self.node!r}: {where} {values}{level}{behind}"


def values_of(
    model: Path | bytes,
    tensors: Sequence[str],
    inputs: Mapping[str, Array],
    *,
    folder: Path | None = None,
    threads: int | None = None,
) -> dict[str, Array]:
    """Run a graph unoptimised and return some of its tensors, inner ones too.

    Two serialised messages one after the other are, to protobuf, one message with their lists joined: outputs are
    appended to the bytes, and no weight is decoded in Python.

    Args:
        model: a file, or a serialised model.
        tensors: names of outputs and of inner tensors.
        inputs: one array per graph input.
        folder: where side files of a serialised model lie.
        threads: inside an operator; None lets ONNX Runtime choose.

    Raises:
        StageError: ONNX Runtime cannot load or run it.
    """
    from onnx import GraphProto, ModelProto, ValueInfoProto

    graph = _graph_of(model)
    declared = {value.name for value in graph.output}
    missing = [ValueInfoProto(name=name) for name in dict.fromkeys(tensors) if name not in declared]
    extra = ModelProto(graph=GraphProto(output=missing)).SerializeToString()
    with _probed(model, extra, graph) as probed:
        beside = model.parent if isinstance(model, Path) and isinstance(probed, bytes) else folder
        session = open_session(probed, "off", threads, folder=beside)
    try:
        values: list[Any] = session.run(list(tensors), dict(inputs))
    except Exception as error:  # ORT's exception classes share no public base
        raise StageError(f"ONNX Runtime cannot run it: {str(error).splitlines()[0]}") from None
    return dict(zip(tensors, values, strict=True))


@contextlib.contextmanager
def _probed(model: Path | bytes, extra: bytes, graph: onnx.GraphProto) -> Iterator[Path | bytes]:
    """Hand out a model with more outputs: a copied file where weights are inside, so that they are held once."""
    if isinstance(model, bytes):
        yield model + extra
    elif any(tensor.data_location == tensor.EXTERNAL for tensor in graph.initializer):
        yield model.read_bytes() + extra
    else:
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / "probed.onnx"
            shutil.copyfile(model, copied)
            with copied.open("ab") as file:
                file.write(extra)
            yield copied


def _graph_of(model: Path | bytes) -> onnx.GraphProto:
    import onnx

    if isinstance(model, bytes):
        return onnx.ModelProto.FromString(model).graph
    return onnx_file.read_skeleton(model).model.graph


def first_divergence(
    before: Path | bytes,
    after: Path | bytes,
    inputs: Mapping[str, Array],
    budget_db: float,
    *,
    inputs_after: Mapping[str, Array] | None = None,
) -> Divergence | None:
    """Return where the second graph first leaves the first, None where every tensor they share agrees.

    Args:
        before: the graph that is right.
        after: the same with something done to it; what it still has bears the same names.
        inputs: one array per graph input, on which they differ.
        budget_db: the least PSNR in dB that agrees.
        inputs_after: of the second graph, where it has others.

    Raises:
        StageError: ONNX Runtime cannot run one of them.
    """
    given_after = inputs if inputs_after is None else inputs_after
    return search(
        shared_tensors(_graph_of(before), _graph_of(after)),
        lambda names: values_of(before, names, inputs),
        lambda names: values_of(after, names, given_after),
        budget_db,
    )


def search(
    shared: Sequence[tuple[str, onnx.NodeProto]],
    wanted_of: Callable[[list[str]], Mapping[str, Array]],
    found_of: Callable[[list[str]], Mapping[str, Array]],
    budget_db: float,
    compared: Compared | None = None,
) -> Divergence | None:
    """Return the first of some tensors whose values on two sides differ, None where all agree.

    Args:
        shared: (tensor, the node that makes it), in the order in which they are made.
        wanted_of: names to values on the side that is right.
        found_of: names to values on the other side.
        budget_db: the least PSNR in dB that agrees.
        compared: compares one tensor (name, wanted, found, budget); None for equal types, in dB.
    """
    low, high, last_good, first_bad = 0, len(shared), "", None
    while low < high:
        chosen = _spaced(low, high)
        names = [shared[at][0] for at in chosen]
        wanted, found = wanted_of(names), found_of(names)
        for at, name in zip(chosen, names, strict=True):
            result = (compared or _compared)(name, wanted[name], found[name], budget_db)
            if not result.passed:
                first_bad, high = _divergence(shared[at], wanted[name], found[name], result), at
                break
            low, last_good = at + 1, name
        else:
            if first_bad is None:
                return None
    return first_bad and replace(first_bad, before=last_good)


def _compared(name: str, wanted: Array, found: Array, budget_db: float) -> GateResult:
    """Compare; here what is equal agrees, be it empty, infinite or not a number on both sides."""
    same = wanted.shape == found.shape and wanted.dtype == found.dtype
    if same and np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f"):
        return GateResult(name, True, "exact", budget=budget_db)
    return compare(name, wanted, found, budget_db)


def _spaced(low: int, high: int) -> list[int]:
    """Return up to PROBES places in [low, high), the last one among them."""
    count = min(PROBES, high - low)
    return sorted({high - 1 - round(k * (high - low) / count) for k in range(count)} & set(range(low, high)))


def shared_tensors(before: onnx.GraphProto, after: onnx.GraphProto) -> list[tuple[str, onnx.NodeProto]]:
    """Return (tensor, its node in the second graph) for what nodes of both graphs put out, in the second's order."""
    known = {name for node in before.node for name in node.output if name}
    return [(name, node) for node in after.node for name in node.output if name in known]


def _divergence(place: tuple[str, onnx.NodeProto], wanted: Array, found: Array, result: GateResult) -> Divergence:
    name, node = place
    label, at, values = node.name or node.output[0], None, (0.0, 0.0)
    if wanted.shape == found.shape and wanted.size:
        apart = np.abs(wanted.astype(np.float64) - found.astype(np.float64))
        index = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), wanted.shape)
        at, values = tuple(map(int, index)), (float(wanted[index]), float(found[index]))
    return Divergence(label, node.op_type, name, "", at, *values, result)
