"""Reading an answer's call in C#: what Python's reader takes for exactly one well-formed call, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import edit_json
from tool_templates import write_tool_model
from unity_kit import said_by

from converters.unity.kit import write_kit
from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.run import run_prepare
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings

CALL = '{"name": "open", "arguments": {"door": "left", "count": 2}}'
LLAMA = CALL.replace("arguments", "parameters")
DEEP = '{"name": "x", "arguments": {"a": ' + "[" * 70 + "]" * 70 + "}}"
VALUES = [
    "1", "-0", "1.5e3", "01", "+1", "1.", ".5", "1e", "NaN", "Infinity", "1e999", "true", "null", "nul", '"a"',
    '"\\u00e9"', '"\\ud83d\\udeaa"', '"\\ud83d"', '"\\x"', '"tab\t"', "[1, 2]", "[1,]", "{}", '{"a": 1, "a": 2}',
    '"</tool_call>"', "'a'",
]  # fmt: skip
E = "<escape>"
FIRST = f"<start_function_call>call:open{{door:{E}left{E},count:2}}<end_function_call>"
ESCAPED_DEEP = "call:x{a:" + "[" * 70 + "1" + "]" * 70 + "}"
ESCAPED = [
    "call:f{}", "call:f {}", "call: f{}", "call: {}", "call:  {}", "call:{}", "call:f", "f{}", " call:f{} ",
    "call:f<{}", "call:f{ }", "call:f{a}", "call:f{a:}", "call:f{a:1,}", "call:f{a:1 , b : 2 }", "call:f{a:1}}",
    "call:f{a:1]",
    "call:f{a:1,a:2}", f"call:f{{{E}a:b{E}:1}}", f"call:f{{{E}a{E} : 1}}", f"call:f{{{E}a{E}1}}", "call:f{:1}",
    "call:f{ :1}",
    f"call:f{{a:{E}x, y}}]:<{E},n:3}}", f"call:f{{a:{E}{E}}}", f"call:f{{a:{E}x}}", f"call:f{{a:{E}x{E}y}}",
    f"call:f{{a:{{b:[{E}x{E},true,null,1.5],c:{{}}}},d:[]}}", "call:f{a:[1,[2,{b:None}],True,False]}", "call:f{a:none}",
    "call:f{a:[ ]}", "call:f{a:[1,]}", "call:f{a:\u00a01\u2003}", "call:f\u00a0{a:1}", "call:f{a:1 2}",
    "call:f{a:hello}",
    f"call:f{{a:{E}T\u00fcr \U0001f6aa{E}}}", f"call:f{{a:{E}line\nnext{E}}}", ESCAPED_DEEP,
    "call:x{a:" + "[" * 60 + "]" * 60 + "}", f"call:f{{b:{E}1{E},a:1,c:{{z:1.0,y:-0,x:1e2}}}}",
    "call:f{a:99999999999999999999}", f"call:f{{a:[{','.join(['[1]'] * 70)}]}}",
]  # fmt: skip
TEXTS = [
    "none", "", " ", "Certainly!", "{", CALL, f"  {CALL}\n", f"{CALL}\n{CALL}", f"{CALL} {CALL}", f"Sure.\n{CALL}",
    f"{CALL}\nDone.", f" {CALL}\n {CALL}", f"{CALL}\n\n", '{"name": "open"}', '{"name": 1, "arguments": {}}',
    '{"name": "open", "arguments": []}', '{"name": "open", "arguments": {}, "more": 1}', '["name"]', "{}", "{]", DEEP,
    LLAMA, f"{LLAMA}; {LLAMA}", f"{LLAMA};", f"<|python_tag|>{LLAMA}", f"<|python_tag|> {CALL}", f"{LLAMA} and",
    f"<tool_call>{CALL}</tool_call>", f"<tool_call>\n{CALL}\n</tool_call>", f"Yes. <tool_call>{CALL}</tool_call> Bye.",
    f"<tool_call>{CALL}", f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", "<tool_call></tool_call>",
    f"<tool_call>{CALL} {CALL}</tool_call>", f"\u3000{CALL}\u2028", f"\ufeff{CALL}",
    f"<tool_call>\u00a0{CALL}</tool_call>",
    *(f'{{"name": "set", "arguments": {{"value": {value}}}}}' for value in VALUES),
    *(f'<tool_call>{{"name": "set", "arguments": {{"value": {value}}}}}</tool_call>' for value in VALUES),
    *(f"<start_function_call>call:set{{value:{value}}}<end_function_call>" for value in VALUES),
    *(f"<start_function_call>{call}<end_function_call>" for call in ESCAPED),
    f"{FIRST}{FIRST}", f"Sure. {FIRST} Done.", f"{FIRST}<start_function_call>", f"{FIRST}<end_function_call>",
    "<start_function_call>call:f{}", "<start_function_call>", f"{FIRST}<tool_call>{CALL}</tool_call>",
    f"<tool_call>{CALL}</tool_call>{FIRST}", f"<tool_call>{FIRST}</tool_call>", "call:f{}<end_function_call>",
]  # fmt: skip


def wanted_of(text: str, style: str) -> str:
    found = parse_answer(text, style)
    if found.kind != "call" or len(found.calls) != 1:
        return ""
    return f"{found.calls[0].name} {spelled(found.calls[0].arguments)}"


def spelled(value: Any) -> str:
    """Return a value as `Tests.cs` spells it: types kept apart, numbers by their bits, texts as hexadecimal UTF-8."""
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be"))
        return "{" + ",".join(f"{spelled(key)}:{spelled(one)}" for key, one in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spelled, value)) + "]"
    if isinstance(value, str):
        return "s" + value.encode().hex()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return f"i{value}"
    return "d" + struct.pack(">d", float(value)).hex()


def styled(prepared: RunFolder, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write the kit of a run whose contract was changed."""
    folder.mkdir()
    shutil.copy(prepared.path("prompt_contract.json"), folder)
    edit_json(folder / "prompt_contract.json", change)
    write_kit(RunFolder(folder), folder / "unity", "MyGame.Npc", prompt_only=True)
    return folder / "unity"


