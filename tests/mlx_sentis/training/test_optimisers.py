"""Optimisers against torch's (in a child, as MLX and torch never meet) or their papers; schedules by hand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.optimizers import clip_grad_norm

from mlx_sentis.training.optimisers import inverse_schedule, learning_rate_schedule, long_warmup, make_optimizer
from weights_bridge.errors import StageError
from weights_bridge.settings import TrainSettings, resolve

RNG = np.random.default_rng(5)
START = {"matrix": RNG.standard_normal((4, 6)).astype(np.float32), "vector": RNG.standard_normal(5).astype(np.float32)}
GRADIENTS = [{k: RNG.standard_normal(v.shape).astype(np.float32) for k, v in START.items()} for _ in range(4)]
PLAIN: dict[str, Any] = {"learning_rate": 0.01, "schedule": "constant", "warmup_updates": 0}
TORCH = """
import json, sys
import torch
request, answer = json.load(sys.stdin), {}
for name, case in request["cases"].items():
    p = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in request["start"].items()}
    trained = [v for v in p.values() if case["kind"] != "Muon" or v.ndim == 2]
    optimizer = getattr(torch.optim, case["kind"])(trained, **case["settings"])
    for gradients in request["gradients"]:
        for key, gradient in gradients.items():
            p[key].grad = torch.tensor(gradient)
        if case["clip"]:
            torch.nn.utils.clip_grad_norm_(list(p.values()), case["clip"])
        optimizer.step()
    answer[name] = {k: v.tolist() for k, v in p.items()}
