"""`parity --sequence`: files, exit codes, the reference that is recorded, what cannot be read."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import call
from made_sequences import Made, weights, whole

from parity.sequences.graph import open_graph
from parity.sequences.loop import NoState, drive
from parity.sequences.signal import read_wav, resampled
from parity.sequences.spec import read_spec
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of

PNG = b"\x89PNG\r\n\x1a\n"


def write_wav(path: Path, samples: np.ndarray, rate: int = 80, channels: int = 1, width: int = 2) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return path


def test_a_sequence_that_passes_is_answered_in_words_json_page_and_picture(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = call("parity", "--model", made.onnx, "--sequence", made.spec, "--out", out)
    assert result.exit_code == 0, result.output
    assert "sequence: pass (3 results" in result.stdout and "all / y: 30 steps\n  ....." in result.stderr
    report = read_json(out / "sequence.json")
    assert report["schema"] == "mlx-sentis/sequence/1" and report["passed"]
    assert len(report["facts"]["series"]["all"]["y"]["values"]) == 30
    assert (out / "sequence.png").read_bytes().startswith(PNG)
    page = (out / "sequence.md").read_text(encoding="utf-8")
    assert "Every step passed" in page and "| Sentis 2.6, predicted / y | pass |" in page


def test_a_recorded_loop_with_a_fault_is_exit_3_with_reason_and_step(made: Made, tmp_path: Path) -> None:
    outputs = drive(open_graph(made.onnx), read_spec(made.spec), made.signal, NoState())
    np.savez(tmp_path / "unity.npz", **{"out::y": outputs["y"]})
    words = ("parity", "--model", made.onnx, "--sequence", made.spec, "--recorded", tmp_path / "unity.npz")
    result = call(*words, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 3
    assert "recorded / y: state not carried at first at step 1" in result.stderr
    assert json.loads(result.stdout)["passed"] is False
    page = (tmp_path / "out" / "sequence.md").read_text(encoding="utf-8")
    assert "Not every step passed" in page and "| recorded / y | FAIL |" in page


@pytest.fixture
def scripted(made: Made, respelled: Callable[..., Path]) -> Path:
    """The sequence file with the made model in TorchScript as its reference, over a WAV file."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, array in weights().items():
                self.register_buffer(name, torch.from_numpy(array))

        @torch.jit.export
        def over(self, signal: torch.Tensor, chunk: int) -> torch.Tensor:
            padded = torch.cat([torch.zeros(4), signal])
            h, c = torch.zeros(1, 3), torch.zeros(1, 3)
            found: list[torch.Tensor] = []
            for at in range(signal.size(0) // chunk):
                x = padded[at * chunk : at * chunk + chunk + 4].unsqueeze(0)
                found.append(torch.sigmoid(x @ self.Wy + h @ self.Uy))
                h, c = (
                    torch.tanh(x @ self.Wh + h @ self.Uh + c @ self.Vh),
                    torch.tanh(x @ self.Wc + h @ self.Uc + c @ self.Vc),
                )
            return torch.cat(found, 1)

        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            return signal

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Whole()).save(str(made.folder / "whole.jit"))
    write_wav(made.folder / "clip.wav", made.signal / 4)
    new = 'file = "whole.jit"\nmethod = "over"\narguments = [8]\naxis = 1\n'
    return respelled('file = "reference.npz"\n', new, "rate = 80", 'rate = 80\nfile = "clip.wav"')


