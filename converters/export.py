"""Exporting a model directory to one ONNX file: trace each distinct piece once, assemble, stream the weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import families, onnx_file, onnx_writer
from converters.assembly import Assembly
from converters.families import causal_lm
from converters.families.causal_lm import Slots
from converters.tidy import INT32_MAX
from converters.tracing import trace
from converters.weights import check_fit, fill, store_as_fp16
from weights_bridge.errors import StageError
from weights_bridge.files import write_json, written_whole
from weights_bridge.model_folder import ModelFolder, open_base, require_stage
from weights_bridge.settings import ExportSettings

if TYPE_CHECKING:
    import onnx

    from converters.tracing import Fragment

OPSETS = range(18, 24)  # asked for less it writes 18 in silence; 23 is the last that torch 2.13 knows


def export_model(
    model: Path,
    out: Path,
    settings: ExportSettings,
    contract_out: Path,
    slots: Slots | None = None,
    path: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Export a Hugging Face directory and write its contract.

    Args:
        model: a local directory of a known architecture; weights that MLX packed are dequantised in fp32.
        out: the .onnx file; weights are inside, one copy each.
        settings: opset, dtype, batch, Sentis version.
        contract_out: contract.json.
        slots: a cache of fixed length; keys and values are joined to the past when None.
        path: which way was chosen and why, for the contract.

    Returns:
        The contract as written.

    Raises:
        StageError: not exportable as asked; nothing is written then.
    """
    if settings.opset not in OPSETS:
        what = f"opset {settings.opset}: torch's exporter writes {OPSETS[0]} to {OPSETS[-1]}"
        raise StageError(what, hint="export with --opset 18; `mlx-sentis fix --sentis 2.4` brings it down to opset 15")
    if slots is not None and settings.batch != "1":
        raise StageError("a cache of slots is for one row, as all its sizes are fixed", hint="leave --batch out")
    folder = open_base(model)
    require_stage(folder, "export")
    family = families.get(folder.architecture.family)
    if (size := family.predicted_bytes(folder, settings.dtype)) > onnx_file.LIMIT_BYTES:
        raise onnx_writer.too_large(out, size)
    folder.check_tensors()
    graph, sources = build(folder, settings, slots)
    left = check_fit(folder, graph, sources)
    contract = family.contract(folder, settings, slots) | {
        "initialisers": sources,
        "tensors_left_out": left,
        "topology_sha256": onnx_file.topology_sha256(graph),
        **({} if path is None else {"path": path}),
    }
    with written_whole(out) as beside:  # an earlier file stays until this one is read back
        onnx_writer.write_model(beside, graph, fill(folder, graph, sources))
        read_back(beside, contract)
    write_json(contract_out, contract)
    return contract


def build(
    folder: ModelFolder, settings: ExportSettings, slots: Slots | None = None
) -> tuple[onnx.ModelProto, dict[str, dict[str, str]]]:
    """Return the graph with its weights declared but empty, and where each initialiser comes from."""
    torch_side = importlib.import_module(f"{causal_lm.__name__}_torch")
    fragments = trace(torch_side.pieces(folder, slots), settings.opset)
    graph, assembly = assemble(folder, fragments, settings, slots)
    if settings.dtype == "fp16":
        store_as_fp16(graph, list(assembly.weights))
    sources = {name: {"torch": torch, "transform": turn} for name, (torch, turn) in assembly.weights.items()}
    return graph, sources


def assemble(
    folder: ModelFolder, fragments: dict[str, Fragment], settings: ExportSettings, slots: Slots | None = None
) -> tuple[onnx.ModelProto, Assembly]:
    """Instantiate prelude, every layer and the final norm, and add the head."""
    assembly = Assembly(dynamic_batch=settings.batch == "dynamic")
    shapes = folder.architecture.torch_shapes(folder.config)
    prelude = fragments["prelude"]
    bound = {name: name for name in ("input_ids", "position_ids")}
    hidden, *rotary = assembly.instantiate(prelude, "", bound, shapes)
    pairs = dict(zip(causal_lm.kinds_of(folder), zip(rotary[::2], rotary[1::2], strict=True), strict=True))
    for index, make in enumerate(causal_lm.makes_of(folder)):
        kind = causal_lm.kind_of_make(make)
        past, present = f"past_key_values.{index}.", f"present.{index}."
        inputs = {"hidden": hidden, "cos": pairs[kind][0], "sin": pairs[kind][1], "mask": causal_lm.MASK_OF_KIND[kind]}
        inputs |= {"past_key": past + "key", "past_value": past + "value"}
        inputs |= {} if slots is None else {"slots": causal_lm.SLOTS}
        hidden, *_ = assembly.instantiate(
            fragments[f"layer:{make}"],
            f"layers.{index}.",
            inputs,
            shapes,
            rename=("layer.", f"model.layers.{index}."),
            outputs={"present_key": present + "key", "present_value": present + "value"},
        )
    (hidden,) = assembly.instantiate(fragments["norm"], "norm.", {"hidden": hidden}, shapes)
    add_head(assembly, folder, hidden, shapes)
    if settings.argmax:
        add_argmax(assembly)
    inputs, outputs = causal_lm.io(folder, settings.batch, argmax=settings.argmax, slots=slots)
    return assembly.model(inputs, outputs, prelude.opset, prelude.ir_version), assembly


