from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

from converters.passes.fourier import dft_matrix


@pytest.mark.parametrize("parts, given", [
    *((parts, given) for parts in (1, 2) for given in ("", "<inverse=1>", "<axis=2>")),
    *((1, given) for given in ("<onesided=1>", "<axis=1, onesided=1>")),  # one-sided is of real input only
])  # fmt: skip
def test_a_dft_before_opset_20_is_a_product(mended, parts, given):
    tried = mended("fourier", graph(f"y = DFT{given}(x)", f"float[2,8,6,{parts}] x", 17))
    assert tried.before == ["DFT.NO_AXIS_INPUT"] and tried.operators.count("MatMul") == 1


@pytest.mark.parametrize("length", [4, 8, 16])
def test_a_dft_of_another_length_than_its_axis(mended, length):
    mended("fourier", graph("y = DFT(x, n)", "float[2,8,1] x", 17, init=f"int64 n = {{{length}}}"))


def test_a_dft_without_an_axis_input(mended):
    tried = mended("fourier", graph("y = DFT(x)", 'float["b",8,4,1] x', 20))
    assert "DFT" not in tried.operators


@pytest.mark.parametrize("parts, inverse, onesided, count", [
    (1, False, False, 8), (2, False, False, 12), (2, True, False, 5), (1, False, True, 9),
])  # fmt: skip
def test_the_matrix_is_that_of_numpy(parts, inverse, onesided, count):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 8, parts))
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    wanted = np.fft.ifft(signal, count) if inverse else np.fft.fft(signal, count)
    wanted = wanted[:, : count // 2 + 1] if onesided else wanted
    made = x.reshape(3, -1) @ dft_matrix(8, count, parts, inverse=inverse, onesided=onesided)
    np.testing.assert_allclose(made.reshape(3, -1, 2)[..., 0], wanted.real, atol=1e-12)
    np.testing.assert_allclose(made.reshape(3, -1, 2)[..., 1], wanted.imag, atol=1e-12)


@pytest.mark.parametrize("body, inputs, finding", [
    ("y = STFT(x, s, w, n)", "float[2,64,1] x", "STFT.ONESIDED"),
    ("y = STFT<onesided=0>(x, s, w)", "float[2,64,1] x", "STFT.NO_FRAME_LENGTH"),
    ("y = STFT<onesided=0>(x, s, w, n)", "float[2,64] x", "STFT.RANK2"),
    ("y = STFT(x, s, , n)", 'float["b","t",1] x', "STFT.ONESIDED"),
])  # fmt: skip
def test_an_stft_is_one_convolution(mended, body, inputs, finding):
    window = ", ".join(f"{one:.6f}" for one in np.hanning(16))
    init = f"int64 s = {{8}}, int64 n = {{16}}, float[16] w = {{{window}}}"
    if ", , n" in body:
        init = "int64 s = {8}, int64 n = {16}"
    elif ", w)" in body:
        init = init.replace("int64 n = {16}, ", "")
    x = np.random.default_rng(0).standard_normal((2, 64, 1) if inputs.count(",") == 2 or "b" in inputs else (2, 64))
    tried = mended("fourier", graph(body, inputs, 17, init=init), inputs={"x": x.astype(np.float32)})
    assert finding in tried.before and tried.operators.count("Conv") == 1


@pytest.mark.parametrize("body, inputs, reason", [
    ("y = DFT(x)", 'float[2,"t",1] x', "not known"),
    ("y = STFT(x, s, , n)", "float[2,64,2] x, int64 s, int64 n", "complex"),
    ("y = STFT(x, s, , n)", "float[2,64,1] x, int64 s, int64 n", "no constant"),
    ("y = DFT(x)", "float[2,20000,1] x", "a matrix of"),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("fourier", graph(body, inputs, 17))
