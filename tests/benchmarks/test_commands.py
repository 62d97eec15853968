"""`mlx-sentis bench`: one document, and exit 3 for a planted miss. Nothing here asserts a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call

from benchmarks import blas, export, startup, train
from benchmarks.asked import Asked
from benchmarks.result import Bench, Budget
from benchmarks.train_cases import cases
from weights_bridge.errors import BudgetMissedError

FOUND = {"blas": "torch", "mlx_gflops": 50.0, "torch_gflops": 60.0, "peak_memory_gib": 0.2}
SLOW = FOUND | {"blas": "reference", "mlx_gflops": 5.0}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Return a function that plants what the product with the fast BLAS comes to."""

    def plant(fast_figures: dict[str, Any]) -> None:
        monkeypatch.setattr(blas, "run_contender", lambda name, fast, **_: fast_figures if fast else SLOW)

    return plant


def test_blas_answers_with_a_ratio_and_the_gain_over_the_wheel(products: Callable[..., None]) -> None:
    products(FOUND)
    result = call("bench", "blas", "--json", "-q")
    document = json.loads(result.stdout)
    (found,) = document["benches"]
    assert result.exit_code == 0
    assert document["schema"] == "mlx-sentis/bench/1"
    assert document["passed"] is True
    assert document["cores"] >= 1
    assert found["products"][0]["torch_over_mlx"] == 1.2
    assert found["budgets"][0]["limit"] == 2.0
    if sys.platform != "darwin":
        assert found["facts"]["gain"] == 10.0


def test_a_product_slower_than_its_budget_is_exit_3_with_the_table_still_printed(products: Callable[..., None]) -> None:
    products(SLOW)
    result = call("bench", "blas", "-q")
    assert result.exit_code == 3
    assert "missed 1 budget" in result.stderr
    assert "blas: torch / MLX 12 × ≤ 2 ×" in result.stderr
    assert "MISS" in result.stdout


def test_a_slow_start_is_exit_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(startup, "installed", lambda: [sys.executable, "-c", ""])
    result = call("bench", "startup", "--runs", 1, "-q")
    assert result.exit_code == 3
    assert "startup: mlx-sentis --help" in result.stderr


def test_a_command_that_cannot_start_is_exit_1_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "installed", lambda: [sys.executable, "-c", "import no_such_module"])
    result = call("bench", "startup", "--runs", 1, "-q")
    assert result.exit_code == 1
    assert "no_such_module" in result.stderr


EVERY = ("blas", "startup", "scan", "prepare", "train", "adapters", "bridge", "export", "parity", "emulator")


def test_all_runs_every_benchmark_in_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of: list[tuple[str, Asked]] = []
    for name in EVERY:

        def measure(asked: Asked, name: str = name) -> Bench:
            asked_of.append((name, asked))
            return Bench(name, "planted", budgets=[Budget("x", 1.0, 2.0, "s")])

        monkeypatch.setattr(f"benchmarks.{name}.measure", measure)
    result = call("bench", "--json", "-q", "--model", "toy-llama", "--rows", 2, "--full")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [one["bench"] for one in document["benches"]] == list(EVERY)
    assert all((asked.model, asked.rows, asked.full) == ("toy-llama", 2, True) for _, asked in asked_of)


@pytest.mark.parametrize(("load", "warned"), [(99.0, True), (0.0, False), (None, False)])
def test_times_of_a_busy_machine_carry_a_warning(
    products: Callable[..., None], monkeypatch: pytest.MonkeyPatch, load: float | None, warned: bool
) -> None:
    products(FOUND)
    monkeypatch.setattr("benchmarks.commands.load_average", lambda: load)
    result = call("bench", "blas", "--json")
    assert ("these times are not this machine's" in result.stderr) is warned
    assert json.loads(result.stdout)["load_before"] == load


def test_a_run_folder_is_refused_where_none_is_read() -> None:
    result = call("bench", "blas", "runs/x")
    assert result.exit_code == 2
    assert "takes no run folder" in result.stderr


PEAK = {"mlx_gflops": 50.0, "torch_gflops": 60.0}
SHARED = [case for case in cases(gemma=False) if case.name == "shared"]


