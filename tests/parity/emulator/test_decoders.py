"""Exported decoders under the emulator: prefill and steps on a cache, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from exports import Exported

from parity.emulator.emulation import Emulation
from parity.runners.decoder_io import prefill_inputs
from parity.runners.sentis import onnx_outputs
from weights_bridge.compare import psnr_db

BUDGET_DB = 100.0


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_prefill_and_a_step_on_its_cache_are_onnx_runtimes(exported: Callable[..., Exported], name: str):
    toy = exported(name)
    emulation = Emulation(toy.onnx)
    caches = toy.empty_caches()
    for past, ids in ((0, [5, 9, 7, 3]), (4, [11])):
        inputs = prefill_inputs(ids, past, toy.contract) | caches
        found, wanted = emulation.predict(inputs), onnx_outputs(toy.onnx, inputs)
        assert found.verdict == "predicted", found.reason
        assert not found.deviations
        assert set(found.outputs) == set(wanted)
        assert all(psnr_db(wanted[key], found.outputs[key]) > BUDGET_DB for key in wanted)
        caches = {key.replace("present", "past_key_values"): found.outputs[key] for key in wanted if "present" in key}
    assert not any(np.isnan(array).any() for array in found.outputs.values())