json.dump(answer, sys.stdout)
"""
# name: torch's class, its settings, clipping, ours
CASES: dict[str, tuple[str, dict[str, Any], float, dict[str, Any]]] = {
    "adamw": (
        "AdamW",
        {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1},
        0.0,
        {"weight_decay": 0.1},
    ),
    "adam": (
        "Adam",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6},
        0.0,
        {"optimizer": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6},
    ),
    "sgd": (
        "SGD",
        {"lr": 0.01, "momentum": 0.7, "weight_decay": 0.1},
        0.0,
        {"optimizer": "sgd", "momentum": 0.7, "weight_decay": 0.1},
    ),
    "muon": (
        "Muon",  # takes matrices only
        {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.0},
        0.0,
        {"optimizer": "muon", "momentum": 0.9},
    ),
    "clipped": ("SGD", {"lr": 0.01}, 0.5, {"optimizer": "sgd", "momentum": 0.0}),
}


@pytest.fixture(scope="module")
def torchs() -> dict[str, dict[str, Any]]:
    """What torch makes of every case, in one process: importing it takes seconds."""
    start = {k: v.tolist() for k, v in START.items()}
    gradients = [{k: v.tolist() for k, v in one.items()} for one in GRADIENTS]
    cases = {name: {"kind": k, "settings": s, "clip": c} for name, (k, s, c, _) in CASES.items()}
    request = json.dumps({"cases": cases, "start": start, "gradients": gradients})
    child = subprocess.run([sys.executable, "-c", TORCH], input=request, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return {n: {k: np.asarray(v, np.float32) for k, v in one.items()} for n, one in json.loads(child.stdout).items()}


def ours(updates: int = 4, clip: float = 0.0, **settings: Any) -> dict[str, Any]:
    optimizer, _ = make_optimizer(TrainSettings(**(PLAIN | settings)), updates)
    values: Any = {k: mx.array(v) for k, v in START.items()}
    optimizer.init(values)
    for gradients in GRADIENTS[:updates]:
        given: Any = {k: mx.array(v) for k, v in gradients.items()}
        if clip:
            given, _ = clip_grad_norm(given, clip)
        values = optimizer.apply_gradients(given, values)
    return {k: np.array(v) for k, v in values.items()}


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-6, atol=2e-7, err_msg=name)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_four_updates_equal_torchs(name: str, torchs: dict[str, dict[str, Any]]) -> None:
    assert_close(ours(**CASES[name][3]), torchs[name])


def test_clipping_scales_by_one_norm_over_all_tensors_as_torch_does(torchs: dict[str, dict[str, Any]]) -> None:
    clipped = ours(clip=0.5, **CASES["clipped"][3])
    assert_close(clipped, torchs["clipped"])
    assert np.abs(clipped["matrix"] - ours(**CASES["clipped"][3])["matrix"]).max() > 1e-3


def test_lions_first_update_is_the_sign_after_a_decoupled_decay() -> None:
    # Chen et al. 2023, arXiv 2302.06675, algorithm 2
    wanted = {k: v * (1 - 0.01 * 0.1) - 0.01 * np.sign(GRADIENTS[0][k]) for k, v in START.items()}
    assert_close(ours(1, optimizer="lion", weight_decay=0.1), wanted)


def test_lion_goes_by_both_of_its_momenta_over_four_updates() -> None:
    # the same algorithm: the sign of β1 m + (1 − β1) g moves, β2 m + (1 − β2) g is kept
    values, momenta = dict(START), {name: np.zeros_like(value) for name, value in START.items()}
    for gradients in GRADIENTS:
        for name, gradient in gradients.items():
            direction = np.sign(0.8 * momenta[name] + 0.2 * gradient)
            values[name] = values[name] * (1 - 0.01 * 0.1) - 0.01 * direction
            momenta[name] = 0.95 * momenta[name] + 0.05 * gradient
    assert_close(ours(optimizer="lion", beta1=0.8, beta2=0.95, weight_decay=0.1), values)


def test_adafactor_keeps_factored_means_over_four_updates() -> None:
    # algorithm 4 again; MLX clips at 1 and has no first moment as we set it up
    values = {name: value.astype(np.float64) for name, value in START.items()}
    means: dict[str, Any] = {}
    for step, gradients in enumerate(GRADIENTS, 1):
        beta = 1 - step**-0.8
        for name, gradient in gradients.items():
            square = gradient.astype(np.float64) ** 2 + 1e-30
            new = (square.mean(1), square.mean(0)) if square.ndim == 2 else (square,)
            old = means.get(name, tuple(np.zeros_like(part) for part in new))
            means[name] = tuple(beta * before + (1 - beta) * now for before, now in zip(old, new, strict=True))
            size = np.outer(*means[name]) / means[name][0].mean() if square.ndim == 2 else means[name][0]
            update = gradient / np.sqrt(size)
            values[name] = values[name] - 0.01 * update / max(1.0, float(np.sqrt((update**2).mean())))
    found = ours(optimizer="adafactor")
    for name in values:
        np.testing.assert_allclose(found[name], values[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_muon_is_torchs_for_matrices_as_far_as_its_half_precision_goes(torchs: dict[str, dict[str, Any]]) -> None:
    # torch iterates in bfloat16 (8 bits), four updates of about 0.01 each
    found = ours(**CASES["muon"][3])["matrix"]
    moved = np.abs(torchs["muon"]["matrix"] - START["matrix"]).max()
    assert np.abs(found - torchs["muon"]["matrix"]).max() < 0.03 * moved


def test_adafactors_first_update_is_the_gradient_over_its_factored_size() -> None:
    # Shazeer and Stern 2018, arXiv 1804.04235, algorithm 4 with beta2 = 1 - t^-0.8 (0 at t = 1) and clipping at 1
    def rule(value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        square = gradient.astype(np.float64) ** 2 + 1e-30
        if square.ndim == 2:
            square = np.outer(square.mean(1), square.mean(0)) / square.mean()
        update = gradient / np.sqrt(square)
        return value - 0.01 * update / max(1.0, float(np.sqrt((update**2).mean())))

    assert_close(ours(1, optimizer="adafactor"), {k: rule(v, GRADIENTS[0][k]) for k, v in START.items()})


def test_muons_first_update_of_a_matrix_is_nearly_orthogonal_and_a_vectors_is_adamws() -> None:
    found = ours(1, optimizer="muon", momentum=0.95)
    moved = (START["matrix"] - found["matrix"]) / 0.01
    # five Newton-Schulz steps bring singular values into about [0.7, 1.2] (the author's own figure)
    singular = np.linalg.svd(moved, compute_uv=False)
    assert (singular > 0.6).all()
    assert (singular < 1.3).all()
    np.testing.assert_allclose(found["vector"], ours(1)["vector"], rtol=1e-6)
    assert np.abs(moved - np.sign(GRADIENTS[0]["matrix"])).max() > 0.1  # AdamW's would be the sign


def test_muon_goes_on_as_adamw_for_vectors_over_several_updates() -> None:
    np.testing.assert_allclose(ours(4, optimizer="muon")["vector"], ours(4)["vector"], rtol=1e-6)


def test_a_decay_that_adam_does_not_have_is_refused_and_not_ignored() -> None:
    with pytest.raises(StageError, match="adam has none"):
        make_optimizer(TrainSettings(optimizer="adam", weight_decay=0.1), 4)


# --- all of it from one file


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "adafactor", "lion", "muon"])
def test_every_optimiser_takes_every_schedule_and_clipping_from_one_file(
    optimizer: str, schedule: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'[train]\noptimizer = "{optimizer}"\nschedule = "{schedule}"\nlearning_rate = 0.01\nwarmup_updates = 2\n'
        "gradient_clip = 0.5\nfinal_learning_rate = 0.001\ninverse_gamma = 2.0\ninverse_warmup = 0.5\n"
    )
    settings = resolve(file=file).settings.train
    chosen, rate = make_optimizer(settings, 6)
    values: Any = {name: mx.array(value) for name, value in START.items()}
    chosen.init(values)
    for update, gradients in enumerate(GRADIENTS):
        before = {name: np.array(value) for name, value in values.items()}
        given: Any = {name: mx.array(value) for name, value in gradients.items()}
        given, _ = clip_grad_norm(given, settings.gradient_clip)
        values = chosen.apply_gradients(given, values)
        mx.eval(values, chosen.state)
        # each update goes by the rate of its own number
        assert float(chosen.learning_rate.item()) == pytest.approx(float(rate(mx.array(update)).item()), rel=1e-6)
        assert all(np.isfinite(np.array(value)).all() for value in values.values())
        assert all(np.abs(np.array(values[name]) - before[name]).max() > 0 for name in values)
    wanted = {"constant": 0.01, "linear": 0.00775, "cosine": 0.00868, "inverse": 0.0059293}[schedule]
    assert float(rate(mx.array(3)).item()) == pytest.approx(wanted, rel=1e-3)


# --- schedules


def rates(updates: int, **settings: Any) -> list[float]:
    chosen: dict[str, Any] = {"learning_rate": 1.0} | settings
    schedule = learning_rate_schedule(TrainSettings(**chosen), updates)
    return [float(schedule(mx.array(k)).item()) for k in range(updates)]  # pyright: ignore[reportArgumentType]


def test_the_rate_rises_in_equal_parts_and_reaches_its_height_after_the_warm_up() -> None:
    np.testing.assert_allclose(rates(8, schedule="constant", warmup_updates=3), [0.25, 0.5, 0.75, *[1.0] * 5])


def test_a_linear_schedule_would_reach_zero_after_the_last_update() -> None:
    np.testing.assert_allclose(rates(6, schedule="linear", warmup_updates=2), [1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])


def test_a_cosine_schedule_is_half_a_cosine() -> None:
    wanted = [1 / 2, *(0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4))]
    np.testing.assert_allclose(rates(5, schedule="cosine", warmup_updates=1), wanted, atol=1e-6)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_falls_towards_the_final_rate(schedule: str) -> None:
    found = rates(100, schedule=schedule, warmup_updates=0, final_learning_rate=0.25)
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(0.25, abs=0.01)
    assert min(found) >= 0.25


def test_without_warm_up_the_first_rate_is_the_height() -> None:
    assert rates(4, schedule="cosine", warmup_updates=0)[0] == 1.0


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("updates", [1, 2, 4])
def test_a_run_shorter_than_its_warm_up_still_reaches_the_height(schedule: str, updates: int) -> None:
    found = rates(updates, schedule=schedule, warmup_updates=4)
    assert found[-1] == pytest.approx(1.0)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("settings", "updates", "words"),
    [
        ({"warmup_updates": 8}, 8, "the warm-up takes 7 of the run's 8 updates"),
        ({"warmup_updates": 100}, 20, "the warm-up takes 19 of the run's 20 updates"),
        ({"warmup_updates": 8}, 16, ""),
        ({"warmup_updates": 8}, 1, ""),
        ({"warmup_updates": 8, "schedule": "inverse"}, 8, ""),
    ],
)
def test_a_warm_up_that_takes_most_of_a_run_is_told(settings: dict[str, Any], updates: int, words: str) -> None:
    found = long_warmup(TrainSettings(**settings), updates)
    assert (words in found) if words else found == ""


def test_inverse_is_its_formula_with_a_warm_up_of_its_own() -> None:
    schedule = inverse_schedule(1e-4, gamma=20.0, power=0.5, warmup=0.9, final=5e-5)
    found = [float(schedule(mx.array(k)).item()) for k in range(100)]  # pyright: ignore[reportArgumentType]
    wanted = [(1 - 0.9 ** (k + 1)) * max(5e-5, 1e-4 * (1 + k / 20) ** -0.5) for k in range(100)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    settings: dict[str, Any] = {"schedule": "inverse", "inverse_gamma": 20.0, "warmup_updates": 50}
    np.testing.assert_allclose(rates(10, **settings), [(1 + k / 20) ** -0.5 for k in range(10)], rtol=1e-6)


# rates that the torch loop of a dashboard used in updates 0, 1, 2 and its last one, recorded in float64 from
# underfit's own run (commit 98df6ed, torch 2.13.0): rate, gamma, power, warm-up, final, updates
RECORDED = [
    ((1e-4, 1e6, 0.5, 0.995, 0.0, 1200), (5.0e-07, 9.97499501e-07, 1.49251101e-06, 9.96960775246371e-05)),
    ((2e-3, 1e6, 0.5, 0.9, 0.0, 40), (2.0e-04, 3.8e-04, 5.42e-04, 1.9703998116954178e-03)),
    ((3e-5, 50.0, 0.7, 0.98, 2e-5, 300), (6.0e-07, 1.17164575e-06, 1.71646253e-06, 1.9953349886640975e-05)),
]


@pytest.mark.parametrize(("numbers", "wanted"), RECORDED)
def test_inverse_gives_the_rates_that_a_dashboards_torch_loop_used(
    numbers: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    schedule = inverse_schedule(*numbers[:5])
    at = (0, 1, 2, int(numbers[5]) - 1)
    found = [float(schedule(mx.array(k)).item()) for k in at]  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(found, wanted, rtol=2e-5)  # 1 - 0.995 in fp32 is good to 6e-6
