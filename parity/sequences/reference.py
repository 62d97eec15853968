"""The full reference of a sequence: recorded, or computed by a TorchScript module over the whole signal."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from parity.fixtures import read_fixture
from parity.sequences.signal import read_wav
from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of, write_json, written_whole
from weights_bridge.run_folder import versions

RECORD_SCHEMA = "mlx-sentis/sequence-record/1"


def load_reference(spec: SequenceSpec, outputs: tuple[str, ...]) -> tuple[Array, dict[str, Array]]:
    """Return the signal and what the full model says of it, step by step.

    Args:
        spec: names the reference file, and the WAV file where the reference is TorchScript.
        outputs: the graph's outputs that are compared; TorchScript gives exactly one.

    Returns:
        The signal, and output name to [steps, …].

    Raises:
        StageError: a file is missing or no reference, or it cannot be run on the signal.
    """
    assert spec.reference is not None
    if spec.reference.suffix == ".npz":
        inputs, found = read_fixture(spec.reference)
        _check_passport(spec.reference)
        if list(inputs) != ["signal"]:
            named = ", ".join(sorted(inputs))
            raise StageError(f"{spec.reference}: found in::{named}, wanted in::signal", hint="record it with --record")
        if bare := [name for name, array in found.items() if array.ndim == 0]:
            what = f"{spec.reference}: out::{bare[0]} is one number, wanted its steps in front"
            raise StageError(what, hint="record it with --record")
        return inputs["signal"], found
    if spec.signal is None:
        raise StageError(f"{spec.path}: signal.file: missing", hint="a TorchScript reference needs a WAV file")
    signal = read_wav(spec.signal, spec.rate)
    if len(outputs) != 1:
        hint = "name the one it computes under outputs"
        raise StageError(f"{spec.path}: TorchScript gives one output, the graph {len(outputs)}", hint=hint)
    return signal, {outputs[0]: run_torchscript(spec, signal)}


def _check_passport(reference: Path) -> None:
    """Refuse a recorded reference that is not the one its passport was made for; without one nothing is known."""
    passport = reference.with_suffix(".json")
    if not passport.is_file():
        return
    found = read_json(passport)
    recorded = found.get("sha256") if isinstance(found, dict) and found.get("schema") == RECORD_SCHEMA else None
    if recorded is not None and recorded != (now := sha256_of(reference)):
        what = f"{reference}: sha256 found {now[:12]}…, {passport.name} says {recorded[:12]}…"
        raise StageError(what, hint="record it again with --record, or bring back the file")


def run_torchscript(spec: SequenceSpec, signal: Array) -> Array:
    """Run the whole signal through a TorchScript module's own method, steps in front.

    Raises:
        StageError: no such file or method, or it refuses the signal.
    """
    import torch

    assert spec.reference is not None
    if not spec.reference.is_file():
        raise StageError(f"{spec.reference}: no such file", hint="reference.file lies beside the sequence file")
    try:
        with warnings.catch_warnings():  # torch deprecates TorchScript; models that are published in it remain
            warnings.simplefilter("ignore")
            module: Any = torch.jit.load(str(spec.reference), map_location="cpu").eval()
            method = getattr(module, spec.method)
            with torch.no_grad():
                found = method(torch.from_numpy(np.ascontiguousarray(signal)), *spec.arguments)
    except AttributeError:
        hint = "name one of its methods under reference.method"
        raise StageError(f"{spec.reference}: no method {spec.method!r}", hint=hint) from None
    except (RuntimeError, ValueError) as error:
        last = str(error).strip().splitlines()[-1]
        hint = "reference.method is called with the signal and reference.arguments"
        raise StageError(f"{spec.reference}: {spec.method} fails on the signal: {last}", hint=hint) from None
    if not isinstance(found, torch.Tensor) or not -found.dim() <= spec.reference_axis < found.dim():
        what = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        hint = "reference.axis is the axis of the steps"
        raise StageError(f"{spec.reference}: {spec.method} returns {what}, no tensor with steps", hint=hint)
    return np.moveaxis(found.numpy(), spec.reference_axis, 0)


def record(spec: SequenceSpec, output: str, target: Path) -> dict[str, Any]:
    """Record signal and reference into one file, and beside it how it was made.

    Args:
        spec: with a TorchScript reference and a WAV file.
        output: the graph's output that the reference stands for.
        target: the `.npz`; `<name>.json` beside it says what it was made of.

    Raises:
        StageError: the reference is recorded already, or cannot be run.
    """
    assert spec.reference is not None
    if spec.reference.suffix == ".npz":
        raise StageError(
            f"{spec.reference}: recorded already", hint="give a sequence file with a TorchScript reference"
        )
    signal, found = load_reference(spec, (output,))
    with written_whole(target) as beside, beside.open("wb") as file:
        tensors = {"in::signal": signal, f"out::{output}": found[output]}
        np.savez_compressed(file, **tensors)  # pyright: ignore[reportArgumentType]
    passport = {
        "schema": RECORD_SCHEMA,
        "output": output,
        "steps": int(found[output].shape[0]),
        "values": int(signal.size),
        "rate": spec.rate,
        "signal": {
            "file": spec.signal.name if spec.signal else None,
            "sha256": sha256_of(spec.signal) if spec.signal else None,
        },
        "reference": {
            "file": spec.reference.name,
            "sha256": sha256_of(spec.reference),
            "method": spec.method,
            "arguments": list(spec.arguments),
        },
        "sha256": sha256_of(target),
        "made": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(),
    }
    write_json(target.with_suffix(".json"), passport)
    return passport
