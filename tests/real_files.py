"""Real ONNX files through scan, fix and scan again: what becomes of each, with the proof's figures.

`MLX_SENTIS_MODELS=DIR python tests/real_files.py` writes the record anew and `docs/real-files.md` from it. The files
come from pinned packages; none is in the repository. A verdict is `clean` (nothing to mend), `fixed` (to clean, at the
parity that stands beside it), `fixed in part`, or `refused` with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from converters.fix import fix_model
from converters.scan import scan
from converters.surgery.names import fix_shape
from weights_bridge.errors import StageError

GOLDEN = Path(__file__).parent / "converters" / "goldens" / "real_files.json"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "real-files.md"
SENTIS = "2.6"
HEAD = """# Real files

What `scan` and `fix` make of ONNX files that exist, generated from `tests/converters/goldens/real_files.json`, which
`tests/real_files.py` writes and a slow test compares (`MLX_SENTIS_MODELS` names the folder with the files). Predicted
for Sentis {sentis}, proven in ONNX Runtime {onnxruntime}; nothing here was run in Unity. Before `fix` some get fixed
sizes (`graph fix-shape`) or an input bound to a number, as an application would."""
Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A real file and what is done with it.

    Attributes:
        path: under the folder of models.
        what: for people.
        shapes: inputs that get fixed sizes first.
        sizes: named sizes that become numbers first.
        bind: inputs that become constants.
        inputs: what equality is proven on; three kinds of random ones when None.
    """

    path: str
    what: str
    shapes: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    bind: dict[str, str] = field(default_factory=dict)
    inputs: Callable[[], Inputs] | None = None


def spoken() -> Inputs:
    """Ids of a short sentence, and the voice's own scales."""
    ids = np.array([[1, 0, 20, 0, 59, 0, 24, 0, 120, 0, 27, 0, 100, 0, 3, 0, 31, 0, 2]])
    scales = np.array([0.667, 1.0, 0.8], np.float32)
    return {"input": ids, "input_lengths": np.array([ids.shape[1]]), "scales": scales}


def tokens() -> Inputs:
    """A sentence's ids with its mask."""
    ids = np.array([[101, 2023, 2003, 1037, 7099, 6251, 102, 0, 0]])
    mask = (ids > 0).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def listened() -> Inputs:
    """A frame of 64 + 512 samples of a chord, and a state at rest."""
    t = np.arange(576) / 16000
    sound = np.sum([np.sin(2 * np.pi * f * t) for f in (220, 277, 330)], axis=0) / 6
    return {"input": sound[None].astype(np.float32), "state": np.zeros((2, 1, 128), np.float32)}


FRAME, STATE = [1, 576], [2, 1, 128]
CASES = (
    Case("piper-joe/en_US-joe-medium.onnx", "text to speech, VITS", inputs=spoken),
    Case("minilm-int8-onnx/model.onnx", "BERT encoder, int8 weights", inputs=tokens),
    Case("silero-vad/silero_vad.onnx", "voice activity, a frame at 16 kHz", {"input": FRAME, "state": STATE}, {},
         {"sr": "16000"}, listened),
    Case("silero-vad/silero_vad.onnx", "voice activity, as it comes"),
    Case("silero-vad/silero_vad_half.onnx", "voice activity, a frame", {"input": FRAME, "state": STATE},
         inputs=listened),
    Case("silero-vad/silero_vad_openvino_16k.onnx", "voice activity, fixed sizes"),
    Case("openwakeword/melspectrogram.onnx", "wake word, mel front end"),
    Case("openwakeword/embedding_model.onnx", "wake word, embedding"),
    Case("openwakeword/alexa_v0.1.onnx", "wake word, head"),
    Case("openwakeword/hey_mycroft_v0.1.onnx", "wake word, head with a layer norm"),
    Case("openwakeword/weather_v0.1.onnx", "wake word, head"),
    Case("blazeface-front/face_detection_front_128x128_barracuda.onnx", "face detector, channels last"),
    Case("rapidocr/ch_PP-OCRv4_det_infer.onnx", "text detector"),
    Case("rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", "text direction"),
    Case("table-edge-int8/edge_det_quantized.onnx", "table edges, dynamic int8"),
    Case("speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", "echo score, bidirectional GRU"),
    Case("speechmos/dnsmos_models/bak_ovr.onnx", "speech quality"),
    Case("speechmos/dnsmos_models/model_v8.onnx", "speech quality"),
    Case("speechmos/dnsmos_models/sig_bak_ovr.onnx", "speech quality, STFT as Conv"),
)  # fmt: skip


