"""The folder for `Assets/`: model, tokenizer, sources that are always the same, sources written from the run, fixtures.

Files are written one by one and never deleted: Unity keeps a `.meta` file beside each, and a new one would break every
reference to a script. Large files come first, so that a full disk stops it before any source is changed.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converters.facts import versions
from converters.unity import gate, model, parity_inputs
from converters.unity.assemblies import assembly_files, require_no_other_assembly
from converters.unity.contract import NAME, Contract
from converters.unity.csharp import require_namespace
from converters.unity.helpers import helper_sources
from converters.unity.model import GraphContract, model_sources
from converters.unity.page import kit_page
from converters.unity.placing import alone_in, place_file
from converters.unity.probes.pack import FOLDER as PROBES
from converters.unity.probes.pack import write_probes
from converters.unity.prompt import prompt_sources
from converters.unity.requirements import require_finished
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.files import sha256_of, write_text
from weights_bridge.run_folder import RunFolder

NAMESPACE = "MlxSentis"  # of the sources as they lie in this package
TOKENIZER = "Tokenizer/tokenizer.json"
JSON = "Runtime/Json.cs"
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
)
HARNESS = (
    "Editor/DumpWriter.cs",
    "Editor/FixtureFile.cs",
    "Editor/FixtureHash.cs",
    "Editor/FixtureRun.cs",
    "Editor/ModelImport.cs",
    "Editor/ParityHarness.cs",
    "Editor/TensorBytes.cs",
)
CALLS, GATE = ("Runtime/ToolCall.cs",), ("Runtime/CallGate.cs",)


@dataclass(frozen=True)
class KitSettings:
    """How a kit is written.

    Attributes:
        namespace: of the C# sources, also the name of their assembly.
        prompt_only: only what the prompt contract says; a run that was prepared is enough.
        ungated: go on without a passed edge A; manifest and kit say so.
        link: a hard link to the run's model instead of a copy.
        helpers: of `helpers.HELPERS`, to come with it.
        probes: the probe pack of `probes.pack` as well.
    """

    namespace: str = NAMESPACE
    prompt_only: bool = False
    ungated: bool = False
    link: bool = False
    helpers: Sequence[str] = ()
    probes: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """What helpers and probes bring."""
        return (*helper_sources(self.helpers), *((*HARNESS, JSON) if self.probes else ()))


@dataclass
class _Parts:
    """What goes into a kit: texts by path, and large files by path."""

    texts: dict[str, str]
    files: dict[str, Path] = field(default_factory=dict)
    fixtures: list[parity_inputs.HarnessModel] = field(default_factory=list)
    sentis: str = ""


def write_kit(run: RunFolder, out: Path, namespace: str = NAMESPACE, **settings: Any) -> dict[str, Any]:
    """Write what a Unity project needs of a run.

    Args:
        run: a finished run; with `prompt_only` a prepared one.
        out: the folder, inside `Assets/` or to be copied there.
        namespace: of the C# sources.
        settings: the other fields of `KitSettings`.

    Returns:
        `files`, `contract_sha256`, `model_sha256`, `fixtures`, `gate` (whether there is one), `ungated`, and
        `other_openings`: kinds of samples whose system turn or tools differ from those that the prompt builder writes.

    Raises:
        UsedWronglyError: the namespace is none.
        BudgetMissedError: edge A has not passed for this model.
        StageError: the run is not finished, a file was altered, a template that no fixed pieces can stand for, the
            folder holds another kit, or it is being written to.
    """
    wanted = KitSettings(namespace, **settings)
    _require(out, wanted)
    _require_apart(run, out)
    contract_file = run.path(NAME)
    inputs = [contract_file] if wanted.prompt_only else require_finished(run, ungated=wanted.ungated)
    with run.stage("unity", inputs) as stage:
        contract = Contract(contract_file)
        parts = prompt_parts(contract) if wanted.prompt_only else run_parts(run, contract)
        files = _write(out, parts, wanted)
        if out.resolve().is_relative_to(run.root.resolve()):  # what lies outside of the run is not the run's to verify
            stage.wrote(*(out / name for name in files))
        stage.facts |= {"out": str(out), "namespace": namespace, "files": files, "ungated": wanted.ungated}
    facts = {"namespace": namespace, "files": files, "contract_sha256": contract.sha256, "ungated": wanted.ungated}
    if parts.fixtures:
        facts |= {"model_sha256": parts.fixtures[0].sha256, "fixtures": len(parts.fixtures[0].fixtures)}
        facts |= {"gate": GATE[0] in parts.texts}
    return facts | {"other_openings": other_openings(contract)}


def write_tools(out: Path, wanted: KitSettings) -> dict[str, Any]:
    """Write helpers and probes alone, without a run.

    Args:
        out: the folder, inside `Assets/` or to be copied there.
        wanted: `helpers`, `probes` or both.

    Returns:
        `namespace` and `files`.

    Raises:
        UsedWronglyError: neither is wanted, the namespace is none, or nobody knows a helper.
        StageError: as for `write_kit`.
    """
    if not wanted.sources:
        hint = "give a run, or --probes, or --helper NAME"
        raise UsedWronglyError("unity: nothing to write", hint=hint)
    _require(out, wanted)
    return {"namespace": wanted.namespace, "files": _write(out, _Parts({}), wanted)}


def _require(out: Path, wanted: KitSettings) -> None:
    require_namespace(wanted.namespace)
    helper_sources(wanted.helpers)
    if out.exists() and not out.is_dir():
        raise StageError(f"{out}: a file, wanted a folder", hint="choose another --out")


def _require_apart(run: RunFolder, out: Path) -> None:
    """Require that a kit lies outside of its run, or in `unity/` there: the other folders are other stages'."""
    inside, root = out.resolve(), run.root.resolve()
    if inside.is_relative_to(root) and not inside.is_relative_to(root / "unity"):
        hint = f"give {run.root / 'unity'}, or a folder of the Unity project"
        raise UsedWronglyError(f"--out {out}: lies among the files of the run {run.root}", hint=hint)


