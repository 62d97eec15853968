"""The LTX-2 trainer as a renderer: it loads the LoRA, renders every sample, does one step that is thrown away, ends.

Its renders of step 0 are the trained LoRA's; those of step 1 come after the thrown-away step and are not kept.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlx_sentis.validation.layout import clear_leftovers
from mlx_sentis.validation.ltx.eval_config import dims_text, eval_config, sends, smaller
from mlx_sentis.validation.ltx.workspace import Config, Workspace, write_config
from mlx_sentis.validation.prompts import Prompt
from weights_bridge.errors import StageError, UsedWronglyError, all_at_once

SAMPLE = re.compile(r"step_(\d+)_(\d+)\.\w+")
MEMORY_WORDS = re.compile(r"out of memory|OutOfMemory|ALLOC_FAILED", re.IGNORECASE)
KILLED = (-9, 137)  # the system's own end of a process that took too much
BY_HAND = "render by hand with packages/ltx-pipelines/"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """How the trainer ended.

    Attributes:
        code: its exit code, negative for a signal.
        last_line: its last words.
        out_of_memory: memory ran out.
    """

    code: int
    last_line: str
    out_of_memory: bool


@dataclass
class LtxRenderer:
    """Renders through an external training command.

    Attributes:
        workspace: what was trained.
        checkpoint: absolute path of the weights.
        command: the program and its arguments; the configuration's path is put behind them.
        folder: where to start it; None is here.
        say: hears the trainer's words and ours.
        notes: what the block should say in the end.
    """

    workspace: Workspace
    checkpoint: Path
    command: Sequence[str]
    folder: Path | None
    say: Say
    notes: list[str] = field(default_factory=list)

    @property
    def config_file(self) -> Path:
        return self.workspace.root / "eval-config.yaml"

    def render(self, prompts: Sequence[Prompt], folder: Path) -> list[Path]:
        """Run the trainer and return its renders where it left them; see `Renderer`."""
        samples = [_sample(prompt) for prompt in prompts]
        config = eval_config(self.workspace.config, self.checkpoint, samples, self.workspace.eval_folder)
        for section, key in sends(self.workspace.config):
            self.say(f"{section}.{key} is switched off for this phase: nothing is sent away")
        ended = self._run(config)
        if ended.out_of_memory and (less := smaller(config)) is not None:
            self.say(f"memory ran out at {dims_text(config)}: once more at {dims_text(less)}")
            self.notes.append(f"Rendered at {dims_text(less)}: memory ran out at {dims_text(config)}.")
            ended = self._run(less)
        if ended.code != 0:
            raise self._failure(ended)
        files = renders_of(self.workspace.eval_folder / "samples", len(prompts))
        self.config_file.unlink()
        return files

    def _run(self, config: Config) -> Ended:
        clear_leftovers(self.workspace.eval_folder)  # of an earlier run: nobody else's renders may be taken for ours
        write_config(self.config_file, config)
        return run_command([*self.command, str(self.config_file)], self.folder, self.say)

    def _failure(self, ended: Ended) -> StageError:
        again = f"{shlex.join(self.command)} {shlex.quote(str(self.config_file))}"
        last = f": {ended.last_line}" if ended.last_line else ""
        if not ended.out_of_memory:
            hint = f"its words are above; the same once more: {again}"
            return StageError(f"the trainer ended with exit code {ended.code}{last}", hint=hint)
        hint = f"{BY_HAND}, or where there is more memory: {again}"
        return StageError(f"the trainer ran out of memory, at the smallest size that was tried{last}", hint=hint)


def _sample(prompt: Prompt) -> dict[str, Any]:
    tagged: dict[str, Any] = {"prompt": f"{prompt.category.tag} {prompt.text}"}
    return tagged | ({"conditions": prompt.conditions} if prompt.conditions else {})


def split_command(text: str) -> list[str]:
    """Return a command line's words.

    Raises:
        UsedWronglyError: it is empty, or a quote is not closed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsedWronglyError(f"--command {text!r}: {error}", hint="close the quote") from None
    if not words:
        raise UsedWronglyError("--command: found nothing", hint='for example "uv run python scripts/train.py"')
    return words


def run_command(command: Sequence[str], folder: Path | None, say: Say) -> Ended:
    """Run a command, hand every line it says on, and return how it ended.

    Raises:
        UsedWronglyError: there is no such program or folder.
    """
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        missing = error.filename if isinstance(error.filename, str) else command[0]
        raise UsedWronglyError(f"--command: {missing}: {error.strerror}", hint="give a program that exists") from None
    last, ran_out = "", False
    assert child.stdout is not None
    with child:
        for line in child.stdout:
            say(f"  {line.rstrip()}")
            last = line.strip() or last
            ran_out = ran_out or bool(MEMORY_WORDS.search(line))
    code = child.returncode
    return Ended(code, last, code != 0 and (ran_out or code in KILLED))


def renders_of(samples: Path, count: int) -> list[Path]:
    """Return the renders of the earliest step, by their number from 1 on.

    Args:
        samples: the trainer's folder.
        count: how many samples were asked for.

    Raises:
        StageError: some are missing, empty, or more than were asked for.
    """
    by_step: dict[int, dict[int, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(samples.glob("*")):
        if match := SAMPLE.fullmatch(path.name):
            by_step[int(match[1])][int(match[2])].append(path)
    if not by_step:
        raise StageError(f"{samples}: the trainer left no render", hint="its words are above")
    step = min(by_step)
    found = by_step[step]
    faults = [f"sample {n}: missing" for n in range(1, count + 1) if n not in found]
    faults += [f"sample {number}: not asked for" for number in found if not 1 <= number <= count]
    faults += [f"sample {number}: {len(paths)} files" for number, paths in found.items() if len(paths) > 1]
    faults += [f"sample {n}: {p.name} is empty" for n, paths in found.items() for p in paths if not p.stat().st_size]
    if faults:
        hint = "nothing was moved; its words are above"
        raise all_at_once(f"{samples}: step {step} has not one render per prompt ({count}):", faults, hint=hint)
    return [found[number][0] for number in range(1, count + 1)]
