"""Targets: what a pattern means, and what is said when it means nothing."""

from __future__ import annotations

import pytest

from mlx_sentis.training.adapters.targets import choose, grouped, table_for
from weights_bridge.errors import StageError

ENDS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")
KNOWN = [f"model.layers.{i}.{end}" for i in range(12) for end in ENDS]


def layers(names: list[str]) -> list[int]:
    return sorted({int(name.split(".")[2]) for name in names})


def refusal(targets: list[str], exclude: list[str] | None = None) -> StageError:
    with pytest.raises(StageError) as caught:
        choose(KNOWN, targets, exclude or [])
    return caught.value


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        (["all-linear"], 48),
        (["q_proj"], 12),
        (["self_attn.q_proj"], 12),
        (["q_proj", "v_proj", "self_attn.q_proj"], 24),
        (["model.layers.1.*"], 4),
        (["layers.1.*"], 4),  # the dotted end of a name, and not layers 10 and 11
        (["*.mlp.*_proj"], 24),
        (["model.layers.0.self_attn.q_proj"], 1),
        (["layers.[4-11].mlp.*"], 16),
        (["layers.[11-4].mlp.*"], 16),
        (["layers.[0-1].mlp.up_proj", "layers.[3-3].mlp.up_proj"], 3),
        (["re:.*layers\\.(0|2)\\.mlp\\.up_proj"], 2),
        (["re:model\\.layers\\.\\d\\.mlp\\..*"], 20),
    ],
)
def test_a_pattern_chooses_modules_in_layer_order(targets: list[str], count: int) -> None:
    chosen = choose(KNOWN, targets)
    assert len(chosen) == count
    assert chosen == [name for name in KNOWN if name in chosen]


def test_a_range_includes_both_ends() -> None:
    assert layers(choose(KNOWN, ["layers.[4-10].mlp.up_proj"])) == [4, 5, 6, 7, 8, 9, 10]


def test_exclude_takes_away_in_the_same_forms() -> None:
    chosen = choose(KNOWN, ["all-linear"], ["layers.[0-9].*", "re:.*down_proj"])
    assert chosen == [
        name for name in KNOWN if ".layers.1" in name and len(name.split(".")[2]) == 2 and "down" not in name
    ]


def test_every_pattern_that_matches_nothing_is_refused_with_the_nearest_name() -> None:
    error = refusal(["q_proj", "q_porj", "lm_head", "self_atn.v_proj", "ff.0"], ["mlp.up_prj"])
    lines = error.message.splitlines()
    assert lines[0] == "adapter:" and len(lines) == 6
    assert lines[1].startswith("  exclude: 'mlp.up_prj' matches no module; nearest: mlp.up_proj")
    assert any(line.startswith("  targets: 'q_porj' matches no module; nearest: q_proj") for line in lines)
    assert any(
        line.startswith("  targets: 'self_atn.v_proj' matches no module; nearest: self_attn.v_proj") for line in lines
    )
    assert any(line.startswith("  targets: 'ff.0' matches no module") for line in lines)
    assert "all-linear, down_proj, q_proj, up_proj, v_proj" in error.hint


@pytest.mark.parametrize(("pattern", "end"), [("layers.[4-40].*", "layers.40.*"), ("layers.[12-13].mlp.*", "")])
def test_a_range_beyond_the_model_is_refused(pattern: str, end: str) -> None:
    message = refusal([pattern]).message
    assert (f"goes beyond the model, nothing matches {end}" if end else "matches no module") in message


@pytest.mark.parametrize("pattern", ["layers.[0-99999999999].*", "[0-9999999].[0-9999999].[0-9999999]"])
def test_a_range_of_any_length_is_answered_at_once(pattern: str) -> None:
    assert repr(pattern) in refusal([pattern]).message


@pytest.mark.parametrize(
    "bracket", ["[11]", "[0-]", "[-3]", "[0,2]", "[a-b]", "[1..3]", "[0-1", "0]", "[0-1][", "[!0]"]
)
def test_a_bracket_that_is_no_range_is_refused_and_no_set_of_characters(bracket: str) -> None:
    pattern = f"layers.{bracket}.mlp.up_proj"
    assert f"targets: {pattern!r}: " in refusal([pattern]).message
    assert "is no range; wanted [i-j]" in refusal([pattern]).message
    assert "exclude: " in refusal(["q_proj"], [pattern]).message


def test_a_part_of_a_name_is_not_a_name() -> None:
    refusal(["proj"])
    refusal(["layers.1"])


def test_a_regular_expression_that_is_none_is_refused() -> None:
    assert "'re:(' is no regular expression" in refusal(["re:("]).message


def test_excluding_everything_is_refused() -> None:
    assert "exclude takes away every module" in refusal(["q_proj"], ["self_attn.*"]).message


def test_the_first_pattern_that_matches_gives_a_module_its_rank() -> None:
    names = choose(KNOWN, ["q_proj", "up_proj"])
    ranks = table_for(names, {"layers.[0-1].*": 4, "q_proj": 8, "up_proj": 16}, 16, "rank_pattern")
    assert ranks["model.layers.0.self_attn.q_proj"] == ranks["model.layers.1.mlp.up_proj"] == 4
    assert ranks["model.layers.2.self_attn.q_proj"] == 8
    assert "model.layers.2.mlp.up_proj" not in ranks  # the common rank


def test_a_rank_for_a_module_that_is_not_trained_is_refused() -> None:
    with pytest.raises(StageError, match=r"rank_pattern: 'down_proj' matches no module"):
        table_for(choose(KNOWN, ["q_proj"]), {"down_proj": 4}, 16, "rank_pattern")


def test_names_are_grouped_by_layer_ranges() -> None:
    names = [*choose(KNOWN, ["q_proj"]), *choose(KNOWN, ["layers.[3-5].mlp.*", "layers.7.mlp.*"]), "lm_head"]
    assert grouped(names) == [
        "lm_head",
        "model.layers.[0-11]: self_attn.q_proj",
        "model.layers.[3-5, 7]: mlp.up_proj, mlp.down_proj",
    ]
