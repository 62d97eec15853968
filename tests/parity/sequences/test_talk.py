"""A talk of several turns through the KV loop: each fault of the loop's bookkeeping is found at the step it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from parity.runners.onnx_decoder import Cache, OnnxDecoder
from parity.runners.torch_causal_lm import TorchCausalLM
from parity.sequences.decoder import lead, measure_talk
from weights_bridge.compare import GateResult

BUDGET, NEW = 90.0, 6
RNG = np.random.default_rng(3)
PROMPTS = {f"row {i}": RNG.integers(3, 90, size).tolist() for i, size in enumerate((40, 23, 31))}


@pytest.fixture(scope="module")
def llama(exported: Callable[..., Any]) -> tuple[Any, TorchCausalLM]:
    toy = exported("llama")
    return toy, TorchCausalLM(toy.model)


def talk(
    toy: tuple[Any, TorchCausalLM], kind: type[OnnxDecoder] = OnnxDecoder
) -> tuple[list[GateResult], dict[str, Any]]:
    decoder = kind(toy[0].onnx, toy[0].contract)
    return measure_talk(decoder, toy[1], PROMPTS, NEW, BUDGET)


def test_the_right_loop_agrees_in_every_step_token_and_cache(llama: tuple[Any, TorchCausalLM]) -> None:
    results, facts = talk(llama)
    assert [one.tensor for one in results] == [
        *(f"sequence / turn {turn} / logits" for turn in (1, 2, 3)),
        "sequence / tokens",
        "sequence / cache",
    ]
    assert all(one.passed for one in results)
    assert min(one.psnr_db or 999 for one in results) > 110
    assert facts["steps"] == 3 * NEW and facts["tokens"] == 40 + 23 + 31 + 3 * (NEW - 1) + 2
    assert len(facts["step_db"]) == facts["steps"]


@pytest.mark.parametrize("model_type", ["gemma3_text"])
def test_a_talk_longer_than_the_window_of_sliding_layers_agrees(exported: Callable[..., Any], model_type: str) -> None:
    toy = exported(model_type)
    window = toy.contract["constants"]["sliding_window"]
    results, facts = talk((toy, TorchCausalLM(toy.model)))
    assert window is not None and facts["tokens"] > window
    assert all(one.passed for one in results)


class ForgetsBetweenTurns(OnnxDecoder):
    """Begins every prompt with an empty cache."""

    def step(self, ids: Sequence[int], past: Cache) -> tuple[list[Any], Cache]:
        return super().step(ids, self.empty() if len(ids) > 1 else past)


class KeepsTheOldCache(OnnxDecoder):
    """Hands on the cache of the step before: what the step itself wrote is lost."""

    def step(self, ids: Sequence[int], past: Cache) -> tuple[list[Any], Cache]:
        outputs, new = super().step(ids, past)
        return outputs, (new if len(ids) > 1 else past)


class CrossesKeysAndValues(OnnxDecoder):
    """Feeds the last layer's keys as its values and the other way round."""

    def step(self, ids: Sequence[int], past: Cache) -> tuple[list[Any], Cache]:
        values = dict(past.values)
        last = self.contract["constants"]["layers"] - 1
        key, value = (f"past_key_values.{last}.{kind}" for kind in ("key", "value"))
        values[key], values[value] = values[value], values[key]
        return super().step(ids, Cache(past.tokens, values))


class CountsPositionsAnew(OnnxDecoder):
    """Gives the tokens behind the second prompt the positions of a new talk."""

    begun = 0

    def step(self, ids: Sequence[int], past: Cache) -> tuple[list[Any], Cache]:
        from parity.runners import onnx_decoder

        right = onnx_decoder.prefill_inputs
        start = past.tokens if len(ids) > 1 else None
        if start:
            self.begun = start

        def wrong(ids: Sequence[int], before: int, contract: Any) -> dict[str, Any]:
            feed = right(ids, before, contract)
            return feed | {"position_ids": feed["position_ids"] - self.begun}

        onnx_decoder.prefill_inputs = wrong  # pyright: ignore
        try:
            return super().step(ids, past)
        finally:
            onnx_decoder.prefill_inputs = right


@pytest.mark.parametrize(
    "kind, turn, where, reason",
    [
        (ForgetsBetweenTurns, 2, "first at turn 2, prompt (position 45)", "below budget"),
        (KeepsTheOldCache, 1, "first at turn 1, token 2 (position 40)", "below budget"),
        (CrossesKeysAndValues, 1, "first at turn 1, token 1 (position 40)", "below budget"),
        (CountsPositionsAnew, 2, "first at turn 2, prompt (position 45)", "below budget"),
    ],
)
def test_each_fault_of_the_loop_is_named_by_turn_and_step(
    llama: tuple[Any, TorchCausalLM], kind: type[OnnxDecoder], turn: int, where: str, reason: str
) -> None:
    results, _ = talk(llama, kind)
    failed = [one for one in results if not one.passed]
    assert failed[0].tensor == f"sequence / turn {turn} / logits"
    assert (failed[0].reason, failed[0].where) == (reason, where)
    assert results[turn - 2].passed or turn == 1
    assert any(one.tensor == "sequence / cache" for one in failed)


def test_a_single_prefill_and_its_answer_see_nothing_of_a_cache_that_is_lost_between_turns(
    llama: tuple[Any, TorchCausalLM],
) -> None:
    toy, original = llama
    decoder = ForgetsBetweenTurns(toy.onnx, toy.contract)
    prompt = PROMPTS["row 0"]
    assert decoder.greedy(prompt, NEW).ids == original.greedy(prompt, NEW)[0]


def test_a_prompt_that_does_not_fit_the_models_positions_is_left_out_and_told(
    llama: tuple[Any, TorchCausalLM],
) -> None:
    toy, original = llama
    decoder = OnnxDecoder(toy.onnx, toy.contract)
    long = {"long": [5] * original.positions, "short": [5, 6, 7]}
    results, facts = measure_talk(decoder, original, long, NEW, BUDGET)
    assert [turn["prompt"] for turn in facts["turns"]] == ["short"] and all(one.passed for one in results)
    results, facts = measure_talk(decoder, original, {"long": long["long"]}, NEW, BUDGET)
    assert results == [] and "no prompt leaves room" in facts["not_run"]


def test_the_last_token_of_a_turn_is_fed_with_the_next_prompt(llama: tuple[Any, TorchCausalLM]) -> None:
    decoder = OnnxDecoder(llama[0].onnx, llama[0].contract)
    steps, _ = lead(decoder, list(PROMPTS.values()), NEW)
    at = next(i for i, step in enumerate(steps) if step.turn == 2)
    assert steps[at].ids == [int(steps[at - 1].logits[-1].argmax()), *PROMPTS["row 1"]]
    assert [step.past for step in steps] == np.cumsum([0, *(len(step.ids) for step in steps)])[:-1].tolist()
