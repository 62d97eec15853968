"""`check-data`: texts, clips and boxes looked at without a model."""

from __future__ import annotations

import json
import math
import tempfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call
from hypothesis import given
from hypothesis import strategies as st

from mlx_sentis.prepare.audio import AudioScan, duration_fences, read_clip
from mlx_sentis.prepare.boxes import BoxForm, BoxScan, corners
from mlx_sentis.prepare.media import MediaRow

Write = Callable[..., Path]
RATE = 8000


def write_wav(
    path: Path, seconds: float = 1.0, *, rate: int = RATE, channels: int = 1, width: int = 2, level: float = 0.5
) -> Path:
    """Write a tone of 220 Hz in whole numbers of `width` bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    at = np.repeat(np.arange(round(seconds * rate)) / rate, channels)
    tone = level * np.sin(2 * np.pi * 220 * at)
    if width == 1:
        data = np.round(tone * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(tone * (2 ** (8 * width - 1) - 1)).astype("<i8")
        data = whole.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as wav:
        wav.setparams((channels, width, rate, 0, "NONE", ""))
        wav.writeframes(data)
    return path


def checked(path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    result = call("check-data", path, "--json", *words)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def findings(document: dict[str, Any]) -> dict[str, list[str]]:
    return {finding["name"]: finding["examples"] for finding in document["findings"]}


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_clip_of_any_width_has_its_length_and_its_loudest_sample(tmp_path: Path, width: int, channels: int) -> None:
    clip = read_clip(write_wav(tmp_path / "a.wav", 0.75, rate=16000, channels=channels, width=width, level=0.25))
    assert (clip.seconds, clip.rate, clip.channels, clip.missing_frames) == (0.75, 16000, channels, 0)
    assert clip.peak == pytest.approx(0.25, abs=0.01)


def test_good_clips_show_nothing(jsonl: Write, tmp_path: Path) -> None:
    rows = []
    for number in range(12):
        write_wav(tmp_path / "wav" / f"{number}.wav", 1 + number / 10)
        rows.append({"audio": f"wav/{number}.wav", "text": f"clip number {number}"})
    found = checked(jsonl(rows))
    assert found["kind"] == "audio"
    assert (found["rows"], found["files_read"], found["unusable"]) == (12, 12, 0)
    assert found["seconds"] == {"in all": 18.6, "least": 1.0, "median": 1.55, "most": 2.1}
    assert (found["sample_rates"], found["channels"], found["findings"]) == ({"8000": 12}, {"1": 12}, [])


def bad_clips(folder: Path) -> list[dict[str, Any]]:
    for number in range(12):
        write_wav(folder / f"{number}.wav")
    write_wav(folder / "fast.wav", rate=16000)
    write_wav(folder / "stereo.wav", channels=2)
    write_wav(folder / "silent.wav", level=0)
    write_wav(folder / "empty.wav", 0)
    write_wav(folder / "long.wav", 31)
    write_wav(folder / "short.wav", 0.05)
    whole = write_wav(folder / "cut.wav").read_bytes()
    (folder / "cut.wav").write_bytes(whole[: len(whole) // 2])
    (folder / "flac.wav").write_bytes(b"fLaC" + bytes(60))
    (folder / "header.wav").write_bytes(whole[:20])
    (folder / "nothing.wav").write_bytes(b"")
    floats = bytearray(whole)
    floats[20:22] = b"\x03\x00"  # the format's number: IEEE floats
    (folder / "float.wav").write_bytes(floats)
    names = [*map(str, range(12)), "fast", "stereo", "silent", "empty", "long", "short", "cut", "flac", "header"]
    rows: list[dict[str, Any]] = [
        {"audio": f"{name}.wav", "text": "some words"} for name in [*names, "nothing", "float"]
    ]
    rows += [{"audio": "0.wav", "text": "some words"}, {"audio": "gone.wav", "text": "some words"}]
    rows += [{"audio": "1.wav", "text": " "}, {"audio": "2.wav"}, {"audio": 7, "text": "x"}]
    write_wav(folder / "two.wav", 2)
    return [*rows, {"audio": "two.wav", "text": "much more than anybody says in two seconds " * 3}]


def test_every_fault_of_clips_is_named_with_row_and_file(jsonl: Write, tmp_path: Path) -> None:
    found = checked(jsonl([*bad_clips(tmp_path), "{not json"]), code=1)
    named = findings(found)
    assert named["other sample rate"] == ["rows.jsonl:13: 16000 Hz, the most have 8000"]
    assert named["other number of channels"] == ["rows.jsonl:14: 2 channels, the most have 1"]
    assert named["silent file"] == ["rows.jsonl:15: silent.wav: nothing but zeros"]
    assert named["empty file"] == ["rows.jsonl:16: empty.wav"]
    assert named["longer than the window"] == ["rows.jsonl:17: long.wav: 31.0 s"]
    assert [line.split(":")[1] for line in named["duration outlier"]] == ["17", "18"]
    assert named["cut file"] == ["rows.jsonl:19: cut.wav: 4011 samples are missing"]
    assert len(named["unreadable file"]) == 4
    assert "b'fLaC'" in named["unreadable file"][0]
    assert "ends within its header" in named["unreadable file"][1]
    assert "unknown format: 3" in named["unreadable file"][3]
    assert named["file in several rows"][0] == "rows.jsonl:24: 0.wav"
    assert named["missing file"][0].startswith("rows.jsonl:25: ")
    assert [line.split(":")[1] for line in named["empty transcript"]] == ["26", "27"]
    assert "audio: found a number, wanted the path of a file" in named["bad row"][0]
    assert "not JSON" in named["bad row"][1]
    too_few, too_many = "rows.jsonl:17: 10 characters in 31.0 s", "rows.jsonl:29: 128 characters in 2.0 s"
    assert named["transcript does not fit"] == [too_few, too_many]
    assert found["unusable"] == 10


def test_the_report_of_clips_is_for_people_and_the_fault_for_scripts(jsonl: Write, tmp_path: Path) -> None:
    result = call("check-data", jsonl(bad_clips(tmp_path)))
    assert result.exit_code == 1
    assert "- **missing file** in 1 row: the manifest names a file that is not there" in result.stdout
    assert "9 rows cannot be used as they are" in result.stderr


def test_durations_are_outliers_only_far_from_the_rest() -> None:
    low, high = duration_fences([1.0] * 20)
    assert 0.3 < low < 0.4
    assert 2.5 < high < 3
    assert duration_fences([1.0, 2.0, 900.0]) == (0.0, math.inf)
    low, high = duration_fences([*range(1, 21)])
    assert low < 0.5 < 100 < high


def image(tmp_path: Path) -> str:
    from PIL import Image

    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    return "a.png"


def test_good_boxes_show_nothing_and_are_counted_by_class(jsonl: Write, tmp_path: Path) -> None:
    rows = [
        {"image": image(tmp_path), "boxes": [[0, 0, 640, 480], [10, 20, 30, 40]], "labels": ["room", "lamp"]},
        {"image": "a.png", "boxes": [{"bbox": [1, 2, 3, 4], "label": "lamp"}]},
    ]
    found = checked(jsonl(rows))
    assert (found["kind"], found["rows"], found["boxes"], found["unusable"]) == ("boxes", 2, 3, 0)
    assert found["classes"] == {"lamp": 2, "room": 1}
    assert found["findings"] == []


@pytest.mark.parametrize(
    ("boxes", "name"),
    [
        ([[10, 10, 10, 40]], "no area"),
        ([[30, 10, 10, 40]], "no area"),
        ([[1, 2, 3]], "not four numbers"),
        ([[1, 2, 3, "4"]], "not four numbers"),
        ([[1, 2, 3, True]], "not four numbers"),
        ([None], "not four numbers"),
        ([{"box": [1, 2, 3]}], "not four numbers"),
        ([[10, 10, 700, 40]], "outside of the image"),
        ([[-9, 10, 100, 40]], "outside of the image"),
        ([[0.1, 0.1, 0.9, 1.0009], [-0.2, 0.1, 0.5, 0.6]], "outside of the image"),
        ([[1, 2, 30, 40], [1, 2, 30, 40]], "repeated box"),
        ([], "image without a box"),
        ({}, "bad row"),
    ],
)
def test_a_degenerate_box_is_named(jsonl: Write, tmp_path: Path, boxes: Any, name: str) -> None:
    labels = ["lamp"] * len(boxes)
    row = {"image": image(tmp_path), "boxes": boxes, "labels": labels}
    result = call("check-data", jsonl([row]), "--json")
    found = findings(json.loads(result.stdout))
    assert set(found) == {name}
    assert len(found[name]) == 1
    assert found[name][0].startswith("rows.jsonl:1: ")
    assert result.exit_code == (name in ("no area", "not four numbers", "bad row"))


def test_nan_is_no_number_of_a_box(jsonl: Write) -> None:
    found = findings(checked(jsonl(['{"boxes": []}', '{"boxes": [[NaN, 1, 2, 3]]}']), code=1))
    assert "NaN is no JSON number" in found["bad row"][0]


def test_a_box_without_label_and_an_image_without_file_are_named(jsonl: Write, tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n")
    rows = [
        {"image": "gone.png", "boxes": [[1, 2, 3, 4], [1, 2, 3, 5]], "labels": ["lamp"]},
        {"image": "torn.png", "boxes": [[1, 2, 3, 4]], "labels": ["lamp"]},
    ]
    found = findings(checked(jsonl(rows), code=1))
    assert found["label missing"] == ["rows.jsonl:1: boxes[1]"]
    assert found["missing file"] == [f"rows.jsonl:1: {tmp_path / 'gone.png'}"]
    assert found["unreadable file"][0].startswith("rows.jsonl:2: torn.png: ")


def test_the_report_of_boxes_counts_in_the_plural_and_says_how_many_more_there_are(jsonl: Write) -> None:
    text = call("check-data", jsonl([{"image": "gone.png", "boxes": []} for _ in range(7)])).stdout
    assert "- **missing file** in 7 boxes or rows: " in text
    assert "\n  - … and 2 more" in text
    text = call("check-data", jsonl([{"image": "gone.png", "boxes": []}])).stdout
    assert "- **missing file** in 1 box or row: " in text
    assert "more" not in text.partition("missing file")[2].partition("\n- ")[0]


def test_width_and_height_of_the_row_stand_for_the_image(jsonl: Write) -> None:
    row = {"boxes": [[1, 2, 90, 40]], "labels": ["lamp"], "width": 80, "height": 50}
    found = findings(checked(jsonl([row])))
    assert found["outside of the image"] == ["rows.jsonl:1: boxes[0]: 1, 2, 90, 40 in an image of 80 × 50"]


def test_boxes_in_another_form_are_recognised_and_read_as_such_when_told(jsonl: Write) -> None:
    corner_and_size = [{"boxes": [[400, 300, 20 + at, 30]], "labels": ["lamp"]} for at in range(5)]
    file = jsonl([{**row, "width": 640, "height": 480} for row in corner_and_size])
    found = findings(checked(file, code=1))
    assert found["another form fits better"] == ["all rows: 5 boxes without area as xyxy, none as xywh"]
    assert checked(file, "--box-form", "xywh")["findings"] == []


def test_shares_and_pixels_in_one_set_are_named(jsonl: Write) -> None:
    rows = [{"boxes": [box], "labels": ["lamp"]} for box in ([0.1, 0.2, 0.5, 0.9], [10, 20, 50, 90])]
    assert set(findings(checked(jsonl(rows)))) == {"two units"}


@pytest.mark.parametrize(
    ("form", "numbers"), [("xyxy", (10, 20, 40, 80)), ("xywh", (10, 20, 30, 60)), ("cxcywh", (25, 50, 30, 60))]
)
def test_the_three_forms_of_a_box_mean_the_same(form: BoxForm, numbers: Any) -> None:
    assert corners(numbers, form) == (10, 20, 40, 80)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["box", "bbox", "label", "path"]), inner)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(["boxes", "labels", "classes", "image", "width", "height", "audio", "text"])


@given(st.lists(st.dictionaries(KEYS, ANYTHING) | st.text(max_size=9), max_size=4))
def test_whatever_stands_in_a_manifest_is_counted_and_never_a_traceback(values: list[Any]) -> None:
    for scan in (AudioScan(), BoxScan()):
        for line, value in enumerate(values, 1):
            scan.add(MediaRow(f"a.jsonl:{line}", Path(tempfile.gettempdir()) / "nowhere", value))
        facts = scan.facts()
        assert facts["rows"] == len(values)
        json.dumps(facts, allow_nan=False)


@given(st.binary(max_size=200))
def test_whatever_stands_in_a_wav_file_is_read_or_said_to_be_unreadable(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.wav"
        header = write_wav(path, 0.01).read_bytes()[:44]
        for content in (data, header[:36] + data, header + data):
            path.write_bytes(content)
            try:
                assert read_clip(path).seconds >= 0
            except ValueError as error:
                assert str(error)


def texts(folder: Path, jsonl: Write) -> Path:
    rows: list[Any] = [
        {"prompt": f"Open gate number {line}", "completion": f"Gate {line} is open."} for line in range(12)
    ]
    rows += [{"prompt": "Open gate number 3", "completion": "No."}, {"prompt": "Say {input}", "completion": "Said."}]
    jsonl([*rows, {"prompt": "", "completion": "x"}], "set/train.jsonl")
    return jsonl([{"prompt": "Open gate number 5", "completion": "Gate 5 is open."}], "set/holdout.jsonl").parent


def test_texts_are_checked_without_a_model_and_everything_is_told_at_once(jsonl: Write, tmp_path: Path) -> None:
    found = checked(texts(tmp_path, jsonl), code=1)
    assert found["kind"] == "text"
    assert found["splits"] == {"train": {"rows": 14}, "holdout": {"rows": 1}}
    assert found["classes"]["train"] == {"text": 14}
    assert found["bad_rows"]["listed"] == [{"source": "train.jsonl:15", "reason": "prompt: the text is empty"}]
    assert found["bad_rows"]["empty"] == 1
    assert found["contradictions"]["count"] == 1
    assert found["contradictions"]["listed"][0]["second"] == {"source": "train.jsonl:13", "answer": "No."}
    assert found["leaks"]["count"] == 1
    assert set(findings(found)) == {"unfilled placeholder"}
    assert found["characters"]["prompt"] == {"least": 11, "median": 18, "most": 19}
    assert found["unusable"] == 2


def test_the_report_of_texts_names_places(jsonl: Write, tmp_path: Path) -> None:
    result = call("check-data", texts(tmp_path, jsonl))
    assert "holdout.jsonl:1 and " in result.stdout
    assert "- train.jsonl:15: prompt: the text is empty" in result.stdout
    assert "answer 'Open gate number 3' differently: 'Gate 3 is open.' and 'No.'" in result.stdout
    assert "2 rows cannot be used as they are" in result.stderr


def test_a_shipped_set_is_checked_by_name() -> None:
    result = call("check-data", "npc-commands", "--json")
    document = json.loads(result.stdout)
    assert (document["source"], document["unusable"], document["findings"]) == ("npc-commands", 0, [])


def test_a_source_that_is_not_there_is_one_line() -> None:
    result = call("check-data", "nothing.jsonl")
    assert result.exit_code == 1
    assert "nothing.jsonl: no such file, folder or shipped set" in result.stderr


@pytest.mark.parametrize("source", ["", "/dev/null"])
def test_no_place_for_rows_is_told_without_a_traceback(source: str) -> None:
    result = call("check-data", source)
    assert result.exit_code == (1 if source else 2)
    assert result.stderr.startswith("error: ")


def test_a_box_form_without_boxes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "a", "completion": "b"}) + "\n")
    result = call("check-data", file, "--box-form", "xywh")
    assert result.exit_code == 2
    assert "has text, no boxes" in result.stderr
    assert call("check-data", file).exit_code == 0


@pytest.mark.parametrize(
    ("row", "says_prepare"),
    [({"audio": "none.wav", "text": "a"}, False), ({"image": "none.png", "boxes": 5}, False), ({"prompt": 5}, True)],
)
def test_only_rows_of_text_are_said_to_be_refused_by_prepare(
    tmp_path: Path, row: dict[str, Any], says_prepare: bool
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps({"prompt": "a", "completion": "b"}) + "\n")
    result = call("check-data", file)
    assert result.exit_code == 1
    assert ("`prepare` would refuse" in result.stderr) is says_prepare


def test_settings_that_shape_no_data_are_refused(tmp_path: Path) -> None:
    result = call("check-data", "npc-commands", "--set", "train.epochs=3")
    assert (result.exit_code, result.stdout) == (2, "")
