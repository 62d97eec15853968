"""What README.md and docs/ say is so: generated blocks, file tree, links, example rows, and the cheap commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import readme_blocks
from helpers import call

from mlx_sentis.prepare.rows import ToolSet, read_row
from mlx_sentis.prepare.tools import SYSTEM_BLOCK

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
GUIDES = ("docs/gates.md", "docs/training.md", "docs/weights.md", "docs/sequences.md", "docs/sentis-dump.md")
COMMANDS = list(readme_blocks.command_paths())


def test_generated_blocks_are_up_to_date() -> None:
    assert readme_blocks.renewed(README) == README, "run `make readme`"


def test_the_page_of_commands_is_what_they_print() -> None:
    assert readme_blocks.HELP.read_text(encoding="utf-8") == readme_blocks.commands_page(), "run `make readme`"


def test_a_stale_block_is_noticed() -> None:
    stale = README.replace("`gemma3_text`, `llama`, ", "`gemma3_text`, `lama`, ")
    assert stale != README
    assert readme_blocks.renewed(stale) == README


def test_a_lost_mark_is_an_error() -> None:
    with pytest.raises(ValueError, match="<!-- families -->"):
        readme_blocks.renewed(README.replace("<!-- /families -->", ""))


def test_what_was_measured_has_every_gate_and_says_what_was_not() -> None:
    block = README[README.index("<!-- measured -->") : README.index("<!-- /measured -->")]
    for row in ("gate A0, MLX ↔ torch, backward", "edge A, tuned weights", "held out: out of scope rejection"):
        assert re.search(rf"^\| {re.escape(row)} \| (?!not run)[^|]+ \| [^|]*\d[^|]* \|$", block, re.MULTILINE), row
    assert re.search(
        r"^\| edge B, ONNX Runtime ↔ Sentis \| (not run \||[^|]+\| (predicted|measured) \()", block, re.MULTILINE
    )


def test_the_first_screen_has_a_sentence_a_picture_two_commands_and_the_table() -> None:
    first = README[: README.index("<!-- /families -->")]
    picture = re.search(r"!\[[^\]]+\]\((docs/[^)]+\.png)\)", first)
    assert picture is not None
    assert 10_000 < (ROOT / picture[1]).stat().st_size < 200_000
    block = re.search(r"```sh\n(.*?)```", first, re.DOTALL)
    assert block is not None
    assert len(block[1].splitlines()) == 2
    assert len(first.splitlines()) < 25


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_ends_in_two_examples_of_the_command(words: tuple[str, ...]) -> None:
    text = readme_blocks.help_of(words)
    _, found, examples = text.rpartition("\nExamples:\n")
    lines = examples.splitlines()
    assert found
    assert len(lines) == 2
    assert all(line.startswith(f"  $ mlx-sentis {words[0]}") for line in lines)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_examples_of_help_name_options_that_exist(words: tuple[str, ...]) -> None:
    text = readme_blocks.help_of(words)
    usage, _, examples = text.rpartition("\nExamples:\n")
    for line in examples.splitlines():
        inner = words if len(words) == 2 else tuple(shlex.split(line)[2:4])
        known = readme_blocks.help_of(inner) if words in (("models",), ("graph",)) else usage
        assert all(option in known for option in re.findall(r"(?<= )--[a-z-]+", line)), line


@pytest.mark.parametrize("words", [("--version",), ("families",), ("models", "list"), ("fix", "--list")], ids=" ".join)
def test_commands_that_only_tell_exit_0(words: tuple[str, ...]) -> None:
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert result.output.strip()


@pytest.mark.parametrize("page", ("README.md", *GUIDES))
def test_every_command_that_a_page_mentions_exists(page: str) -> None:
    named = set(re.findall(r"(?:`|bin/|^)mlx-sentis ([a-z][a-z-]*)", text_of(page), re.MULTILINE))
    assert named
    assert named <= {words[0] for words in COMMANDS}


@pytest.mark.parametrize("page", ("README.md", *GUIDES))
def test_every_option_that_a_page_gives_a_command_exists(page: str) -> None:
    calls = re.findall(r"(?:`|bin/|^)mlx-sentis ([a-z][^`\n#]*)", text_of(page), re.MULTILINE)
    for words in map(str.split, calls):
        inner = next(path for path in (tuple(words[:2]), (words[0],)) if path in COMMANDS)
        known = readme_blocks.help_of(inner)
        wrong = [word for word in words if word.startswith("--") and not re.search(rf"{word}\b", known)]
        assert not wrong, " ".join(words)


def test_every_make_target_that_the_pages_mention_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {page: set(re.findall(r"`make ([a-z]+)", text_of(page))) - targets for page in PAGES}
    assert {"setup", "test", "demo"} <= targets
    assert not {page: wrong for page, wrong in named.items() if wrong}


@pytest.mark.parametrize("page", (*PAGES, *GUIDES))
def test_links_lead_to_files_and_headings_that_are_there(page: str) -> None:
    for link, _, heading in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]+))?\)", text_of(page)):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        if heading:
            lines = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", (*PAGES, *GUIDES))
def test_paths_in_code_marks_are_there(page: str) -> None:
    text = text_of(page)
    roots = "docs|weights_bridge|mlx_sentis|converters|parity|benchmarks|tests"
    named = {path.rstrip("/") for path in re.findall(rf"`((?:{roots})/[\w./-]+)`", text)}
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing


def text_of(page: str) -> str:
    """Return a page's text."""
    return (ROOT / page).read_text(encoding="utf-8")


