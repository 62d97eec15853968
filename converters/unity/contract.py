"""`prompt_contract.json` as the generator reads it: every field is checked for what C# can hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from converters.unity.csharp import LEAST, MOST
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of_text

SCHEMA = "mlx-sentis/prompt_contract/4"
NAME = "prompt_contract.json"
HINT = "`mlx-sentis prepare` (or `run --from prepare`) writes it again"


class Contract:
    """A run's prompt contract.

    Args:
        path: its file.

    Raises:
        StageError: missing, not JSON, of another schema, or the template cannot be written as pieces.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.document = path, read_json(path)
        found = self.document.get("schema") if isinstance(self.document, dict) else None
        if found != SCHEMA:
            raise StageError(f"{path}: schema found {found!r}, wanted {SCHEMA!r}", hint=HINT)
        if why := self.text("pieces", "refused"):
            hint = "a game without Jinja builds prompts of fixed pieces; --template FILE gives a simpler template"
            raise StageError(f"{path}: no prompt builder can be written: {why}", hint=hint)

    @property
    def file_text(self) -> str:
        """The document as the kit's copy has it."""
        return json.dumps(self.document, indent=2, ensure_ascii=False) + "\n"

    @property
    def sha256(self) -> str:
        """SHA-256 of `file_text`."""
        return sha256_of_text(self.file_text)

    def value(self, *keys: str) -> Any:
        """Return a field.

        Raises:
            StageError: there is none.
        """
        found: Any = self.document
        for key in keys:
            if not isinstance(found, dict) or key not in found:
                raise StageError(f"{self.path}: no field {'.'.join(keys)}", hint=HINT)
            found = found[key]
        return found

    def text(self, *keys: str) -> str:
        """Return a text.

        Raises:
            StageError: it is none.
        """
        return self._of(str, "a text", keys)

    def flag(self, *keys: str) -> bool:
        """Return true or false.

        Raises:
            StageError: it is neither.
        """
        return self._of(bool, "true or false", keys)

    def number(self, *keys: str) -> int:
        """Return a whole number of 32 bits; -1 for null, which no id is.

        Raises:
            StageError: it is none.
        """
        found = self.value(*keys)
        return -1 if found is None else self._integer(found, keys)

    def ids(self, *keys: str) -> list[int]:
        """Return ids.

        Raises:
            StageError: one is no whole number of 32 bits.
        """
        return [self._integer(item, keys) for item in self._of(list, "an array", keys)]

    def texts(self, *keys: str) -> list[str]:
        """Return texts.

        Raises:
            StageError: one is none.
        """
        found = self._of(list, "an array of texts", keys)
        if not all(isinstance(item, str) for item in found):
            raise self._fault(found, "an array of texts", keys)
        return found

    def _of(self, kind: type, wanted: str, keys: tuple[str, ...]) -> Any:
        found = self.value(*keys)
        if not isinstance(found, kind):
            raise self._fault(found, wanted, keys)
        return found

    def _integer(self, found: Any, keys: tuple[str, ...]) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or not LEAST <= found <= MOST:
            raise self._fault(found, "a whole number of 32 bits", keys)
        return found

    def _fault(self, found: Any, wanted: str, keys: tuple[str, ...]) -> StageError:
        return StageError(f"{self.path}: {'.'.join(keys)}: found {str(found)[:60]!r}, wanted {wanted}", hint=HINT)
