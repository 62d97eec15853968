"""The decoders that `test_export` leaves out: a toy export of each takes ten seconds."""

from __future__ import annotations

import pytest

from weights_bridge.compare import psnr_db

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_type", ["mistral"])
def test_logits_equal_transformers_beyond_100_db(exported, reference_logits, prompt, model_type):
    made = exported(model_type)
    wanted = reference_logits(made.model, prompt)
    assert psnr_db(wanted, made.logits(prompt, [70], "all")) > 100
    assert psnr_db(wanted, made.logits(prompt, [29, 1, 1, 1, 1, 20, 1, 1, 15])) > 100
