"""What `doctor` advises about what it found."""

from __future__ import annotations

from typing import Any

from parity.doctor import advice


def found(fast: bool = True, free: float = 50.0) -> dict[str, Any]:
    return {"blas": {"fast": fast}, "free_disk_gb": free}


def test_a_sound_machine_has_nothing_to_mend() -> None:
    assert advice(found()) == []


def test_the_reference_blas_and_a_small_disk_are_each_named_with_their_cure() -> None:
    (slow,) = advice(found(fast=False))
    assert "reference BLAS" in slow
    assert "install torch or libopenblas0" in slow
    (full,) = advice(found(free=3.2))
    assert full == "3.2 GB free: the demo needs 5 GB"
    assert len(advice(found(fast=False, free=1.0))) == 2
