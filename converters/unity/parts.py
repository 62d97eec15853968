"""What goes into a kit: which sources, texts written from a run, large files and fixtures."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converters.unity import gate, model
from converters.unity.base import Base
from converters.unity.contract import NAME, Contract
from converters.unity.made_inputs import made_inputs
from converters.unity.model import Ends, GraphContract, model_sources
from converters.unity.parity_inputs import HarnessModel, run_fixtures
from converters.unity.prompt import prompt_sources
from weights_bridge.files import sha256_of
from weights_bridge.run_folder import RunFolder

TOKENIZER = "Tokenizer/tokenizer.json"
JSON = "Runtime/Json.cs"
TOKENIZER_TEST = "Tests/Editor/TokenizerTests.cs"  # against the prompt contract's ids
PROMPT = (
    JSON,
    "Runtime/PromptBuilder.cs",
    "Tests/Editor/ContractFile.cs",
    "Tests/Editor/FieldCheck.cs",
    "Tests/Editor/PromptContractTests.cs",
    "Tests/Editor/TokenizerCheck.cs",
)
LOOP = (
    "Runtime/GreedyDecoder.cs",
    "Runtime/KeyValueCache.cs",
    "Runtime/LogitsReader.cs",
    "Runtime/PromptInputs.cs",
    "Runtime/SentisTokenizer.cs",
    "Runtime/StepInputs.cs",
    "Tests/Editor/KitFilesTests.cs",
    TOKENIZER_TEST,
)
WITHOUT_PROMPT = (JSON, "Tests/Editor/FieldCheck.cs")  # what harness and tests use of the prompt's sources
HARNESS = (
    "Editor/DumpWriter.cs",
    "Editor/FixtureFile.cs",
    "Editor/FixtureHash.cs",
    "Editor/FixtureRun.cs",
    "Editor/ModelImport.cs",
    "Editor/ParityHarness.cs",
    "Editor/TensorBytes.cs",
)
CALLS, GATE = ("Runtime/EscapedCalls.cs", "Runtime/ToolCall.cs"), ("Runtime/CallGate.cs",)


@dataclass
class Parts:
    """What goes into a kit.

    Attributes:
        texts: path to text.
        files: path to a large file.
        fixtures: what the harness runs.
        sentis: the version that the graph was exported for; empty without one.
        openings: kinds of samples that do not begin as the prompt builder does.
        prompt_sha256: of the prompt contract; empty without one.
    """

    texts: dict[str, str]
    files: dict[str, Path] = field(default_factory=dict)
    fixtures: list[HarnessModel] = field(default_factory=list)
    sentis: str = ""
    openings: list[str] = field(default_factory=list)
    prompt_sha256: str = ""

    @property
    def has_gate(self) -> bool:
        return GATE[0] in self.texts


def sources_of(names: Sequence[str]) -> dict[str, str]:
    """Return path to text of sources that are always the same."""
    root = importlib.resources.files("converters.unity") / "sources"
    return {name: (root / name).read_text(encoding="utf-8") for name in names}


def prompt_parts(contract: Contract) -> Parts:
    """Return what the prompt contract alone brings."""
    texts = sources_of((*PROMPT, *CALLS)) | prompt_sources(contract) | {f"Tests/Editor/{NAME}": contract.file_text}
    return Parts(texts, openings=other_openings(contract), prompt_sha256=contract.sha256)


def run_parts(run: RunFolder, contract: Contract) -> Parts:
    """Return what a finished run brings."""
    parts, onnx = prompt_parts(contract), run.path("onnx", "model.onnx")
    sha256 = run.recorded_hashes().get("onnx/model.onnx") or sha256_of(onnx)
    _add_graph(parts, GraphContract(run.path("onnx", model.NAME)), onnx, sha256)
    rules = run.path("eval", gate.NAME)
    if rules.is_file():
        parts.texts |= sources_of(GATE) | gate.gate_sources(rules)
    parts.files[TOKENIZER] = run.path("merged", "tokenizer.json")
    parts.fixtures = [HarnessModel(f"../{model.MODEL}", sha256, run_fixtures(run.path("onnx", "fixtures")))]
    return parts


def base_parts(base: Base) -> Parts:
    """Return what base weights bring: inputs are made, and a prompt comes only with a prompt contract."""
    parts = Parts({}) if base.prompt is None else prompt_parts(Contract(base.prompt))
    graph, sha256 = GraphContract(base.contract), sha256_of(base.onnx)
    _add_graph(parts, graph, base.onnx, sha256, base.ends)
    if base.prompt is None:
        parts.texts |= sources_of(WITHOUT_PROMPT)
        del parts.texts[TOKENIZER_TEST]
    parts.files[TOKENIZER] = base.tokenizer
    parts.fixtures = [HarnessModel(f"../{model.MODEL}", sha256, made_inputs(graph), made=True)]
    return parts


def _add_graph(parts: Parts, graph: GraphContract, onnx: Path, sha256: str, ends: Ends | None = None) -> None:
    parts.texts |= sources_of((*LOOP, *HARNESS)) | model_sources(graph, sha256, ends)
    parts.files[model.MODEL] = onnx
    parts.sentis = graph.text("sentis")


def other_openings(contract: Contract) -> list[str]:
    """Return the kinds of samples that do not begin with the leading sample's system turn and tools."""
    leading = _opening(contract, ())
    return [kind for kind in contract.value("samples") if _opening(contract, ("samples", kind)) != leading]


def _opening(contract: Contract, keys: tuple[str, ...]) -> tuple[Any, Any]:
    first = contract.value(*keys, "messages")[:1]
    return [message for message in first if message.get("role") == "system"], contract.value(*keys, "tools")
