"""ONNX Runtime as a decoder: prefill, greedy steps, and a prefix whose keys and values are computed once.

Caches stay `OrtValue`s from step to step: what one run returns is what the next one reads, nothing is copied to
numpy and back. Inside, the graph's own Concat still copies the cache once per step: that is the flat contract's
price.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mlx_sentis.evaluation.generator import Greedy, choose_greedily
from parity.runners.decoder_io import (
    cache_names,
    check_ids,
    check_signature,
    empty_cache,
    prefill_inputs,
    tail_behind,
)
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once

if TYPE_CHECKING:
    from converters.replaced import Replaced

Optimisation = Literal["off", "all"]


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens seen so far.

    Attributes:
        tokens: how many.
        values: cache input name to `OrtValue` [1, kv_heads, tokens, head_dim].
    """

    tokens: int
    values: Mapping[str, Any]


class OnnxDecoder:
    """A causal_lm graph in ONNX Runtime on the CPU.

    Args:
        onnx: the graph's file.
        contract: its `contract.json`.
        optimisation: ONNX Runtime's graph optimisation, `off` or `all`.
        threads: within one operator; 0 is one per core this process may use.
        other_numbers: the graph with other numbers in some constants, opened instead of the file.

    Raises:
        StageError: the file cannot be loaded, or its inputs and outputs are not the contract's.
    """

    def __init__(
        self,
        onnx: Path,
        contract: Mapping[str, Any],
        *,
        optimisation: Optimisation = "all",
        threads: int = 0,
        other_numbers: Replaced | None = None,
    ) -> None:
        self.contract = contract
        from converters.ort_session import open_session

        if not onnx.is_file():
            raise StageError(f"{onnx}: no such file", hint="run `mlx-sentis export` first")
        self._other = other_numbers  # the session reads them where they lie
        given = {} if other_numbers is None else {"folder": other_numbers.folder, "handed_over": other_numbers.values}
        graph = onnx if other_numbers is None else other_numbers.model
        self.session = open_session(graph, optimisation, threads or usable_cores(), **given)
        self.output_names = [output.name for output in self.session.get_outputs()]
        inputs = [value.name for value in self.session.get_inputs()]
        if faults := check_signature(inputs, self.output_names, contract):
            raise all_at_once(f"{onnx}: not the graph of its contract:", faults, hint="export the model again")
        self._names = cache_names(contract["constants"]["layers"])
        self._at = {name: i for i, name in enumerate(self.output_names)}
        self._prefix: tuple[tuple[int, ...], Cache] = ((), self.empty())

    def empty(self) -> Cache:
        """Return the cache of no tokens."""
        return Cache(0, {name: _value(array) for name, array in empty_cache(self.contract).items()})

    def fed(self, ids: Sequence[int], past: int) -> dict[str, Array]:
        """Return every input of one step but the cache: new ids behind `past` tokens."""
        return prefill_inputs(ids, past, self.contract)

    def step(self, ids: Sequence[int], past: Cache) -> tuple[list[Any], Cache]:
        """Run q tokens on top of a cache.

        Returns:
            All outputs as `OrtValue`s in the graph's order, and the cache with the q tokens in it.
        """
        feed = {k: _value(v) for k, v in self.fed(ids, past.tokens).items()}
        outputs = self.session.run_with_ort_values(self.output_names, {**feed, **past.values})
        values = {name: outputs[self._at[present]] for name, present in self._names}
        return outputs, Cache(past.tokens + len(ids), values)

    def forward(self, ids: Sequence[int]) -> dict[str, Array]:
        """Return every output of a prefill: `logits` [1, q, V], `present.{i}.key|value` [1, kv_heads, q, head_dim]."""
        outputs, _ = self.step(ids, self.empty())
        return {name: value.numpy() for name, value in zip(self.output_names, outputs, strict=True)}

    def set_prefix(self, ids: Sequence[int]) -> None:
        """Compute the cache of tokens that every later prompt starts with; none forgets them."""
        self._prefix = (tuple(ids), self.step(ids, self.empty())[1] if ids else self.empty())

    def greedy(
        self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int] = (), *, keep_logits: bool = False
    ) -> Greedy:
        """Continue a prompt as `Generator.greedy` says, through the real loop: one prefill, then one token per step.

        Raises:
            StageError: the prompt does not start with the prefix, or an id is outside the vocabulary.
        """
        check_ids(prompt_ids, self.contract["constants"]["vocab"])
        prefix, cache = self._prefix

        def next_row(ids: Sequence[int]) -> Array:
            nonlocal cache
            outputs, cache = self.step(ids, cache)
            return outputs[self._at["logits"]].numpy()[0, -1]

        pending = tail_behind(prefix, prompt_ids)
        return choose_greedily(next_row, pending, max_new_tokens, stop_ids, keep_logits=keep_logits)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _value(array: Array) -> Any:
    import onnxruntime as ort

    return ort.OrtValue.ortvalue_from_numpy(array)
