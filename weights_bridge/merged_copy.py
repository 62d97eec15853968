"""The merged model once more in fewer bits, in fp16, bf16 or packed for mlx-lm, and what of the adapter that keeps.

A half type is judged as in `merge`. Packing rounds the base's own weights too, and by far more than the adapter changes
them: an error spread over all directions of the input, of which the adapter's change uses a few. So it is judged there.
With Δ what the adapter changes, D = packed(W + Δ) − packed(W), and U, V the main left and right directions of Δ, 16 at
most: kept = 1 − ‖Uᵀ (D − Δ) V‖ / ‖Uᵀ Δ V‖. A base that lies on the same grid already swallows a small Δ, as a fuse
into packed weights does elsewhere. Measured on random 576 × 576 weights and a Δ of rank 16 and 1 % of ‖W‖, at 4 bits:
0.86, and 0.15 where the base was packed before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, write_json
from weights_bridge.merge import Effect, merged_exactly, require_kept, rounded_once, write_manners, write_merged
from weights_bridge.model_folder import ModelFolder
from weights_bridge.model_writer import copy_around, plain_config, torch_shapes_in_order
from weights_bridge.packing import packed
from weights_bridge.quantisation import Packing, dequantised
from weights_bridge.safetensors_writer import SHARD_BYTES, write_model

GROUP = 64  # mlx-lm's own; rows that it does not divide stay bf16, as mlx-lm leaves them
PACKED = {"8bit": 8, "6bit": 6, "5bit": 5, "4bit": 4}
PRECISIONS = ("fp16", "bf16", *PACKED)
DIRECTIONS, LEAST_SIZE = 16, 1e-4  # of Δ that are looked at; smaller ones, relative to the largest, are rounding
BF16 = np.dtype(ml_dtypes.bfloat16)
WORDS = np.dtype("<u4")


class PackedEffect(Effect):
    """How much of an adapter's effect packed weights keep (see this module's first lines)."""

    def add_packed(self, module: str, base: Array, exact: Array, packed_base: Array, written: Array) -> None:
        """Count one weight.

        Args:
            module: its name.
            base: W.
            exact: W + Δ in float64.
            packed_base: W as it would be packed, dequantised.
            written: W + Δ as it is packed, dequantised.
        """
        change = _as_matrix(exact.astype(np.float64) - base)
        lost = _as_matrix(written.astype(np.float64) - packed_base) - change
        left, right = main_directions(change)
        squares = [float(np.square(left.T @ matrix @ right).sum()) for matrix in (lost, change)]
        self._count(module, *squares)


def main_directions(change: Array, most: int = DIRECTIONS) -> tuple[Array, Array]:
    """Return the main left [out, k] and right [in, k] singular directions of a matrix, k ≤ `most` and its rank.

    By a randomised range with one power iteration (Halko, Martinsson & Tropp 2011, arXiv 0909.4061), seeded.
    """
    start = np.random.default_rng(0).standard_normal((change.shape[1], most + 8))
    span = np.linalg.qr(change @ (change.T @ np.linalg.qr(change @ start)[0]))[0]
    left, sizes, right = np.linalg.svd(span.T @ change, full_matrices=False)
    count = max(1, min(most, int((sizes > LEAST_SIZE * sizes[0]).sum())))
    return span @ left[:, :count], right[:count].T


def _as_matrix(array: Array) -> Array:
    return array.reshape(len(array), -1)


def write_merged_copy(
    base: ModelFolder, adapter: Adapter, out: Path, precision: str, stop_ids: list[int], template: Path | None = None
) -> Effect:
    """Write the merged model in fewer bits as a whole directory, or nothing.

    Args:
        base: the base model.
        adapter: what was trained.
        out: the directory to make.
        precision: one of `PRECISIONS`; packed ones are directories for mlx-lm.
        stop_ids: what ends an answer.
        template: a Jinja file that was used in place of the model's own template.

    Returns:
        How much of the adapter's effect was kept.

    Raises:
        StageError: base and adapter do not fit, or too little of the adapter would be kept.
    """
    if precision not in PACKED:
        return write_merged(base, adapter, out, stop_ids, template, precision)
    if not base.architecture.mlx_lm_module:
        hint = "take fp16 or bf16"
        raise StageError(f"{base.path}: mlx-lm has no {base.architecture.model_type} to pack for", hint=hint)
    base.check_tensors(values=True)
    packing, effect = Packing(GROUP, PACKED[precision], "affine"), PackedEffect()
    shapes, dtypes = _announced(base, packing)
    with folder_written_whole(out) as new:
        tensors = _packed_tensors(base, adapter, packing, effect)
        write_model(new, shapes, tensors, dtypes, SHARD_BYTES, {"format": "mlx"})
        copy_around(new, base)
        settings = {"group_size": GROUP, "bits": packing.bits, "mode": packing.mode}
        both = {"quantization": settings, "quantization_config": settings}  # as mlx-lm writes it
        write_json(new / "config.json", plain_config(base, "bf16") | both)
        write_manners(new, stop_ids, template)
        require_kept(effect, precision)
    return effect


def _is_packed(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] % GROUP == 0


def _announced(base: ModelFolder, packing: Packing) -> tuple[dict[str, tuple[int, ...]], dict[str, np.dtype[Any]]]:
    """Return MLX name to shape and to type of what `_packed_tensors` yields, in its order."""
    names = base.architecture.mlx_from_torch(base.config)
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    for torch, shape in torch_shapes_in_order(base).items():
        name = names[torch]
        shapes[name], dtypes[name] = shape, BF16
        if _is_packed(shape):
            shapes[name], dtypes[name] = packing.packed_shape(shape), WORDS
            for part, side in packing.part_shapes(shape).items():
                shapes[f"{name.removesuffix('weight')}{part}"] = side
                dtypes[f"{name.removesuffix('weight')}{part}"] = BF16
    return shapes, dtypes


def _packed_tensors(
    base: ModelFolder, adapter: Adapter, packing: Packing, effect: PackedEffect
) -> Iterator[tuple[str, Array]]:
    names, wanted = base.architecture.mlx_from_torch(base.config), base.architecture.torch_shapes(base.config)
    for torch, array, exact in merged_exactly(base, adapter):
        if torch not in wanted:
            continue
        name, trained = names[torch], exact is not array
        if not _is_packed(exact.shape):
            written = rounded_once(exact, BF16)
            if trained:
                effect.add_packed(torch.removesuffix(".weight"), array, exact, rounded_once(array, BF16), written)
            yield name, written
            continue
        parts = _parts(exact.astype(np.float32), packing)
        if trained:
            module, on_grid = torch.removesuffix(".weight"), _read(_parts(array, packing), packing)
            effect.add_packed(module, array, exact, on_grid, _read(parts, packing))
        for part, piece in zip(("weight", "scales", "biases"), parts, strict=True):
            yield f"{name.removesuffix('weight')}{part}", piece


def _parts(weight: Array, packing: Packing) -> tuple[Array, Array, Array]:
    """Return words, and scales and biases in bf16: the type that mlx-lm computes in."""
    words, scales, biases = packed(weight, packing)
    return words, scales.astype(BF16), biases.astype(BF16)


def _read(parts: tuple[Array, Array, Array], packing: Packing) -> Array:
    """Return what packed parts mean, in fp32."""
    words, scales, biases = parts
    return dequantised(words, scales.astype(np.float32), biases.astype(np.float32), packing)
