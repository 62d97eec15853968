"""Chat templates for tests, of the kinds that models bring, spelled with the toy tokenizers' own special tokens."""

from __future__ import annotations

TURN = "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
HEADER = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

# Llama 3: a begin token, two line breaks behind each header, contents trimmed, no line break behind the end of turn.
TRIMMED = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message.role + '\n\n' }}"
    "{{ message.content | trim }}<end_of_turn>{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>assistant\n\n' }}{% endif %}"
)
# Qwen 3: thoughts are kept behind the last question only, and an answer there without thoughts gets empty ones.
THINKING = (
    "{% set ns = namespace(last=0) %}"
    "{% for message in messages if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endfor %}"
    "{% set users = namespace(seen=-1) %}{% for message in messages %}"
    "{% if message.role == 'user' %}{% set users.seen = users.seen + 1 %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'assistant' %}"
    "{% set answer = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{% set thought = message.content.split('</think>')[0].split('<think>')[-1].strip('\n')"
    " if '</think>' in message.content else '' %}"
    "{% if users.seen == ns.last %}{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{ answer }}"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}" + HEADER
)
# ChatML that opens with a system turn of its own when the messages bring none.
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for message in messages %}" + TURN + "{% endfor %}" + HEADER
)
# Mistral: headers in brackets, no special token between a question and its answer, nothing to ask for one.
BRACKETS = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}"
    "{{ message.content | trim }}<end_of_turn>{% else %}{{ '[INST]\n' + message.content | trim + '\n[/INST]\n' }}"
    "{% endif %}{% endfor %}"
)
# Every assistant turn is marked; `MARKED` says what of it.
MARKED = (
    "{%% for message in messages %%}{%% if message.role == 'assistant' %%}%s{%% else %%}" + TURN.replace("%", "%%") + ""
    "{%% endif %%}{%% endfor %%}" + HEADER.replace("%", "%%")
)
BEGIN, END = "{% generation %}", "{% endgeneration %}"
MARKED_RIGHT = MARKED % f"<|im_start|>assistant\n{BEGIN}{{{{ message.content }}}}<|im_end|>{END}{{{{ '\n' }}}}"
MARKED_WITHOUT_END = MARKED % f"<|im_start|>assistant\n{BEGIN}{{{{ message.content }}}}{END}<|im_end|>\n"
MARKED_WITH_HEADER = MARKED % f"{BEGIN}<|im_start|>assistant\n{{{{ message.content }}}}<|im_end|>\n{END}"
MARKED_NOTHING = MARKED % f"<|im_start|>assistant\n{{{{ message.content }}}}<|im_end|>\n{BEGIN}{END}"