def contender(name: str, seconds: float, loss: float = 2.5) -> dict[str, Any]:
    figures = {"computed_tokens": 800, "trained_tokens": 40, "parameters": 10, "device": "cpu", "gflop": 50.0}
    times = {"seconds": [9.0, seconds, seconds], "core_seconds": [1.0, 2.0, 2.0], "peak_memory_gib": 1.0}
    return {"case": "shared", "contender": name, "first_loss": loss} | figures | times


def step_bench(*rows: dict[str, Any], full: bool = False) -> Bench:
    return train.report("toy", 4, 3, SHARED, list(rows), PEAK, full=full)


def test_training_figures_are_medians_rates_and_ratios() -> None:
    rival = {"case": "shared", "contender": "torch loop", "not_measured": "killed"}
    bench = step_bench(contender("ours", 2.0), contender("mlx-lm, its own loop", 8.0), rival)
    ours, theirs, gone = bench.as_json()["contenders"]
    assert (ours["seconds_per_step"], theirs["ours_over"], gone["ours_over"]) == (2.0, 4.0, None)
    assert (ours["rows_per_second"], ours["core_seconds_per_step"], ours["utilisation"]) == (2.0, 2.0, 0.5)
    assert (ours["computed_tokens_per_second"], ours["trained_tokens_per_second"]) == (400.0, 20.0)
    assert ours["drift"] == pytest.approx(2 / 9, abs=1e-3)
    assert not bench.misses
    assert "killed" in bench.text()
    assert any("MPS: not measured here" in note for note in bench.notes)


def test_the_whole_table_has_budgets_of_its_own() -> None:
    rows = contender("ours", 2.0), contender("mlx-lm, its own loop", 8.0)
    assert [miss.limit for miss in step_bench(*rows, full=True).misses] == [6.0, 0.2]  # rows/s and peak memory
    assert not step_bench(*rows).misses


def test_a_contender_that_computes_another_loss_is_a_miss() -> None:
    bench = step_bench(contender("ours", 2.0), contender("mlx-lm, its own loop", 8.0, loss=2.6))
    assert [miss.measure for miss in bench.misses] == ["shared: first loss of mlx-lm, its own loop, from ours"]


def test_a_contender_with_another_adapter_is_a_bug() -> None:
    other = contender("torch loop", 8.0) | {"parameters": 11}
    with pytest.raises(RuntimeError, match="torch loop"):
        step_bench(contender("ours", 2.0), other)


