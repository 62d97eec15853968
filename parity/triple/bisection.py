"""Where a miss begins: the steps of requirements 186 to 190 in their order, done here as far as they can be.

1. Which edge: a miss at A is mended before Unity is opened, a miss at B alone is the import.
2. The first node that differs; at B, the four causes in their order.
3. A variant that takes the tensor before it as its input, to tell the path to it from what stands behind it.
4. The base model: the same failure there is of the structure, not of the weights.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from converters.divergence import Divergence
from parity.fixtures import read_inputs
from parity.runners.recorded import OF_THE_DUMP
from parity.triple.causes import cause_steps, suspects
from parity.triple.inside import first_parting
from parity.triple.measure import Asked
from parity.triple.rows import EdgeName, Row, Step, Triple
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, counted

Say = Callable[[str], None]
INNER = 6  # tensors to look into a graph by, at the first go


@dataclass(frozen=True)
class Context:
    """What is known besides the graph.

    Attributes:
        place: the run's folder, or the graph, as it is typed on a command line.
        inside_a: finds the place of a miss at edge A on a fixture's inputs; None without an original.
        base: the graph with the base model's weights; None without one.
        base_edge_a: whether edge A passed on base weights; None where it was not measured.
    """

    place: Path
    inside_a: Callable[[Mapping[str, Array]], str] | None = None
    base: Path | None = None
    base_edge_a: bool | None = None


def find_the_place(triple: Triple, asked: Asked, context: Context, budget_b_db: float, say: Say) -> None:
    """Add the steps to a table in which an edge misses; a table that holds gets none."""
    failed: dict[EdgeName, list[Row]] = {
        edge: [row for row in triple.of(edge) if row.verdict == "FAIL"] for edge in asked.edges
    }
    missed: dict[EdgeName, list[Row]] = {
        edge: [row for row in rows if not _of_the_dump(row)] for edge, rows in failed.items()
    }
    if spoilt := [row for rows in failed.values() for row in rows if _of_the_dump(row)]:
        triple.steps.append(_the_dump(spoilt))
    if not any(missed.values()):
        return
    triple.steps.append(_which_edge(triple, missed))
    for edge, rows, follow in (("A", missed.get("A"), _steps_a), ("B", missed.get("B"), _steps_b)):
        if rows:
            say(f"looking where edge {edge} begins to miss")
            triple.steps += follow(triple, asked, context, rows, budget_b_db)
            return  # what A gets wrong is wrong at B's other side too: one after the other


def _of_the_dump(row: Row) -> bool:
    """Tell whether a row fails only because the dump has not what was asked of it: the model is not at fault then."""
    failed = [result.reason for result in row.results if not result.passed]
    return row.sentis.startswith("measured") and bool(failed) and OF_THE_DUMP.issuperset(failed)


def _the_dump(rows: list[Row]) -> Step:
    reasons = ", ".join(sorted({result.reason for row in rows for result in row.results if not result.passed}))
    found = f"{counted(len(rows), 'row')} without all that is to be compared ({reasons}): no word about the model"
    return Step("0", "the dump", f"{found}; mend it, or run the harness again, before anything else")


def _which_edge(triple: Triple, missed: Mapping[EdgeName, list[Row]]) -> Step:
    counts = {edge: f"{len(rows)} of {len(triple.of(edge))}" for edge, rows in missed.items() if rows}
    told = ", ".join(f"{edge} misses on {count} rows" for edge, count in counts.items())
    if missed.get("A"):
        return Step("1", "which edge", f"{told}: mend the export before Unity is opened")
    if missed.get("B"):
        before = "A holds" if "A" in missed else "A was not measured"
        return Step("1", "which edge", f"{told}, {before}: the import")
    return Step("1", "which edge", f"{told}, each edge for itself holds: their errors add up")


def _steps_a(triple: Triple, asked: Asked, context: Context, rows: list[Row], budget_b_db: float) -> list[Step]:
    del triple, budget_b_db
    levels = {level: [r for row in rows for r in row.results if r.tensor.startswith(level)] for level in ("off", "all")}
    fails = {level: any(not result.passed for result in found) for level, found in levels.items()}
    if fails == {"off": False, "all": True}:
        found = "only with ONNX Runtime's optimiser: the graph as it is written agrees with the original"
        return [Step("2", "first difference", found, f"mlx-sentis parity {_model_or_run(context)} --edge a")]
    if context.inside_a is None:
        found = f"first output that misses: {rows[0].worst.tensor} on {rows[0].fixture}"
        what = "to see inside, the original is needed: give its run, or record inner tensors as outputs of both"
        steps = [Step("2", "first difference", f"{found}; {what}")]
    else:
        inputs = read_inputs(asked.fixtures[rows[0].fixture])
        steps = [Step("2", "first difference", context.inside_a(inputs) or _nothing_inside(rows[0]))]
    what = "tell the path from the stack: a variant that takes the tensor before it as its input"
    steps.append(
        Step("3", what, "", f"mlx-sentis graph extract {shlex.quote(str(asked.onnx))} --from TENSOR --out part.onnx")
    )
    if context.base_edge_a is None:
        steps.append(Step("4", "the base model", "", "mlx-sentis parity RUN --edge a"))
    else:
        weights = "edge A passes on base weights: the weights, not the structure"
        structure = "edge A misses on base weights too: the structure, not the weights"
        steps.append(Step("4", "the base model", weights if context.base_edge_a else structure))
    return steps


def _model_or_run(context: Context) -> str:
    place = shlex.quote(str(context.place))
    return f"--model {place} --fixture F.npz" if context.place.suffix == ".onnx" else place


def _nothing_inside(row: Row) -> str:
    return f"every probed tensor agrees inside; first output that misses: {row.worst.tensor}"


def _steps_b(triple: Triple, asked: Asked, context: Context, rows: list[Row], budget_b_db: float) -> list[Step]:
    from converters.facts import facts, versions
    from converters.scan import scan

    row = rows[0]
    inputs = read_inputs(asked.fixtures[row.fixture])
    parting, why = _parting(asked.onnx, inputs, asked.sentis, budget_b_db)
    steps = [_first_difference(triple, asked, row, parting, why)]
    if asked.sentis in versions():
        found = suspects(scan(asked.onnx, asked.sentis), triple.facts.get("deviations", ()))
        steps += cause_steps(found, facts(asked.sentis), asked.onnx)
    what = "tell the path from the stack: a variant that takes the tensor before it as its input"
    tensor = parting.before if parting is not None and parting.before else "TENSOR"
    command = f"mlx-sentis graph extract {shlex.quote(str(asked.onnx))} --from {shlex.quote(tensor)} --out part.onnx"
    steps.append(Step("3", what, "", command))
    return [*steps, _base_b(context, inputs, asked, row, budget_b_db)]


def _parting(onnx: Path, inputs: Mapping[str, Array], sentis: str, budget_db: float) -> tuple[Divergence | None, str]:
    """Return where the emulator parts from ONNX Runtime, and why it does not where it does not."""
    try:
        parting = first_parting(onnx, inputs, sentis, budget_db)
    except StageError as error:
        return None, error.message
    return parting, "" if parting is not None else "the emulator agrees with ONNX Runtime at every tensor"


def _first_difference(triple: Triple, asked: Asked, row: Row, parting: Divergence | None, why: str) -> Step:
    worst = row.worst
    output = f"first output that misses: {_first_output(row)}"
    if worst.reason not in ("below budget", "differs", "nan", "shape", "dtype"):
        return Step("2", "first difference", f"nothing could be compared: {worst.reason}: {worst.detail}")
    if parting is not None:
        source = "predicted" if triple.facts["source"] == "predicted" else "by the emulator, which misses as well"
        return Step("2", "first difference", f"{source}: {parting}")
    if not (inner := _inner(asked.onnx)):
        return Step("2", "first difference", f"{output}; {why}; there is no tensor inside that is no output")
    to = "".join(f" --to {shlex.quote(name)}" for name in inner)
    command = f"mlx-sentis graph extract {shlex.quote(str(asked.onnx))}{to} --out probe.onnx"
    return Step("2", "first difference", f"{output}; {why}; run inner tensors in Unity as outputs", command)


def _inner(onnx: Path) -> list[str]:
    """Return a few tensors, evenly spaced over the graph, that Unity could put out."""
    from converters.onnx_file import read_skeleton

    graph = read_skeleton(onnx).model.graph
    outputs = {value.name for value in graph.output}
    made = [node.output[0] for node in graph.node if node.output and node.op_type != "Constant"]
    inner = [name for name in made if name and name not in outputs]
    return [inner[(2 * k + 1) * len(inner) // (2 * INNER)] for k in range(INNER)] if len(inner) > INNER else inner


def _first_output(row: Row) -> str:
    failed = [result for result in row.results if not result.passed]
    return f"{failed[0].tensor} ({counted(len(failed), 'output')} of {len(row.results)})"


def _base_b(context: Context, inputs: Mapping[str, Array], asked: Asked, row: Row, budget_db: float) -> Step:
    """Predict edge B of the base model's graph on the same inputs."""
    what = "the base model"
    if context.base is None or context.base == asked.onnx:
        return Step("4", what, "", "mlx-sentis parity --model base.onnx --fixture F.npz --edge b")
    del row
    parting, why = _parting(context.base, inputs, asked.sentis, budget_db)
    if parting is not None:
        return Step("4", what, f"predicted to miss as well ({parting}): the structure, not the weights")
    agrees = "agrees" in why
    found = "predicted to hold: the weights, or how they are stored, not the structure" if agrees else why
    return Step("4", what, found)
