"""Signs that a column was mapped wrongly or a text damaged on its way: what rendering accepts and training learns.

Each finding has a name, what it means and how to mend it, how many rows show it, and some of them. Nothing here refuses
a row: a text about HTML may well have tags in it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlx_sentis.prepare.findings import SHOWN_CHARACTERS, Finding, Findings, shown
from mlx_sentis.prepare.index import answer_of
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.tools import NONE

ROWS_FOR_A_PATTERN = 10  # fewer rows show no pattern of the whole set
FIELDS = "instruction|input|output|question|answer|prompt|completion|response|context|text|query|user|assistant|system"
PLACEHOLDER = re.compile(rf"\{{\{{?\s*(?:{FIELDS})\s*\}}?\}}|%\((?:{FIELDS})\)s|<(?:{FIELDS})>", re.IGNORECASE)
NO_VALUE = re.compile(r"(?:^|:\s*)(?:nan|NaN|None|null|NULL|undefined|<NA>|N/A|#N/A)[ \t]*$", re.MULTILINE)
TAG = re.compile(r"</?(?:p|br|div|span|a|ul|ol|li|b|i|strong|em|table|tr|td|th|h[1-6]|img|html|body)(?:\s[^<>]*)?/?>")
ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,6});")
MARKER = re.compile(
    r"<\|(?:im_start|im_end|user|assistant|system|endoftext|eot_id|start_header_id|end_of_text)\|>|\[/?INST\]|<<SYS>>"
    r"|<(?:start|end)_of_turn>|</s>|^#{2,3} (?:Instruction|Input|Response|Human|Assistant):?$|^(?:Human|Assistant): ",
    re.MULTILINE,
)
# UTF-8 read as Latin-1 or Windows-1252 turns é into Ã©, ’ into â€™, a no-break space into Â.
MISREAD = re.compile("\ufffd|Ã[\u0080-\u00bf]|â€[\u0099\u009c\u009d™œ“”˜¦]|Â[\u00a0-\u00bf]|ï»¿")
NAME = re.compile(r"\d+|[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
SWALLOWED_TIMES, SWALLOWED_CHARACTERS = 50, 2000
CUT_LENGTHS = (255, 256, 500, 512, 1000, 1023, 1024, 2000, 2048, 4000, 4096, 32767)  # of database and sheet columns
MEANINGS = {
    "unfilled placeholder": "a template's field was never filled in: look at the column it should have come from",
    "missing value as text": "an empty cell was written as a word: leave it out, or write an empty text",
    "prompt and answer equal": "two fields read the same column: see --map",
    "answer begins with the prompt": "the answer's column holds the whole conversation: keep only the answer",
    "prompt and answer look swapped": "most answers are questions and few prompts are: exchange them with --map",
    "constant prompt": "every row asks the same: the prompt's column is probably another one, see --map",
    "constant answer": "every row answers the same: the answer's column is probably another one, see --map",
    "prompts are row names": "every prompt is a number that counts up, or a UUID: its column is an id, see --map",
    "answers are row names": "every answer is a number that counts up, or a UUID: its column is an id, see --map",
    "one text swallows others": "a text many times longer than the rest: a quotation mark that never closes does that",
    "texts cut at one length": "the longest texts all end at the length where databases and sheets cut: export again",
    "chat markers in a text": "the text was rendered for some model before: give the conversation, not its rendering",
    "markup": "tags or entities of HTML: convert the text, unless the model should write HTML",
    "misread characters": "text in UTF-8 was read as another encoding: convert the original again",
    "control characters": "characters that no reader shows: take them out",
}


class Sanity:
    """Looks at rows as they stream by, and at the whole at the end."""

    def __init__(self) -> None:
        self._findings = Findings(MEANINGS)
        self._prompt_lengths, self._answer_lengths = array("I"), array("I")
        self._sources_of_longest: dict[str, tuple[int, str]] = {}
        self._firsts: tuple[str, str] | None = None
        self._constant_prompt = self._constant_answer = True
        self._prompt_names, self._answer_names = RowNames(), RowNames()
        self._asking_prompts = self._asking_answers = self._text_rows = 0

    def add(self, row: Row) -> None:
        """Look at one row."""
        prompt, answer = row.user_text, answer_of(row)
        for name, excerpt in signs_of(row, prompt, answer):
            self._findings.note(name, row.source, excerpt)
        self._prompt_names.add(prompt)
        self._answer_names.add(answer)
        self._prompt_lengths.append(len(prompt))
        self._answer_lengths.append(len(answer))
        for what, text in (("prompt", prompt), ("answer", answer)):
            if len(text) > self._sources_of_longest.get(what, (0, ""))[0]:
                self._sources_of_longest[what] = (len(text), row.source)
        self._firsts = self._firsts or (prompt, answer)
        self._constant_prompt &= prompt == self._firsts[0]
        self._constant_answer &= answer == self._firsts[1] and answer != NONE and not row.calls
        if not row.calls and answer != NONE:
            self._text_rows += 1
            self._asking_prompts += prompt.endswith("?")
            self._asking_answers += answer.endswith("?")

    def findings(self) -> list[Finding]:
        """Return what was found, in the order of `MEANINGS`. To be asked once, behind the last row."""
        self._look_at_the_whole()
        return self._findings.found()

    def lengths(self) -> dict[str, dict[str, int]]:
        """Return the least, median and most characters of prompts and answers."""
        found = {"prompt": self._prompt_lengths, "answer": self._answer_lengths}
        return {what: spread(np.array(lengths, np.int64)) for what, lengths in found.items()}

    def _look_at_the_whole(self) -> None:
        rows = len(self._prompt_lengths)
        if rows < ROWS_FOR_A_PATTERN or self._firsts is None:
            return
        prompt, answer = self._firsts
        if self._constant_prompt and prompt:
            self._findings.note("constant prompt", "every row", shown(prompt), rows)
        if self._constant_answer:
            self._findings.note("constant answer", "every row", shown(answer), rows)
        for what, names, first in (("prompts", self._prompt_names, prompt), ("answers", self._answer_names, answer)):
            if names.are_names:
                self._findings.note(f"{what} are row names", "every row", shown(first), rows)
        asking = self._asking_answers
        if self._text_rows >= ROWS_FOR_A_PATTERN and asking > 5 * self._asking_prompts and 2 * asking > self._text_rows:
            excerpt = f"{asking} answers and {self._asking_prompts} prompts end in a question mark"
            self._findings.note("prompt and answer look swapped", "all rows", excerpt, asking)
        for what, lengths in (("prompt", self._prompt_lengths), ("answer", self._answer_lengths)):
            self._look_at_lengths(what, np.array(lengths))

    def _look_at_lengths(self, what: str, lengths: Any) -> None:
        longest, source = self._sources_of_longest.get(what, (0, ""))
        median = float(np.median(lengths))
        if longest > max(SWALLOWED_CHARACTERS, SWALLOWED_TIMES * median):
            rows = int((lengths > max(SWALLOWED_CHARACTERS, SWALLOWED_TIMES * median)).sum())
            excerpt = f"its {what} has {longest} characters, the median is {median:g}"
            self._findings.note("one text swallows others", source, excerpt, rows)
        at_longest = int((lengths == longest).sum())
        if longest in CUT_LENGTHS and at_longest >= 3:
            excerpt = f"its {what} and {at_longest - 1} others have {longest} characters, none has more"
            self._findings.note("texts cut at one length", source, excerpt, at_longest)


class RowNames:
    """Tells whether texts that stream by could be a table's row names: numbers that only rise, or hexadecimal names."""

    def __init__(self) -> None:
        self.are_names = True
        self._last: int | str = -1

    def add(self, text: str) -> None:
        """Look at one text."""
        if not self.are_names:
            return
        text = text.strip()
        found = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text
        alike = type(found) is type(self._last) or self._last == -1
        rises = found > self._last if isinstance(found, int) and isinstance(self._last, int) else found != self._last
        self.are_names = alike and rises and NAME.fullmatch(text) is not None
        self._last = found