@pytest.mark.parametrize("style", ["system-block", "template"])
def test_a_call_is_what_pythons_reader_takes_for_one(
    prepared: RunFolder, compiled: Callable[[Path, str], Any], tmp_path: Path, style: str
) -> None:
    kit = styled(prepared, tmp_path / "run", lambda c: c["tool_serialisation"].update(style=style))
    found = compiled(kit, "MyGame.Npc").calls(*TEXTS)
    wanted = [wanted_of(text, style) for text in TEXTS]
    differing = [(text, mine, right) for text, mine, right in zip(TEXTS, found, wanted, strict=True) if mine != right]
    assert differing == []
    assert 10 < sum(map(bool, wanted)) < len(TEXTS) - 10


def test_a_run_of_functiongemmas_template_brings_a_kit_that_reads_its_own_calls(
    compiled: Callable[[Path, str], Any], tmp_path: Path
) -> None:
    model = write_tool_model(tmp_path / "model", "functiongemma")
    tool = {"name": "open", "parameters": {"properties": {"door": {"type": "string"}, "count": {"type": "integer"}}}}
    calls = [{"name": "open", "arguments": {"door": door, "count": 2}} for door in ("left", "to the {cellar}, Tür")]
    rows = [{"user": f"Open door {at}", "call": one} for at, one in enumerate(calls)]
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [tool]}), encoding="utf-8")
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = DataSettings(holdout_share=0, valid_share=0, calibration_share=0)
    run_prepare(str(tmp_path), str(model), tmp_path / "run", settings)
    write_kit(RunFolder(tmp_path / "run"), tmp_path / "Npc", "MyGame.Npc", prompt_only=True)
    kit = compiled(tmp_path / "Npc", "MyGame.Npc")
    assert set(kit.run().values()) == {"passed"}  # prompts to the byte, ids, serialisation
    written = json.loads((tmp_path / "run" / "prompt_contract.json").read_text(encoding="utf-8"))["tool_serialisation"]
    answers = [written[key].removesuffix("<start_function_response>") for key in ("probe_answer", "sample_answer")]
    assert all(one.startswith("<start_function_call>call:") for one in answers)
    assert kit.calls(*answers) == [wanted_of(one, "template") for one in answers] != ["", ""]


def test_the_gate_passes_what_pythons_gate_passes(project: Any) -> None:
    program = project.built.program("Gate")
    rules = json.loads((project.folder / "gate.json").read_text(encoding="utf-8"))
    least = rules["threshold"]
    known = '{"name": "set_light", "arguments": {"state": "on"}}'
    cases = [
        (known, least, True), (known, least + 1, True), (known, least - 1e-6, False), (known, float("nan"), False),
        (CALL, least + 9, False), ("none", least + 9, False), (f"{known}\n{known}", least + 9, False),
    ]  # fmt: skip
    words = [word for text, margin, _ in cases for word in (text, repr(margin))]
    assert said_by(program, *words) == ["set_light" if passes else "refused" for *_, passes in cases]
