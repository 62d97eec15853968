"""What a report of `fix` says of its passes."""

from __future__ import annotations


def proofs(report) -> dict[str, str]:
    return {row["name"]: row["proof"] for row in report["passes"] if row["changed"]}


def changed(report) -> dict[str, int]:
    return {row["name"]: row["changed"] for row in report["passes"] if row["changed"]}
