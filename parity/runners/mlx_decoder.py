"""MLX as a decoder: mlx-lm's own definition and cache, greedy steps, and a prefix that is computed once.

Each prompt gets caches of its own that begin with the prefix's keys and values. mlx-lm's cache writes in place only
where it has room; these begin full, so the first update copies them and the prefix stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.evaluation.generator import Greedy, choose_greedily
from parity.runners.decoder_io import check_ids, tail_behind
from weights_bridge.compare import Array


class MlxDecoder:
    """A Hugging Face directory in MLX, fp32.

    Args:
        folder: the directory.
        adapter: an adapter file to put on it, as it was trained; None for the directory as it is.

    Raises:
        StageError: the directory or the adapter cannot be loaded.
    """

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        from mlx_sentis.training import definitions
        from mlx_sentis.training.mlx_lm_models import models_module
        from weights_bridge.model_folder import open_model_folder

        opened = open_model_folder(folder)
        self.model = definitions.load_causal_lm(opened)
        if adapter is not None:
            put_on_adapter(self.model, adapter)
        self.vocab: int = opened.config["vocab_size"]
        self._cache = models_module("cache").KVCache
        self._prefix: tuple[int, ...] = ()
        self._kept: list[tuple[Any, Any]] = []

    def set_prefix(self, ids: Sequence[int]) -> None:
        """Compute the cache of tokens that every later prompt starts with; none forgets them."""
        import mlx.core as mx

        self._prefix, self._kept = (), []
        if not ids:
            return
        check_ids(ids, self.vocab)
        caches = self._caches()
        self.model.hidden(self.model.embed(mx.array([list(ids)])), caches)
        kept = [cache.keys_and_values() for cache in caches]
        mx.eval(kept)
        self._prefix, self._kept = tuple(ids), kept

    def greedy(
        self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int] = (), *, keep_logits: bool = False
    ) -> Greedy:
        """Continue a prompt as `Generator.greedy` says: one pass over what lies behind the prefix, then a token a step.

        Raises:
            StageError: the prompt does not start with the prefix, or an id is outside the vocabulary.
        """
        import mlx.core as mx
        import numpy as np

        check_ids(prompt_ids, self.vocab)
        caches = self._caches()

        def next_row(ids: Sequence[int]) -> Array:
            hidden = self.model.hidden(self.model.embed(mx.array([list(ids)])), caches)
            return np.array(self.model.logits(hidden[:, -1:])[0, 0])

        pending = tail_behind(self._prefix, prompt_ids)
        return choose_greedily(next_row, pending, max_new_tokens, stop_ids, keep_logits=keep_logits)

    def _caches(self) -> list[Any]:
        """Return one full cache per layer that begins with the prefix; a sliding layer's window is its mask."""
        caches = [self._cache() for _ in self.model.layers]
        for cache, (keys, values) in zip(caches, self._kept, strict=False):
            cache.keys, cache.values, cache.offset = keys, values, len(self._prefix)
        return caches


def put_on_adapter(model: Any, adapter: Path) -> None:
    """Add a trained adapter to a loaded model, in MLX, unmerged.

    Raises:
        StageError: the file is no adapter of this model.
    """
    from mlx_sentis.training import adapters

    adapters.put_on(model, adapter)
