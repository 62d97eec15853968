from __future__ import annotations

import sys

from benchmarks import scan
from benchmarks.asked import Asked


def asked() -> Asked:
    return Asked(None, 1, None, None, False, None, None, lambda text: None)


def test_the_large_file_has_100_mb_and_the_other_2000_nodes():
    many = scan.many_nodes()
    assert len(many.graph.node) == 2000 and many.ByteSize() < 1e6
    large = scan.large_model()
    assert 100e6 <= sum(len(tensor.raw_data) for tensor in large.graph.initializer) < 110e6


def test_the_figures_come_from_the_command_and_a_slow_one_misses_its_budget(monkeypatch):
    monkeypatch.setattr(scan, "LARGE_BYTES", 1)
    monkeypatch.setattr(scan, "NODES", 16)
    monkeypatch.setattr(scan, "LARGE_SECONDS", -1.0)
    monkeypatch.setattr(scan, "NODES_SECONDS", 1e9)
    found = scan.measure(asked(), [sys.executable, "-m", "cli"])
    assert [(row["nodes"], row["findings"]) for row in found.tables["files"].rows] == [(1, 0), (16, 0)]
    assert [budget.measure for budget in found.misses] == ["a file of 100 MB"]