def test_example_rows_are_read_by_prepare() -> None:
    block = re.search(r"```jsonl\n(.*?)```", README, re.DOTALL)
    assert block is not None
    tools = json.loads((ROOT / "mlx_sentis/data/npc-commands/tools.json").read_text(encoding="utf-8"))
    shared = ToolSet(tools["instruction"], tools["tools"])
    kinds = [read_row(json.loads(line), "README.md", shared, SYSTEM_BLOCK).kind for line in block[1].splitlines()]
    assert kinds == ["give_item", "text", "text"]


def test_the_file_tree_is_the_repository() -> None:
    listed = tree(README)
    tracked = tracked_files()
    assert sorted(listed) == sorted(expected_entries(tracked, listed))
    assert all(listed.values()), "an entry without a comment"


def tree(text: str) -> dict[str, str]:
    """Return path to comment of the page's file tree; folders end in a slash."""
    block = text[text.index("## Files") :].split("```")[1]
    found, parent = {}, ""
    for line in block.splitlines()[1:]:
        name, _, comment = line.strip().partition(" ")
        parent = parent if line.startswith("  ") else name
        found[parent + name if line.startswith("  ") else name] = comment.strip()
    return found


def expected_entries(tracked: list[str], listed: dict[str, str]) -> set[str]:
    """Return what the tree must list: everything at the top, and the folders in those whose folders it lists."""
    opened = {name for name in listed if name.count("/") == 1} & {f"{p.split('/')[0]}/" for p in listed if p[-1] == "/"}
    entries = set()
    for path in tracked:
        parts = path.split("/")
        entries.add(parts[0] + ("/" if len(parts) > 1 else ""))
        if len(parts) > 2 and f"{parts[0]}/" in opened and parts[0] not in ("tests", ".ci"):
            entries.add(f"{parts[0]}/{parts[1]}/")
    return entries


def tracked_files() -> list[str]:
    """Return what git tracks; without git (an unpacked source archive) there is no tree to compare."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assert listing.returncode == 0, "the tree is compared with what git tracks"
    return [path for path in listing.stdout.splitlines() if (ROOT / path).exists()]


@pytest.mark.slow
def test_what_prepare_writes_goes_into_training_by_the_commands_as_they_are_documented(
    toy_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: the documented data into the documented training, with nothing but the user's rows and model added."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(toy_model("llama"), target_is_directory=True)
    rows = [{"prompt": f"Who lives at number {n}?", "completion": f"Old Marta {n} does."} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    prepare = next(line for line in readme_blocks.help_of(("prepare",)).splitlines() if "rows.jsonl" in line)
    line = next(line for line in text_of("docs/training.md").splitlines() if line.startswith("mlx.launch -n 2"))
    assert shlex.split(prepare)[:3] == ["$", "mlx-sentis", "prepare"]
    train = line.partition(" -- ")[2]
    assert shlex.split(train)[:4] == ["python", "-m", "mlx_sentis", "train"]
    for words in (shlex.split(prepare)[2:], shlex.split(train)[3:]):
        done = call(*words)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "runs/mine/checkpoints/best/adapter.safetensors").is_file()


def test_the_table_of_exporters_wants_the_whole_model() -> None:
    cut = {"benches": [{"bench": "export", "facts": {"layers": 4, "of_layers": 30}}], "versions": {}}
    for document in (cut, {"benches": []}):
        with pytest.raises(ValueError, match="bench export --full --json"):
            readme_blocks.layers_of(document)