def test_a_torchscript_reference_is_run_recorded_and_measured_alike(made: Made, scripted: Path, tmp_path: Path) -> None:
    heard = read_wav(made.folder / "clip.wav", 80)
    target = tmp_path / "kept.npz"
    result = call("parity", "--sequence", scripted, "--record", target)
    assert result.exit_code == 0, result.output
    with np.load(target) as kept:
        assert np.array_equal(kept["in::signal"], heard)
        assert np.allclose(kept["out::y"], whole(heard, weights()), atol=1e-6)
    passport = read_json(tmp_path / "kept.json")
    assert passport["sha256"] == sha256_of(target) and passport["steps"] == 30
    assert passport["reference"]["sha256"] == sha256_of(made.folder / "whole.jit")
    assert passport["signal"] == {"file": "clip.wav", "sha256": sha256_of(made.folder / "clip.wav")}
    for reference in (None, target):
        if reference is not None:
            (made.folder / "reference.npz").write_bytes(reference.read_bytes())
        spec = made.spec if reference else scripted
        assert call("parity", "--model", made.onnx, "--sequence", spec).exit_code == 0


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('method = "over"', 'method = "under"', "no method 'under'"),
        ("arguments = [8]", 'arguments = ["x"]', "over fails on the signal"),
        ("axis = 1", "axis = 2", "no tensor with steps"),
        ('"clip.wav"', '"other.wav"', "no such file"),
        ('"whole.jit"', '"other.jit"', "no such file"),
        ('"whole.jit"', '"made.onnx"', "fails on the signal"),
        ('outputs = ["y"]\n', "", "found 0, wanted one to record"),
    ],
)
def test_a_reference_that_cannot_be_run_is_one_line(
    scripted: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = scripted.read_text()
    assert text.count(old) == 1
    scripted.write_text(text.replace(old, new))
    result = call("parity", "--sequence", scripted, "--record", tmp_path / "kept.npz")
    assert result.exit_code == 1 and said in result.stderr and "Traceback" not in result.output
    assert not (tmp_path / "kept.npz").exists() and not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "schema: found None"),
        ("signal = 3", "[signal]: missing"),
        ("[signal", "not readable as TOML"),
        ("SPEC chunk = 8|chunk = 0", "signal.chunk: found 0, wanted at least 1"),
        ("SPEC chunk = 8|chunk = true", "signal.chunk: found True"),
        ("SPEC chunk = 8|chunk = 8\nhop = 3", "signal.hop: unknown"),
        ("SPEC context = 4|context = -1", "signal.context: found -1"),
        ("SPEC chunk = 8|chunk = 99999999999999999999", "signal.chunk: found 99999999999999999999, wanted at most"),
        ("SPEC context = 4|context = 4294967296", "signal.context: found 4294967296, wanted at most"),
        ("SPEC rate = 80|rate = 99999999", "signal.rate: found 99999999, wanted at most"),
        ('SPEC chunk = 8|chunk = "8"', "signal.chunk: found '8', wanted a whole number"),
        ("SPEC rate = 80|rate = 80\naxis = 2", "signal.axis: found 2, wanted -2 to 1"),
        ("SPEC rate = 80|rate = 80\naxis = -3", "signal.axis: found -3, wanted -2 to 1"),
        (
            'SPEC [state]\nh = "hN"|[fixed]\nh = "loud"\n\n[state]',
            "fixed.h: found 'loud', wanted numbers of type float32",
        ),
        ('SPEC rate = 80|tail = "wrap"', "signal.tail: found 'wrap'"),
        ('SPEC c = "cN"|c = "hN"', "one output is fed to two inputs"),
        ('SPEC c = "cN"|c = 3', "[state]: wanted INPUT"),
        ('SPEC c = "cN"|c = "cN"\nx = "y"', "x: fed by more than one of signal.input, [state] and [fixed]"),
        ('SPEC c = "cN"|c = "cN"\n\n[fixed]\nc = 0.0', "c: fed by more than one of signal.input, [state] and [fixed]"),
        ('SPEC outputs = ["y"]|outputs = ["y", "y"]', "outputs: 'y' is there twice"),
        ('SPEC outputs = ["y"]|outputs = "y"', "outputs: wanted a list"),
        ('SPEC [reference]\nfile = "reference.npz"|[more]\nx = 1', "[reference]: missing"),
        ('SPEC input = "x"\n|', "signal.input: missing"),
    ],
)
def test_a_sequence_file_that_is_none_says_what_is_wrong(made: Made, text: str, said: str) -> None:
    if text.startswith("SPEC "):
        old, _, new = text.removeprefix("SPEC ").partition("|")
        whole_text = made.spec.read_text()
        assert whole_text.count(old) == 1
        text = whole_text.replace(old, new)
    made.spec.write_text(text)
    result = call("parity", "--model", made.onnx, "--sequence", made.spec)
    assert result.exit_code == 1 and said in result.stderr and "Traceback" not in result.output


def test_an_axis_of_the_graphs_input_may_be_counted_from_the_front(made: Made, respelled: Callable[..., Path]) -> None:
    spec = respelled("rate = 80", "rate = 80\naxis = 1")
    result = call("parity", "--model", made.onnx, "--sequence", spec)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "words",
    [
        ("--sequence", "s.toml"),
        ("--sequence", "s.toml", "--model", "m.onnx", "--record", "k.npz"),
        ("--recorded", "r.npz", "--model", "m.onnx"),
        ("--sequence", "s.toml", "--record", "k.npz", "--recorded", "r.npz"),
        ("RUN", "--sequence", "s.toml", "--model", "m.onnx"),
        ("--sequence", "s.toml", "--model", "m.onnx", "--fixture", "f.npz"),
        ("--sequence", "s.toml", "--model", "m.onnx", "--self-test"),
    ],
)
def test_flags_that_do_not_go_together_are_exit_2(words: tuple[str, ...]) -> None:
    assert call("parity", *words).exit_code == 2


