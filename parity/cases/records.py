"""What a case file is made of: the small facts of a run folder, by the file they stand in.

The records are one JSON document that travels without the run: no weights, no rows, no paths of the machine. The page
is a function of them alone, so it can be written again anywhere, and a number changed by hand is seen.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from parity.report import GATES, gate_summary
from parity.triple.in_report import current_triple, worst_rows
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json, sha256_of, sha256_of_text
from weights_bridge.run_folder import RunFolder

SCHEMA = "mlx-sentis/case-records/1"
TRIPLE_FILE = "parity/triple.json"
ABSOLUTE = re.compile(r"(?<![\w:/.~])(?:~|[A-Za-z]:)?[\\/](?:[^\s\\/:'\"]+[\\/])+([^\s\\/:'\"]*)")
LATER = {"parity", "quantise", "unity", "validate"}  # stages that no page shows; they may run when it is written
LEFT_OUT = {"rows", "conduct", "arguments", "schema"}  # of axes.json: single answers stay with the run


def collect(run: RunFolder) -> dict[str, Any]:
    """Return the records of a run, finished or not.

    Args:
        run: the folder; what no stage has written yet is left out, and the page says so.

    Returns:
        `schema`, `model`, `date` (day the last stage ended), `hashes` (file to SHA-256), `sources` (file to the part of
        it that a case file shows) and `sha256` of all this.

    Raises:
        StageError: no recipe, or a record was altered after its stage had written it.
    """
    used = {name: run.path(*name.split("/")) for name in READ}
    there = {name: path for name, path in used.items() if path.is_file()}
    if "recipe.json" not in there:
        raise StageError(f"{run.root}: no recipe.json", hint="run at least `mlx-sentis run` up to its first stage")
    if TRIPLE_FILE in there and current_triple(run) is None:
        del there[TRIPLE_FILE]  # of an earlier graph
    if altered := run.altered([path for name, path in there.items() if run.is_recorded(path)]):
        lines = [f"{result.where}: {result.detail}" for result in altered]
        hint = "a case file is made of what stages wrote: run the stage again, or restore the file"
        raise all_at_once(f"{run.root}: records changed since they were written:", lines, hint=hint)
    sources = {name: _kept(name, path) for name, path in there.items()}
    stages = sources["manifest.json"]["stages"]
    sources |= _graphs(run, read_json(contract) if (contract := used["onnx/contract.json"]).is_file() else {})
    found = {
        "schema": SCHEMA,
        "model": file_name(sources["recipe.json"]["model"]["name"]),
        "date": max((entry["finished"] for entry in stages.values()), default="")[:10],
        "hashes": {
            file: content_sha256(sources[file]) if file == "manifest.json" else sha256_of(path)
            for file, path in there.items()  # the manifest grows with every later command: its shown part counts
        },
        "sources": sources,
    }
    model = read_json(there["recipe.json"])["model"]["path"]
    found = without_paths(found, (model, str(run.root.resolve()), str(Path.cwd()), str(Path.home())))
    return found | {"sha256": content_sha256(found)}


def read_records(path: Path) -> dict[str, Any]:
    """Read records that `collect` made.

    Raises:
        StageError: missing, not JSON, of another schema, or changed since they were made.
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not {"model", "sources"} <= found.keys():
        raise StageError(f"{path}: not records of schema {SCHEMA}", hint="`mlx-sentis case RUN --out DIR` writes them")
    if found.get("sha256") != (now := content_sha256(found)):
        what = f"{path}: changed since it was made (sha256 found {now[:12]}…, it says {str(found.get('sha256'))[:12]}…)"
        raise StageError(what, hint="`mlx-sentis case RUN --out DIR` writes it again; numbers are changed by running")
    return found


