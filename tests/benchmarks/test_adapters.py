"""`bench adapters`: contenders that compute the same, and budgets that can be missed."""

from __future__ import annotations

import pytest

from benchmarks.adapters import FROZEN, OURS, RIVAL, add_case
from benchmarks.result import Bench


@pytest.mark.parametrize("bits", [0, 4])
def test_every_contender_runs_forward_and_backward(bits: int) -> None:
    from benchmarks.contenders.adapter_layers import measure

    found = measure(out=256, width=128, tokens=60, bits=bits, runs=1)
    assert {FROZEN, OURS, RIVAL, "ours, bora-xs"} <= found.keys()
    assert all(one["seconds"] > 0 and one["peak_mib"] > 0 for one in found.values())


def test_a_dora_that_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.contenders import adapter_layers
    from mlx_sentis.training.adapters import norms

    right = norms.row_norm
    monkeypatch.setattr(norms, "row_norm", lambda *arguments: 1.01 * right(*arguments))
    with pytest.raises(RuntimeError, match="our DoRA and mlx-lm's differ"):
        adapter_layers.measure(out=128, width=64, tokens=6, bits=0, runs=1)


def test_a_slower_or_larger_dora_is_a_miss() -> None:
    for ours, misses in (((0.9, 4.0), []), ((1.1, 4.0), ["time"]), ((1.1, 6.0), ["time", "memory"])):
        bench = Bench("adapters", "made up")
        found = {FROZEN: (0.5, 1.0), OURS: ours, RIVAL: (1.0, 5.0)}
        add_case(bench, "a layer", {name: {"seconds": s, "peak_mib": m} for name, (s, m) in found.items()})
        assert [miss.measure.split()[2] for miss in bench.misses] == misses
