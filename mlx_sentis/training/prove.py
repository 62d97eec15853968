"""The gradient proof: our step against the plain one, parameter by parameter.

The plain step knows nothing of ours: whole rows padded to one length, mlx-lm's own masks. Its
own floor is what changes when it is run row by row, which only reorders sums.

The plain step's head is computed in float64. In fp32 its logits are 4e-6 off (SmolLM2: partial sums of a massive
channel cancel), and that alone moved every gradient by 2e-6 and the worst one by 9e-6 from one shape of the matrix
product to another: the reference's rounding would be held against the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_sentis.training import adapters
from mlx_sentis.training.batches import make_batch, plan_epoch
from mlx_sentis.training.definitions import CausalLM, load_causal_lm
from mlx_sentis.training.head import chunks, head_module
from mlx_sentis.training.sharing import Sharing, sharing_of
from mlx_sentis.training.step import arrays_of, loss_of_batch, number
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.model_folder import open_model_folder
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

LIMIT = 1e-5  # relative L2 per parameter, fp32; an offset or a window off by one reads above 1e-3
PROVED_ROWS = 8  # of one batch: the plain step's logits of SmolLM2 take 0.3 GiB for them, Gemma 3's 1.7 GiB
NEGLIGIBLE = 1e-6  # of the largest norm of any parameter's gradient: smaller ones are measured against that

Gradients = dict[str, np.ndarray]
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Proof:
    """How far our gradients are from the plain step's, relative L2.

    Attributes:
        worst: of any parameter.
        parameter: its name.
        floor: the same measure of the plain step run row by row.
        floor_parameter: its name.
        loss: ours, mean over the labelled tokens.
        plain_loss: the plain step's.
        parameters: how many were compared.
        rows: in the batch.
        passes: of our step.
        computed_tokens: of our step.
        plain_tokens: of the plain one.
        limit: the most that passes.
    """

    worst: float
    parameter: str
    floor: float
    floor_parameter: str
    loss: float
    plain_loss: float
    parameters: int
    rows: int
    passes: int
    computed_tokens: int
    plain_tokens: int
    limit: float = LIMIT

    @property
    def passed(self) -> bool:
        return self.worst <= self.limit  # NaN does not pass

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}

    def text(self) -> str:
        """Return the proof in a few lines."""
        return (
            f"{self.rows} rows, {self.parameters} parameters: ours in {self.passes} passes of "
            f"{self.computed_tokens} tokens, plain {self.plain_tokens} tokens\n"
            f"  loss {self.loss:.6f}, plain {self.plain_loss:.6f}\n"
            f"  {'pass' if self.passed else 'MISS'}: gradients differ by {self.worst:.1e} at most "
            f"(limit {self.limit:.0e}, {self.parameter})\n"
            f"  floor: the plain step run row by row differs by {self.floor:.1e} ({self.floor_parameter})"
        )


def prove_step(model: CausalLM, rows: Rows, sharing: Sharing | int, pad_id: int) -> Proof:
    """Compare the gradient of every trained parameter on one batch.

    Args:
        model: adapters added; they are moved from their starting values, where half of the gradients are zero.
        rows: prepared rows of one batch.
        sharing: as for `make_batch`.
        pad_id: the padding token.
    """
    move_adapters(model)
    model.network.eval()  # dropout would differ between the two
    batch = make_batch(rows, sharing, pad_id)
    arrays = arrays_of(batch)
    loss, ours = _gradients(model, lambda: loss_of_batch(model, arrays))
    plain_loss, plain = _gradients(model, lambda: plain_loss_of_rows(model, rows, pad_id))
    floor, floor_parameter = worst_difference(_row_by_row(model, rows, pad_id), plain)
    worst, parameter = worst_difference(ours, plain)
    sizes = (len(rows), len(batch.passes), batch.computed_tokens, len(rows) * max(len(row["ids"]) for row in rows))
    return Proof(worst, parameter, floor, floor_parameter, loss, plain_loss, len(plain), *sizes)


def plain_loss_of_rows(model: CausalLM, rows: Rows, pad_id: int, total: int | None = None) -> mx.array:
    """Return the mean loss of whole rows; each row's labels over `total` where given."""
    width = max(len(row["ids"]) for row in rows)
    ids = np.full((len(rows), width), pad_id, np.int32)
    labels, weights = np.zeros(ids.shape, np.int32), np.zeros(ids.shape, np.float32)
    for index, row in enumerate(rows):
        ids[index, : len(row["ids"])] = row["ids"]
        for start, end in row["trained"]:
            labels[index, start - 1 : end - 1] = row["ids"][start:end]
            weights[index, start - 1 : end - 1] = 1.0
    hidden = model.hidden(model.embed(mx.array(ids)))
    at = np.flatnonzero(weights)  # the others count exactly zero, and Gemma's float64 logits take minutes
    states = hidden.reshape(-1, hidden.shape[-1])[mx.array(at)]
    return exact_loss_sum(model, states, labels.reshape(-1)[at], weights.reshape(-1)[at]) / float(total or len(at))


