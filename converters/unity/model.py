"""The model in C#: what the loop needs to know of the graph, written from `onnx/contract.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.unity import csharp
from weights_bridge.errors import StageError
from weights_bridge.files import read_json

NAME = "contract.json"
SCHEMA = "mlx-sentis/contract/1"
FAMILY = "causal_lm"
MODEL = "Model/model.onnx"  # in the kit
HINT = "`mlx-sentis export` (or `run --from export`) writes it again"
SIZES = ("layers", "heads", "kv_heads", "head_dim", "vocab")
NEXT_TOKEN = "next_token"


class GraphContract:
    """A graph's contract, every field that C# uses checked.

    Args:
        path: `onnx/contract.json`.

    Raises:
        StageError: missing, not JSON, of another schema or family, or a field is not what the loop can follow.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.document = path, read_json(path)
        found = self.document.get("schema") if isinstance(self.document, dict) else None
        if found != SCHEMA:
            raise StageError(f"{path}: schema found {found!r}, wanted {SCHEMA!r}", hint=HINT)
        if (family := self.document.get("family")) != FAMILY:
            hint = "the loop of the kit is for decoder-only language models; helpers come with --helper"
            raise StageError(f"{path}: family found {family!r}, wanted {FAMILY!r}", hint=hint)
        self.constants = self._object("constants")
        self.sizes = {name: self._size(name) for name in SIZES}
        self.window = 0 if self.constants.get("sliding_window") is None else self._size("sliding_window")
        self.masks = self._object("masks")
        self._require_names()

    @property
    def puts_out_next_token(self) -> bool:
        """Whether the graph puts out the likeliest next token's id."""
        return NEXT_TOKEN in self._names("outputs")

    @property
    def cache_names(self) -> tuple[list[str], list[str]]:
        """The cache's inputs and the outputs that go on with them, in one order."""
        pairs = [f"{layer}.{part}" for layer in range(self.sizes["layers"]) for part in ("key", "value")]
        return [f"past_key_values.{pair}" for pair in pairs], [f"present.{pair}" for pair in pairs]

    @property
    def mask_windows(self) -> list[int]:
        """For each mask how many tokens it lets a token see, itself among them; 0 for all."""
        return [self.window if kind == "sliding_attention" else 0 for kind in self.masks.values()]

    def text(self, key: str) -> str:
        """Return a field as text."""
        return str(self.document.get(key, ""))

    def _object(self, key: str) -> dict[str, Any]:
        found = self.document.get(key)
        if not isinstance(found, dict) or not found:
            raise self._fault(key, found, "an object with members")
        return found

    def _size(self, name: str) -> int:
        found = self.constants.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= csharp.MOST:
            raise self._fault(f"constants.{name}", found, "a whole number from 1")
        return found

    def _names(self, side: str) -> set[str]:
        rows = self.document.get(side)
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "name" in row for row in rows):
            raise self._fault(side, rows, "an array of objects with names")
        return {row["name"] for row in rows}

    def _require_names(self) -> None:
        past, present = self.cache_names
        wanted_in = {"input_ids", "position_ids", *self.masks, *past}
        for side, wanted in (("inputs", wanted_in), ("outputs", {"logits", *present})):
            found = self._names(side) - ({NEXT_TOKEN} if side == "outputs" else set())
            if found != wanted:
                odd = ", ".join(sorted(found ^ wanted)[:4])
                raise self._fault(side, f"names that differ in {odd}", "those of its family")
        if "sliding_attention" in self.masks.values() and not self.window:
            raise self._fault("constants.sliding_window", None, "the window of the sliding layers")

    def _fault(self, key: str, found: object, wanted: str) -> StageError:
        return StageError(f"{self.path}: {key}: found {str(found)[:60]!r}, wanted {wanted}", hint=HINT)


