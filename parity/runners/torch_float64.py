"""float64 all the way: what transformers' classes take in float32 whatever the weights' dtype is.

Norms, softmax and rotary angles are cast to float32 by name in these classes, so that a model loaded in float64 still
carries float32's rounding. Inside `widened()` every request for float32 is one for float64. Constants of the model that
were made in float32 before (inverse frequencies) keep the values they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Widened(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wide = [torch.float64 if value is torch.float32 else value for value in args]
        named = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return func(*wide, **named)


@contextmanager
def widened() -> Iterator[None]:
    """Let whatever asks for float32 in this thread have float64."""
    with _Widened():
        yield