def exact_loss_sum(model: CausalLM, hidden: mx.array, labels: np.ndarray, weights: np.ndarray) -> mx.array:
    """Return Σ weights · cross-entropy, from the logits on in float64.

    An adapted or quantised head has no float64 form: its logits are fp32, what follows is float64.

    Args:
        model: the decoder.
        hidden: [N, H].
        labels: [N] token ids.
        weights: [N].
    """
    head, total = head_module(model), mx.array(0.0)
    plain = type(head) in (nn.Linear, nn.Embedding)
    parameters = [head[name] for name in ("weight", "bias") if name in head] if plain else []
    for rows in chunks(hidden.shape[0], model.folder.config["vocab_size"]):

        def loss(states: mx.array, *parameters: mx.array, rows: slice = rows) -> mx.array:
            if plain:
                wide = [array.astype(mx.float64) for array in parameters]
                logits = states.astype(mx.float64) @ wide[0].T + (wide[1] if wide[1:] else 0.0)
                if (cap := model.logit_cap) is not None:
                    logits = mx.tanh(logits / cap) * cap
            else:
                logits = model.logits(states).astype(mx.float64)
            chosen = mx.take_along_axis(logits, mx.array(labels[rows])[:, None], axis=-1)[:, 0]
            return mx.sum(mx.array(weights[rows]) * (mx.logsumexp(logits, axis=-1) - chosen)).astype(mx.float32)

        with mx.stream(mx.cpu):  # the only device with float64
            part = mx.depends([hidden[rows]], [total])[0]  # one chunk after the other: they share one chunk's memory
            total = total + (mx.checkpoint(loss) if plain else loss)(part, *parameters)
    return total


def move_adapters(model: CausalLM, seed: int = 11) -> None:
    """Give every adapter tensor other values, deterministically: B starts at zero, and A's gradient with it."""
    random = np.random.default_rng(seed)
    moved = []
    for name, array in adapters.adapter_tensors(model).items():
        noise = mx.array(random.standard_normal(array.shape).astype(np.float32))
        zero = not mx.any(array).item()
        moved.append((name, (0.02 * noise if zero else array * (1 + 0.05 * noise)).astype(array.dtype)))
    model.network.load_weights(moved, strict=False)


def worst_difference(got: Gradients, wanted: Gradients) -> tuple[float, str]:
    """Return the largest relative L2 difference of any parameter and its name; NaN counts as the largest.

    Args:
        got: parameter name to gradient.
        wanted: the same names.
    """
    smallest = NEGLIGIBLE * max(float(np.linalg.norm(array)) for array in wanted.values())
    apart = {
        name: float(np.linalg.norm(got[name] - array) / max(float(np.linalg.norm(array)), smallest))
        for name, array in wanted.items()
    }
    name = max(apart, key=lambda one: np.inf if np.isnan(apart[one]) else apart[one])
    return apart[name], name


def _gradients(model: CausalLM, loss: Callable[[], mx.array]) -> tuple[float, Gradients]:
    value, tree = nn.value_and_grad(model.network, loss)()
    mx.eval(value, tree)
    return number(value), {name: np.array(array, np.float64) for name, array in tree_flatten(tree)}


def _row_by_row(model: CausalLM, rows: Rows, pad_id: int) -> Gradients:
    total = sum(end - start for row in rows for start, end in row["trained"])
    found: Gradients = {}
    for row in rows:
        _, gradients = _gradients(model, lambda row=row: plain_loss_of_rows(model, [row], pad_id, total))
        found = {name: found.get(name, 0.0) + array for name, array in gradients.items()}
    return found


def prove_run(run: RunFolder, settings: Settings) -> Proof:
    """Prove the step on the first batch that a run would train on, at most `PROVED_ROWS` rows of it.

    Args:
        run: with `recipe.json` and `data/`.
        settings: as for training.

    Raises:
        StageError: no training rows.
    """
    recipe, rows = read_json(run.path("recipe.json")), read_jsonl(run.path("data", "train.jsonl"))
    if not rows:
        raise StageError("data/train.jsonl: no rows", hint="prepare a data file with at least one row")
    model = load_causal_lm(open_model_folder(Path(recipe["model"]["path"])))
    adapters.prepare_training(model, settings)
    chosen = [rows[i] for i in plan_epoch(rows, settings.train, 0)[0][:PROVED_ROWS]]
    sharing = sharing_of(rows, enabled=settings.train.share_prefix)
    return prove_step(model, chosen, sharing, recipe["pad_id"])
