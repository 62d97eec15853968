"""What goes to Unity and what comes back: the schemas of both sides, and the hash that ties a dump to its fixture.

The parity harness of the Unity kit reads `fixtures.json` and writes `dump.json`; docs/sentis-dump.md has both formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from weights_bridge.compare import Array

FIXTURES_SCHEMA = "mlx-sentis/sentis-fixtures/1"
DUMP_SCHEMA = "mlx-sentis/sentis-dump/1"
BACKENDS = ("CPU", "GPUCompute")


def input_order(names: Mapping[str, object]) -> list[str]:
    """Return input names in the order in which they are listed and hashed: that of their UTF-8 bytes."""
    return sorted(names, key=lambda name: name.encode())


def raw_bytes(array: Array) -> bytes:
    """Return an array's elements little-endian, the last axis fastest."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def header(name: str, array: Array) -> str:
    """Return the line that stands before a tensor's bytes in the hash: name, numpy's type name, sizes."""
    return f"{name} {array.dtype.name} {','.join(map(str, array.shape))}\n"


def fixture_sha256(inputs: Mapping[str, Array]) -> str:
    """Return the SHA-256 by which a dump names the inputs that were run.

    It is taken over the inputs in `input_order`: of each its `header` in UTF-8, then its `raw_bytes`. So it does not
    hang on the order in a file, and another type, shape or name is another fixture.

    Args:
        inputs: input name to array, as the fixture has them (int64 stays int64).
    """
    digest = hashlib.sha256()
    for name in input_order(inputs):
        digest.update(header(name, inputs[name]).encode())
        digest.update(raw_bytes(inputs[name]))
    return digest.hexdigest()
