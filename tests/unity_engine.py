"""What stands for Sentis where the kit's code runs under Mono: ONNX Runtime, asked over the program's pipes.

So the C# loop drives a real graph, and the harness dumps what a real runtime computed: only the API is a stub.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnxruntime as ort
from unity_kit import MONOS_OWN

Array = np.ndarray[Any, Any]
KINDS = {"float": np.float32, "int": np.int32}


def _quiet_options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return options


@dataclass
class Engine:
    """Answers one program.

    Attributes:
        warnings: file name to what the import says of it.
        runs: file name and inputs of every run, as they came.
        change: what becomes of the outputs before they are handed over.
    """

    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    runs: list[tuple[str, dict[str, Array]]] = field(default_factory=list)
    change: Callable[[dict[str, Array]], dict[str, Array]] = lambda outputs: outputs
    sessions: dict[str, ort.InferenceSession] = field(default_factory=dict)
    options: ort.SessionOptions = field(default_factory=_quiet_options)

    def ran(self, command: Sequence[object], project: Path, **environment: str) -> tuple[int, list[str]]:
        """Run a program to its end and return its exit code and what it said on stderr, line by line."""
        known = {**os.environ, "STUB_PROJECT": str(project), **environment}
        words = [str(word) for word in command]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=known
        ) as child:
            assert child.stdin and child.stdout and child.stderr
            while line := child.stdout.readline().decode():
                if not line.startswith(MONOS_OWN):
                    self._answer(line.rstrip("\n"), child.stdout, child.stdin)
                    child.stdin.flush()
            said = child.stderr.read().decode()
        return child.returncode, said.splitlines()

    def _answer(self, question: str, came: IO[bytes], goes: IO[bytes]) -> None:
        word, _, rest = question.partition(" ")
        if word == "run":
            count, _, handle = rest.partition(" ")
            self._run(handle, int(count), came, goes)
            return
        lines = self._imported(rest) if word == "import" else self._described(rest)
        goes.write("".join(f"{line}\n" for line in (str(len(lines)), *lines)).encode())

    def _imported(self, path: str) -> list[str]:
        said = [f"warning {text}" for text in self.warnings.get(Path(path).name, ())]
        try:
            self.sessions[path] = ort.InferenceSession(path, self.options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors share no base class
            said.append(f"error {str(error).splitlines()[0]}")
        return said

    def _described(self, path: str) -> list[str]:
        session = self.sessions[path]
        lines = []
        for value in session.get_inputs():
            sizes = ",".join(str(size) if isinstance(size, int) else "-1" for size in value.shape)
            lines.append(
                f"input {value.name} {'float' if 'float' in value.type or 'double' in value.type else 'int'} {sizes}"
            )
        return lines + [f"output {value.name}" for value in session.get_outputs()]

    def _run(self, handle: str, count: int, came: IO[bytes], goes: IO[bytes]) -> None:
        given: dict[str, Array] = {}
        for _ in range(count):
            name, kind, length, sizes = came.readline().decode().rstrip("\n").split(" ")
            shape = [int(size) for size in sizes.split(",") if size]
            given[name] = np.frombuffer(came.read(int(length)), KINDS[kind]).reshape(shape)
        self.runs.append((Path(handle).name, given))
        session = self.sessions[handle]
        types = {value.name: _numpy_type(value.type) for value in session.get_inputs()}
        try:
            names = [value.name for value in session.get_outputs()]
            found = session.run(names, {name: array.astype(types[name]) for name, array in given.items()})
        except Exception as error:
            goes.write(f"error {str(error).splitlines()[0]}\n".encode())
            return
        outputs = self.change({name: sentis_typed(array) for name, array in zip(names, found, strict=True)})
        goes.write(f"{len(outputs)}\n".encode())
        for name, array in outputs.items():
            kind = "float" if array.dtype == np.float32 else "int"
            goes.write(f"{name} {kind} {array.nbytes} {','.join(map(str, array.shape))}\n".encode() + array.tobytes())


def sentis_typed(array: Array) -> Array:
    """Return an array as Sentis has it: float32, or int32 with what is larger saturated."""
    if array.dtype.kind == "f":
        return np.asarray(array, np.float32, order="C")
    bounds = np.iinfo(np.int32)
    return np.asarray(np.clip(array.astype(np.int64), bounds.min, bounds.max), np.int32, order="C")


def _numpy_type(name: str) -> Any:
    return {
        "tensor(float)": np.float32,
        "tensor(double)": np.float64,
        "tensor(float16)": np.float16,
        "tensor(int64)": np.int64,
        "tensor(int32)": np.int32,
        "tensor(bool)": np.bool_,
        "tensor(uint8)": np.uint8,
        "tensor(int8)": np.int8,
    }[name]
