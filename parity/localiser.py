"""Where a miss begins: the graph's inside against the original's modules, in the graph's own order.

Each Linear and norm of the original is met in the graph through its weight: the initialiser records the torch
tensor it came from, and the product that reads it is what the module puts out. Those products become outputs of a
copy of the file, both sides run the same prompt, and the first tensor below the budget is the place. What the two
sides lay out differently (a norm per head) is left out: it is bracketed by its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.runners.decoder_io import asked_outputs
from weights_bridge.compare import Array, GateResult, compare

if TYPE_CHECKING:
    from parity.runners.torch_causal_lm import TorchCausalLM

PASSED_THROUGH = ("Transpose", "Cast", "Identity", "Unsqueeze", "Add", "DequantizeLinear")


@dataclass(frozen=True)
class Probe:
    """One place to look at.

    Attributes:
        at: position of its node in the graph.
        tensor: the graph's tensor.
        module: the original's module, or the graph output's name.
    """

    at: int
    tensor: str
    module: str


@dataclass
class Localisation:
    """What was found.

    Attributes:
        place: `layer 1 (self_attn.q_proj)`; empty when every probed tensor is within the budget.
        detail: levels before and at the place, and whether the weight there differs.
        first: the first result below the budget.
        results: every probed tensor, in the graph's order.
    """

    place: str = ""
    detail: str = ""
    first: GateResult | None = None
    results: list[GateResult] = field(default_factory=list)


def localise(
    onnx: Path, contract: Mapping[str, Any], original: TorchCausalLM, ids: Sequence[int], budget_db: float
) -> Localisation:
    """Find the first tensor below the budget.

    Args:
        onnx: the graph.
        contract: its contract with `initialisers`.
        original: the reference.
        ids: a prompt on which the graph misses.
        budget_db: the least PSNR in dB that passes.
    """
    from converters.onnx_file import read_skeleton

    graph = read_skeleton(onnx).model.graph
    probes = find_probes(graph, contract)
    outputs = asked_outputs(original.forward(ids).graph_outputs(), contract)
    wanted = original.module_outputs(ids, [p.module for p in probes if p.module not in outputs]) | outputs
    found = _run_with(onnx, contract, ids, [probe.tensor for probe in probes])
    results = [
        compare(probe.module, wanted[probe.module], found[probe.tensor], budget_db, where=place_of(probe.module))
        for probe in probes
        if wanted[probe.module].shape == found[probe.tensor].shape
    ]
    return _first_miss(results, onnx, contract, original)


def place_of(name: str) -> str:
    """Return `layer 7 (present.7.key)` for the name of a module or of a graph output; the name where no layer is."""
    match = re.search(r"(?:layers|present)\.(\d+)\.(.+)", name)
    if match is None:
        return name
    inner = name if name.startswith("present.") else match[2]
    return f"layer {match[1]} ({inner})"


def find_probes(graph: Any, contract: Mapping[str, Any]) -> list[Probe]:
    """Return the places where graph and original can be compared, in the graph's order."""
    readers: dict[str, list[tuple[int, Any]]] = {}
    for at, node in enumerate(graph.node):
        for name in node.input:
            readers.setdefault(name, []).append((at, node))
    torch_names = {entry["torch"]: onnx for onnx, entry in contract.get("initialisers", {}).items()}
    outputs = {output.name for output in graph.output}
    probes = [Probe(at, name, name) for at, node in enumerate(graph.node) for name in node.output if name in outputs]
    for torch_name, initialiser in torch_names.items():
        module = torch_name.removesuffix(".weight")
        if ".layers." not in torch_name or module == torch_name:
            continue
        bias = torch_names.get(f"{module}.bias")
        if (met := _product_of(initialiser, bias, readers)) is not None:
            probes.append(Probe(met[0], met[1], module))
    return sorted(probes, key=lambda probe: probe.at)


def _product_of(name: str, bias: str | None, readers: dict[str, list[tuple[int, Any]]]) -> tuple[int, str] | None:
    """Follow a weight to the MatMul or Mul that applies it, then over the module's own bias."""
    while len(readers.get(name, ())) == 1:
        at, node = readers[name][0]
        if node.op_type in PASSED_THROUGH:
            name = node.output[0]
            continue
        if node.op_type not in ("MatMul", "Gemm", "Mul"):
            return None
        added = [(a, n) for a, n in readers.get(node.output[0], ()) if bias is not None and bias in n.input]
        at, node = added[0] if added else (at, node)
        return at, node.output[0]
    return None


def _run_with(onnx: Path, contract: Mapping[str, Any], ids: Sequence[int], tensors: Sequence[str]) -> dict[str, Array]:
    """Run a graph that also puts out the named tensors, unoptimised."""
    from converters.divergence import values_of
    from parity.runners.decoder_io import empty_cache, prefill_inputs

    return values_of(onnx, tensors, prefill_inputs(ids, 0, contract) | empty_cache(contract))


def _first_miss(
    results: list[GateResult], onnx: Path, contract: Mapping[str, Any], original: TorchCausalLM
) -> Localisation:
    found = Localisation(results=results)
    for at, result in enumerate(results):
        if result.passed:
            continue
        found.first, found.place = result, result.where
        level = "not finite" if result.psnr_db is None else f"{result.psnr_db:.1f} dB"
        found.detail = f"{result.tensor} is the first below the budget ({level})"
        if at:
            found.detail += f", {results[at - 1].tensor} before it is within"
        found.detail += _weight_verdict(result.tensor, onnx, contract, original)
        break
    return found


def _weight_verdict(module: str, onnx: Path, contract: Mapping[str, Any], original: TorchCausalLM) -> str:
    """Tell whether the weight at the place is the original's, as a clause to add."""
    import onnx as onnx_package
    from onnx import numpy_helper

    sources = {n: e for n, e in contract.get("initialisers", {}).items() if e["torch"].startswith(f"{module}.")}
    if not sources:
        return ""
    weights = dict(original.model.named_parameters())
    clauses = []
    for tensor in onnx_package.load(onnx).graph.initializer:
        if (entry := sources.get(tensor.name)) is None:
            continue
        wanted = weights[entry["torch"]].numpy()
        array = numpy_helper.to_array(tensor)
        turned = array.T if entry["transform"] == "transpose" else array
        differing = int(np.sum(turned != wanted.astype(array.dtype))) if turned.shape == wanted.shape else wanted.size
        if differing:
            clauses.append(f"; {entry['torch']}: {differing} of {wanted.size} values differ from the original's")
    return "".join(clauses) or "; its weights are the original's"