@dataclass(frozen=True)
class Ends:
    """What the loop takes from a prompt contract, where there is none.

    Attributes:
        stop_ids: of which each ends an answer.
        padding_value: fills a batch up; None for none.
        padding_side: `left` or `right`.
    """

    stop_ids: Sequence[int]
    padding_value: int | None
    padding_side: str


def model_sources(contract: GraphContract, sha256: str, ends: Ends | None = None) -> dict[str, str]:
    """Return path to text of what is written of a graph, in the namespace `MlxSentis`.

    Args:
        contract: the graph's.
        sha256: of the model's file.
        ends: what ends an answer; None leaves that to the prompt contract.
    """
    what = "The model's sizes, and the names of its inputs and outputs."
    fields = _fields(contract, sha256, ends)
    return {"Runtime/ModelConstants.cs": csharp.constants(NAME, "ModelConstants", what, fields)}


def _fields(contract: GraphContract, sha256: str, ends: Ends | None) -> list[csharp.Field]:
    past, present = contract.cache_names
    sizes, (stop_ids, padding, side) = contract.sizes, _ends(ends)
    chosen = csharp.text(NEXT_TOKEN if contract.puts_out_next_token else None)
    return [
        ("The model's file in the kit.", "string", "File", csharp.text(MODEL)),
        ("SHA-256 of the model's file.", "string", "FileSha256", csharp.text(sha256)),
        ("The architecture's name.", "string", "Architecture", csharp.text(contract.text("architecture"))),
        ("The package version it was exported for.", "string", "Sentis", csharp.text(contract.text("sentis"))),
        ("Layers of the decoder.", "int", "Layers", str(sizes["layers"])),
        ("Heads of a layer's queries.", "int", "Heads", str(sizes["heads"])),
        ("Heads of a layer's keys and values.", "int", "KvHeads", str(sizes["kv_heads"])),
        ("Width of a head.", "int", "HeadDim", str(sizes["head_dim"])),
        ("Tokens of the vocabulary.", "int", "VocabularySize", str(sizes["vocab"])),
        ("Input: ids of the new tokens, [1, new].", "string", "IdsName", csharp.text("input_ids")),
        ("Input: places of the new tokens, [1, new].", "string", "PlacesName", csharp.text("position_ids")),
        (
            "Inputs: masks that are added to attention, [1, 1, new, all].",
            csharp.TEXTS,
            "MaskNames",
            _texts(list(contract.masks)),
        ),
        (
            "How many tokens each mask lets a token see, itself among them; 0 for all before it.",
            csharp.INTEGERS,
            "MaskWindows",
            csharp.integers(contract.mask_windows, " " * 8),
        ),
        (
            "What a mask holds where a token may not look.",
            "float",
            "Masked",
            csharp.number(contract.document.get("masked", -1e9)),
        ),
        ("Inputs: keys and values, [1, KvHeads, past, HeadDim].", csharp.TEXTS, "PastNames", _texts(past)),
        ("Outputs: the same with the new tokens.", csharp.TEXTS, "PresentNames", _texts(present)),
        ("Output: logits, [1, new, VocabularySize].", "string", "LogitsName", csharp.text("logits")),
        ("Output: the next token's id, [1, 1]; null where the model has none.", "string", "NextTokenName", chosen),
        ("Ids of which each ends an answer.", csharp.INTEGERS, "StopIds", stop_ids),
        ("Id that fills a batch up; -1 for none.", "int", "PaddingValue", padding),
        ("Where padding goes: left or right.", "string", "PaddingSide", side),
    ]


def _ends(ends: Ends | None) -> tuple[str, str, str]:
    """Return stop ids, padding id and side as C#: the prompt contract's where there is one."""
    if ends is None:
        return "PromptContract.StopIds", "PromptContract.PaddingValue", "PromptContract.PaddingSide"
    padding = -1 if ends.padding_value is None else ends.padding_value
    return csharp.integers(ends.stop_ids, " " * 8), str(padding), csharp.text(ends.padding_side)


def _texts(values: Sequence[str]) -> str:
    return csharp.texts(values, " " * 8)
