"""What Sentis will do with a model, predicted without reading its weights.

An ONNX file is read as a skeleton (see `onnx_file`), a model directory through its configuration and the headers
of its weight files. What is predicted stands in `converters/sentis/*.json`; how it is recognised, in this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from converters import families, onnx_file
from converters.facts import Facts, facts
from converters.finding import SEVERITIES, Finding
from converters.scan.external import external_findings
from converters.scan.model import model_findings, opset_of, shape_findings
from converters.scan.operators import node_findings
from converters.scan.tensors import tensor_findings
from converters.scan.tokenizer import tokenizer_findings
from converters.scan.view import view_of
from weights_bridge import architectures
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.model_folder import open_base


def scan(path: Path, sentis: str = "2.6", *, notes: bool = False) -> list[Finding]:
    """Return the findings for an ONNX file, a folder of ONNX files or a Hugging Face directory, worst first.

    Args:
        path: what to scan; nothing in it is changed and no weight is read.
        sentis: the package version to predict for.
        notes: whether to add what costs time or a last digit only.

    Raises:
        StageError: unreadable, or nothing to scan in it, or a version without facts.
    """
    known = facts(sentis)
    found = list(_findings(path, known))
    kept = (finding for finding in found if notes or finding.severity != "note")
    return sorted(_with_passes(kept), key=lambda f: (SEVERITIES.index(f.severity), f.id, f.file, f.node))


def _findings(path: Path, known: Facts) -> Iterator[Finding]:
    if not path.is_dir():
        yield from (replace(finding, file=path.name) for finding in _file_findings(path, known))
    elif (path / "config.json").is_file() and (list(path.glob("*.safetensors")) or not onnx_files(path)):
        yield from _folder_findings(path, known)
        yield from tokenizer_findings(path, known)
    elif files := onnx_files(path):
        for file in files:
            for finding in _file_findings(file, known):
                yield replace(finding, file=str(file.relative_to(path)))
    else:
        message = f"{path}: neither a config.json nor an .onnx file in it"
        raise StageError(message, hint="give a model file or directory")


def onnx_files(folder: Path) -> list[Path]:
    """Return a folder's ONNX files, those of its subfolders included."""
    return sorted(path for path in folder.rglob("*.onnx") if path.is_file())


def _with_passes(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Add which passes of `fix` mend a finding."""
    from converters.passes import PASSES

    for finding in findings:
        named = (one.name for one in PASSES.values() if one.mends(finding.id, finding.operator))
        yield replace(finding, passes=tuple(named))


def _file_findings(path: Path, known: Facts) -> Iterator[Finding]:
    yield from skeleton_findings(onnx_file.read_skeleton(path), path, known)


def skeleton_findings(skeleton: onnx_file.Skeleton, path: Path, known: Facts) -> Iterator[Finding]:
    """Yield the findings about an ONNX file of which the skeleton was read, in no order."""
    opset = opset_of(skeleton.model)
    view = view_of(skeleton.model, known, opset)
    yield from model_findings(skeleton, view, path.name, known)
    yield from shape_findings(view, known)
    yield from node_findings(skeleton.model, view, opset, known)
    yield from tensor_findings(skeleton, view, known)
    yield from external_findings(skeleton.model.graph, path, known)


def _folder_findings(path: Path, known: Facts) -> Iterator[Finding]:
    config = read_json(path / "config.json")
    model_type = config.get("model_type", "(none)") if isinstance(config, dict) else "(no object)"
    if model_type not in architectures.names():
        if model_type in known["recurrences"]:
            yield known.finding("MODEL.RECURRENCE", "config.json", f"architecture {model_type!r}")
            return
        evidence = f"architecture {model_type!r}, known are {', '.join(architectures.names())}"
        yield known.finding("MODEL.ARCHITECTURE", "config.json", evidence)
        return
    folder = open_base(path)
    family = families.get(folder.architecture.family)
    size = family.predicted_bytes(folder, "fp32")
    if size > onnx_file.LIMIT_BYTES:
        half = family.predicted_bytes(folder, "fp16")
        mend = "export with --dtype fp16" if half <= onnx_file.LIMIT_BYTES else "choose a smaller model"
        yield known.finding("MODEL.SIZE", "config.json", f"{size / 2**30:.2f} GiB as fp32", mend=mend)
    if not list(path.glob("*.safetensors")):
        yield known.finding("MODEL.WEIGHTS", path.name, "")
        return
    try:
        folder.check_tensors()
    except StageError as error:
        if "not a whole safetensors file" in error.message:
            raise
        yield known.finding("MODEL.TENSORS", path.name, " ".join(error.message.split()))
