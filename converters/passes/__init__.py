"""Graph passes in the order they run: one file each, each with its reasons for not firing.

First the file becomes one plain graph (weights inside, functions and decided branches in place), then operators that
Sentis does not import are written with others, then what it would compute differently, then constants and the opset.
What the file says of inner shapes is dropped last: it tells what lies behind operators that nobody else knows.
"""

from __future__ import annotations

from converters.passes import (
    arithmetic,
    baked,
    clamp_int64,
    contrib_attention,
    contrib_gelu,
    contrib_grouped,
    contrib_linear,
    contrib_norm,
    contrib_rotary,
    conv_transpose,
    dequantise,
    dequantise_blocks,
    drop_metadata,
    dropout_mask,
    einsum_order,
    evaluation_mode,
    float_only,
    fourier,
    function_bodies,
    gelu_tanh,
    grid_sample,
    group_norm,
    images,
    inline_functions,
    inline_weights,
    isnan_guard,
    layer_norm,
    named_sizes,
    norms_and_pools,
    opset,
    pooling,
    positive_indices,
    raw_tensors,
    recurrent,
    resequence_weights,
    resize,
    rms_norm,
    select_branch,
    sequences,
    softmax_axis,
    sum_single,
    topk_smallest,
    unroll,
    whole_numbers,
    written_out,
)
from converters.passes.base import Pass

IN_ORDER = (
    inline_weights, resequence_weights, inline_functions, select_branch, unroll, named_sizes, sequences,
    evaluation_mode, dropout_mask,
    contrib_gelu, contrib_norm, contrib_linear, contrib_rotary, contrib_attention, contrib_grouped,
    dequantise, dequantise_blocks,
    recurrent, group_norm, rms_norm, norms_and_pools, arithmetic, images, function_bodies,
    gelu_tanh, softmax_axis, layer_norm, pooling, resize, topk_smallest, sum_single, einsum_order, conv_transpose,
    baked, fourier, grid_sample, float_only, whole_numbers, written_out,
    isnan_guard, positive_indices, raw_tensors, clamp_int64, opset, drop_metadata,
)  # fmt: skip
PASSES: dict[str, Pass] = {module.PASS.name: module.PASS for module in IN_ORDER}
