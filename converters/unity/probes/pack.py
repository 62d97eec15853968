"""Writing the probes: a model each, with fixtures, and the index that says what each of them asks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from converters.facts import facts
from converters.ort_session import open_session
from converters.unity.parity_inputs import NAME, HarnessModel, write_parity_inputs
from converters.unity.probes.from_pattern import model_of_pattern
from converters.unity.probes.table import Probe, table
from weights_bridge.compare import Array
from weights_bridge.files import folder_written_whole, sha256_of, write_json

FOLDER = "Probes~"
SCHEMA = "mlx-sentis/probes/1"
SIDE_FILE = "class-d.bin"
INTEGERS = (np.int64, np.int32)
OF_POSITIVE = ("Rsqrt",)  # patterns that have no number below 0
POSITIVE = np.linspace(0.1, 9, 16).reshape(2, 8)


@dataclass(frozen=True)
class Made:
    """A probe that is a model now.

    Attributes:
        probe: what it asks.
        model: its graph.
    """

    probe: Probe
    model: onnx.ModelProto


def probes_of(sentis: str) -> Iterator[Made]:
    """Yield every probe: classes, fusions and dropped attributes of a version's facts.

    Args:
        sentis: the version; a package of another one is measured with the same probes.
    """
    for probe in table()[0]:
        yield Made(probe, _parsed(probe.inputs, probe.init, probe.body, probe.output, probe.opset))
    for fusion in facts(sentis)["fusions"]:
        if pattern := fusion.get("match"):
            asks = f"what becomes of {fusion['pattern']}"
            values = {"positive": {"x": POSITIVE}} if fusion["name"] in OF_POSITIVE else {}
            yield Made(Probe("fusion", fusion["name"], asks, pattern, values=values), model_of_pattern(pattern))


def _parsed(inputs: str, init: str, body: str, output: str, opset: int) -> onnx.ModelProto:
    opsets = f'"" : {opset}' + (', "com.microsoft" : 1' if "com.microsoft" in body else "")
    head = f"<ir_version: 10, opset_import: [{opsets}]>"
    held = f"<{init}>" if init else ""
    model = onnx.parser.parse_model(f"{head} probe ({inputs}) => ({output}) {held} {{ {body} }}")
    for tensor in model.graph.initializer:  # raw data, as exporters write them
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    return model


def reference_of(made: Made) -> onnx.ModelProto:
    """Return the model that says what a probe should compute: mostly the probe itself."""
    probe = made.probe
    if not probe.reference:
        return made.model
    return _parsed(probe.inputs, probe.reference["init"], probe.reference["body"], probe.output, 15)


def write_probes(folder: Path, sentis: str) -> dict[str, Any]:
    """Write the pack, the whole folder or nothing.

    Each probe is `<name>.onnx`; its fixtures are `<name>--<fixture>.npz` with what ONNX Runtime computes, where it can,
    and raw bytes for the harness.

    Args:
        folder: `Probes~` of a kit; replaced.
        sentis: the version whose facts say what to ask.

    Returns:
        `probes`, how many there are, and `kinds`, how many of each kind.

    Raises:
        StageError: no facts for the version, or the folder cannot be written.
    """
    made = list(probes_of(sentis))
    kinds = {kind: sum(one.probe.kind == kind for one in made) for kind in ("class", "fusion", "attribute")}
    with folder_written_whole(folder) as new:
        models, rows = [], []
        for one in made:
            models.append(_write(new, one))
            rows.append(_row(new, one, models[-1]))
        write_parity_inputs(new / "inputs", models, sentis)
        write_json(
            new / "probes.json", {"schema": SCHEMA, "sentis": sentis, "fixtures": f"inputs/{NAME}", "probes": rows}
        )
    return {"probes": len(made), "kinds": kinds}


def _write(new: Path, made: Made) -> HarnessModel:
    path = new / f"{made.probe.name}.onnx"
    sides = _spread(new, made.model) if made.probe.of == "D" else []
    onnx.save(made.model, path)
    return HarnessModel(f"../{path.name}", sha256_of(path), inputs_of(made), sides)


def _spread(new: Path, model: onnx.ModelProto) -> list[str]:
    """Move initialisers to a side file, the second in front: a reader that ignores offsets takes one for the other."""
    tensors = list(model.graph.initializer)
    data = {tensor.name: tensor.raw_data for tensor in tensors}
    place = 0
    with (new / SIDE_FILE).open("wb") as file:
        for tensor in reversed(tensors):
            file.write(data[tensor.name])
            entries = {"location": SIDE_FILE, "offset": str(place), "length": str(len(data[tensor.name]))}
            place += len(data[tensor.name])
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
    return [SIDE_FILE]


def inputs_of(made: Made) -> dict[str, dict[str, Array]]:
    """Return fixture name to inputs; numbers are drawn from the probe's name, so they are always the same."""
    fixtures = {}
    for name in made.probe.values or ("drawn",):
        given = made.probe.values.get(name, {})
        numbers = np.random.default_rng(zlib.crc32(made.probe.name.encode()))
        fixtures[name] = {
            value.name: np.asarray(given[value.name], kind) if value.name in given else _drawn(numbers, kind, shape)
            for value, kind, shape in map(_typed, made.model.graph.input)
        }
    return fixtures


def _typed(value: onnx.ValueInfoProto) -> tuple[onnx.ValueInfoProto, np.dtype[Any], list[int]]:
    tensor = value.type.tensor_type
    kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return value, kind, [dimension.dim_value for dimension in tensor.shape.dim]


def _drawn(numbers: np.random.Generator, kind: np.dtype[Any], shape: list[int]) -> Array:
    """Return numbers of both signs, some of them equal where they are whole; none is 0, which a divisor may not be."""
    if kind == np.bool_:
        return numbers.random(shape) > 0.5
    if kind in INTEGERS:
        return (numbers.integers(1, 4, shape) * numbers.choice([-1, 1], shape)).astype(kind)
    return numbers.standard_normal(shape).astype(kind) * 2


def _row(new: Path, made: Made, model: HarnessModel) -> dict[str, Any]:
    """Write what ONNX Runtime computes of a probe, and return the probe's entry in the index."""
    probe = made.probe
    files, why = [], ""
    try:
        source = reference_of(made).SerializeToString() if probe.reference else new / f"{probe.name}.onnx"
        session = open_session(source, "off")
        names = [value.name for value in session.get_outputs()]
        for fixture, inputs in model.fixtures.items():
            outputs = dict(zip(names, session.run(names, dict(inputs)), strict=True))
            tensors = {f"in::{key}": array for key, array in inputs.items()}
            tensors |= {f"out::{key}": np.asarray(array) for key, array in outputs.items()}
            files.append(f"{probe.name}--{fixture}.npz")
            np.savez(new / files[-1], **tensors)  # pyright: ignore[reportArgumentType]
    except Exception as error:  # ONNX Runtime's errors share no base class
        why = str(error).strip().splitlines()[0].replace(f"{new}/", "")
    facts_of = {
        "name": probe.name,
        "kind": probe.kind,
        "of": probe.of,
        "asks": probe.asks,
        "model": f"{probe.name}.onnx",
    }
    return facts_of | {"fixtures": files, "no_reference": why}