def sources_of(names: Sequence[str]) -> dict[str, str]:
    """Return path to text of sources that are always the same."""
    root = importlib.resources.files("converters.unity") / "sources"
    return {name: (root / name).read_text(encoding="utf-8") for name in names}


def prompt_parts(contract: Contract) -> _Parts:
    """Return what the prompt contract alone brings."""
    texts = sources_of(PROMPT) | prompt_sources(contract) | {f"Tests/Editor/{NAME}": contract.file_text}
    if gate.reads_calls(contract):
        texts |= sources_of(CALLS)
    return _Parts(texts)


def run_parts(run: RunFolder, contract: Contract) -> _Parts:
    """Return what a finished run brings."""
    parts, onnx = prompt_parts(contract), run.path("onnx", "model.onnx")
    graph, sha256 = GraphContract(run.path("onnx", model.NAME)), run.recorded_hashes().get("onnx/model.onnx")
    sha256 = sha256 or sha256_of(onnx)
    parts.texts |= sources_of((*LOOP, *HARNESS)) | model_sources(graph, sha256)
    rules = run.path("eval", gate.NAME)
    if rules.is_file() and gate.reads_calls(contract):
        parts.texts |= sources_of(GATE) | gate.gate_sources(rules)
    parts.files |= {model.MODEL: onnx, TOKENIZER: run.path("merged", "tokenizer.json")}
    fixtures = parity_inputs.run_fixtures(run.path("onnx", "fixtures"))
    parts.fixtures = [parity_inputs.HarnessModel(f"../{model.MODEL}", sha256, fixtures)]
    parts.sentis = graph.text("sentis")
    return parts


def _write(out: Path, parts: _Parts, wanted: KitSettings) -> list[str]:
    """Write a kit and return the paths of its files in it."""
    parts.texts |= sources_of(wanted.sources)
    parts.texts |= assembly_files(wanted.namespace, parts.texts)
    parts.texts |= {"README.md": kit_page(wanted.namespace, parts.texts, parts.files)}
    require_no_other_assembly(out, parts.texts)
    with alone_in(out):
        for name, source in parts.files.items():
            place_file(source, out / name, link=wanted.link and name == model.MODEL)
        if parts.fixtures:
            parity_inputs.write_parity_inputs(out / parity_inputs.FOLDER, parts.fixtures, parts.sentis)
        if wanted.probes:
            write_probes(out / PROBES, parts.sentis or versions()[-1])
        for name, text in sorted(parts.texts.items()):
            write_text(out / name, _renamed(text, wanted.namespace) if name.endswith(".cs") else text)
    folders = [parity_inputs.FOLDER] * bool(parts.fixtures) + [PROBES] * wanted.probes
    beside = [file for folder in folders for file in (out / folder).rglob("*") if file.is_file()]
    return sorted([*parts.files, *parts.texts, *(file.relative_to(out).as_posix() for file in beside)])


def _renamed(source: str, namespace: str) -> str:
    for before in ("namespace ", "-executeMethod "):
        source = source.replace(f"{before}{NAMESPACE}", f"{before}{namespace}")
    return source


def other_openings(contract: Contract) -> list[str]:
    """Return the kinds of samples that do not begin with the leading sample's system turn and tools."""
    leading = _opening(contract, ())
    return [kind for kind in contract.value("samples") if _opening(contract, ("samples", kind)) != leading]


def _opening(contract: Contract, keys: tuple[str, ...]) -> tuple[Any, Any]:
    first = contract.value(*keys, "messages")[:1]
    return [message for message in first if message.get("role") == "system"], contract.value(*keys, "tools")