@pytest.mark.parametrize("fault", ["gradient", "loss"])
def test_nothing_is_timed_before_loss_and_gradients_agree(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    proof = {"passed": fault != "gradient", "worst": 1e-3, "parameter": "q_proj.lora_A"}

    def planted(name: str, **_: Any) -> dict[str, Any]:
        run.append(name)
        loss = 2.6 if fault == "loss" and name == "train_torch" else 2.5
        return proof if name == "train_parity" else {"first_loss": loss}

    monkeypatch.setattr(train, "run_contender", planted)
    monkeypatch.setattr(train, "run_rival", planted)
    with pytest.raises(BudgetMissedError, match="nothing was timed"):
        train.require_parity(Asked(), SHARED[0], "cut")
    assert run == ["train_parity", "train_ours", "train_mlx_lm", "train_torch"]


def test_parity_is_measured_on_layers_of_every_kind() -> None:
    gemma = ["sliding_attention"] * 5 + ["full_attention"]
    assert [train.first_layers({"layer_types": kinds}) for kinds in (gemma * 3, ["full_attention"] * 4)] == [6, 2]
    assert train.first_layers({}) == 2


def test_curves_that_bend_are_misses() -> None:
    bench = Bench("train", "t")
    tokens = [{"tokens": 2**n, "seconds": 2.0**n * (2.0 if n == 12 else 1.0)} for n in range(9, 13)]
    vocabulary = [{"vocabulary": 2**n, "peak_gib": 0.1 * 2 ** (n - 14)} for n in range(14, 19)]
    train.add_curves(bench, {"tokens": tokens, "vocabulary": vocabulary})
    assert [miss.found for miss in bench.misses] == [2.0, 8.0]


def test_json_and_picture_are_written(tmp_path: Path) -> None:
    bench = step_bench(contender("ours", 2.0), contender("mlx-lm, its own loop", 8.0))
    train.write(bench, tmp_path / "out")
    assert json.loads((tmp_path / "out/train.json").read_text())["bench"] == "train"
    assert (tmp_path / "out/train.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("level", "misses"), [(131.0, 0), (None, 0), (40.0, 1)])
def test_exporters_are_compared_by_their_logits(level: float | None, misses: int) -> None:
    ours = {"seconds": 5.0, "megabytes": 1.0, "nodes": 140, "peak_memory_gib": 0.4}
    stock = ours | {"seconds": 20.0, "nodes": 160}
    cut = {"path": "x", "layers": 4, "of": 30}
    agreement = {"stock": {"logits_db": level, "tokens": 48}}
    bench = export.report("smollm2-135m", cut, {"ours": ours, "stock": stock}, agreement)
    assert len(bench.misses) == misses
    assert bench.tables["exporters"].rows[1]["over_ours"] == 4.0
    kinds = ({"Mul": 100, "RMSNormalization": 20}, {"Mul": 110})
    graphs = {
        side: {"decode_tokens_per_second": rate, "sentis_layers": layers, "layers": kind, "findings": 0, "found": {}}
        for side, rate, layers, kind in zip(("ours", "stock"), (9.0, 10.0), (120, 110), kinds, strict=True)
    }
    slower = export.report("x", cut, {"ours": ours, "stock": stock}, {}, {"graphs": graphs, "prompt": 256})
    assert [miss.measure for miss in slower.misses] == [
        "decode behind 256 tokens, ours over stock exporter", "predicted Sentis layers, ours over stock exporter",
    ]  # fmt: skip
    assert slower.tables["predicted"].rows == [
        {"layer": "RMSNormalization", "ours": 20, "stock": 0}, {"layer": "Mul", "ours": 100, "stock": 110},
        {"layer": "all", "ours": 120, "stock": 110},
    ]  # fmt: skip
    assert "layers" not in slower.tables["exporters"].rows[0]
    assert "its first 4 of 30 layers" in bench.title
    assert any("--full" in note for note in bench.notes)


def test_the_whole_export_is_held_against_time_memory_and_nodes_of_the_stock_exporter() -> None:
    ours = {"seconds": 5.0, "megabytes": 537.0, "nodes": 140, "peak_memory_gib": 0.6}
    stock = {"seconds": 60.0, "megabytes": 540.0, "nodes": 160, "peak_memory_gib": 2.6}
    whole = {"path": "x", "layers": 30, "of": 30}
    bench = export.report("smollm2-135m", whole, {"ours": ours, "stock": stock}, {})
    assert {budget.measure: budget.found for budget in bench.budgets} == {
        "the stock exporter's time over ours": 12.0, "our peak over the file": 1.2, "nodes, ours over stock": 0.875,
    }  # fmt: skip
    assert not bench.misses
    slow = ours | {"seconds": 6.1, "nodes": 161, "peak_memory_gib": 1.6}
    assert len(export.report("x", whole, {"ours": slow, "stock": stock}, {}).misses) == 3
    assert not export.report("x", whole, {"ours": ours, "stock": {"not_measured": "out of memory"}}, {}).budgets


def three_sides(rate: float = 10.0) -> dict[str, Any]:
    """Return the arguments of a report in which optimum-onnx's graph decodes at `rate` and ours at 9."""
    cost = {"seconds": 5.0, "megabytes": 537.0, "nodes": 140, "peak_memory_gib": 0.6}
    versions = {"optimum-onnx": "0.1.0", "transformers": "4.57.6"}
    sides = {"ours": cost, "stock": cost | {"seconds": 60.0}, "optimum": cost | {"seconds": 40.0, "versions": versions}}
    kinds = ({"Mul": 100}, {"Mul": 110}, {"Mul": 120, "Where": 12, "And": 7})
    graphs = {
        side: {"decode_tokens_per_second": speed, "sentis_layers": sum(of.values()), "layers": of}
        | {"findings": len(of) - 1, "found": {"WHERE.X": 1} if "Where" in of else {}}
        for side, speed, of in zip(sides, (9.0, 8.0, rate), kinds, strict=True)
    }
    agreements = {side: {"logits_db": level, "tokens": 48} for side, level in (("stock", 130.7), ("optimum", 128.0))}
    return {"sides": sides, "agreements": agreements, "decoding": {"graphs": graphs, "prompt": 256}}


WHOLE = {"layers": 30, "of": 30}


def test_optimum_is_a_side_of_its_own_with_budgets_where_it_was_asked_for() -> None:
    bench = export.report("x", WHOLE, **three_sides())
    assert [(miss.measure, miss.found) for miss in bench.misses] == [
        ("decode behind 256 tokens, ours over optimum-onnx", 0.9)
    ]
    assert not export.report("x", WHOLE, **three_sides(rate=9.0)).misses
    row = bench.tables["exporters"].rows[2]
    assert (row["exporter"], row["over_ours"], row["findings"], row["sentis_layers"]) == ("optimum-onnx", 8.0, 2, 139)
    assert bench.tables["predicted"].rows[:2] == [
        {"layer": "Mul", "ours": 100, "stock": 110, "optimum": 120},
        {"layer": "Where", "ours": 0, "stock": 0, "optimum": 12},
    ]
    found = json.loads(json.dumps(bench.as_json()))["facts"]
    assert found["findings"]["optimum"] == {"WHERE.X": 1} and found["optimum_versions"]["optimum-onnx"] == "0.1.0"
    assert "optimum-onnx" in bench.text()


@pytest.mark.parametrize("exported", [True, False])
def test_optimum_that_gives_no_figures_is_a_miss_with_its_reason(exported: bool) -> None:
    given = three_sides()
    gone = {"not_measured": "out of memory"}
    given["decoding"]["graphs"].pop("optimum")
    if exported:
        given["agreements"]["optimum"] = gone
    else:
        given["sides"]["optimum"] = gone
        del given["agreements"]["optimum"]
    misses = export.report("x", WHOLE, **given).misses
    assert any(miss.detail == "out of memory" for miss in misses)
    assert any(miss.measure == "decode behind 256 tokens, ours over optimum-onnx" for miss in misses)


def test_the_readmes_table_has_a_column_for_each_exporter_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import readme_blocks

    kept = dict.fromkeys(("torch", "transformers", "onnx", "onnxruntime"), "1.0")
    for sides in (2, 3):
        given = three_sides()
        if sides == 2:
            for of in (given["sides"], given["agreements"], given["decoding"]["graphs"]):
                of.pop("optimum")
        bench = export.report("x", WHOLE, **given).as_json()
        document = json.loads(json.dumps({"benches": [bench], "versions": kept, "load_before": 0.1}))
        monkeypatch.setattr(readme_blocks, "LAYERS", tmp_path / "layers.json")
        (tmp_path / "layers.json").write_text(json.dumps(readme_blocks.layers_of(document)))
        lines = readme_blocks.layers_table().splitlines()
        table = [line for line in lines if line.startswith("|")]
        assert {line.count("|") for line in table} == {sides + 2}
        assert ("| … Where | 0 | 0 | 12 |" in table) is (sides == 3)
        assert ("optimum-onnx 0.1.0, transformers 4.57.6" in lines[-1]) is (sides == 3)
        assert not any("… all" in line or "… And" in line for line in table)


@pytest.mark.parametrize(("words", "code", "message"), [
    (("bench", "blas", "--optimum-python", "python"), 2, "--optimum-python is for export"),
    (("bench", "export", "--optimum-python", "nowhere/python"), 1, "no program of this name"),
])  # fmt: skip
def test_an_interpreter_is_looked_at_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.setattr(export, "run_contender", lambda *_, **__: pytest.fail("measured"))
    result = call(*words)
    assert result.exit_code == code
    assert message in result.stderr
