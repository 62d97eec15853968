"""The C# helpers, compiled with Mono, against references on inputs that are made here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import call
from unity_engine import Engine
from unity_kit import Built, build_kit

from converters.ort_session import open_session
from converters.unity.helpers import FOR_FAMILY, HELPERS, helper_sources
from converters.unity.kit import KitSettings, write_tools
from weights_bridge.errors import UsedWronglyError

Helper = Callable[..., None]


def written(folder: Path, **arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        array.tofile(folder / name)


def read(folder: Path, name: str) -> np.ndarray:
    return np.fromfile(folder / name, np.float32)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, stubs: Path) -> Built:
    """The helpers alone, compiled."""
    folder = tmp_path_factory.mktemp("tools")
    write_tools(folder / "kit", KitSettings("MyGame.Tools", helpers=("all",)))
    return build_kit(folder / "kit", stubs, folder / "built", "MyGame.Tools")


@pytest.fixture(scope="module")
def program(tools: Built) -> Path:
    return tools.program("Helpers")


@pytest.fixture
def helper(program: Path, tmp_path: Path) -> Helper:
    """Return how a helper is run on the files in `tmp_path`."""

    def run(name: str, *numbers: float) -> None:
        subprocess.run(["mono", program, name, tmp_path, *map(str, numbers)], check=True, capture_output=True)

    return run


def onnx_kept(boxes: np.ndarray, scores: np.ndarray, least: float, overlap: float, centre: bool) -> list[int]:
    """Return what ONNX Runtime's NonMaxSuppression keeps of one class, the best first."""
    text = f"""<ir_version: 8, opset_import: ["": 11]> g (float[1,N,4] b, float[1,1,N] s) => (int64[K,3] y)
        <int64[1] m = {{1000}}, float[1] o = {{{overlap}}}, float[1] l = {{{least}}}>
        {{ y = NonMaxSuppression<center_point_box={int(centre)}>(b, s, m, o, l) }}"""
    session = open_session(onnx.parser.parse_model(text).SerializeToString())
    (found,) = session.run(None, {"b": boxes[None], "s": scores[None, None]})
    return found[:, 2].tolist()


@pytest.mark.parametrize("centre", [False, True])
def test_the_boxes_that_remain_are_those_of_onnx(helper: Helper, tmp_path: Path, centre: bool) -> None:
    numbers = np.random.default_rng(3)
    corner, size = numbers.uniform(0, 90, (200, 2)), numbers.uniform(5, 30, (200, 2))
    boxes = np.concatenate([corner, size if centre else corner + size], 1).astype(np.float32)
    scores = numbers.random(200).astype(np.float32)
    boxes[7], scores[7] = boxes[9], scores[9]  # two equal boxes: the first remains
    scores[11] = 0.25  # as much as the threshold: not more
    written(tmp_path, boxes=boxes, scores=scores)
    wanted = onnx_kept(boxes, scores, 0.25, 0.4, centre)
    assert 20 < len(wanted) < 140
    helper("nms", 0.25, 0.4, int(centre))
    assert read(tmp_path, "kept").astype(int).tolist() == wanted


def test_boxes_of_other_classes_remain_and_corners_may_be_in_any_order(helper: Helper, tmp_path: Path) -> None:
    numbers = np.random.default_rng(4)
    corner = numbers.uniform(0, 40, (90, 2))
    boxes = np.concatenate([corner, corner + numbers.uniform(5, 30, (90, 2))], 1).astype(np.float32)
    boxes[::2] = boxes[::2][:, [2, 3, 0, 1]]
    scores, classes = numbers.random(90).astype(np.float32), numbers.integers(0, 3, 90).astype(np.float32)
    written(tmp_path, boxes=boxes, scores=scores, classes=classes)
    wanted = []
    for one in range(3):
        own = np.flatnonzero(classes == one)
        wanted += [int(own[kept]) for kept in onnx_kept(boxes[own], scores[own], 0.1, 0.5, False)]
    helper("nms", 0.1, 0.5, 0)
    assert read(tmp_path, "kept").astype(int).tolist() == sorted(wanted, key=lambda box: -scores[box])


