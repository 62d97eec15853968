"""The one place where a chat template is rendered: the model's own, through its own tokenizer.

Prompts are never built by hand. Everything that needs a prompt's bytes (recipe, data, evaluation, the prompt contract)
calls `render`, so training and inference cannot differ by a space.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weights_bridge.errors import StageError

Message = dict[str, Any]
Tools = list[dict[str, Any]] | None
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
TOKENIZER_PARTS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
SYNTAX_HINT = "mend the template there, or give the original one with --template FILE"
TEMPLATE_HINT = "instruction-tuned models bring one (chat_template.jinja); give your own with --template FILE"


def load_tokenizer(folder: Path, *, template: Path | None = None) -> Any:
    """Return the transformers tokenizer of a model directory; code inside the directory is never run.

    Args:
        folder: a Hugging Face model directory.
        template: a Jinja file that takes the place of the directory's own chat template.

    Raises:
        StageError: no such directory, no tokenizer file in it, one that transformers cannot read, or no such template.
    """
    if not folder.is_dir():
        raise StageError(f"{folder}: no such model directory", hint="`mlx-sentis models list` names embedded models")
    if not any((folder / name).is_file() for name in TOKENIZER_PARTS):
        hint = "copy the tokenizer files of the original model into the directory"
        raise StageError(f"{folder}/tokenizer.json: no such file, the model has no tokenizer", hint=hint)
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # "PyTorch was not found" is no news here
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a damaged file
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = "fetch the model again; tokenizers that need code of their own are not supported"
        raise StageError(f"{folder}: the tokenizer cannot be read: {why}", hint=hint) from error
    if template is not None:
        tokenizer.chat_template = read_template(template)
        _require_syntax(tokenizer, template)
    return tokenizer


def _require_syntax(tokenizer: Any, template: Path) -> None:
    """Compile a given template, so that its fault is told with file and line.

    Raises:
        StageError: it is not Jinja.
    """
    import jinja2

    with contextlib.suppress(jinja2.TemplateRuntimeError, TypeError, ValueError):  # what it says of one message alone
        try:
            tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
        except jinja2.TemplateSyntaxError as error:
            raise StageError(f"{template}:{error.lineno}: not Jinja: {error.message}", hint=SYNTAX_HINT) from error


def read_template(path: Path) -> str:
    """Return a Jinja file's text, unchanged to the byte.

    Raises:
        StageError: missing, empty or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")  # read_text would turn \r\n into \n
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="give an existing Jinja chat template") from None
    except IsADirectoryError:
        hint = "give the file itself, for example chat_template.jinja in that folder"
        raise StageError(f"{path}: a folder, wanted a Jinja chat template", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not a readable UTF-8 text: {error}", hint="save it again as UTF-8") from None
    if not text.strip():
        raise StageError(f"{path}: the chat template is empty", hint=TEMPLATE_HINT)
    return text


def template_of(tokenizer: Any, tools: Tools = None) -> str:
    """Return the chat template's text that a conversation uses; some models bring one of their own for tools.

    Raises:
        StageError: the model has no template.
    """
    require_template(tokenizer)
    return tokenizer.get_chat_template(None, tools)


def require_template(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template.

    Raises:
        StageError: the model has no template.
    """
    if not tokenizer.chat_template:
        where = getattr(tokenizer, "name_or_path", "") or "the model"
        raise StageError(f"{where}: no chat template in its files", hint=TEMPLATE_HINT)


def adds_bos(tokenizer: Any) -> bool:
    """Tell whether the tokenizer by itself would put a begin token before a text."""
    bos = tokenizer.bos_token_id
    return bos is not None and tokenizer("a")["input_ids"][:1] == [bos]


def marks_generation(template: str) -> bool:
    """Tell whether a template marks what the model writes with `{% generation %}`."""
    return GENERATION.search(COMMENT.sub("", template)) is not None


def render(
    tokenizer: Any,
    messages: list[Message],
    tools: Tools = None,
    add_generation_prompt: bool = False,
) -> str:
    """Return the text of a conversation as the model's own template writes it.

    Args:
        tokenizer: from `load_tokenizer`.
        messages: `{"role", "content"}` in order.
        tools: JSON schemas for templates that have a tools branch; None leaves them out.
        add_generation_prompt: end with the header of the assistant's turn.

    Raises:
        StageError: the model has no template, or the template refuses these messages.
    """
    require_template(tokenizer)
    try:
        return _applied(tokenizer, messages, tools, add_generation_prompt)
    except _refusals() as error:
        raise _refused(tokenizer, messages, error) from error


def render_each(
    tokenizer: Any,
    conversations: Sequence[list[Message]],
    tools: Tools = None,
    add_generation_prompt: bool = False,
) -> list[str | StageError]:
    """Render several conversations that have the same tools, in one call; a refusal stands in its conversation's place.

    Raises:
        StageError: the model has no template.
    """
    require_template(tokenizer)
    if not conversations:
        return []
    try:
        return _applied(tokenizer, list(conversations), tools, add_generation_prompt)
    except _refusals():  # one is enough to fail the call: each by itself tells which
        return [_rendered_or_refused(tokenizer, messages, tools, add_generation_prompt) for messages in conversations]


def _rendered_or_refused(
    tokenizer: Any, messages: list[Message], tools: Tools, add_generation_prompt: bool
) -> str | StageError:
    try:
        return render(tokenizer, messages, tools, add_generation_prompt)
    except StageError as error:
        return error


def generation_masks(
    tokenizer: Any, conversations: Sequence[list[Message]], tools: Tools = None
) -> tuple[list[list[int]], list[list[tuple[int, int]]], list[list[int]]]:
    """Tokenise conversations whose template has `{% generation %}` markers.

    Args:
        tokenizer: a fast tokenizer.
        conversations: ones that `render` takes.
        tools: the same for all.

    Returns:
        Per conversation its ids, its character offsets, and 1 for each token that a marked stretch touches, else 0.
    """
    encoded = tokenizer.apply_chat_template(
        list(conversations),
        tools=tools,
        return_dict=True,
        return_assistant_tokens_mask=True,
        tokenizer_kwargs={"return_offsets_mapping": True},
    )
    return encoded["input_ids"], encoded["offset_mapping"], encoded["assistant_masks"]


def _applied(tokenizer: Any, conversation: Any, tools: Tools, add_generation_prompt: bool) -> Any:
    return tokenizer.apply_chat_template(
        conversation, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
    )


def _refusals() -> tuple[type[Exception], ...]:
    """Return what a template may raise: it may add None to a text, divide by zero, or say why it refuses."""
    import jinja2

    return (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError)


def _refused(tokenizer: Any, messages: list[Message], error: Exception) -> StageError:
    import jinja2

    if isinstance(error, jinja2.TemplateSyntaxError):
        where = getattr(tokenizer, "name_or_path", "") or "the model"
        what = f"{where}: chat template, line {error.lineno}: not Jinja: {error.message}"
        return StageError(what, hint=SYNTAX_HINT)
    roles = ", ".join(str(message.get("role")) for message in messages)
    why = str(error).strip().partition("\n")[0]
    if type(error) is not jinja2.TemplateError:  # that one is raised by `raise_exception`, the others by mishap
        what = f"the chat template fails on the roles ({roles}): {why or type(error).__name__}"
        return StageError(what, hint="its own code is at fault: mend it, or give the original one with --template FILE")
    hint = "the template decides which roles may follow each other, and whether a system turn may open"
    return StageError(f"the chat template refuses the roles ({roles}): {why}", hint=hint)
