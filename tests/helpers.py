"""What several test files use."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

import cli
from weights_bridge.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
FULL = "cannot be written: (the disk is full|File too large); nothing was changed"


def call(*words: object) -> Result:
    """Call the command line as a user would, in this process."""
    return CliRunner().invoke(cli.main, [str(word) for word in words])


ALONE = """
import json, sys
sys.argv = ["mlx-sentis", *json.loads(sys.argv[1])]
import cli
try:
    cli.main()
except SystemExit as ended:
    code = ended.code
print("LOADED " + json.dumps([code or 0, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def call_alone(*words: object) -> tuple[str, set[str]]:
    """Call the command line in a process of its own, which must end well.

    Returns:
        Its stdout, and the top-level modules that it had loaded in the end.
    """
    command = [sys.executable, "-c", ALONE, json.dumps([str(word) for word in words])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code, loaded = json.loads(done.stderr.rpartition("LOADED ")[2])
    assert code == 0, done.stderr
    return done.stdout, set(loaded)


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def write_moved(base: Path, path: Path, settings: Settings) -> None:
    """Write an adapter, or all weights, whose values are not where they started."""
    import mlx.core as mx

    from mlx_sentis.training import adapters
    from mlx_sentis.training.definitions import load_causal_lm
    from weights_bridge.model_folder import open_model_folder

    model = load_causal_lm(open_model_folder(base))
    facts = adapters.prepare_training(model, settings)
    rng = np.random.default_rng(4)
    moved = []
    for name, array in adapters.adapter_tensors(model).items():
        noise = rng.standard_normal(array.shape).astype(np.float32)
        moved.append((name, array * mx.array(1 + 0.1 * noise) + mx.array(0.03 * noise)))
    model.network.load_weights(moved, strict=False)
    adapters.save_adapter(path, model, facts)


def write_packed(source: Path, target: Path, quantization: dict[str, Any], *, half: bool = True) -> Path:
    """Write a directory as `mlx_lm.convert -q` does: packed weights, `quantization` in the configuration."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten

    from mlx_sentis.training.definitions import load_causal_lm
    from weights_bridge.model_folder import open_model_folder

    shutil.copytree(source, target)
    network = load_causal_lm(open_model_folder(source)).network
    if half:
        network.set_dtype(mx.bfloat16)
    options = {key: value for key, value in quantization.items() if key in ("group_size", "bits", "mode")}
    width = options["group_size"]

    def chosen(name: str, module: nn.Module) -> Any:
        fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % width == 0
        return fits and quantization.get(name, True)

    nn.quantize(network, **options, class_predicate=chosen)
    weights = dict(tree_flatten(network.parameters()))  # pyright: ignore
    mx.save_safetensors(str(target / "model.safetensors"), weights, metadata={"format": "mlx"})
    edit_json(target / "config.json", lambda config: config.update(quantization=quantization))
    return target
