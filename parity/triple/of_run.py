"""The table of a run, or of one graph and one fixture: what is measured on, where it is written, what it ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.budgets import Budgets, load_budgets
from parity.contracts import contract_beside
from parity.runners.dump import read_dump
from parity.triple.answers import Measured
from parity.triple.bisection import Context, find_the_place
from parity.triple.in_report import LATER, STAGE
from parity.triple.measure import Asked, measure_triple
from parity.triple.plot import draw_triple
from parity.triple.rows import EdgeName, Triple
from parity.triple.words import closing, markdown, step_line
from parity.verify import integrity
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import BudgetMissedError, StageError, about
from weights_bridge.files import read_json, read_object, write_json, write_text
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_version import minor_version

SCHEMA = "mlx-sentis/triple/1"
EDGES_ASKED: dict[str, tuple[EdgeName, ...]] = {"b": ("B",), "ab": ("A", "B", "A∘B")}
DEFAULT_SENTIS = "2.6"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a user may choose.

    Attributes:
        edges: of `EDGES_ASKED`.
        sentis: package version; None takes the contract's, or 2.6.
        dump: a folder of the harness; None for a prediction.
        budget_db: for all edges, instead of the budgets on file.
    """

    edges: tuple[EdgeName, ...]
    sentis: str | None = None
    dump: Path | None = None
    budget_db: float | None = None


def triple_of_run(run: RunFolder, options: Options, say: Say) -> tuple[Triple, list[GateResult]]:
    """Measure a run's tuned graph on its fixtures and write `parity/triple.json`, `triple.md` and the picture.

    Args:
        run: the folder.
        options: what is asked.
        say: hears what is being done.

    Returns:
        The table, and failed results of files that are altered: then the old reports are kept.

    Raises:
        StageError: no tuned graph or no fixtures yet, or a dump that cannot be read.
    """
    asked, context, facts = _of_run(run, options)
    architecture = facts.get("architecture", "default")
    if faults := integrity(run):
        return _measure(asked, context, architecture, options, say), faults
    return _recorded(run, LATER, (asked, context, architecture), options, say), []


def predict_edge_b(run: RunFolder, sentis: str, say: Say) -> Triple:
    """Predict the table of a run as one of its stages: what this stage reads is checked, not the whole folder.

    What is not predicted is told and is no failure: it is not known. A predicted miss is one.

    Raises:
        BudgetMissedError: an edge misses.
        StageError: a part is missing or altered.
    """
    options = Options(EDGES_ASKED["ab"], sentis)
    asked, context, facts = _of_run(run, options)
    given = (asked, context, facts.get("architecture", "default"))
    triple = _recorded(run, STAGE, given, options, lambda text: None)
    say(closing(triple))
    missed = [row for row in triple.rows if row.verdict == "FAIL"]
    if missed or triple.faults:
        lines = "".join(f"\n  {step_line(step).strip()}" for step in triple.steps)
        worst = missed[0].worst if missed else triple.faults[0]
        hint = f"see {run.path('parity', 'triple.md')}; `mlx-sentis parity {run.root} --edge ab` measures it again"
        raise BudgetMissedError(f"{closing(triple)}; the first: {worst}{lines}", hint=hint)
    return triple


def _of_run(run: RunFolder, options: Options) -> tuple[Asked, Context, dict[str, Any]]:
    onnx, fixtures = run.path("onnx", "model.onnx"), fixtures_of(run)
    if not onnx.is_file():
        raise StageError(f"{onnx}: no such file", hint="run `mlx-sentis swap` first")
    facts = read_object(run.path("onnx", "contract.json"))
    sentis = minor_version(options.sentis or facts.get("sentis", DEFAULT_SENTIS))
    asked = Asked(onnx, fixtures, options.edges, sentis, _measured(options, onnx, sentis), whole_set=True)
    return asked, Context(run.root, _inside_of(run, facts), _base_of(run), _base_edge_a(run)), facts


def _recorded(run: RunFolder, name: str, given: tuple[Asked, Context, str], options: Options, say: Say) -> Triple:
    """Measure as a stage that the manifest records, and write JSON, page and picture."""
    onnx = given[0].onnx
    with run.stage(name, [onnx, run.path("onnx", "contract.json"), run.path("onnx", "fixtures")]) as stage:
        triple = _measure(*given, options, say)
        stage.facts["sentis"] = {key: triple.facts[key] for key in ("sentis", "source")} | {"passed": triple.passed}
        stage.wrote(*write_triple(triple, run.path("parity"), f"{_name(run)}: triple parity", plots="plots"))
    return triple