def fitted(image: np.ndarray, size: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the square [3, size, size] with torch's bilinear interpolation, and the columns and rows before it."""
    import torch

    height, width = image.shape[:2]
    scale = min(size / height, size / width)
    high, wide = round(height * scale), round(width * scale)
    planes = torch.from_numpy(image.astype(np.float64)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(planes, (high, wide), mode="bilinear", align_corners=False)[0].numpy()
    left, top = round((size - wide) / 2 - 0.1), round((size - high) / 2 - 0.1)
    square = np.full((3, size, size), 114.0)
    square[:, top : top + high, left : left + wide] = resized
    return square / 255, (left, top)


@pytest.mark.parametrize(("width", "height"), [(37, 21), (21, 37), (16, 16), (64, 48), (3, 50), (1, 1)])
@pytest.mark.parametrize("bottom_up", [False, True])
def test_an_image_is_fitted_as_torch_fits_it(
    helper: Helper, tmp_path: Path, width: int, height: int, bottom_up: bool
) -> None:
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    written(tmp_path, pixels=np.ascontiguousarray(image[::-1] if bottom_up else image))
    helper("letterbox", 32, width, height, int(bottom_up))
    wanted, (left, top) = fitted(image, 32)
    np.testing.assert_allclose(read(tmp_path, "square").reshape(3, 32, 32), wanted, rtol=0, atol=1e-6)
    scale, found_left, found_top, middle_x, middle_y = read(tmp_path, "places")
    assert (found_left, found_top) == (left, top)
    assert (scale * middle_x + left, scale * middle_y + top) == pytest.approx((16, 16))


@pytest.mark.parametrize(("bands", "seconds"), [(80, 2), (128, 3)])
@pytest.mark.parametrize("clip", ["short", "long"])
def test_the_spectrogram_is_that_of_transformers_extractor(
    helper: Helper, tmp_path: Path, bands: int, seconds: int, clip: str
) -> None:
    from transformers import WhisperFeatureExtractor

    length = {"short": 0.7, "long": seconds + 0.5}[clip]
    time = np.arange(int(16000 * length)) / 16000
    noise = np.random.default_rng(2).standard_normal(len(time)) * 0.01
    sound = (0.4 * np.sin(2 * np.pi * (200 + 900 * time) * time) + noise).astype(np.float32)
    written(tmp_path, clip=sound)
    helper("log-mel", bands, seconds)
    extractor = WhisperFeatureExtractor(feature_size=bands, chunk_length=seconds)
    wanted = extractor(sound, sampling_rate=16000, return_tensors="np")["input_features"][0]
    found = read(tmp_path, "mels").reshape(bands, -1)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-4  # the requirement is 1e-3


STREAM = """<ir_version: 8, opset_import: ["": 13]>
    g (float[1,6] x, float[1,3] state) => (float[1,1] y, float[1,3] state_out)
    <float[6,3] w = {0.1,-0.2,0.3,0.4,0.5,-0.6,0.7,0.8,0.9,1,-1.1,1.2,1.3,1.4,1.5,-1.6,1.7,1.8}, float half = {0.5},
     int64[1] axis = {1}>
    { m = MatMul(x, w) k = Mul(state, half) a = Add(m, k) state_out = Tanh(a) y = ReduceSum(state_out, axis) }"""


def streamed(clip: np.ndarray, context: int, chunk: int) -> np.ndarray:
    """Return what the whole reference says: every chunk with what stood before it, the state handed on."""
    session = open_session(onnx.parser.parse_model(STREAM).SerializeToString())
    padded, state, said = np.concatenate([np.zeros(context, np.float32), clip]), np.zeros((1, 3), np.float32), []
    for at in range(0, len(clip) - chunk + 1, chunk):
        y, state = session.run(None, {"x": padded[None, at : at + context + chunk], "state": state})
        said.append(y[0, 0])
    return np.array(said * 2, np.float32)  # two streams, one after the other


@pytest.mark.parametrize(("context", "carries", "agrees"), [(2, True, True), (2, False, False)])
def test_a_stream_is_heard_with_its_context_and_its_state(
    program: Path, tmp_path: Path, context: int, carries: bool, agrees: bool
) -> None:
    clip = np.random.default_rng(6).standard_normal(41).astype(np.float32)
    (tmp_path / "Assets").mkdir()
    onnx.save(onnx.parser.parse_model(STREAM), tmp_path / "Assets" / "stream.onnx")
    written(tmp_path, clip=clip)
    code, said = Engine().ran(["mono", program, "streaming", tmp_path, context, 4, int(carries)], tmp_path)
    assert (code, said) == (0, ["left 0"])
    found, wanted = read(tmp_path, "said"), streamed(clip, context, 4)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=0, atol=1e-6) is agrees


PLANTED: dict[str, tuple[str, str, str, Callable[..., Any]]] = {
    "a wider overlap": (
        "NonMaxSuppression.cs", "> maxOverlap", ">= maxOverlap * 1.2f", test_the_boxes_that_remain_are_those_of_onnx,
    ),
    "a score that is only reached": (
        "NonMaxSuppression.cs", "scores[i] > minScore", "scores[i] >= minScore",
        test_the_boxes_that_remain_are_those_of_onnx,
    ),
    "corners of pixels": ("Letterbox.cs", "(at + 0.5) * size / scaled - 0.5", "(double)at * size / scaled",
                          test_an_image_is_fitted_as_torch_fits_it),
    "a window that is not periodic": ("LogMel.cs", "2 * Math.PI * i / Frame)", "2 * Math.PI * i / (Frame - 1))",
                                      test_the_spectrogram_is_that_of_transformers_extractor),
    "ends that are not mirrored": ("LogMel.cs", "Math.Abs(start + i);", "Math.Max(0, start + i);",
                                   test_the_spectrogram_is_that_of_transformers_extractor),
    "the chunk's beginning as context": ("ChunkContext.cs", "chunk.Length - _context.Length, _context", "0, _context",
                                              test_a_stream_is_heard_with_its_context_and_its_state),
    "a state that is not cleared": ("CarriedState.cs", "((Tensor<float>)_tensors[i]).Upload(_zeros[i]);", "",
                                    test_a_stream_is_heard_with_its_context_and_its_state),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_a_helper_is_found(tmp_path: Path, stubs: Path, name: str) -> None:
    source, old, new, test = PLANTED[name]
    write_tools(tmp_path / "kit", KitSettings("MyGame.Tools", helpers=("all",)))
    path = tmp_path / "kit" / "Runtime" / "Helpers" / source
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    program = build_kit(tmp_path / "kit", stubs, tmp_path / "built", "MyGame.Tools").program("Helpers")

    def run(helper: str, *numbers: float) -> None:
        subprocess.run(["mono", program, helper, tmp_path, *map(str, numbers)], check=True, capture_output=True)

    cases: dict[Any, tuple[Any, ...]] = {
        test_the_boxes_that_remain_are_those_of_onnx: (run, tmp_path, False),
        test_an_image_is_fitted_as_torch_fits_it: (run, tmp_path, 37, 21, False),
        test_the_spectrogram_is_that_of_transformers_extractor: (run, tmp_path, 80, 2, "short"),
        test_a_stream_is_heard_with_its_context_and_its_state: (program, tmp_path, 2, True, True),
    }
    with pytest.raises(AssertionError):
        test(*cases[test])


def test_helpers_are_asked_for_by_name_and_need_no_run(tmp_path: Path) -> None:
    found = call("unity", "--helper", "nms", "--helper", "letterbox", "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    files = {file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.cs")}
    assert files == {"Runtime/AssemblyInfo.cs", *helper_sources(["nms", "letterbox"])}
    assert (tmp_path / "out" / "Runtime" / "MlxSentis.Tools.asmdef").is_file()
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "NonMaxSuppression.cs" in page
    assert "LogMel.cs" not in page
    with pytest.raises(UsedWronglyError, match="unknown helper 'mel'"):
        helper_sources(["mel"])
    assert call("unity", "--helper", "mel", "--out", tmp_path / "out").exit_code == 2
    assert call("unity", "--out", tmp_path / "out").exit_code == 2
    assert {name for names in FOR_FAMILY.values() for name in names} <= HELPERS.keys()