def tried(case: Case, models: Path, work: Path) -> dict[str, Any]:
    """Return what became of a file."""
    source = models / case.path
    row: dict[str, Any] = {
        "path": case.path,
        "what": case.what,
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
    }
    row["first"] = [f"{name} = {sizes}" for name, sizes in case.shapes.items()]
    row["first"] += [f"{name} = {size}" for name, size in (case.sizes | case.bind).items()]
    try:
        if case.shapes or case.sizes:
            fix_shape(source, work / "fixed.onnx", case.sizes, case.shapes)
            source = work / "fixed.onnx"
        inputs = case.inputs() if case.inputs else None
        report = fix_model(source, work / "out.onnx", sentis=SENTIS, bind=case.bind, inputs=inputs)
    except StageError as error:
        found = Counter(finding.id for finding in scan(source, SENTIS))
        reason = error.message.replace(str(work), "").replace(str(models), "")
        return row | {"before": dict(sorted(found.items())), "verdict": "refused", "reason": reason[:300]}
    before, after = (Counter(f["id"] for f in report["findings"][side]) for side in ("before", "after"))
    blocking = [finding for finding in report["findings"]["after"] if finding["severity"] in ("error", "deviation")]
    blocked = any(finding["severity"] in ("error", "deviation") for finding in report["findings"]["before"])
    changed = {one["name"]: one for one in report["passes"] if one["changed"]}
    row |= {"before": dict(sorted(before.items())), "after": dict(sorted(after.items()))}
    row["passes"] = {name: [one["changed"], one["proof"]] for name, one in changed.items()}
    row["reasons"] = sorted({f"{one['id']}: {one['why']}" for one in report["explained"]})[:4]
    row["nodes"] = [sum(report["operators"][side].values()) for side in ("before", "after")]
    mended = set(changed) - {"drop_metadata"}
    row["verdict"] = (
        ("fixed in part" if mended else "refused")
        if blocking
        else "fixed"
        if blocked or (mended and before != after)
        else "clean"
    )
    return row


def rows(models: Path) -> list[dict[str, Any]]:
    """Return what became of every file."""
    found = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as work:
            found.append(tried(case, models, Path(work)))
    return found


def page(record: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    passport = record["passport"]
    lines = [HEAD.format(**passport), ""]
    lines += [
        "| file | what | first | findings | verdict | passes and their proof, or the reason |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["files"]:
        counts = f"{sum(row['before'].values())} → {sum(row['after'].values())}" if "after" in row else ""
        counts = counts or str(sum(row["before"].values()))
        told = "; ".join(f"`{name}` {count}: {proof}" for name, (count, proof) in row.get("passes", {}).items())
        told = row.get("reason") or "; ".join([one for one in (told, *row["reasons"]) if one]) or "–"
        cells = (f"`{row['path']}`", row["what"], ", ".join(row["first"]) or "–", counts, row["verdict"], told)
        lines.append("| " + " | ".join(cell.replace("|", " ").replace("\n", " ") for cell in cells) + " |")
    made = ", ".join(f"{key} {passport[key]}" for key in ("onnx", "onnxruntime", "date"))
    return "\n".join([*lines, "", f"Made with {made}."]) + "\n"


def main() -> None:
    """Write the record and the page."""
    models = Path(os.environ["MLX_SENTIS_MODELS"])
    passport = {"script": "python tests/real_files.py", "sentis": SENTIS, "onnx": onnx.__version__}
    passport |= {"onnxruntime": onnxruntime.__version__, "date": datetime.now(UTC).date().isoformat()}
    record = {"passport": passport, "files": rows(models)}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")
    for row in record["files"]:
        print(row["verdict"], row["path"], row.get("reason", ""))


if __name__ == "__main__":
    main()
