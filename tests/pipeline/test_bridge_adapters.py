"""Adapters out of a run and into it through the public command, opened by the libraries they are for."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from helpers import FULL, call, call_alone, edit_json, write_moved
from safetensors.numpy import load_file, save_file

from weights_bridge.settings import AdapterSettings, Settings

Alter = Callable[[Callable[[Path], object]], Path]
IDS = [[5, 17, 101, 33, 250, 7, 81, 12, 300, 64]]
CLOSE = 2e-5  # of the largest logit: fp32, another order of products


def base_of(run: Path) -> Path:
    return Path(json.loads((run / "recipe.json").read_text(encoding="utf-8"))["model"]["path"])


def copied(run: Path) -> None:
    """A planter that plants nothing."""


@pytest.fixture
def run(altered_run: Alter) -> Path:
    return altered_run(copied)


@pytest.fixture(scope="module")
def base_model(toy_run: Path) -> Any:
    """transformers' own model on the base weights; a test that changes it gives it back as it was."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(base_of(toy_run), dtype=torch.float32)


def torch_logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.numpy()


def merged_logits(run: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return torch_logits(AutoModelForCausalLM.from_pretrained(run / "merged", dtype=torch.float32))


def assert_close(found: Any, wanted: Any) -> None:
    assert np.abs(found - wanted).max() < CLOSE * np.abs(wanted).max()


def tree_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- out


def test_peft_opens_what_to_peft_wrote_and_answers_as_the_merged_directory(
    run: Path, base_model: Any, tmp_path: Path
) -> None:
    from peft import PeftModel

    done = call("bridge", run, "--to", "peft", "--out", tmp_path / "peft", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert {key: answer[key] for key in ("schema", "to", "type", "modules")} == {
        "schema": "mlx-sentis/bridge/1",
        "to": "peft",
        "type": "dora",
        "modules": 14,
    }
    wanted = merged_logits(run)
    assert np.abs(torch_logits(base_model) - wanted).max() > 1e-3  # the adapter does something
    model = PeftModel.from_pretrained(base_model, tmp_path / "peft")
    assert_close(torch_logits(model), wanted)
    model.unload()


def test_mlx_lms_own_loader_opens_what_to_mlx_wrote_and_answers_as_the_merged_directory(run: Path) -> None:
    import mlx.core as mx
    from mlx_lm.utils import load

    done = call("bridge", run, "--to", "mlx")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{run}/mlx: dora, 14 modules, for mlx")
    model, tokenizer = load(str(base_of(run)), adapter_path=str(run / "mlx"))[:2]
    merged, _ = load(str(run / "merged"))[:2]
    wanted = merged_logits(run)
    assert_close(np.array(model(mx.array(IDS))), wanted)
    assert_close(np.array(merged(mx.array(IDS))), wanted)
    recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    assert tokenizer.eos_token_ids == set(recipe["stop_ids"])


def test_an_adapter_that_the_other_side_has_no_form_for_is_refused_and_nothing_is_written(
    run: Path, tmp_path: Path
) -> None:
    write_moved(
        base_of(run),
        run / "checkpoints" / "best" / "adapter.safetensors",
        Settings(adapter=AdapterSettings("bora", 4, 8.0)),
    )
    for to, said in (("peft", "type: bora has no counterpart in PEFT"), ("mlx", "\n  type: bora")):
        done = call("bridge", run, "--to", to, "--out", tmp_path / to)
        assert done.exit_code == 1 and said in done.stderr, done.output
        assert not (tmp_path / to).exists()


def test_a_folder_of_something_else_is_not_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for out in (tmp_path / "mine", tmp_path / "mine" / "letter.txt"):
        done = call("bridge", run, "--to", "peft", "--out", out)
        assert done.exit_code == 1 and "give a new folder" in done.stderr
    done = call("bridge", base_of(run), "--to", "mlx", "--out", tmp_path / "mine")
    assert done.exit_code == 1 and "it would be replaced" in done.stderr
    assert tree_of(tmp_path / "mine") == {"letter.txt": b"dear"}
    for _ in range(2):  # its own directory is replaced
        assert call("bridge", run, "--to", "peft", "--out", tmp_path / "peft").exit_code == 0


def test_what_a_directory_is_made_of_is_never_replaced_by_it(run: Path, theirs: Path, tmp_path: Path) -> None:
    """A base model has a config.json as well: it would have looked like an earlier copy of ours."""
    base = Path(shutil.copytree(base_of(run), tmp_path / "base"))
    before = tree_of(base), tree_of(run), tree_of(theirs)
    done = call("bridge", base, "--to", "mlx", "--out", base)
    assert done.exit_code == 1 and "it is made of what is there" in done.stderr
    (tmp_path / "link").symlink_to(base)
    assert call("bridge", base, "--to", "mlx", "--out", tmp_path / "link").exit_code == 1
    for out, said in (
        (base_of(run), "it is made of what is there"),
        (run / "merged", "a part of the run"),
        (run, "a part of the run"),
    ):
        done = call("bridge", run, "--precision", "bf16", "--out", out)
        assert done.exit_code == 1 and said in done.stderr, done.output
    for out in (run / "checkpoints" / "best", run):
        assert call("bridge", run, "--to", "peft", "--out", out).exit_code == 1
    assert call("bridge", run, "--from", "peft", theirs, "--to", "peft", "--out", theirs).exit_code == 2
    assert (tree_of(base), tree_of(run), tree_of(theirs)) == before


def test_neither_mlx_nor_torch_is_needed_to_hand_an_adapter_on(run: Path, tmp_path: Path) -> None:
    _, loaded = call_alone("bridge", run, "--to", "peft", "--out", tmp_path / "peft")
    loaded |= call_alone("bridge", run, "--to", "mlx", "--out", tmp_path / "mlx")[1]
    assert not {"mlx", "mlx_lm", "torch", "transformers", "onnx"} & loaded


def test_a_machine_without_the_library_writes_the_directory_and_says_that_nothing_opened_it(
    toy_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {"transformers": ("transformers", "no_such_torch"), "mlx-lm": ("no_such_mlx",)}
    monkeypatch.setattr("parity.adapters_in_out.NEEDS", lacking)
    done = call("bridge", toy_model("llama"), "--to", "mlx", "--out", tmp_path / "mlx")
    assert done.exit_code == 0 and done.stdout.endswith("nothing opened it: no_such_mlx not installed here\n"), (
        done.output
    )
    done = call("bridge", tmp_path / "mlx", "--to", "torch", "--out", tmp_path / "back", "--json")
    answer = json.loads(done.stdout)
    assert (answer["opened_by"], answer["not_opened"]) == ("", "no_such_torch not installed here")
    first, last = (load_file(folder / "model.safetensors") for folder in (toy_model("llama"), tmp_path / "back"))
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in last.items()}


# --- in


def write_with_peft(model: Any, out: Path, **settings: Any) -> Any:
    """Save an adapter with PEFT itself and return its logits; the model is given back as it was."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], **settings)
    adapted: Any = get_peft_model(model, config)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    wanted = torch_logits(adapted)
    adapted.save_pretrained(out)
    adapted.unload()
    return wanted


def write_with_mlx_lm(base: Path, out: Path) -> Any:
    """Save an adapter as mlx-lm's own trainer does and return its logits."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import load_model, save_config

    model, _ = load_model(base)
    model.freeze()
    parameters = {"rank": 4, "scale": 2.0, "dropout": 0.0, "keys": ["self_attn.q_proj", "mlp.up_proj"]}
    linear_to_lora_layers(model, 2, parameters, use_dora=True)
    rng = np.random.default_rng(1)
    moved = [
        (name, array + mx.array(0.05 * rng.standard_normal(array.shape).astype(np.float32)))
        for name, array in tree_flatten(model.trainable_parameters())
    ]
    model.load_weights(moved, strict=False)
    model.eval()
    out.mkdir()
    mx.save_safetensors(str(out / "adapters.safetensors"), dict(moved))
    config = {"fine_tune_type": "dora", "num_layers": 2, "lora_parameters": parameters, "model": str(base)}
    save_config(config, config_path=out / "adapter_config.json")
    return np.array(model(mx.array(IDS)))


def bridged(run: Path, kind: str, source: Path) -> None:
    done = call("bridge", run, "--from", kind, source, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["passed"]


def a0_of(run: Path) -> Result:
    return call("parity", run, "--edge", "a0", "--json")


@pytest.mark.usefixtures("children_here")
@pytest.mark.parametrize("settings", [{"use_dora": True}, {"use_rslora": True}], ids=str)
def test_an_adapter_of_pefts_own_is_merged_through_gate_a0_to_its_logits(
    run: Path, base_model: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    wanted = write_with_peft(base_model, tmp_path / "theirs", **settings)
    bridged(run, "peft", tmp_path / "theirs")
    assert_close(merged_logits(run), wanted)
    facts = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["stages"]
    assert (facts["import"]["facts"]["modules"], facts["bridge"]["facts"]["checkpoint"]) == (6, "imported")


@pytest.mark.usefixtures("children_here")
def test_an_adapter_of_mlx_lms_own_is_merged_through_gate_a0_to_its_logits(run: Path, tmp_path: Path) -> None:
    wanted = write_with_mlx_lm(base_of(run), tmp_path / "theirs")
    bridged(run, "mlx", tmp_path / "theirs")
    assert_close(merged_logits(run), wanted)


@pytest.mark.usefixtures("children_here")
def test_gate_a0_measures_the_adapter_that_was_merged_and_not_the_best_one(
    run: Path, base_model: Any, tmp_path: Path
) -> None:
    write_with_peft(base_model, tmp_path / "theirs")
    bridged(run, "peft", tmp_path / "theirs")
    again = a0_of(run)
    assert again.exit_code == 0, again.output[-2000:]
    report = json.loads(again.stdout)["gates"][0]
    gradients = {r["tensor"] for r in report["results"] if r["tensor"].startswith("backward model.")}
    assert len(gradients) == 12  # A and B of six modules; the run's own DoRA has three of fourteen
    assert call("bridge", run).exit_code == 0  # the run's own adapter again
    again = a0_of(run)
    assert again.exit_code == 0, again.output[-2000:]
    merged = load_file(run / "merged" / "model.safetensors")
    merged["model.layers.1.mlp.down_proj.weight"][3, 5] += 1.0
    save_file(merged, run / "merged" / "model.safetensors", {"format": "pt"})
    assert a0_of(run).exit_code == 3


def test_a_training_after_an_import_keeps_what_was_imported(run: Path, theirs: Path) -> None:
    assert import_only(run, theirs) == 0
    done = call("train", "--data", run, "--out", run, "--progress", "off", "--set", "train.batch_rows=8")
    assert done.exit_code == 0, done.output
    assert (run / "checkpoints" / "imported" / "adapter.safetensors").is_file()  # the manifest has its hash


def test_an_adapter_that_names_another_base_is_taken_with_a_question(run: Path, theirs: Path) -> None:
    """Weights of another model of the same shapes would pass the gate: both sides would add the adapter to them."""
    words = ("bridge", run, "--from", "peft", theirs, "--to", "peft", "--out", run.parent / "again")
    assert "same weights?" not in call(*words).stderr
    edit_json(theirs / "adapter_config.json", lambda config: config.update(base_model_name_or_path="owner/Other-1B"))
    done = call(*words)
    assert done.exit_code == 0
    assert f"it was made for Other-1B and goes onto {base_of(run).name}: are these the same weights?" in done.stderr


def import_only(run: Path, source: Path) -> int:
    """Take an adapter in and hand it on again, without the gate."""
    return call("bridge", run, "--from", "peft", source, "--to", "peft", "--out", run.parent / "again").exit_code


# --- bad input


@pytest.fixture
def theirs(run: Path, tmp_path: Path) -> Path:
    """A good PEFT directory of the run's base, which a test may spoil."""
    assert call("bridge", run, "--to", "peft", "--out", tmp_path / "theirs").exit_code == 0
    return tmp_path / "theirs"


def refused(run: Path, *words: object) -> str:
    """Require exit 1, no traceback and an unchanged run; return what was said."""
    before = tree_of(run)
    done = call("bridge", run, *words)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
    assert tree_of(run) == before
    return done.stderr


def spoil(theirs: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tensors = dict(load_file(theirs / "adapter_model.safetensors"))
    change(tensors)
    save_file(tensors, theirs / "adapter_model.safetensors")


Q = "base_model.model.model.layers.0.self_attn.q_proj"


def renamed(tensors: dict[str, Any]) -> None:
    for name in list(tensors):
        tensors[f"lora_unet_{name.replace('.', '_')}.lora_down.weight"] = tensors.pop(name)


def narrowed(tensors: dict[str, Any]) -> None:
    tensors[f"{Q}.lora_A.weight"] = np.ascontiguousarray(tensors[f"{Q}.lora_A.weight"][:, :32])
    tensors[f"{Q}.lora_B.weight"][0, 0] = np.nan
    del tensors[f"{Q}.lora_magnitude_vector"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, ["0 of 42 tensors match", "named as by kohya"]),
        (
            narrowed,
            [
                "q_proj.lora_A: found (16, 32), wanted (16, 64)",
                "q_proj.lora_B: holds values that are not finite",
                "q_proj.magnitude: missing",
            ],
        ),
        (lambda tensors: tensors.update(stranger=np.ones(2, np.float32)), ["stranger: not understood"]),
    ],
    ids=["no key", "shapes and values", "a stranger"],
)
def test_tensors_without_a_place_are_refused_and_the_run_stays(
    run: Path, theirs: Path, change: Callable[[dict[str, Any]], object], said: list[str]
) -> None:
    spoil(theirs, change)
    heard = refused(run, "--from", "peft", theirs)
    assert [words for words in said if words not in heard] == [], heard


@pytest.mark.parametrize(
    ("field", "value"), [("peft_type", "LOHA"), ("bias", "all"), ("layer_replication", [[0, 1]]), ("tomorrow", 1)]
)
def test_what_cannot_be_expressed_is_refused_by_its_field(run: Path, theirs: Path, field: str, value: object) -> None:
    edit_json(theirs / "adapter_config.json", lambda config: config.update({field: value}))
    assert f"\n  {field}: " in refused(run, "--from", "peft", theirs)


def test_directories_that_are_no_adapter_are_refused_by_what_is_missing(
    run: Path, theirs: Path, tmp_path: Path
) -> None:
    assert "no such directory" in refused(run, "--from", "peft", tmp_path / "gone")
    assert "adapter_config.json: no such file" in refused(run, "--from", "peft", base_of(run))
    assert "no lora_parameters" in refused(run, "--from", "mlx", theirs)  # PEFT's, taken for mlx-lm's
    assert "no such checkpoint" in refused(run, "--to", "peft", "--checkpoint", "imported", "--out", tmp_path / "x")
    file = theirs / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "not a whole safetensors file" in refused(run, "--from", "peft", theirs)
    outside = tmp_path / "elsewhere.safetensors"
    file.rename(outside)
    file.symlink_to(outside)
    assert "outside" in refused(run, "--from", "peft", theirs)
    file.unlink()
    (theirs / "adapter_model.bin").write_bytes(b"pickle")
    assert "--allow-pickle" in refused(run, "--from", "peft", theirs)


@pytest.mark.parametrize(
    "words",
    [
        ("--from", "kohya", "x"),
        ("--from", "peft", "x", "--checkpoint", "last"),
        ("--out", "x"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_2(run: Path, words: tuple[str, ...]) -> None:
    assert call("bridge", run, *words).exit_code == 2


def test_what_is_neither_run_nor_model_is_one_line(tmp_path: Path) -> None:
    done = call("bridge", tmp_path, "--to", "peft")
    assert done.exit_code == 1 and "not a run folder" in done.stderr


# --- in fewer bits


@pytest.mark.usefixtures("children_here")
@pytest.mark.parametrize("precision", ["bf16", "8bit"])
def test_a_copy_in_fewer_bits_is_opened_by_who_it_is_for_and_says_what_it_keeps(
    run: Path, tmp_path: Path, precision: str
) -> None:
    import mlx.core as mx
    from mlx_lm.utils import load

    done = call("bridge", run, "--precision", precision, "--out", tmp_path / "copy", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["opened_by"] == ("transformers" if precision == "bf16" else "mlx-lm")
    assert (
        answer["checkpoint"]
        == json.loads((run / "manifest.json").read_text())["stages"]["bridge"]["facts"]["checkpoint"]
    )
    assert 0.5 < answer["effect"]["least"] <= answer["effect"]["kept"] <= 1
    model, tokenizer = load(str(tmp_path / "copy"))[:2]
    assert tokenizer.chat_template == (run / "merged" / "chat_template.jinja").read_text()
    wanted = merged_logits(run)
    found = np.array(model(mx.array(IDS)).astype(mx.float32))
    assert np.abs(found - wanted).max() < 0.1 * np.abs(wanted).max()


def test_a_full_disk_under_a_directory_names_it_and_leaves_nothing(run: Path, small_disk: Path) -> None:
    for words in (
        ("bridge", run, "--precision", "bf16", "--out", small_disk / "x"),
        ("bridge", base_of(run), "--to", "mlx", "--out", small_disk / "x"),
    ):
        done = call(*words, "--json")
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output
        assert re.search(rf"{small_disk}/x: {FULL}", done.stderr), done.stderr
        assert json.loads(done.stdout)["schema"] == "mlx-sentis/error/1"
        assert list(small_disk.iterdir()) == []


@pytest.mark.usefixtures("children_here")
def test_what_the_library_does_not_open_is_named_by_its_place_and_nothing_is_left(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    edit_json(base / "config.json", lambda config: config.update(rope_scaling={"rope_type": "spiral"}))
    done = call("bridge", base, "--to", "mlx", "--out", tmp_path / "out")
    assert done.exit_code == 1 and f"error: {tmp_path}/out: mlx-lm does not load it: " in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_a_copy_wants_a_passed_gate_and_a_place_of_its_own(run: Path, tmp_path: Path) -> None:
    words = ("bridge", run, "--precision", "bf16", "--out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    assert "it would be replaced" in call(*words, tmp_path / "mine").stderr
    whole = (run / "parity" / "a0.json").read_text()
    edit_json(run / "parity" / "a0.json", lambda report: report["results"].pop())  # a verdict that somebody edited
    done = call(*words, tmp_path / "copy")
    assert done.exit_code == 1 and "parity/a0.json: sha256 found" in done.stderr and not (tmp_path / "copy").exists()
    (run / "parity" / "a0.json").write_text(whole)
    edit_json(run / "parity" / "a0.json", lambda report: report.update(passed=False))
    done = call(*words, tmp_path / "copy")
    assert done.exit_code == 3 and "gate A0 has not passed" in done.stderr and not (tmp_path / "copy").exists()
    assert call(*words[:-1]).exit_code == 2  # no place
    assert call(*words, tmp_path / "copy", "--checkpoint", "last").exit_code == 2
