"""The BLAS under MLX: which one, whether its products are right, and what is said when it is too late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlx_sentis import blas
from parity.children import environment

ROOT = Path(__file__).parents[2]


def fresh(code: str) -> str:
    """Run code in a new process and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_fast_blas_is_found_where_torch_is_installed() -> None:
    found = blas.activate()
    assert found.is_fast
    assert found.name in ("torch", "openblas", "accelerate")


def test_the_products_of_the_interposed_blas_are_right() -> None:
    """Within γ_k |a|·|b|, γ_k = k u / (1 − k u), whatever the order of the k sums (Higham 2002, Accuracy and Stability
    of Numerical Algorithms, 3.5): kernels for other processors sum in other orders."""
    import mlx.core as mx

    a, b = (np.random.default_rng(s).standard_normal((300, 257)).astype(np.float32) for s in (0, 1))
    for left, right in ((a, b.T), (a.T, b), (a[:1], b.T), (a[:, :1], b[:, :1].T)):
        with mx.stream(mx.cpu):
            got = np.array(mx.array(left) @ mx.array(right))
        wide = left.astype(np.float64), right.astype(np.float64)
        rounded = left.shape[1] * 2.0**-24
        bound = rounded / (1 - rounded) * (np.abs(wide[0]) @ np.abs(wide[1]))
        assert (np.abs(got - wide[0] @ wide[1]) <= bound).all()


def test_threads_spin_a_little_unless_the_user_has_said_how_they_wait() -> None:
    assert blas.waiting({}) == {"GOMP_SPINCOUNT": "2000"}
    assert blas.waiting({"OMP_WAIT_POLICY": "ACTIVE"}) == blas.waiting({"GOMP_SPINCOUNT": "7"}) == {}


def test_operations_are_put_in_order_widely_unless_the_user_has_said_so() -> None:
    code = "import os; from mlx_sentis import blas; blas.activate(); print(os.environ.get('MLX_BFS_MAX_WIDTH'))"
    assert fresh(code) == ("None" if sys.platform == "darwin" else "1000000")  # Metal keeps MLX's own order
    assert fresh("import os; os.environ['MLX_BFS_MAX_WIDTH'] = '7'; " + code) == "7"


def test_children_get_huge_pages_unless_the_user_has_set_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    spinning, pages = {"GOMP_SPINCOUNT": "2000"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    monkeypatch.setattr(sys, "platform", "linux")
    assert blas.for_children({}) == spinning | pages
    assert blas.for_children({"GLIBC_TUNABLES": "glibc.malloc.check=1"}) == spinning
    monkeypatch.setattr(sys, "platform", "darwin")
    assert blas.for_children({}) == spinning


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's own file says which pages a process has")
def test_a_child_s_arrays_lie_in_huge_pages() -> None:
    """Read from the kernel: VmFlags has `hg` where madvise asked for huge pages."""
    code = (
        "import mlx.core as mx; kept = mx.zeros((64, 1024, 1024)); mx.eval(kept); "
        "print(open('/proc/self/smaps').read().count(' hg'))"
    )
    command = [sys.executable, "-c", code]
    plain, tuned = (
        int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
        for env in ({**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, environment())
    )
    assert plain == 0
    assert tuned > 0


def test_after_mlx_is_imported_it_is_too_late_and_said_so() -> None:
    code = "import mlx.core; from mlx_sentis.blas import activate; print(activate())"
    name = "accelerate" if sys.platform == "darwin" else "reference"  # macOS needs nothing of this
    assert fresh(code) == f"Blas(name='{name}', library='')"


def test_the_training_package_activates_it_without_importing_torch() -> None:
    code = (
        "import sys, json; from mlx_sentis.training import BLAS, definitions; "
        "print(json.dumps([BLAS.name, 'torch' in sys.modules, 'mlx.core' in sys.modules]))"
    )
    name, torch, mlx = json.loads(fresh(code))
    assert name in ("torch", "openblas", "accelerate")
    assert (torch, mlx) == (False, True)


def test_doctor_measures_the_fast_blas_and_not_the_reference() -> None:
    # an import of MLX before the BLAS would say "reference"
    answer = json.loads(fresh("import sys; sys.argv = ['m', 'doctor', '--json']; import cli; cli.main()"))
    assert answer["schema"] == "mlx-sentis/doctor/1"
    assert answer["blas"]["fast"] is True
    assert answer["gflops_1024"]["mlx"] > 0
    assert answer["advice"] == [] or "GB free" in answer["advice"][0]


def test_without_a_library_the_reference_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    monkeypatch.setattr(blas, "_candidates", lambda: [("openblas", "libnowhere.so.0")])
    found = blas.activate.__wrapped__()
    assert (found.name, found.is_fast) == ("reference", False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert blas.activate.__wrapped__().name == "accelerate"


def test_the_blas_in_use_can_be_told_its_threads() -> None:
    assert blas.set_threads(1) == bool(blas.activate().library)
    assert blas.usable_cores() >= 1
