"""The greedy loop of a kit, driven by its program, and what it does otherwise than the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from unity_engine import Engine

from parity.runners.decoder_io import prefill_inputs
from parity.runners.onnx_decoder import OnnxDecoder

MODEL = "Assets/Npc/Model/model.onnx"
MOST = 96  # tokens that the cache holds; the toy's window is far smaller


@dataclass(frozen=True)
class Said:
    """What the loop said of one prompt.

    Attributes:
        made: tensors that the steps made.
        alive: how many of them were not given back.
        garbage: bytes that the steps allocated.
        margin: of the first token.
        state: `done` (a stop id), `full` or `cut` (by the caller).
        ids: the answer.
        waits: how often the prompt's run or a step waited for the model.
        frames: how often a poll said that nothing is there yet.
    """

    made: int
    alive: int
    garbage: int
    margin: float
    state: str
    ids: list[int]
    waits: int
    frames: int


@dataclass(frozen=True)
class Loop:
    """The program that drives the loop, and the project its model lies in."""

    program: Path
    project: Path

    def __call__(
        self,
        engine: Engine,
        *prompts: Sequence[int],
        backend: str = "CPU",
        most: int = MOST,
        new: int = 12,
        refusal: int = -1,
        polls: bool = False,
        interrupts: bool = False,
    ) -> tuple[list[Said], list[str], str]:
        """Answer prompts with one decoder: waiting, polled, or each begun while another prompt is run.

        Returns:
            What was said, what was thrown, and what was left when all was disposed of (`tensors workers`).
        """
        words = [
            "mono",
            self.program,
            MODEL,
            backend,
            most,
            new,
            refusal,
            "interrupt" if interrupts else "poll" if polls else "wait",
        ]
        code, lines = engine.ran([*words, *(",".join(map(str, ids)) for ids in prompts)], self.project)
        assert code == 0, lines
        said = [_said(line) for line in lines if line.startswith("answer ")]
        thrown = [line.removeprefix("thrown ") for line in lines if line.startswith("thrown ")]
        (left,) = [line.removeprefix("left ") for line in lines if line.startswith("left ")]
        return said, thrown, left


def _said(line: str) -> Said:
    _, made, alive, garbage, margin, state, ids, waits, frames = line.split(" ")
    return Said(
        int(made),
        int(alive),
        int(garbage),
        float(np.float32(margin)),
        state,
        [int(one) for one in ids.split(",") if one],
        int(waits),
        int(frames),
    )


def faults_of(
    loop: Loop,
    reference: OnnxDecoder,
    prompts: Sequence[list[int]],
    stops: list[int],
    backend: str,
    polls: bool = False,
) -> list[str]:
    """Return what the loop does wrong: other ids, other inputs than the reference's, tensors made, tensors left.

    Polled, it must never wait, and say so each time that nothing is there.
    """
    engine = Engine()
    said, thrown, left = loop(engine, *prompts, backend=backend, polls=polls)
    faults = [f"thrown: {one}" for one in thrown] + ([f"left: {left}"] if left != "0 0" else [])
    runs = iter(engine.runs)
    for prompt, answer in zip(prompts, said, strict=False):
        wanted = reference.greedy(prompt, 12, stops).ids
        faults += [f"ids: {answer.ids}, wanted {wanted}"] if answer.ids != wanted else []
        faults += [f"made: {answer.made}"] if answer.made else []
        faults += [f"garbage: {answer.garbage} bytes"] if answer.garbage else []
        faults += [f"waits: {answer.waits}"] if (answer.waits > 0) == polls else []
        faults += [f"frames: {answer.frames}"] if answer.frames != (2 * len(wanted) if polls else 0) else []
        faults += _input_faults(runs, prompt, answer.ids, reference.contract)
    return faults


def _input_faults(runs: Any, prompt: list[int], answer: list[int], contract: Mapping[str, Any]) -> list[str]:
    past, new = 0, list(prompt)
    for step in range(len(answer)):
        _, given = next(runs, ("", {}))
        for name, wanted in prefill_inputs(new, past, contract).items():
            if name not in given or not np.array_equal(given[name], wanted):
                return [f"inputs: {name} of step {step}"]
        past, new = past + len(new), [answer[step]]
    return []
