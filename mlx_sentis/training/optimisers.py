"""Optimisers and learning-rate schedules by name. Schedules count updates, never micro-batches.

All of them are MLX's own. Where MLX offers a choice it is the one torch makes (Adam's bias correction), so that a
run can be held against torch step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.optimizers as mlx_optimizers

from weights_bridge.errors import StageError
from weights_bridge.settings import TrainSettings

Schedule = Callable[[Any], mx.array]


class MuonForMatrices(mlx_optimizers.Muon):
    """Muon for matrices; vectors, such as DoRA's magnitudes, go by AdamW's rule.

    Muon orthogonalises an update (https://kellerjordan.github.io/posts/muon/), which a vector does not have; its
    authors give everything that is no hidden matrix to AdamW.

    Args:
        schedule: the learning rate, of both rules.
        momentum: Muon's.
        weight_decay: added to a matrix's gradient (L2), decoupled for vectors.
        vectors: AdamW with the numbers that vectors go by.
    """

    def __init__(self, schedule: Schedule, momentum: float, weight_decay: float, vectors: mlx_optimizers.AdamW) -> None:
        super().__init__(schedule, momentum=momentum, weight_decay=weight_decay)
        self.vectors = vectors

    def init_single(self, parameter: mx.array, state: dict[str, Any]) -> None:
        rule = super() if parameter.ndim >= 2 else self.vectors
        rule.init_single(parameter, state)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        if gradient.ndim >= 2:
            return super().apply_single(gradient, parameter, state)
        self.vectors._state = self._state  # one count of updates and one rate
        return self.vectors.apply_single(gradient, parameter, state)


def _adamw(settings: TrainSettings, schedule: Schedule) -> mlx_optimizers.AdamW:
    return mlx_optimizers.AdamW(
        schedule,
        betas=[settings.beta1, settings.beta2],
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        bias_correction=True,  # as torch; MLX's default is off and 1.4e-2 away after five updates
    )


def _adam(settings: TrainSettings, schedule: Schedule) -> mlx_optimizers.Adam:
    if settings.weight_decay:
        hint = "train.optimizer=adamw decays weights, or set train.weight_decay=0"
        raise StageError(f"train.weight_decay: found {settings.weight_decay:g}, but adam has none", hint=hint)
    betas = [settings.beta1, settings.beta2]
    return mlx_optimizers.Adam(schedule, betas=betas, eps=settings.epsilon, bias_correction=True)


def _adafactor(settings: TrainSettings, schedule: Schedule) -> mlx_optimizers.Adafactor:
    # our schedule decides the rate: neither the relative step nor the scale by the parameter's size
    decay = settings.weight_decay
    return mlx_optimizers.Adafactor(schedule, weight_decay=decay, scale_parameter=False, relative_step=False)


OPTIMISERS: dict[str, Callable[[TrainSettings, Schedule], mlx_optimizers.Optimizer]] = {
    "adamw": _adamw,
    "adam": _adam,
    "sgd": lambda s, rate: mlx_optimizers.SGD(rate, momentum=s.momentum, weight_decay=s.weight_decay),
    "adafactor": _adafactor,
    "lion": lambda s, rate: mlx_optimizers.Lion(rate, betas=[s.beta1, s.beta2], weight_decay=s.weight_decay),
    "muon": lambda s, rate: MuonForMatrices(rate, s.momentum, s.weight_decay, _adamw(s, rate)),
}


def make_optimizer(settings: TrainSettings, updates: int) -> tuple[mlx_optimizers.Optimizer, Schedule]:
    """Return the optimiser that the settings name, and its schedule f(updates done) → learning rate.

    Args:
        settings: `optimizer`, its numbers and the schedule's.
        updates: how many updates the whole run has.

    Raises:
        StageError: the optimiser does not have what a setting asks of it.
    """
    schedule = learning_rate_schedule(settings, updates)
    return OPTIMISERS[settings.optimizer](settings, schedule), schedule


def learning_rate_schedule(settings: TrainSettings, updates: int) -> Schedule:
    """Return f(update) → learning rate: linear warm-up, then constant, linear, cosine; or InverseLR.

    Args:
        settings: `schedule`, `learning_rate`, `final_learning_rate`, `warmup_updates`.
        updates: how many updates the whole run has.
    """
    rate, end = settings.learning_rate, settings.final_learning_rate
    if settings.schedule == "inverse":
        return inverse_schedule(
            rate, settings.inverse_gamma, settings.inverse_power, settings.inverse_warmup, settings.final_learning_rate
        )
    warmup = min(settings.warmup_updates, max(0, updates - 1))
    rest = max(1, updates - warmup)
    after = {
        "constant": lambda step: mx.array(rate),
        "linear": mlx_optimizers.linear_schedule(rate, end, rest),
        "cosine": mlx_optimizers.cosine_decay(rate, rest, end),
    }[settings.schedule]
    if warmup == 0:
        return after
    rising = mlx_optimizers.linear_schedule(rate / (warmup + 1), rate, warmup)
    return mlx_optimizers.join_schedules([rising, after], [warmup])


def long_warmup(settings: TrainSettings, updates: int) -> str:
    """Return in words that a warm-up takes most of a run, empty where it does not."""
    if settings.schedule == "inverse" or 2 * settings.warmup_updates <= updates:
        return ""
    taken = min(settings.warmup_updates, max(0, updates - 1))
    return f"the warm-up takes {taken} of the run's {updates} updates: lower train.warmup_updates" if taken else ""


def inverse_schedule(rate: float, gamma: float, power: float, warmup: float, final: float = 0.0) -> Schedule:
    """Return InverseLR: f(k) = (1 − warmup^(k + 1)) · max(final, rate · (1 + k / gamma)^(−power)).

    The formula is that of stable-audio-tools' `InverseLR` (after k-diffusion's), which dashboards of its family
    send; its warm-up is exponential and its own, so `warmup_updates` does not apply.

    Args:
        rate: the height.
        gamma: updates after which the rate has fallen to 2^−power of its height.
        power: exponent of the fall.
        warmup: in [0, 1); 0 is none.
        final: the rate does not fall below it.
    """

    def schedule(step: Any) -> mx.array:
        k = mx.array(step).astype(mx.float32)
        fallen = mx.maximum(final, rate * (1 + k / gamma) ** -power)
        return (1 - mx.power(warmup, k + 1)) * fallen

    return schedule
