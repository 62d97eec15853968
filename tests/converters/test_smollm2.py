"""The real SmolLM2-135M: speed, memory and numbers of its export."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mlx_sentis.catalogue import get_model
from weights_bridge.compare import psnr_db

MEASURED = """
import json, resource, sys, time
from pathlib import Path
started = time.monotonic()
from converters.export import export_model
from weights_bridge.settings import ExportSettings
folder = Path(sys.argv[2])
export_model(Path(sys.argv[1]), folder / "base.onnx", ExportSettings(), folder / "contract.json")
kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
print(json.dumps({"seconds": time.monotonic() - started, "peak_gib": kib / 2**20}))
"""


@pytest.mark.slow
def test_the_export_is_quick_light_and_equal_to_transformers(tmp_path, reference_logits, as_exported):
    model = get_model("smollm2-135m")
    command = [sys.executable, "-c", MEASURED, str(model), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    size = (tmp_path / "base.onnx").stat().st_size
    assert measured["seconds"] < 60 and measured["peak_gib"] < 3 * size / 2**30
    assert size < 540e6
    made = as_exported(model, tmp_path)
    ids = np.random.default_rng(0).integers(0, 49152, (1, 160))
    assert psnr_db(reference_logits(model, ids), made.logits(ids, [150, *[1] * 10])) > 100
