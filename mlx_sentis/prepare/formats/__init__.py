"""The forms that rows come in, one file per form, and how a row's form is recognised.

The first form in the list whose keys a row has is its form, so an Alpaca row with a `text` beside it is an Alpaca row.
Rows of several forms in one file are each read by their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.formats import alpaca, bfcl, command, completion, messages, sharegpt, text
from mlx_sentis.prepare.rows import Row, ToolSet


@dataclass(frozen=True)
class Form:
    """One form of rows.

    Attributes:
        name: as `--format` takes it.
        needs: keys that make a row this form; one of several sets.
        also: other keys it reads.
        read: makes the row.
        refused: keys that it is recognised by too, in order to say why such a row is not read.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    also: tuple[str, ...]
    read: Callable[[dict[str, Any], str, ToolSet, str], Row]
    refused: tuple[tuple[str, ...], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Every key the form knows."""
        return tuple(dict.fromkeys([key for keys in self.needs for key in keys] + list(self.also)))

    def fits(self, keys: Any) -> bool:
        """Tell whether a row with these keys has what the form needs."""
        return any(all(key in keys for key in needs) for needs in (*self.needs, *self.refused))


FORMS = {
    form.name: form
    for form in (
        Form("messages", (("messages",),), ("tools", "functions", "system"), messages.read),
        Form("sharegpt", (("conversations",),), ("tools", "functions", "system"), sharegpt.read),
        Form("bfcl", (bfcl.NEEDS,), (bfcl.ANSWER,), bfcl.read, (bfcl.PLAYED,)),
        Form("command", (("user", "call"),), ("tools", "functions", "system"), command.read),
        Form("alpaca", (("instruction", "output"),), ("input", "history", "system"), alpaca.read),
        Form("completion", (("prompt", "completion"), ("user", "assistant")), ("system",), completion.read),
        Form("text", (("text",),), (), text.read),
    )
}


def form_of(keys: Any, name: str | None = None) -> Form | None:
    """Return the form of a row with these keys, None when it has none.

    Args:
        keys: the row, or its keys.
        name: the one form to think of; None is all of them.
    """
    forms = FORMS.values() if name is None else [FORMS[name]]
    return next((form for form in forms if form.fits(keys)), None)


def wanted(name: str | None = None) -> str:
    """Return the keys of a form, or of all, in words for a user."""
    forms = FORMS.values() if name is None else [FORMS[name]]
    sets = ["{" + ", ".join(f'"{key}"' for key in keys) + "}" for form in forms for keys in form.needs]
    if name is not None:
        return " or ".join(sets) + f" (format {name})"
    return ", ".join(sets[:-1]) + f" or {sets[-1]}"


def listed(keys: Iterable[str]) -> str:
    """Return names for a user, sorted, not too many of them."""
    names = sorted(keys)
    return (", ".join(names[:6]) + (", …" if len(names) > 6 else "")) or "no keys"
