"""What several test files use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import cli

FULL = "cannot be written: (the disk is full|File too large); nothing was changed"


def call(*words: object) -> Result:
    """Call the command line as a user would, in this process."""
    return CliRunner().invoke(cli.main, [str(word) for word in words])


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
