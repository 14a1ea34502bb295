"""``burtorch.autograd``: names that code written for autograd reads, and the order of flattened dicts."""

from __future__ import annotations

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import burtorch.autograd as ag  # noqa: E402
from burtorch.autograd.misc.flatten import flatten  # noqa: E402
from burtorch.autograd.misc.optimizers import sgd  # noqa: E402

READS = {
    "autograd": [
        "numpy.linalg.norm", "numpy.random.randn", "numpy.fft.fft", "scipy.stats.norm.logpdf", "scipy.special.erf",
        "misc.optimizers.adam", "extend.defvjp", "test_util.check_grads", "builtins.isinstance", "primitive", "dict",
        "isinstance", "list", "tuple", "type",
    ],
    "autograd.scipy": ["special.erf", "signal.convolve", "integrate.odeint", "stats.t.pdf"],
    "autograd.scipy.stats": ["norm.logpdf", "t.pdf", "multivariate_normal.logpdf"],
    "autograd.misc": ["flatten", "optimizers.adam", "fixed_points.fixed_point"],
}  # fmt: skip


@pytest.mark.parametrize("imported", READS)
def test_submodules_are_attributes_of_their_packages(imported):
    # In an interpreter of its own, as modules that were imported before are attributes of their packages.
    program = "\n".join([f"import burtorch.{imported} as m", *(f"m.{name}" for name in READS[imported])])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"module 'burtorch.autograd' has no attribute 'nunpy'"):
        ag.nunpy  # noqa: B018
    assert not hasattr(ag.scipy.stats, "norn")


def test_dicts_are_flattened_by_sorted_keys():
    nest = {"b": 1.0, "a": [2.0, {"z": np.array([3.0, 4.0]), "c": 5.0}]}
    row, unflatten = flatten(nest)
    assert row.tolist() == [2.0, 5.0, 3.0, 4.0, 1.0]
    back = unflatten(row)
    assert list(back) == ["b", "a"]
    assert back["a"][1]["z"].tolist() == [3.0, 4.0]
    assert (back["b"], back["a"][0], back["a"][1]["c"]) == (1.0, 2.0, 5.0)
    assert flatten({"a": nest["a"], "b": 1.0})[0].tolist() == row.tolist()
    gradient = ag.grad(lambda p: flatten(p)[0] @ np.arange(5.0))(nest)
    assert (gradient["b"], gradient["a"][0], gradient["a"][1]["c"]) == (4.0, 0.0, 1.0)


def test_optimizers_take_gradients_in_another_order():
    found = sgd(lambda p, _: {"b": 0.0 * p["b"], "a": 2.0 * p["a"]}, {"a": np.ones(2), "b": 5.0}, num_iters=3, mass=0.0)
    assert found["b"] == 5.0
    np.testing.assert_allclose(found["a"], np.full(2, 0.8**3))
