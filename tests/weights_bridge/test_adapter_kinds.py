"""Kinds of adapters: names, tensors, scales."""

from __future__ import annotations

from typing import get_args

import pytest

from weights_bridge.adapter_kinds import KINDS, SYNONYMS, kind_of
from weights_bridge.errors import StageError
from weights_bridge.settings import AdapterType


def test_the_settings_offer_every_kind_and_its_synonyms() -> None:
    assert set(get_args(AdapterType)) == {*KINDS, *SYNONYMS}


def test_dora_rows_is_dora() -> None:
    assert kind_of("dora-rows") is kind_of("dora") is KINDS["dora"]


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    with pytest.raises(StageError) as caught:
        kind_of("dora-col")
    assert "did you mean dora-cols?" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("lora", 4 * (6 + 10)),
        ("rslora", 4 * (6 + 10)),
        ("dora", 4 * (6 + 10) + 6),
        ("dora-cols", 4 * (6 + 10) + 10),
        ("bora", 4 * (6 + 10) + 6 + 10),
        ("lora-xs", 16),
        ("dora-rows-xs", 16 + 6),
        ("dora-cols-xs", 16 + 10),
        ("bora-xs", 16 + 6 + 10),
    ],
)
def test_trained_parameters_of_a_6_by_10_weight_at_rank_4(kind: str, count: int) -> None:
    shapes = {name: shape for name, shape in KINDS[kind].shapes(6, 10, 4).items() if name not in ("U", "V")}
    assert sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes.values()) == count


def test_only_rslora_divides_alpha_by_the_root_of_the_rank() -> None:
    assert {name: kind.scale(16, 8.0) for name, kind in KINDS.items()} == dict.fromkeys(KINDS, 0.5) | {"rslora": 2.0}