def spread(values: Any) -> dict[str, int]:
    """Return the least, the (lower) median and the most of whole numbers, all 0 where there are none."""
    ordered = np.sort(values) if len(values) else np.zeros(1, np.int64)
    return {"least": int(ordered[0]), "median": int(ordered[(len(ordered) - 1) // 2]), "most": int(ordered[-1])}


def signs_of(row: Row, prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield (finding's name, excerpt) for each sign that one row shows, each name once.

    Args:
        row: the row.
        prompt: all that the user says.
        answer: the last turn as a line.
    """
    if row.is_plain_text:
        pass  # prompt and answer are one text
    elif prompt == answer:
        yield "prompt and answer equal", shown(prompt)
    elif len(prompt) >= 20 and answer.startswith(prompt):
        yield "answer begins with the prompt", shown(answer)
    texts = [message["content"] for message in row.messages]
    found: set[str] = set()
    for role, text in zip((message["role"] for message in row.messages), texts, strict=True):
        for name, excerpt in _signs_in(text, declines=role == "assistant" and text.strip() == NONE):
            if name not in found:
                found.add(name)
                yield name, excerpt


def _signs_in(text: str, *, declines: bool) -> Iterator[tuple[str, str]]:
    # a plain search for one character costs a hundredth of a pattern that is not there
    if ("{" in text or "<" in text or "%(" in text) and (match := PLACEHOLDER.search(text)):
        yield "unfilled placeholder", around(text, match)
    if not declines and (match := NO_VALUE.search(text)):
        yield "missing value as text", around(text, match)
    if ("<" in text and (match := TAG.search(text))) or ("&" in text and (match := ENTITY.search(text))):
        yield "markup", around(text, match)
    if ("<" in text or "[" in text or "#" in text or ": " in text) and (match := MARKER.search(text)):
        yield "chat markers in a text", around(text, match)
    if not text.isascii() and (match := MISREAD.search(text)):
        yield "misread characters", around(text, match)
    if not text.isprintable() and (match := CONTROL.search(text)):
        yield "control characters", around(text, match)


def around(text: str, match: re.Match[str]) -> str:
    """Return a match with some of the text around it, as one line."""
    start = max(0, match.start() - SHOWN_CHARACTERS // 4)
    return ("…" if start else "") + shown(text[start:])
