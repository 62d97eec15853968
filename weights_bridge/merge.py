"""Merging an adapter into the base weights, tensor by tensor.

The formulas are those of `adapter_kinds`. Products and norms are taken in float64 and rounded once, to the type that is
written, so that a merged weight carries one rounding and not three. A packed base is dequantised first and stays so.

How much of the adapter survives that rounding is measured: with Δ what it changes in exact arithmetic and Δ' what
the written weights change, kept = 1 − ‖Δ' − Δ‖ / ‖Δ‖, 0 at the least. Near 1 in fp32; a rounding coarser than Δ keeps
nothing, and the merged model is the base again.

Legend: `r` rank, `in`/`out` the sides of the weight as a matrix.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.adapter_kinds import Kind
from weights_bridge.compare import Array
from weights_bridge.errors import BudgetMissedError, StageError, all_at_once
from weights_bridge.files import folder_written_whole, read_json, sha256_of, write_json
from weights_bridge.model_folder import ModelFolder
from weights_bridge.model_writer import DTYPES, write_model_folder
from weights_bridge.safetensors_reader import all_finite
from weights_bridge.safetensors_writer import FLOAT32

LEAST_KEPT = 0.5  # of the adapter's effect; half lost is no longer the model that was trained and measured
LEAST_NORM = 1e-12  # added to each norm, so that a row or column of zeros stays zeros


def adapted_weight(weight: Array, parts: dict[str, Array], kind: Kind, scale: float) -> Array:
    """Return one merged weight in float64, in the shape it came in.

    Args:
        weight: W, in torch's layout: [out, in] or [out, channels, taps].
        parts: the module's tensors.
        kind: which formula.
        scale: s.
    """
    part = {name: array.astype(np.float64) for name, array in parts.items()}
    change = part["U"] @ part["M_xs"] @ part["V"].T if kind.fixed_bases else part["lora_B"] @ part["lora_A"]
    adapted = weight.reshape(weight.shape[0], -1).astype(np.float64) + scale * change
    if kind.rows:
        norm = np.linalg.norm(adapted, axis=1) + LEAST_NORM
        adapted *= (part[kind.row_magnitude] / norm)[:, None]
    if kind.columns:
        norm = np.linalg.norm(adapted, axis=0) + LEAST_NORM
        adapted *= part[kind.column_magnitude] / norm
    return adapted.reshape(weight.shape)


def merged_weight(weight: Array, parts: dict[str, Array], kind: Kind, scale: float) -> Array:
    """Return one merged weight in fp32: `adapted_weight` rounded once."""
    return adapted_weight(weight, parts, kind, scale).astype(np.float32)


class Effect:
    """How much of an adapter's effect the written weights keep."""

    def __init__(self) -> None:
        self._part, self._whole = 0.0, 0.0  # sums over all weights: ‖Δ' − Δ‖² and ‖Δ‖²
        self.worst: tuple[float, str] = (1.0, "")
        self.beyond: list[str] = []  # tensors with values that the written type does not reach

    def add(self, module: str, base: Array, exact: Array, written: Array) -> None:
        """Count one weight.

        Args:
            module: its name.
            base: W.
            exact: the merged weight in float64.
            written: the merged weight as it is stored.
        """
        whole = float(np.square(exact - base, dtype=np.float64).sum())
        lost = float(np.square(written.astype(np.float64) - exact).sum())
        self._count(module, lost, whole)

    def _count(self, module: str, part: float, whole: float) -> None:
        self._whole += whole
        self._part += part
        if (kept := self._kept(part, whole)) < self.worst[0] or not self.worst[1]:
            self.worst = (kept, module)

    @staticmethod
    def _kept(part: float, whole: float) -> float:
        if whole == 0:
            return 1.0 if part == 0 else 0.0
        return max(0.0, 1.0 - math.sqrt(part / whole))

    @property
    def kept(self) -> float:
        """The share that survives, 0 to 1."""
        return self._kept(self._part, self._whole)

    def as_json(self) -> dict[str, Any]:
        return {"kept": round(self.kept, 6), "least": round(self.worst[0], 6), "module": self.worst[1]}


def merged_exactly(base: ModelFolder, adapter: Adapter) -> Iterator[tuple[str, Array, Array]]:
    """Yield (torch name, base tensor, merged tensor) one at a time.

    What an adapter changes is float64, what was trained whole is as it was trained, all else is the base's own array.

    Raises:
        StageError: a module of the adapter is not in the model, or its shapes do not fit; all at once.
    """
    check_fit(base, adapter)
    whole = adapter.flat() if adapter.is_full else adapter.saved
    for name, array in base.tensors():
        module = name.removesuffix(".weight")
        if name in whole:
            yield name, array, whole[name]
        elif name.endswith(".weight") and module in adapter.modules and not adapter.is_full:
            yield (
                name,
                array,
                adapted_weight(array, adapter.modules[module], adapter.kind, adapter.scale_of(module)),
            )
        else:
            yield name, array, array


def merged_tensors(
    base: ModelFolder, adapter: Adapter, dtype: np.dtype[Any] = FLOAT32, effect: Effect | None = None
) -> Iterator[tuple[str, Array]]:
    """Yield (torch name, array) of the merged model, one at a time.

    Args:
        base: the base model.
        adapter: what was trained.
        dtype: of floating-point tensors.
        effect: counts what the rounding leaves of the adapter.

    Raises:
        StageError: as `merged_exactly`.
    """
    for name, array, exact in merged_exactly(base, adapter):
        written = rounded_once(exact, dtype) if exact.dtype.kind == "f" else exact
        narrow = dtype == np.float16 or exact is not array  # what is only widened has been looked at before
        if effect is not None and narrow and not all_finite(written):
            effect.beyond.append(name)
        elif effect is not None and exact is not array:
            effect.add(name.removesuffix(".weight"), array, exact, written)
        yield name, written


