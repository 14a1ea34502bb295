"""``burtorch.autograd``: names that code written for autograd reads, constant results, computed positions, and the
order of flattened dicts."""

from __future__ import annotations

import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

import burtorch as bt  # noqa: E402
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


X = np.array([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    "body", [lambda _: np.ones(3), lambda _: 2.0, lambda _: 2, lambda _: np.arange(3), lambda x: np.imag(x), np.sign]
)
def test_derivatives_of_constants_are_zeros(body):
    assert ag.elementwise_grad(body)(X).tolist() == [0.0] * 3
    assert ag.elementwise_grad(ag.elementwise_grad(body))(X).tolist() == [0.0] * 3


@pytest.mark.parametrize("constant", [1, 1.5, np.ones(1), np.ones((1, 1)), np.array(2), np.float64(2.0)])
def test_gradients_of_constant_numbers_are_zeros(constant):
    assert ag.grad(lambda _: constant)(X).tolist() == [0.0] * 3
    assert ag.value_and_grad(lambda _: constant)(X)[0] == constant


@pytest.mark.parametrize(
    "places",
    [lambda x: np.where(x > 0), lambda x: np.nonzero(x > 0), lambda x: np.flatnonzero(x > 0), lambda x: np.nonzero(
        np.maximum(x, 0.0)), lambda x: np.argwhere(x > 0)[:, 0]],
)  # fmt: skip
def test_computed_positions_are_indices(places):
    assert ag.grad(lambda x: (x[places(x)] ** 2).sum())(X).tolist() == [2.0, 0.0, 6.0]
    assert ag.hessian(lambda x: (x[places(x)] ** 2).sum())(X).tolist() == np.diag([2.0, 0.0, 2.0]).tolist()
    # A program that is kept has no numbers to decide on.
    with pytest.raises(TypeError, match="depends on numbers"):
        bt.grad(lambda x: (x[places(x)] ** 2).sum())(X)


def test_functions_of_autograd_alone():
    matrices = ag.numpy.make_diagonal(np.arange(6.0).reshape(2, 3), axis1=-1, axis2=-2)
    assert matrices.tolist() == [np.diag([0.0, 1.0, 2.0]).tolist(), np.diag([3.0, 4.0, 5.0]).tolist()]
    weights = np.arange(9.0).reshape(3, 3)
    gradient = ag.grad(lambda x: (ag.numpy.make_diagonal(x, axis1=-1, axis2=-2) * weights).sum())(X)
    assert gradient.tolist() == [0.0, 4.0, 8.0]
    with pytest.raises(NotImplementedError, match="axis1=-1"):
        ag.numpy.make_diagonal(X)
    assert ag.numpy.concatenate_args(0, X, X[:1]).tolist() == [1.0, -2.0, 3.0, 1.0]
    assert ag.grad(lambda x: ag.numpy.concatenate_args(0, x, x) @ np.arange(6.0))(X).tolist() == [3.0, 5.0, 7.0]
