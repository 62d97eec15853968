"""The onnx package's own models, scanned: `python tests/scan_corpus.py` writes the golden file anew.

1,884 cases made in memory and the models that the package ships as files. A verdict is the ids that are found.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx

from converters.scan import scan

GOLDEN = Path(__file__).parent / "converters" / "scan" / "goldens" / "onnx_backend.json"
SENTIS = "2.6"
CLEAN = "clean"


def made_in_memory() -> Iterator[tuple[str, bytes]]:
    """Yield (name, model) of the package's cases."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None:
            yield case.name, case.model.SerializeToString()


def on_disk() -> list[Path]:
    """Return the models that the package ships as files."""
    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))


def verdicts() -> dict[str, str]:
    """Return each model's name with the ids found in it, warnings included."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        for name, data in made_in_memory():
            path.write_bytes(data)
            found[name] = verdict(path)
    for path in on_disk():
        found["/".join(path.parts[-3:])] = verdict(path)
    return found


def verdict(path: Path) -> str:
    """Return the ids found in a file, sorted, each once."""
    return " ".join(sorted({finding.id for finding in scan(path, SENTIS)})) or CLEAN


def grouped(found: dict[str, str]) -> dict[str, list[str]]:
    """Return verdict to names, for a small file."""
    groups: dict[str, list[str]] = {}
    for name, ids in sorted(found.items()):
        groups.setdefault(ids, []).append(name)
    return dict(sorted(groups.items()))


def main() -> None:
    """Write the golden file."""
    found = verdicts()
    passport: dict[str, Any] = {
        "script": "python tests/scan_corpus.py",
        "onnx": onnx.__version__,
        "python": platform.python_version(),
        "sentis": SENTIS,
        "date": datetime.now(UTC).date().isoformat(),
        "models": len(found),
    }
    lines = [f"{json.dumps(ids)}: {json.dumps(' '.join(names))}" for ids, names in grouped(found).items()]
    text = f'{{\n"passport": {json.dumps(passport)},\n"verdicts": {{\n' + ",\n".join(lines) + "\n}}\n"
    GOLDEN.write_text(text, encoding="utf-8")
    print(f"{GOLDEN}: {len(found)} models, {len(lines)} verdicts", file=sys.stderr)


if __name__ == "__main__":
    main()