def add_head(assembly: Assembly, folder: ModelFolder, hidden: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Add the head: the product with the vocabulary, and where there is a soft cap, cap · tanh(logits / cap)."""
    cap = folder.config.get("final_logit_softcapping")
    if not cap:
        _add_product(assembly, folder, hidden, shapes, "logits")
        return
    _add_product(assembly, folder, hidden, shapes, "head.uncapped")
    bound = assembly.constant(np.array(cap, np.float32))
    assembly.node("Div", ["head.uncapped", bound], ["head.relative"], name="head.relative")
    assembly.node("Tanh", ["head.relative"], ["head.bounded"], name="head.bounded")
    assembly.node("Mul", ["head.bounded", bound], ["logits"], name="logits")


def _add_product(
    assembly: Assembly, folder: ModelFolder, hidden: str, shapes: dict[str, tuple[int, ...]], out: str
) -> None:
    """Add the product with the vocabulary under a name.

    An own table is stored transposed, like every other Linear. A tied one is read as it lies by both Gather and
    `Gemm(transB=1)`: Sentis folds `Transpose(constant)` into a second copy of the table at import, while Gemm
    becomes its MatMul2D with a transposed right side and shares the constant. Gemm has no C, so that no Add
    follows and the Dense fusion, which wants [in, out], does not fire. Gemm takes matrices, hence the Reshapes.
    """
    if not folder.config["tie_word_embeddings"]:
        table = assembly.weight(causal_lm.HEAD, "transpose", shapes[causal_lm.HEAD])
        assembly.node("MatMul", [hidden, table], [out], name=out)
        return
    vocabulary, width = shapes[causal_lm.TABLE]
    table = assembly.weight(causal_lm.TABLE, "same", shapes[causal_lm.TABLE])
    rows = assembly.constant(np.array([-1, width], np.int64))
    assembly.node("Reshape", [hidden, rows], ["head.rows"], name="head.rows")
    assembly.node("Gemm", ["head.rows", table], ["head.product"], name="head.product", transB=1)
    shape = assembly.constant(np.array([1, -1, vocabulary], np.int64))
    if assembly.dynamic_batch:
        last = assembly.constant(np.array([vocabulary], np.int64))
        assembly.node("Shape", ["input_ids"], ["head.sizes"], name="head.sizes")
        (shape,) = assembly.node("Concat", ["head.sizes", last], ["head.shape"], name="head.shape", axis=0)
    assembly.node("Reshape", ["head.product", shape], [out], name=out)


def add_argmax(assembly: Assembly) -> None:
    """Add the id of the last row's largest logit [B, 1]; both runtimes take the first at a tie."""
    last, end, axis = (assembly.constant(np.array([number], np.int64)) for number in (-1, INT32_MAX, 1))
    assembly.node("Slice", ["logits", last, end, axis], ["logits.last"], name="logits.last")
    assembly.node("ArgMax", ["logits.last"], [causal_lm.NEXT_TOKEN], name=causal_lm.NEXT_TOKEN, axis=2, keepdims=0)


def read_back(path: Path, contract: dict[str, Any]) -> None:
    """Require that the written file says what the contract says.

    Raises:
        StageError: opset, names, shapes or topology differ.
    """
    skeleton = onnx_file.read_skeleton(path)
    opsets = {entry.domain: entry.version for entry in skeleton.model.opset_import}
    if opsets != {"": contract["opset"]}:
        raise StageError(f"{path}: opset read back {opsets}, wanted {contract['opset']} and no other domain")
    if onnx_file.topology_sha256(skeleton.model) != contract["topology_sha256"]:
        raise StageError(f"{path}: the written graph is not the one that was built", hint="write it again")
