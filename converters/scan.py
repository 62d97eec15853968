"""What Sentis will do with a model, predicted without reading its weights.

An ONNX file is read as a skeleton (see `onnx_file`), a model directory through its configuration and the headers
of its weight files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import families, onnx_file
from converters.facts import facts
from converters.finding import SEVERITIES, Finding
from converters.scan_nodes import node_findings
from converters.scan_tensors import tensor_findings
from weights_bridge import architectures
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.model_folder import open_model_folder

if TYPE_CHECKING:
    import onnx


def scan(path: Path, sentis: str = "2.6") -> list[Finding]:
    """Return the findings for an ONNX file, a folder of ONNX files or a Hugging Face directory, worst first.

    Args:
        path: what to scan; nothing in it is changed and no weight is read.
        sentis: the package version to predict for.

    Raises:
        StageError: unreadable, or nothing to scan in it, or a version without facts.
    """
    known = facts(sentis)
    if not path.is_dir():
        return _sorted(_file_findings(path, known))
    if (path / "config.json").is_file():
        return _sorted(_folder_findings(path))
    if files := sorted(path.glob("*.onnx")):
        return _sorted([_inside(finding, file) for file in files for finding in _file_findings(file, known)])
    raise StageError(f"{path}: neither a config.json nor an .onnx file in it", hint="give a model file or directory")


def _inside(finding: Finding, file: Path) -> Finding:
    values = finding.as_json() | {"node": f"{file.name}: {finding.node}"}
    return Finding(**values)


def _sorted(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.id, f.node))


def _file_findings(path: Path, known: dict[str, Any]) -> list[Finding]:
    skeleton = onnx_file.read_skeleton(path)
    found = [*_opset(skeleton.model, known), *node_findings(skeleton.model, known)]
    found += tensor_findings(skeleton, path, known)
    if skeleton.file_bytes > known["file_limit_bytes"]:
        what = f"{skeleton.file_bytes / 2**30:.2f} GiB; protobuf and the importer end at 2 GiB"
        found.append(Finding("FILE.SIZE", "error", path.name, what, "export with --dtype fp16"))
    return found


def _opset(model: onnx.ModelProto, known: dict[str, Any]) -> list[Finding]:
    low, high = known["opset_window"]
    versions = [entry.version for entry in model.opset_import if entry.domain == ""]
    if not versions:
        named = ", ".join(f"{entry.domain} {entry.version}" for entry in model.opset_import) or "none"
        what = f"no opset for the domain '' ({named}): Sentis takes the file as opset 15"
        return [Finding("OPSET.DOMAIN", "deviation", "opset_import", what, "write the domain as an empty text")]
    found = []
    if len(versions) > 1:
        what = f"several opsets for one domain ({versions}): the last wins"
        found.append(Finding("OPSET.SEVERAL", "warning", "opset_import", what, "keep one"))
    if not low <= versions[-1] <= high:
        what = f"opset {versions[-1]}, Sentis {known['version']} documents {low}–{high}: results are not predictable"
        found.append(Finding("OPSET.WINDOW", "error", "opset_import", what, "export with another --opset"))
    return found


def _folder_findings(path: Path) -> list[Finding]:
    config = read_json(path / "config.json")
    model_type = config.get("model_type", "(none)") if isinstance(config, dict) else "(no object)"
    if model_type not in architectures.names():
        what = f"architecture {model_type!r} has no table; known: {', '.join(architectures.names())}"
        mend = "export it by hand with torch.onnx.export, then scan the file"
        return [Finding("MODEL.ARCHITECTURE", "error", "config.json", what, mend)]
    folder = open_model_folder(path)
    found = []
    size = families.get(folder.architecture.family).predicted_bytes(folder, "fp32")
    if size > onnx_file.LIMIT_BYTES:
        what = f"{size / 2**30:.2f} GiB as fp32; a single .onnx file ends at 2 GiB"
        half = families.get(folder.architecture.family).predicted_bytes(folder, "fp16")
        mend = "export with --dtype fp16" if half <= onnx_file.LIMIT_BYTES else "choose a smaller model"
        found.append(Finding("MODEL.SIZE", "error", "config.json", what, mend))
    if not list(path.glob("*.safetensors")):
        what = "no *.safetensors file; pickle checkpoints are not read"
        return [*found, Finding("MODEL.WEIGHTS", "error", path.name, what, "convert them to safetensors")]
    try:
        folder.check_tensors()
    except StageError as error:
        if "not a whole safetensors file" in error.message:
            raise
        mend = "give a checkpoint that matches its config.json"
        found.append(Finding("MODEL.TENSORS", "error", path.name, " ".join(error.message.split()), mend))
    return found