def rounded_once(exact: Array, dtype: np.dtype[Any]) -> Array:
    """Return values in another type, rounded once: float64 to bfloat16 with the part that fp32 loses as a sticky bit.

    numpy rounds float64 to float16 directly; to bfloat16 ml_dtypes goes through fp32, whose own rounding could make
    a tie of what was none. Rounding to odd first cannot (Boldo & Melquiond 2008).
    """
    if exact.dtype != np.float64 or dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # `Effect.beyond` tells of it
            return exact.astype(dtype, copy=False)
    near = exact.astype(np.float32)
    bits = near.view(np.uint32).copy()
    too_far = np.abs(near.astype(np.float64)) > np.abs(exact)
    inexact = near.astype(np.float64) != exact
    bits[too_far] -= 1  # towards zero
    bits[inexact] |= 1  # and odd
    return bits.view(np.float32).astype(dtype)


def check_fit(base: ModelFolder, adapter: Adapter) -> None:
    """Require that everything in the adapter has its place in the model, with fitting shapes."""
    faults = _full_faults(base, adapter) if adapter.is_full else _module_faults(base, adapter)
    if faults:
        raise all_at_once("the adapter does not fit the model:", faults, hint="use the base model it was trained on")


def _module_faults(base: ModelFolder, adapter: Adapter) -> list[str]:
    linears = base.architecture.linear_modules(base.config)
    faults = []
    for module, parts in adapter.modules.items():
        if module not in linears:
            faults.append(f"{module}: not a Linear of {base.path}")
            continue
        wanted = adapter.kind.shapes(*linears[module], adapter.rank_of(module))
        faults += [
            f"{module}.{part}: found {array.shape}, wanted {wanted[part]}"
            for part, array in parts.items()
            if array.shape != wanted[part]
        ]
    return faults


def _full_faults(base: ModelFolder, adapter: Adapter) -> list[str]:
    wanted = base.architecture.torch_shapes(base.config)
    found = {name: array.shape for name, array in adapter.flat().items()}
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: not a tensor of {base.path}" for name in found.keys() - wanted.keys()]
    both = wanted.keys() & found.keys()
    return faults + [f"{n}: found {found[n]}, wanted {wanted[n]}" for n in both if found[n] != wanted[n]]


def require_base(base: ModelFolder, adapter: Adapter) -> None:
    """Require the very weight files that the adapter was trained on; an adapter that names none is taken as it is.

    Raises:
        StageError: a file is missing, is another one, or is new.
    """
    trained_on = adapter.facts.get("base")
    if not trained_on:
        return
    here = {file.name: sha256_of(file) for file in base.weight_files()}
    if here != trained_on:
        faults = [f"{name}: missing or altered" for name in trained_on if here.get(name) != trained_on[name]]
        faults += [f"{name}: was not there" for name in here.keys() - trained_on.keys()]
        hint = "restore these files, or train again"
        raise all_at_once(f"{base.path}: not the weights the adapter was trained on:", faults, hint=hint)


def write_merged(
    base: ModelFolder,
    adapter: Adapter,
    out: Path,
    stop_ids: list[int],
    template: Path | None = None,
    dtype: str = "fp32",
) -> Effect:
    """Write the merged model as a Hugging Face directory, whole or not at all.

    Args:
        base: the base model.
        adapter: what was trained.
        out: the directory to make; weights, configuration, generation configuration, tokenizer and template.
        stop_ids: what ends an answer; the generation configuration names them even where the base's did not.
        template: a Jinja file that was used in place of the model's own template.
        dtype: a key of `model_writer.DTYPES`.

    Returns:
        How much of the adapter's effect was kept.

    Raises:
        StageError: base and adapter do not fit or hold NaN, or what is written would keep less than `LEAST_KEPT`.
    """
    base.check_tensors(values=True)
    effect = Effect()
    with folder_written_whole(out) as new:
        write_model_folder(new, base, merged_tensors(base, adapter, DTYPES[dtype], effect), dtype)
        write_manners(new, stop_ids, template)
        require_kept(effect, dtype)
    return effect


def write_manners(new: Path, stop_ids: list[int], template: Path | None) -> None:
    """Put what a model was asked and stopped with beside its weights (see `write_merged`)."""
    if template is not None:
        shutil.copyfile(template, new / "chat_template.jinja")
    generation = read_json(new / "generation_config.json") if (new / "generation_config.json").is_file() else {}
    if not isinstance(generation, dict):
        raise StageError("generation_config.json of the base: not a JSON object", hint="restore or delete the file")
    write_json(new / "generation_config.json", generation | {"eos_token_id": stop_ids})


def require_kept(effect: Effect, what: str) -> None:
    """Refuse weights in which too little of the adapter is left.

    Raises:
        StageError: values became infinities; the tensors are named.
        BudgetMissedError: less than `LEAST_KEPT`.
    """
    if effect.beyond:
        faults = [f"{name}: holds values beyond the range of {what}" for name in effect.beyond]
        raise all_at_once("weights that would become infinities:", faults, hint="write bf16 or fp32")
    if effect.kept < LEAST_KEPT:
        found = f"{what} keeps {effect.kept:.1%} of the adapter's effect ({effect.worst[1]}: {effect.worst[0]:.1%})"
        raise BudgetMissedError(f"{found}, wanted {LEAST_KEPT:.0%}", hint="write fp32, which keeps all of it")