@pytest.mark.parametrize("broken", ["missing", "empty", "text", "inputs only"])
def test_files_that_are_damaged_are_one_line(made: Made, tmp_path: Path, broken: str) -> None:
    path = tmp_path / "unity.npz"
    if broken == "inputs only":
        np.savez(path, **{"in::x": made.signal})
    elif broken != "missing":
        path.write_bytes(b"" if broken == "empty" else b"not an archive")
    result = call("parity", "--model", made.onnx, "--sequence", made.spec, "--recorded", path)
    assert result.exit_code == 1 and str(path) in result.stderr and "Traceback" not in result.output
    (made.folder / "reference.npz").write_bytes(b"PK\x03\x04")
    result = call("parity", "--model", made.onnx, "--sequence", made.spec)
    assert result.exit_code == 1 and "reference.npz" in result.stderr and "Traceback" not in result.output


def test_raw_numbers_of_a_loop_are_judged_like_an_archive(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "unity.bin"
    words = ("parity", "--model", made.onnx, "--sequence", made.spec, "--recorded", path)
    right = drive(open_graph(made.onnx), read_spec(made.spec), made.signal)["y"].astype("<f4").tobytes()
    for data, code, said in (
        (right, 0, ""),
        (right[:-4], 3, "recorded / y: length at step 29 (found 29 steps, wanted 30)"),
        (right[4:] + right[:4], 3, "recorded / y: below budget at first at step 0"),
        (right[:-1], 1, "no whole float32 numbers"),
        (b"", 3, "nothing compared"),
    ):
        path.write_bytes(data)
        result = call(*words)
        assert result.exit_code == code and said in result.stderr, result.output
    path.unlink()
    assert call(*words).exit_code == 1


def test_a_recording_of_another_signal_is_told(made: Made, tmp_path: Path) -> None:
    outputs = drive(open_graph(made.onnx), read_spec(made.spec), made.signal)
    words = ("parity", "--model", made.onnx, "--sequence", made.spec, "--recorded", tmp_path / "unity.npz")
    for signal, code in ((made.signal, 0), (made.signal[::-1], 3), (made.signal[:-1], 3)):
        np.savez(tmp_path / "unity.npz", **{"in::signal": signal, "out::y": outputs["y"]})
        result = call(*words)
        assert result.exit_code == code, result.output
        assert ("recorded / signal: other signal" in result.stderr) == (code == 3)


def test_numbers_without_steps_and_inputs_of_another_name_are_told(made: Made, tmp_path: Path) -> None:
    words = ("parity", "--model", made.onnx, "--sequence", made.spec)
    for tensors, code, said in (
        ({"out::y": np.float32(1)}, 3, "recorded / y: shape at step 0 (one number, wanted the steps in front)"),
        ({"in::x": made.signal, "out::y": made.reference}, 1, "found in::x, wanted in::signal or no inputs"),
    ):
        np.savez(tmp_path / "unity.npz", **tensors)
        result = call(*words, "--recorded", tmp_path / "unity.npz")
        assert (result.exit_code, said in result.stderr) == (code, True), result.output
    np.savez(made.folder / "reference.npz", **{"in::signal": made.signal, "out::y": np.float32(1)})
    result = call(*words)
    assert result.exit_code == 1 and "out::y is one number, wanted its steps in front" in result.stderr


def test_a_recorded_reference_that_is_not_its_passports_is_refused(made: Made) -> None:
    passport = made.folder / "reference.json"
    right = sha256_of(made.folder / "reference.npz")
    for digest, code in ((right, 0), ("0" * 64, 1)):
        passport.write_text(json.dumps({"schema": "mlx-sentis/sequence-record/1", "sha256": digest}))
        result = call("parity", "--model", made.onnx, "--sequence", made.spec)
        assert result.exit_code == code
        assert ("reference.json says 000000000000…" in result.stderr) == (code == 1)


def test_resampling_keeps_a_tone_below_both_limits_and_drops_one_above() -> None:
    def tone(hertz: int, rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)

    for rate, wanted in ((8000, 16000), (16000, 8000), (44100, 16000)):
        found = resampled(tone(440, rate), rate, wanted)
        assert found.dtype == np.float32 and np.abs(found - tone(440, wanted)).max() < 1e-5
    assert np.abs(resampled(tone(6000, 16000), 16000, 8000)).max() < 1e-5


def test_wav_files_in_another_form_are_refused_with_what_was_found(tmp_path: Path) -> None:
    samples = np.zeros(160)
    cases = {
        "2 channels of 16 bits": write_wav(tmp_path / "stereo.wav", samples, channels=2),
        "1 channels of 8 bits": write_wav(tmp_path / "bytes.wav", samples, width=1),
        "no samples": write_wav(tmp_path / "empty.wav", samples[:0]),
        "no such file": tmp_path / "none.wav",
    }
    (tmp_path / "cut.wav").write_bytes(cases["2 channels of 16 bits"].read_bytes()[:20])
    cases["not a whole WAV file"] = tmp_path / "cut.wav"
    for said, path in cases.items():
        with pytest.raises(StageError, match=said):
            read_wav(path, None)