def triple_of_file(onnx: Path, fixture: Path, options: Options, say: Say, out: Path | None = None) -> Triple:
    """Measure one graph on one recorded fixture; write the same files to a folder where one is given.

    Raises:
        StageError: the graph, the fixture or the dump cannot be read.
    """
    contract = contract_beside(onnx)
    sentis = minor_version(options.sentis or contract.get("sentis", DEFAULT_SENTIS))
    if not onnx.is_file():
        raise StageError(f"{onnx}: no such file", hint="give an .onnx file")
    asked = Asked(onnx, {fixture.stem: fixture}, options.edges, sentis, _measured(options, onnx, sentis))
    with about(onnx):
        triple = _measure(asked, Context(onnx), contract.get("architecture", "default"), options, say)
    if out is not None:
        write_triple(triple, out, f"{onnx.name}: triple parity")
    return triple


def fixtures_of(run: RunFolder) -> dict[str, Path]:
    """Return name to npz file of a run's fixtures.

    Raises:
        StageError: there are none yet, or their index is none.
    """
    index = run.path("onnx", "fixtures", "index.json")
    hint = "`mlx-sentis run CONFIG --from edge-a` writes them"
    if not index.is_file():
        raise StageError(f"{index}: no fixtures yet", hint=hint)
    try:
        return {entry["name"]: index.parent / entry["npz"] for entry in read_json(index)["fixtures"]}
    except (KeyError, TypeError):
        raise StageError(f"{index}: not an index of fixtures", hint=hint) from None


def _measured(options: Options, onnx: Path, sentis: str) -> Measured | None:
    return None if options.dump is None else Measured(read_dump(options.dump), onnx, sentis)


def _measure(asked: Asked, context: Context, architecture: str, options: Options, say: Say) -> Triple:
    budgets = load_budgets(architecture)
    if options.budget_db is not None:
        budgets = _with_budget(budgets, options.budget_db)
    triple = measure_triple(asked, budgets, say)
    find_the_place(triple, asked, context, budgets.edge_b_db, say)
    return triple


def _with_budget(budgets: Budgets, db: float) -> Budgets:
    told = {"cause": "given on the command line", "measured": "–", "date": "–", "file": "--budget"}
    provenance = budgets.provenance | dict.fromkeys(("edge_a", "edge_b", "edge_ab"), told)
    return replace(budgets, edge_a_db=db, edge_b_db=db, edge_ab_db=db, provenance=provenance)


def write_triple(triple: Triple, folder: Path, title: str, plots: str = ".") -> list[Path]:
    """Write JSON, Markdown and picture and return what was written.

    Args:
        triple: the table.
        folder: where to.
        title: of the page.
        plots: the picture's folder, seen from there.
    """
    document, page = folder / "triple.json", folder / "triple.md"
    picture = Path(plots) / "triple.png"
    drawn = draw_triple(triple.rows, title, folder / picture)
    write_json(document, {"schema": SCHEMA} | triple.as_json())
    write_text(page, markdown(triple, title, picture.as_posix() if drawn else None))
    return [document, page, *([folder / picture] if drawn else [])]


def _name(run: RunFolder) -> str:
    recipe = run.path("recipe.json")
    return (read_json(recipe).get("model", {}).get("name") if recipe.is_file() else None) or run.root.name


def _base_of(run: RunFolder) -> Path | None:
    base = run.path("onnx", "base.onnx")
    return base if base.is_file() else None


def _base_edge_a(run: RunFolder) -> bool | None:
    report = run.path("parity", "a-base.json")
    return bool(read_json(report)["passed"]) if report.is_file() else None


def _inside_of(run: RunFolder, contract: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], str] | None:
    """Return what finds the first module of the original that the graph computes otherwise."""
    merged = run.path("merged")
    if not merged.is_dir():
        return None

    def inside(inputs: Mapping[str, Array]) -> str:
        from parity.localiser import localise
        from parity.runners.torch_causal_lm import TorchCausalLM

        budget_db = load_budgets(contract.get("architecture", "default")).edge_a_db
        original = TorchCausalLM(merged, contract["dtype"])
        found = localise(run.path("onnx", "model.onnx"), contract, original, inputs["input_ids"][0].tolist(), budget_db)
        return f"{found.place}: {found.detail}" if found.first is not None else ""

    return inside
