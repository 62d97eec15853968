"""Chat templates with a tools branch, written for these tests in the published syntax of three families.

They write calls, results and turn marks as Qwen 2.5/3 (and Hermes), Llama 3.x and FunctionGemma do; the words around
them are our own. `llama_like` separates several calls by `;`; the stock template refuses more than one.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from mlx_sentis.demo.toy import write_toy_model

QWEN = """\
{%- set has_system = messages and messages[0].role == 'system' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' + (messages[0].content + '\\n\\n' if has_system else '') }}
    {{- 'Functions you may use:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\nTo use one, write a JSON object with name and arguments between tool_call tags.<|im_end|>\\n' }}
{%- elif has_system %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

LLAMA = """\
{%- macro turn(role) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}{%- endmacro %}
{{- bos_token }}
{%- set has_system = messages and messages[0].role == 'system' %}
{%- if has_system or tools %}
    {{- turn('system') + (messages[0].content | trim if has_system else '') }}
    {%- if tools %}
        {{- '\\n\\nAnswer with {"name": a function, "parameters": its arguments}. Functions:\\n' }}
        {%- for tool in tools %}{{- (tool | tojson(indent=4)) + '\\n' }}{%- endfor %}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {%- if message.role == 'tool' %}
        {{- turn('ipython') + message.content + '<|eot_id|>' }}
    {%- elif message.tool_calls %}
        {{- turn('assistant') }}
        {%- for call in message.tool_calls %}
            {{- '; ' if not loop.first }}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + '}' }}
        {%- endfor %}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- turn(message.role) + (message.content | trim) + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- turn('assistant') }}{%- endif %}
"""

FUNCTION_GEMMA = """\
{%- macro value(item) %}
    {%- if item is string %}{{- '<escape>' + item + '<escape>' }}
    {%- elif item is boolean %}{{- 'true' if item else 'false' }}
    {%- elif item is mapping %}{{- '{' }}{{- pairs(item) }}{{- '}' }}
    {%- elif item is sequence %}
        {{- '[' }}{%- for one in item %}{{- ',' if not loop.first }}{{- value(one) }}{%- endfor %}{{- ']' }}
    {%- else %}{{- item }}
    {%- endif %}
{%- endmacro %}
{%- macro pairs(items) %}
    {%- for key, item in items | dictsort %}{{- ',' if not loop.first }}{{- key + ':' }}{{- value(item) }}{%- endfor %}
{%- endmacro %}
{{- bos_token }}
{%- set has_system = messages and messages[0].role in ('system', 'developer') %}
{%- if has_system or tools %}
    {{- '<start_of_turn>developer\\n' + (messages[0].content | trim if has_system else '') }}
    {%- for tool in tools or [] %}
        {{- '<start_function_declaration>declaration:' + tool.function.name + '{description:' }}
        {{- value(tool.function.description) + ',parameters:' + value(tool.function.parameters) }}
        {{- '}<end_function_declaration>' }}
    {%- endfor %}
    {{- '<end_of_turn>\\n' }}
{%- endif %}
{%- set last = namespace(role='') %}
{%- for message in messages if message.role not in ('system', 'developer') %}
    {%- if message.role == 'tool' %}
        {{- 'response:' + message.name + '{value:' + value(message.content) + '}<end_function_response>' }}
    {%- else %}
        {%- if not (message.role == 'assistant' and last.role == 'tool') %}
            {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
        {%- endif %}
        {{- message.content | trim }}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {{- '<start_function_call>call:' + call.function.name + '{' }}
                {{- pairs(call.function.arguments) }}{{- '}<end_function_call>' }}
            {%- endfor %}
            {{- '<start_function_response>' }}
        {%- else %}
            {{- '<end_of_turn>\\n' }}
        {%- endif %}
    {%- endif %}
    {%- set last.role = message.role %}
{%- endfor %}
{%- if add_generation_prompt and last.role != 'tool' %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""

# style: template, the special tokens it writes, the tokens that end a turn
STYLES = {
    "qwen": (QWEN, (), ("<|im_end|>",)),
    "llama": (LLAMA, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), ("<|eot_id|>",)),
    "functiongemma": (
        FUNCTION_GEMMA,
        (
            "<escape>",
            *(f"<{edge}_function_{what}>" for what in ("declaration", "call", "response") for edge in ("start", "end")),
        ),
        ("<end_of_turn>", "<start_function_response>"),
    ),
}


def write_tool_model(folder: Path, style: str) -> Path:
    """Write a toy model directory whose template, special tokens and stop ids are those of a style."""
    template, tokens, stops = STYLES[style]
    write_toy_model(folder, "gemma3_text" if style == "functiongemma" else "llama")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    ids = [tokenizer.token_to_id(stop) for stop in stops]
    edits = {"config.json": {"vocab_size": tokenizer.get_vocab_size()}, "generation_config.json": {"eos_token_id": ids}}
    for name, changes in edits.items():
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder
