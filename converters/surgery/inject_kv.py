"""Giving a decoder that exists only as ONNX its cache: past keys and values in, all keys and values out.

What a graph without a cache computes from the length of its input becomes an input: positions and masks. Keys and
values are joined with those of the past in front of what repeats or transposes them. Nothing of this is trusted:
`kv_ladder` compares the new graph with the old one, whole, in steps and token by token.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.divergence import values_of
from converters.families.causal_lm import MASKED, SCHEMA
from converters.surgery.attention import Attention, Mask, attentions
from converters.surgery.decoder import Seen, feed_of, masks_seen, named_input, named_output, vocabulary_of
from converters.surgery.files import read_whole, removed_on_failure, summary, write_whole
from converters.surgery.kv_ladder import climb
from converters.surgery.parts import exported
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import write_json

if TYPE_CHECKING:
    import onnx

PROBE_TOKENS = 41  # of the sequence on which masks are looked at: longer than a small model's window
MASK_NAMES = ("attention_mask", "sliding_attention_mask")


def inject_kv(
    path: Path, out: Path, *, ids: str | None = None, logits: str | None = None, tokens: int = PROBE_TOKENS
) -> dict[str, Any]:
    """Write a decoder with a cache, and `<name>.contract.json` beside it.

    Args:
        path: a decoder without a cache: ids of any length in, logits out, attention written out.
        out: the file to write.
        ids: the input with token ids; found by its name when None.
        logits: the output with logits; the only one of rank 3 when None.
        tokens: how many tokens masks are looked at and the ladder is climbed with.

    Returns:
        As every surgery, with `ladder`, `layers` and `contract`.

    Raises:
        StageError: a form that is not known, or something else still depends on the length.
        BudgetMissedError: the ladder fails; nothing stays written.
    """
    import onnx_graphsurgeon as gs

    model = read_whole(path)
    ids, logits = named_input(model, ids), named_output(model, logits)
    vocabulary = vocabulary_of(model, ids)
    sample = np.random.default_rng(0).integers(0, vocabulary, (1, tokens))
    feed = feed_of(model, ids, sample)
    graph = gs.import_onnx(model)
    found = attentions(graph)
    masks = masks_seen(path, found, feed, tokens)
    measured = [value.name for one in found for value in (one.key, one.value, one.weighted.inputs[1])]
    sizes = values_of(path, measured, feed)
    _rewire(graph, found, masks, sizes, ids, logits, vocabulary)
    made = exported(graph, model)
    contract = _contract(made, found, masks, sizes, vocabulary)
    write_whole(made, out, path)
    with removed_on_failure(out):
        ladder = climb(path, out, feed, {"ids": ids, "logits": logits}, contract)
    write_json(out.with_suffix(".contract.json"), contract)
    worst = min((row["psnr_db"] for row in ladder if row["psnr_db"] is not None), default=None)
    proof = f"ladder of {len(ladder)}: " + ("exact" if worst is None else f"{worst:.1f} dB or better")
    more = {"layers": len(found), "ladder": ladder, "contract": str(out.with_suffix(".contract.json"))}
    return summary(out, model.graph, made.graph, proof, **more)


def _rewire(
    graph: Any,
    found: list[Attention],
    seen: Mapping[int, Seen],
    sizes: Mapping[str, Array],
    ids: str,
    logits: str,
    vocabulary: int,
) -> None:
    import onnx_graphsurgeon as gs

    batch, query, past, total = "batch", "query", "past", "total"
    windows = sorted({one.window for one in seen.values()}, key=lambda window: window is not None)
    if len(windows) > len(MASK_NAMES):
        raise StageError(f"{len(windows)} kinds of masks, known are all tokens and one window")
    masks = {w: gs.Variable(_mask_name(w), np.float32, [batch, 1, query, total]) for w in windows}
    tensors = graph.tensors()
    tensors[ids].shape = [batch, query]
    caches, presents = [], []
    for at, one in enumerate(found):
        _repeat(one, sizes[one.weighted.inputs[1].name].shape, sizes[one.value.name].shape)
        for part, value in (("key", one.key), ("value", one.value)):
            turned = part == "key" and one.key_turned
            shape = sizes[value.name].shape
            heads, width = shape[1], shape[-2 if turned else -1]
            cache = gs.Variable(f"past_key_values.{at}.{part}", np.float32, [batch, heads, past, width])
            present = gs.Variable(f"present.{at}.{part}", np.float32, [batch, heads, total, width])
            _join(graph, value, cache, present, turned=turned)
            caches.append(cache)
            presents.append(present)
        _mask(graph, one.mask, masks[seen[at].window])
    positions = _positions(graph, tensors, query, batch)
    graph.outputs = [tensors[logits], *presents]
    tensors[logits].shape = [batch, query, vocabulary]
    tensors[logits].name = "logits"
    tensors[ids].name = "input_ids"
    graph.inputs = [tensors[ids], positions, *(masks[window] for window in windows), *caches]
    graph.cleanup().toposort()
    _require_no_length(graph, {value.name for value in graph.inputs})


def _mask_name(window: int | None) -> str:
    return MASK_NAMES[window is not None]


def _join(graph: Any, value: Any, cache: Any, present: Any, *, turned: bool) -> None:
    """Let every reader of keys or values read those of the past as well."""
    import onnx_graphsurgeon as gs

    readers = [(node, at) for node in value.outputs for at, one in enumerate(node.inputs) if one is value]
    new, read = value, present
    if turned:
        swap: dict[str, object] = {"perm": [0, 1, 3, 2]}
        new, read = gs.Variable(f"{present.name}:new", np.float32), gs.Variable(f"{present.name}:turned", np.float32)
        graph.nodes.append(gs.Node("Transpose", new.name, swap, [value], [new]))
        graph.nodes.append(gs.Node("Transpose", read.name, swap, [present], [read]))
    graph.nodes.append(gs.Node("Concat", present.name, {"axis": 2}, [cache, new], [present]))
    for node, at in readers:
        node.inputs[at] = read


def _repeat(one: Attention, repeated: tuple[int, ...], grouped: tuple[int, ...]) -> None:
    """Repeat grouped keys and values for any number of tokens: the graph may count those of its input."""
    import onnx_graphsurgeon as gs

    heads, width = repeated[1], repeated[-1]
    for expand, reshape in one.repeats:
        names = [f"{node.outputs[0].name}:sizes" for node in (expand, reshape)]
        by = np.array([1, 1, heads // grouped[1], 1, 1], np.int64)
        expand.inputs[1] = gs.Constant(names[0], by)
        reshape.attrs.pop("allowzero", None)
        reshape.inputs[1] = gs.Constant(names[1], np.array([0, heads, -1, width], np.int64))


def _mask(graph: Any, mask: Mask, given: Any) -> None:
    """Add the given mask to the scores where the graph added or chose its own."""
    import onnx_graphsurgeon as gs

    node, scores = mask.node, mask.node.inputs[mask.scores]
    if node.op == "Add":
        node.inputs[1 - mask.scores] = given
        return
    (out,) = node.outputs
    node.outputs.clear()
    graph.nodes.append(gs.Node("Add", node.name or out.name, {}, [scores, given], [out]))


def _positions(graph: Any, tensors: Mapping[str, Any], query: str, batch: str) -> Any:
    """Feed positions: an input that is there, or what counts from 0 or takes the first rows of a table."""
    import onnx_graphsurgeon as gs

    if (known := tensors.get("position_ids")) is not None:
        known.shape = [batch, query]
        return known
    positions = gs.Variable("position_ids", np.int64, [batch, query])
    flat = gs.Variable("position_ids:flat", np.int64, [query])
    end = gs.Constant("position_ids:shape", np.array([-1], np.int64))
    graph.nodes.append(gs.Node("Reshape", flat.name, {}, [positions, end], [flat]))
    for node in [node for node in graph.nodes if node.op == "Range"]:
        (out,) = node.outputs
        kind = out.dtype or np.int64
        node.outputs.clear()
        to: dict[str, object] = {"to": 1 if np.issubdtype(kind, np.floating) else 7}  # FLOAT, INT64
        graph.nodes.append(gs.Node("Cast", f"{out.name}:positions", to, [flat], [out]))
    for node in [node for node in graph.nodes if node.op == "Slice" and isinstance(node.inputs[0], gs.Constant)]:
        if isinstance(node.inputs[2], gs.Constant):
            continue
        axes = node.inputs[3].values.tolist() if len(node.inputs) > 3 else [0]
        (out,) = node.outputs
        node.outputs.clear()
        graph.nodes.append(gs.Node("Gather", f"{out.name}:rows", {"axis": axes[0]}, [node.inputs[0], flat], [out]))
    return positions


def _require_no_length(graph: Any, inputs: set[str]) -> None:
    """Require that nothing but the new inputs is asked for, and nothing counts tokens by itself."""
    counting = [node for node in graph.nodes if node.op in ("CumSum", "Trilu", "Range")]
    read = {value.name for node in graph.nodes for value in node.inputs if not getattr(value, "inputs", [1])}
    weights = {value.name for node in graph.nodes for value in node.inputs if type(value).__name__ == "Constant"}
    if counting:
        node = counting[0]
        what = f"{node.op} {node.name or node.outputs[0].name!r} still counts tokens"
        raise StageError(what, hint="export the decoder with position_ids as an input")
    if left := sorted(read - inputs - weights - {""}):
        raise StageError(f"{left[0]!r} is still read", hint="export the decoder with position_ids as an input")


def _contract(
    model: onnx.ModelProto,
    found: list[Attention],
    seen: Mapping[int, Seen],
    sizes: Mapping[str, Array],
    vocabulary: int,
) -> dict[str, Any]:
    """Return what a caller needs: the causal_lm contract as far as a graph can tell it."""
    from converters.surgery.info import value_row

    shape = sizes[found[0].value.name].shape
    window = next((one.window for one in seen.values() if one.window is not None), None)
    kinds = {None: "full_attention"} | ({window: "sliding_attention"} if window else {})
    constants = {"layers": len(found), "kv_heads": shape[1], "head_dim": shape[-1], "vocab": vocabulary}
    constants |= {"sliding_window": window, "layer_kinds": [kinds[seen[at].window] for at in range(len(found))]}
    rows = {"INT64": "int64", "FLOAT": "float32"}
    io = {}
    for side, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        io[side] = [row | {"dtype": rows.get(row.pop("type"), "")} for row in map(value_row, values)]
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    masks = {_mask_name(one.window): kinds[one.window] for one in seen.values()}
    head = {"schema": SCHEMA, "family": "causal_lm", "architecture": "unknown", "opset": opset, "dtype": "fp32"}
    return head | {"batch": "dynamic", "constants": constants, **io, "masks": masks, "masked": MASKED}
