"""What exports are asked."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def prompt() -> np.ndarray:
    """70 token ids [1, 70]: twice the toy Gemma's window of 32 and more."""
    return np.random.default_rng(0).integers(6, 300, (1, 70))
