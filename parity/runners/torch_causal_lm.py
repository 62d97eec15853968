"""The reference: transformers' own class in fp32 with eager attention.

Gradients are off through `requires_grad_(False)` and `no_grad`, never `inference_mode`: its tensors cannot be
used by code that later records a graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.runners.decoder_io import check_ids
from parity.runners.plain import plain_directory
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.model_folder import open_base


@dataclass(frozen=True)
class TorchForward:
    """What the original computes for one prompt of T tokens, float32.

    Attributes:
        logits: [1, T, V].
        hidden: per depth [1, T, H]: after the embeddings, after each layer; the last one after the final norm.
        keys: per layer [1, kv_heads, T, head_dim], as they lie in the cache (rotated).
        values: the same for values.
    """

    logits: Array
    hidden: list[Array]
    keys: list[Array]
    values: list[Array]

    def graph_outputs(self) -> dict[str, Array]:
        """Return the tensors under the names that the ONNX graph gives them."""
        outputs = {"logits": self.logits}
        for i, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            outputs |= {f"present.{i}.key": key, f"present.{i}.value": value}
        return outputs


class TorchCausalLM:
    """A Hugging Face directory in transformers.

    Args:
        folder: the directory; weights that MLX packed are dequantised for the while.
        stored: `fp16` rounds every matrix to fp16 first, as an fp16 export stores it; arithmetic stays fp32.

    Raises:
        StageError: transformers cannot load it, or weights are missing or unexpected.
    """

    def __init__(self, folder: Path, stored: str = "fp32") -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        if not (folder / "config.json").is_file():
            raise StageError(f"{folder}: no config.json", hint="give a Hugging Face model directory")
        open_base(folder).check_tensors()  # a damaged file is one line here, a traceback in transformers
        try:
            with plain_directory(folder) as plain:
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    plain, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
                )
        except (OSError, ValueError, RuntimeError) as error:
            hint = "check the directory with `mlx-sentis recipe`"
            raise StageError(f"{folder}: transformers cannot load it: {error}", hint=hint) from error
        model, loading = loaded
        wrong = {key: sorted(map(str, names)) for key, names in loading.items() if names and key != "error_msgs"}
        if wrong:
            raise StageError(f"{folder}: weights do not fit the model: {wrong}", hint="write the directory again")
        self.model = model.eval().requires_grad_(False)
        if stored == "fp16":
            for weight in self.model.parameters():
                if weight.dim() > 1:
                    weight.copy_(weight.half().float())
        self.vocab: int = model.config.vocab_size
        self.positions: int = getattr(model.config, "max_position_embeddings", None) or 2**31

    def forward(self, ids: Sequence[int]) -> TorchForward:
        """Run a prompt of T tokens from an empty cache.

        Raises:
            StageError: no ids, or ids outside the vocabulary.
        """
        import torch
        from transformers import DynamicCache

        check_ids(ids, self.vocab)
        cache = DynamicCache()  # without a configuration: sliding layers keep every token, as the graph does
        known = inspect.signature(self.model.forward).parameters
        named = {"cache" if "cache" in known else "past_key_values": cache}  # transformers 5.24 renamed it
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([ids]), use_cache=True, output_hidden_states=True, **named)
        return TorchForward(
            out.logits.numpy(),
            [hidden.numpy() for hidden in out.hidden_states],
            [layer.keys.numpy() for layer in cache.layers],  # pyright: ignore
            [layer.values.numpy() for layer in cache.layers],  # pyright: ignore
        )

    def module_outputs(self, ids: Sequence[int], names: Sequence[str]) -> dict[str, Array]:
        """Return what the named modules put out for a prompt, each [1, T, width].

        Args:
            ids: the prompt.
            names: dotted module names such as `model.layers.1.self_attn.q_proj`.
        """
        import torch

        kept: dict[str, Array] = {}

        def keep(name: str) -> Any:
            return lambda module, args, out: kept.__setitem__(name, out.detach().numpy().copy())

        hooks = [self.model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
        try:
            with torch.no_grad():
                self.model(input_ids=torch.tensor([ids]), use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        return kept

    def greedy(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], list[Array]]:
        """Return exactly `max_new_tokens` greedy ids of transformers' own `generate`, and the row [V] behind each.

        End tokens do not end it and no penalty applies, whatever `generation_config.json` says: this is the
        reference for the arithmetic, not for the manners.
        """
        import torch
        from transformers import GenerationConfig

        check_ids(prompt_ids, self.vocab)
        plain = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            use_cache=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
        self.model.generation_config = plain
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # one-token steps: on a busy machine OpenMP's barriers cost ten times the arithmetic
        try:
            with torch.no_grad():
                out = self.model.generate(
                    torch.tensor([prompt_ids]),
                    attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.int64),
                    generation_config=plain,
                )
        finally:
            torch.set_num_threads(threads)
        ids = out.sequences[0, len(prompt_ids) :].tolist()
        return ids, [row[0].numpy() for row in out.logits]
