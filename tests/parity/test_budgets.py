"""Budgets are data with provenance."""

from __future__ import annotations

from pathlib import Path

import pytest

import parity.budgets as budgets
from weights_bridge import architectures
from weights_bridge.errors import StageError


@pytest.mark.parametrize("model_type", architectures.names())
def test_every_architecture_has_budgets_far_above_what_a_bug_reads(model_type: str) -> None:
    found = budgets.load_budgets(model_type)
    assert min(found.forward_db, found.backward_db, found.edge_a_db) >= 75  # bugs read below 40 dB
    assert found.stored_fp16_db >= 60  # 11 significant bits; a wrong weight still reads below 40
    assert all(found.provenance[gate]["cause"] and found.provenance[gate]["measured"] for gate in budgets.GATES)


def test_a_budget_without_its_cause_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.toml").write_text('[edge_a]\ndb = 10.0\ndate = "2026-11-30"\n[edge_x]\ndb = 1.0\n')
    monkeypatch.setattr(budgets.importlib.resources, "files", lambda package: tmp_path)
    with pytest.raises(StageError) as caught:
        budgets.load_budgets("odd")
    assert "edge_a.cause: missing" in caught.value.message and "edge_x: no such gate" in caught.value.message
