"""Berkeley Function Calling Leaderboard: a question file, and `possible_answer/` beside it with one of the same name.

A question is `{"id", "question", "function"}`; its answer, joined by `id`, is `[{tool: {argument: [alternatives]}}]`.
The first alternative is trained. `""` stands for leaving an optional argument out; where the schema requires the
argument, the first alternative that is not `""` counts. Inside an object every key has alternatives of its own.
Irrelevance sets have no answers: their right answer is `none`. Questions over several turns are played with simulated
classes and are refused.

The answer is taken as it stands. Where it contradicts its own schema, the row is read and `remark` says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.formats.messages import read_messages
from mlx_sentis.prepare.formats.turns import called, none_rule, system_turns
from mlx_sentis.prepare.jsonl import Item, lines_of, name_of
from mlx_sentis.prepare.rows import Message, Row, ToolSet
from mlx_sentis.prepare.tools import NONE, Call, normalised_tools, properties_of, read_call
from weights_bridge.errors import all_at_once

NEEDS, PLAYED = ("id", "question", "function"), ("id", "question", "involved_classes")
ANSWER = "ground_truth"
ANSWERS = "possible_answer"
IRRELEVANT = "irrelevance"
LEFT_OUT = ""


@dataclass(frozen=True)
class Questions:
    """A question file and the answers beside it.

    Attributes:
        path: the question file.
        answers: id to answer; empty where there is no answer file.
    """

    path: Path
    answers: dict[str, Any]

    def items(self) -> Iterator[Item]:
        """Yield every question, with its answer under `ground_truth` where it has one.

        Raises:
            StageError: the file cannot be read.
        """
        left, number = dict.fromkeys(self.answers), 0
        for number, item in lines_of(self.path):
            if isinstance(item, dict) and isinstance(name := item.get("id"), str) and name in self.answers:
                left.pop(name, None)
                yield number, item | {ANSWER: self.answers[name]}
            else:
                yield number, item
        if left:
            names = ", ".join(list(left)[:5]) + (", …" if len(left) > 5 else "")
            yield number, f"{ANSWERS}/{self.path.name} answers questions that are not here: {names}"


def answer_file(path: Path) -> Path:
    """Return where the answers to a question file stand."""
    return path.parent / ANSWERS / path.name


def open_questions(path: Path) -> Questions:
    """Read the answers to a question file.

    Raises:
        StageError: the answer file is there and has bad lines.
    """
    file = answer_file(path)
    if not file.is_file():
        return Questions(path, {})
    answers: dict[str, Any] = {}
    faults: list[str] = []
    for number, item in lines_of(file):
        name = item.get("id") if isinstance(item, dict) else None
        if isinstance(item, dict) and isinstance(name, str) and ANSWER in item and name not in answers:
            answers[name] = item[ANSWER]
        elif item is not None:
            reason = item if isinstance(item, str) else f'wanted "id" and "{ANSWER}", each id once'
            faults.append(f"{file}:{number}: {reason}")
    if faults:
        raise all_at_once(f"{file}: bad answers:", faults, hint="get the file again")
    return Questions(path, answers)


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one question with its answer.

    Raises:
        ValueError: the first thing that is wrong.
    """
    if "function" not in value:
        raise ValueError("no function: questions that are played with simulated classes are not read")
    functions = value["function"]
    tools = normalised_tools(functions if isinstance(functions, list) else [functions])
    asked = _asked(value["question"], style)
    if ANSWER not in value:
        if IRRELEVANT not in str(value.get("id")):
            raise ValueError(f"no answer with this id in {ANSWERS}/ beside the file")
        return Row([*asked, called([])], tools, source, "" if tools else "no tools, so nothing says what none means")
    calls = _calls(value[ANSWER], tools)
    return Row([*asked, called(calls)], tools, source, _contradiction(calls, tools))


def _asked(question: Any, style: str) -> list[Message]:
    turns = question if isinstance(question, list) else [{"role": "user", "content": question}]
    if turns and all(isinstance(turn, list) for turn in turns):
        if len(turns) != 1:
            raise ValueError(f"question: found {len(turns)} turns, wanted one")
        turns = turns[0]
    messages = read_messages([*turns, {"role": "assistant", "content": NONE}], [], name="question")[:-1]
    has_system = messages[0]["role"] == "system"
    system = system_turns(messages[0]["content"] if has_system else "", none_rule(style))
    return [*system, *messages[1 if has_system else 0 :]]


def _calls(answer: Any, tools: list[dict[str, Any]]) -> list[Call]:
    if not isinstance(answer, list) or not answer or any(not isinstance(one, dict) or len(one) != 1 for one in answer):
        raise ValueError(f"{ANSWER}: wanted an array of {{tool: {{argument: [alternatives]}}}}")
    by_name = {tool["function"]["name"]: tool for tool in tools}
    calls: list[Call] = []
    for index, one in enumerate(answer):
        name, arguments = next(iter(one.items()))
        if name not in by_name:
            raise ValueError(f"{ANSWER}[{index}]: no tool {name!r}, known: {', '.join(sorted(by_name))}")
        if not isinstance(arguments, dict):
            raise ValueError(f"{ANSWER}[{index}]: found {name_of(arguments)}, wanted an object of arguments")
        chosen = _chosen(arguments, by_name[name]["function"]["parameters"])
        order = [*properties_of(by_name[name]), *chosen]
        calls.append(Call(name, {key: chosen[key] for key in order if key in chosen}))
    return calls


def _chosen(alternatives: dict[str, Any], schema: dict[str, Any], levels: int = 2) -> dict[str, Any]:
    """Return the object that the first alternatives make; below `levels`, objects are plain (as the checker has it)."""
    properties, required = schema.get("properties"), schema.get("required")
    chosen: dict[str, Any] = {}
    for name, several in alternatives.items():
        inner = properties.get(name) if isinstance(properties, dict) else None
        inner = inner if isinstance(inner, dict) else {}
        if not isinstance(several, list):
            chosen[name] = several
        elif not several:  # written for an empty array
            chosen |= {name: []} if inner.get("type") == "array" else {}
        elif several[0] != LEFT_OUT or (isinstance(required, list) and name in required):
            first = next((one for one in several if one != LEFT_OUT), LEFT_OUT)
            chosen[name] = _inner(first, inner) if levels > 1 else first
    return chosen


def _inner(value: Any, schema: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return _chosen(value, schema, 1)
    items = schema.get("items")
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [_chosen(item, items if isinstance(items, dict) else {}, 1) for item in value]
    return value


def _contradiction(calls: list[Call], tools: list[dict[str, Any]]) -> str:
    """Return how the answer contradicts its schema, the empty text when it does not."""
    try:
        for index, call in enumerate(calls):
            read_call(call.as_json(), tools, f"{ANSWER}[{index}]")
    except ValueError as error:
        return f"the answer contradicts its schema: {error}"
    return ""