def content_sha256(records: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what records say, however their file is indented."""
    said = {key: value for key, value in records.items() if key != "sha256"}
    return sha256_of_text(json.dumps(said, sort_keys=True, ensure_ascii=False))


def file_name(model: str) -> str:
    """Return a model's name as a file's: the last part of a path or hub id, without what file systems mind."""
    return re.sub(r"[^\w.-]+", "-", re.split(r"[\\/]", model.rstrip("\\/"))[-1]).strip("-.").lower() or "model"


def without_paths(value: Any, known: Sequence[str] = ()) -> Any:
    """Return a document whose absolute paths are their last part: where a file lay is nobody's business.

    Args:
        value: what JSON can hold.
        known: folders of this machine; their names may have spaces, which a pattern would stop at.
    """
    if isinstance(value, Mapping):
        return {without_paths(key, known): without_paths(inner, known) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner, known) for inner in value]
    if not isinstance(value, str):
        return value
    for folder in sorted((one for one in known if len(one) > 1), key=len, reverse=True):
        value = value.replace(f"{folder}/", "").replace(folder, re.split(r"[\\/]", folder)[-1])
    return ABSOLUTE.sub(lambda found: found[1] or "…", value)


def _kept(name: str, path: Path) -> dict[str, Any]:
    """Return what a case file keeps of one file of a run.

    Raises:
        StageError: it cannot be read, or is not in the form that this version's stages write.
    """
    try:
        if path.suffix != ".toml":
            return READ[name](read_json(path))
        return READ[name](tomlkit.parse(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # tomlkit's and UTF-8's errors are ValueErrors
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        hint = "run the stage that writes it again with this version"
        raise StageError(f"{path}: not in the form that this version reads: {what}", hint=hint) from None


def _recipe(found: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if key != "schema"}
    kinds = found["constants"].get("layer_kinds") or []
    constants = {k: v for k, v in found["constants"].items() if k != "layer_kinds"} | {"layer_kinds": Counter(kinds)}
    return kept | {"model": {"name": found["model"]["name"]}, "constants": constants}


def _config(found: Any) -> dict[str, Any]:
    """Return section to key to [value, origin]; the origin is the comment behind the value."""

    def origin(item: Any) -> str:
        return item.trivia.comment.removeprefix("#").strip() or "default"

    return {
        section: {key: [found[section].item(key).unwrap(), origin(found[section].item(key))] for key in found[section]}
        for section in found
    }


def _manifest(found: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("seconds", "peak_memory_gib", "seed", "finished", "versions")
    stages = {}
    for name, entry in found["stages"].items():
        if name in LATER:
            continue
        facts = dict(entry["facts"])
        if "findings" in facts:
            facts["findings"] = _grouped(facts["findings"])
        stages[name] = {key: entry[key] for key in kept} | {"facts": facts}
    return {"stages": stages}


def _dataset(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("format", "splits", "classes", "shared_prefix_tokens", "longest_row_tokens", "seed", "repeated_rows")
    kept = {name: found[name] for name in names if name in found}
    near = found.get("near_duplicates") or {}
    return kept | {
        "source": file_name(str(found["source"])),
        "window": {key: found["window"][key] for key in ("max_tokens", "too_long", "cut_rows", "dropped_rows")},
        "contradictions": found["contradictions"]["count"],
        "near_duplicates": {key: near[key] for key in ("threshold", "groups", "rows") if key in near}
        | ({"leaks": near["leaks"]["count"]} if near else {}),
        "languages": (found.get("languages") or {}).get("languages"),
    }


def _prompt(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("template_sha256", "kind", "rendered_sha256", "stop_ids", "padding", "bos", "train_turns")
    tools = found.get("tool_serialisation") or {}
    style = {key: tools[key] for key in ("style", "call_template", "key_order", "separators", "none") if key in tools}
    return {name: found.get(name) for name in names} | {"tokens": len(found["ids"]), "tool_serialisation": style}


def _contract(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("family", "architecture", "opset", "sentis", "dtype", "batch", "masks", "masked", "topology_sha256")
    sides = {side: [_without_numbers(row["name"]) for row in found[side]] for side in ("inputs", "outputs")}
    return {name: found.get(name) for name in names} | {side: dict(Counter(rows)) for side, rows in sides.items()}


def _without_numbers(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{i}.", name)


def _scan(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"findings": _grouped(found["findings"])}


def _fix(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "why", "changed", "proof")
    passes = [{key: row[key] for key in names} | {"left": len(row["left"])} for row in found["passes"]]
    findings = {side: _grouped(found["findings"][side]) for side in ("before", "after")}
    operators = {side: sum(found["operators"][side].values()) for side in ("before", "after")}
    return {"passes": passes, "findings": findings, "operators": operators}


def _grouped(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return findings by rule, with how many places each has."""
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        by_id.setdefault(finding["id"], []).append(finding)
    names = ("id", "severity", "taxonomy", "mend", "passes")
    return [{name: places[0][name] for name in names} | {"places": len(places)} for places in by_id.values()]


def _axes(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in LEFT_OUT}


def _graphs(run: RunFolder, contract: Mapping[str, Any]) -> dict[str, Any]:
    """Return size, hash and number of weights of the run's graphs, read from their heads."""
    from converters.onnx_file import read_skeleton

    hashes, named, found = run.recorded_hashes(), contract.get("initialisers", {}), {}
    for name in ("onnx/base.onnx", "onnx/model.onnx"):
        if (path := run.path(*name.split("/"))).is_file():
            skeleton = read_skeleton(path)
            weights = sum(math.prod(one.dims) for one in skeleton.model.graph.initializer if one.name in named)
            found[name] = {"bytes": skeleton.file_bytes, "sha256": hashes.get(name), "weights": weights}
    return found


READ: dict[str, Callable[[Any], dict[str, Any]]] = {
    "manifest.json": _manifest,
    "config.toml": _config,
    "recipe.json": _recipe,
    "data/dataset.json": _dataset,
    "prompt_contract.json": _prompt,
    "onnx/contract.json": _contract,
    "scan.json": _scan,
    "fix.json": _fix,
    "eval/axes.json": _axes,
    **{f"parity/{name}": gate_summary for name in GATES.values()},
    TRIPLE_FILE: lambda found: {"rows": worst_rows(found)},
}
