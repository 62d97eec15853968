"""Toy models with their recipes, and a way to write data files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from mlx_sentis.demo.toy import write_toy_model
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.files import sha256_of_text

# The same examples on every machine; nothing is stored between runs.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile("fixed")

TOOLS = [
    {
        "name": "move_to",
        "description": "walk to a place",
        "parameters": {"properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
    {
        "name": "set_light",
        "description": "set the light",
        "parameters": {"properties": {"state": {"enum": ["on", "off"]}, "lamps": {"type": "integer"}}},
    },
]


@dataclass(frozen=True)
class Model:
    """A toy model directory, its tokenizer and its recipe."""

    folder: Path
    tokenizer: Any
    recipe: dict[str, Any]

    def with_template(self, template: str) -> Model:
        """Return the same model with another chat template and the recipe that follows from it."""
        file = self.folder.parent / f"{sha256_of_text(template)[:16]}.jinja"
        file.write_text(template, encoding="utf-8")
        tokenizer = load_tokenizer(self.folder, template=file)
        return Model(self.folder, tokenizer, make_recipe(self.folder, template=file))


def _model(folder: Path, model_type: str) -> Model:
    write_toy_model(folder, model_type)
    return Model(folder, load_tokenizer(folder), make_recipe(folder))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return _model(tmp_path_factory.mktemp("llama") / "model", "llama")


@pytest.fixture(scope="session")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return _model(tmp_path_factory.mktemp("gemma") / "model", "gemma3_text")


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Write rows (objects, or raw lines) to a file and return it."""

    def write(rows: list[Any], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(line + "\n" for line in lines).encode())
        return path

    return write


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    return [dict(tool) for tool in TOOLS]
