"""Edge A: the original in torch against the exported graph in ONNX Runtime.

First every output of a prefill at both optimisation levels: each level is reported and each must pass, so the worse
one decides. Then the real KV loop, token for token, and a talk of several turns whose cache is carried throughout,
every step against the original's single pass. The original is the truth, the runtime never is.

A graph with fp16 weights is measured against the original with the same weights rounded, so that the fp32 budget holds
for the export; what the rounding itself costs is a result of its own with a budget of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.fixtures import Fixture, choose_fixtures, greedy_prompts, read_fixture, write_fixtures
from parity.greedy import compare_greedy
from parity.localiser import localise, place_of
from parity.runners.decoder_io import asked_outputs
from weights_bridge.compare import Array, GateReport, GateResult, compare_sets
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    from parity.budgets import Budgets
    from parity.runners.onnx_decoder import OnnxDecoder, Optimisation
    from parity.runners.torch_causal_lm import TorchCausalLM
    from weights_bridge.settings import Settings

LEVELS: tuple[Optimisation, ...] = ("off", "all")
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
ONNX_RUNTIME_TYPES = {f"tensor({name})": name for name in ("bool", "float16", *INTEGERS)} | {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


def measure_edge_a(
    onnx: Path,
    contract: Mapping[str, Any],
    original: Path,
    rows: Sequence[Mapping[str, Any]],
    budgets: Budgets,
    settings: Settings,
    *,
    fixtures_to: Path | None = None,
    localised: bool = False,
) -> GateReport:
    """Measure a graph against the model directory it was exported from.

    Args:
        onnx: the graph.
        contract: its `contract.json`.
        original: the Hugging Face directory whose weights are in the graph.
        rows: prepared rows, or plain `{"ids": [...]}`.
        budgets: `edge_a_db` is what every output must reach, `stored_fp16_db` what rounded weights must.
        settings: `parity.fixture_rows`, `parity.greedy_tokens`.
        fixtures_to: a folder to write the fixtures to, with the original's outputs.
        localised: compare the graph's inside even when nothing is missed (`facts["localised"]`).

    Returns:
        One result per level, fixture and output, one per greedy prompt, and those of the talk (`sequence / …`). When
        something fails, the first result names the place where it begins. Facts: `error_by_layer` (series to
        `layer i` to dB), `worst_db` per level, the fixtures, the prompts, the talk.

    Raises:
        StageError: no rows, ids outside the vocabulary, or the original cannot be loaded.
    """
    from parity.runners.torch_causal_lm import TorchCausalLM

    fixtures = choose_fixtures(rows, settings.parity.fixture_rows, contract)
    stored = contract["dtype"]
    torch_model = TorchCausalLM(original, stored)
    wanted = [asked_outputs(torch_model.forward(fixture.ids).graph_outputs(), contract) for fixture in fixtures]
    if fixtures_to is not None:
        write_fixtures(fixtures_to, fixtures, wanted, contract)
    window = contract["constants"].get("sliding_window")
    prompts = greedy_prompts(fixtures, settings.parity.greedy_tokens, window)
    chosen = {name: torch_model.greedy(ids, settings.parity.greedy_tokens) for name, ids in prompts.items()}
    report = GateReport("a", facts=_facts(fixtures, prompts, settings, budgets))
    if stored == "fp16":
        report.results += _rounding(TorchCausalLM(original), fixtures, wanted, budgets)
        report.facts["stored_fp16"] = budgets.provenance["stored_fp16"] | {"db": budgets.stored_fp16_db}
    try:
        for level in LEVELS:
            decoder = _measure_level(report, level, onnx, contract, fixtures, wanted, budgets.edge_a_db)
            if level == "all":  # the loops run at the level that is shipped
                _measure_greedy(report, decoder, prompts, chosen)
                _measure_talk(report, decoder, torch_model, prompts, settings.parity.greedy_tokens, budgets)
            del decoder  # one session at a time
    except StageError as error:
        report.results.append(GateResult("graph", False, "not run", where=onnx.name, detail=error.message))
        return report
    report.facts["error_by_layer"] = {
        f"optimisation {level}": error_by_layer(report.results, f"{level} / ") for level in LEVELS
    }
    report.facts["worst_db"] = {level: report.worst_db(f"{level} / ") for level in LEVELS}
    if localised or not report.passed:
        _name_the_place(report, onnx, contract, torch_model, fixtures, budgets.edge_a_db)
    return report


def _facts(
    fixtures: Sequence[Fixture], prompts: Mapping[str, list[int]], settings: Settings, budgets: Budgets
) -> dict[str, Any]:
    return {
        "fixtures": [{"name": f.name, "tokens": len(f.ids), "source": f.source} for f in fixtures],
        "greedy": {"tokens": settings.parity.greedy_tokens, "prompts": {n: len(ids) for n, ids in prompts.items()}},
        "budget": budgets.provenance["edge_a"] | {"db": budgets.edge_a_db},
    }


def _rounding(
    exact: TorchCausalLM, fixtures: Sequence[Fixture], rounded: Sequence[Mapping[str, Array]], budgets: Budgets
) -> list[GateResult]:
    """Return what rounding the weights to fp16 costs the logits, torch against torch."""
    results = []
    for fixture, found in zip(fixtures, rounded, strict=True):
        wanted = {"logits": exact.forward(fixture.ids).logits}
        prefix = f"fp16 weights / {fixture.name} / "
        results += compare_sets(wanted, {"logits": found["logits"]}, budgets.stored_fp16_db, prefix)
    return results


def _measure_level(
    report: GateReport,
    level: Optimisation,
    onnx: Path,
    contract: Mapping[str, Any],
    fixtures: Sequence[Fixture],
    wanted: Sequence[Mapping[str, Array]],
    budget_db: float,
) -> OnnxDecoder:
    """Add the results of one optimisation level, and return the decoder that gave them."""
    from parity.runners.onnx_decoder import OnnxDecoder

    decoder = OnnxDecoder(onnx, contract, optimisation=level)
    for fixture, reference in zip(fixtures, wanted, strict=True):
        results = compare_sets(reference, decoder.forward(fixture.ids), budget_db, f"{level} / {fixture.name} / ")
        report.results += [replace(result, where=place_of(result.where)) for result in results]
    return decoder


def _measure_greedy(
    report: GateReport,
    decoder: OnnxDecoder,
    prompts: Mapping[str, list[int]],
    chosen: Mapping[str, tuple[list[int], list[Array]]],
) -> None:
    for name, prompt in prompts.items():
        found = decoder.greedy(prompt, len(chosen[name][0]), keep_logits=True)
        report.results.append(compare_greedy(name, chosen[name], (found.ids, found.logits)))


def _measure_talk(
    report: GateReport,
    decoder: OnnxDecoder,
    original: TorchCausalLM,
    prompts: Mapping[str, list[int]],
    new_tokens: int,
    budgets: Budgets,
) -> None:
    """Add the talk of several turns, its cache carried throughout."""
    from parity.sequences.decoder import measure_talk

    results, report.facts["sequence"] = measure_talk(decoder, original, prompts, new_tokens, budgets.edge_a_db)
    report.results += results


def error_by_layer(results: Sequence[GateResult], prefix: str = "") -> dict[str, float | None]:
    """Return the worst dB per depth over all tensors whose name starts with a text; None where all are exact.

    Keys are `layer 0` … in order, then `logits`. A cache of layer i holds the error of the layers before it.
    """
    levels: dict[str, list[float]] = {}
    for result in results:
        if result.tensor.startswith(prefix) and not result.tensor.startswith("greedy"):
            found = levels.setdefault(result.where.partition(" (")[0], [])
            found += [] if result.psnr_db is None else [result.psnr_db]
    numbered = sorted((name for name in levels if name.startswith("layer ")), key=lambda name: int(name.split()[1]))
    order = numbered + sorted(levels.keys() - set(numbered))
    return {name: min(levels[name], default=None) for name in order}


def _name_the_place(
    report: GateReport,
    onnx: Path,
    contract: Mapping[str, Any],
    original: TorchCausalLM,
    fixtures: Sequence[Fixture],
    budget_db: float,
) -> None:
    """Put one result in front that says where the miss begins."""
    by_name = {fixture.name: fixture for fixture in fixtures}
    missed = {r.tensor.split(" / ")[1] for r in report.failures if not r.tensor.startswith(("greedy", "sequence"))}
    candidates = [by_name[name] for name in missed if name in by_name] or list(fixtures)
    fixture = min(candidates, key=lambda f: (len(f.ids), f.name))
    found = localise(onnx, contract, original, fixture.ids, budget_db)
    report.facts["localised"] = [result.as_json() for result in found.results]
    if found.first is None:
        return
    first = replace(found.first, tensor=f"first below the budget / {fixture.name}", detail=found.detail)
    report.results.insert(0, first)


def measure_fixture(onnx: Path, fixture: Path, budget_db: float) -> GateReport:
    """Measure any graph against a recorded fixture at both optimisation levels: no original is needed.

    Args:
        onnx: the graph.
        fixture: an npz file with `in::` and `out::` keys.
        budget_db: what every output must reach.

    Raises:
        StageError: the fixture cannot be read, or the graph cannot be loaded.
    """
    from converters.ort_session import open_session

    inputs, outputs = read_fixture(fixture)
    report = GateReport("a", facts={"fixture": fixture.name, "model": onnx.name})
    for level in LEVELS:
        found = run_inputs(open_session(onnx, level), inputs, onnx.name)
        if isinstance(found, list):
            report.results += [replace(fault, tensor=f"{level} / {fault.tensor}") for fault in found]
            continue
        results = compare_sets(outputs, found, budget_db, f"{level} / ")
        report.results += [replace(result, where=place_of(result.where)) for result in results]
    report.facts["error_by_layer"] = {f"optimisation {lv}": error_by_layer(report.results, f"{lv} / ") for lv in LEVELS}
    return report


def run_inputs(session: Any, inputs: Mapping[str, Array], name: str) -> dict[str, Array] | list[GateResult]:
    """Return what a session computes of a fixture's inputs, or failed results that say why it computes nothing.

    Args:
        session: of ONNX Runtime.
        inputs: by name.
        name: of the graph, to report.
    """
    asked, given = {value.name for value in session.get_inputs()}, set(inputs)
    faults = [
        GateResult(n, False, reason, where=f"input {n}")
        for reason, names in (("missing", asked - given), ("extra", given - asked))
        for n in sorted(names)
    ]
    for value in session.get_inputs():
        wanted = ONNX_RUNTIME_TYPES.get(value.type)
        if value.name in given and wanted and wanted != (found := inputs[value.name].dtype.name):
            detail = f"found {found}, wanted {wanted}"
            faults.append(GateResult(value.name, False, "dtype", where=f"input {value.name}", detail=detail))
    if faults:
        return faults
    names = [value.name for value in session.get_outputs()]
    try:
        found = dict(zip(names, session.run(names, dict(inputs)), strict=True))
    except Exception as error:  # ONNX Runtime's errors share no base class
        return [GateResult("graph", False, "not run", where=name, detail=str(error).strip().splitlines()[0])]
    told = "a sequence or a map, of which nothing is compared; Sentis has tensors only"
    odd = [n for n, value in found.items() if not isinstance(value, np.ndarray)]
    return [GateResult(n, False, "no tensor", where=n, detail=told) for n in odd] or found
