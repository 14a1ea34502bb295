"""A wrong argument is one clear error that names what was found and what is expected, in the caller's words."""

from __future__ import annotations

import copy
import inspect
import re

import pytest

import burtorch as bt
from burtorch import autograd, opt

np = pytest.importorskip("numpy")

V = [bt.Value(1.0), bt.Value(3.0)]
A = np.array([[1.0, 2.0], [3.0, 4.0]])
PROBLEM = opt.least_squares(np.eye(3), np.ones(3))

CALLS = {
    **{
        f"where() takes a bool, a number, a Value or an array of them as its condition, found {kind.__name__}": [
            lambda kind=kind, a=a: bt.where(kind(), a, 2.0) for a in (1.0, V[0], bt.Vector([1.0]), bt.array([1.0]))
        ]
        for kind in (str, bytes, dict, set, frozenset)
    },
    "where() takes a bool": [lambda: bt.where("False", *V), lambda: bt.where("a", 1.0, 2.0)],
    "concatenate() takes a sequence of arrays, found int": [lambda: bt.concatenate(3)],
    "fn must be callable, found int": [lambda: bt.parallel(3, [1]), lambda: bt.parallel(3, [])],
    "threads must be an int, found str": [lambda: bt.parallel(bt.sin, [1.0], threads="2")],
    "epsilon must be at least 0, found -1": [lambda: bt.layer_norm(np.ones(3), epsilon=-1)],
    "epsilon must be at least 0, found nan": [lambda: bt.layer_norm(bt.array([1.0]), epsilon=float("nan"))],
    "targets must have one number per row of features, found 2 for 3 rows": [
        lambda: opt.least_squares(np.eye(3), np.ones(2)),
        lambda: opt.robust_regression(np.eye(3).tolist(), [1, 0]),
    ],
    "labels must have one number per row of features, found 2 for 3 rows": [
        lambda: opt.logistic_regression(np.eye(3), [1, -1]),
        lambda: opt.softmax_regression(np.eye(3), [0, 1]),
        lambda: opt.logistic_regression(([0, 1, 1, 1], [0], [1.0], 2), [1, -1]),
    ],
    "EF21() needs compressor=, such as bt.compress.TopK(8)": [
        lambda: opt.EF21(PROBLEM),
        lambda: opt.EF21(PROBLEM, None),
    ],
    "EF21PP() needs cohort=, such as bt.opt.Nice(8)": [lambda: opt.EF21PP(PROBLEM, compressor=bt.compress.TopK(1))],
    "FedBuff() needs delays=, such as bt.opt.Delays([1.0, 2.0])": [lambda: opt.FedBuff(problem=PROBLEM)],
    "GD() needs problem=": [lambda: opt.GD(step=0.1)],
    "argnum 5 needs an argument of this index, found 1 arguments": [
        lambda: autograd.grad(lambda x: x, 5)(1.0),
        lambda: autograd.grad(lambda x: x, (0, 5))(1.0),
        lambda: autograd.make_vjp(lambda x: x, 5)(1.0),
        lambda: autograd.deriv(lambda x: x, 5)(1.0),
        lambda: autograd.make_jvp(lambda x: x, 5)(1.0)(1.0),
        lambda: autograd.hessian_vector_product(lambda x: x, 5)(1.0, 1.0),
    ],
    **{
        f"{name}() takes an Array, numbers or an array of numbers, found str": [
            lambda name=name: getattr(bt, name)("abc")
        ]
        for name in ("sum", "prod", "std", "var", "cumsum", "cumprod")
    },
    **{
        f"{name}() does not take lists of Values; use an Array": [
            lambda name=name: getattr(bt, name)(V, 50.0 * (name[0] == "p"))
        ]
        for name in ("quantile", "percentile")
    },
}

PARAMS = bt.Parameters()
LAYER = bt.nn.Linear(PARAMS, 2, 1)
ORACLE = bt.Oracle(LAYER, loss="mse")
BATCH = [[1.0, 2.0]], [[1.0]]
CALLS |= {
    "index 99 is outside the 3 parameters, expected 0 to 2": [
        lambda: PARAMS.freeze([99]),
        lambda: PARAMS.subset([0, 99]),
        lambda: ORACLE(*BATCH, wanted=np.array([99])),
    ],
    "an oracle (its parameters, and the point) expects operands of equal length, found 3 and 2": [
        lambda: ORACLE(*BATCH, at=np.ones(2, "float32"))
    ],
    "an oracle (its parameters, and memory for their gradient) expects operands of equal length, found 3 and 2": [
        lambda: ORACLE(*BATCH, out=np.ones(2, "float32"))
    ],
    "expected a model or a callable model(x, y), found int": [lambda: bt.Oracle(3), lambda: bt.memory(3)],
    "expected Parameters, or a model with Parameters, found int": [lambda: bt.Oracle(LAYER, loss="mse", params=3)],
    "params= must be the Parameters of the model": [lambda: bt.Oracle(LAYER, loss="mse", params=bt.Parameters())],
    "softmax_cross_entropy() takes a Vector, an Array or a NumPy array as logits, found list; pass np.asarray": [
        lambda: bt.softmax_cross_entropy([1.0, 2.0], 1)
    ],
    "rms_norm() takes a Vector and a Tensor, or arrays, as x and weight, found ndarray and int": [
        lambda: bt.rms_norm(np.ones(2), 3)
    ],
}


@pytest.mark.parametrize("expected", CALLS)
def test_a_wrong_argument_is_named(expected):
    for call in CALLS[expected]:
        with pytest.raises((TypeError, ValueError, IndexError), match="^" + re.escape(expected)):
            call()


@pytest.mark.parametrize(
    "name",
    sorted({*autograd.__all__} - {"value_and_grad", "builtins", "extend", "misc", "numpy", "scipy", "test_util"}),
)
def test_transforms_of_autograd_refuse_what_is_no_function(name):
    transform = getattr(autograd, name)
    if not inspect.isfunction(transform) or name == "primitive":
        return
    with pytest.raises(TypeError, match=r"expects a function, found int|is not a callable object"):
        transform(3, "x") if name == "grad_named" else transform(3)


def test_methods_are_copied_although_they_need_arguments():
    method = opt.EF21(PROBLEM, compressor=bt.compress.TopK(1))
    assert copy.deepcopy(method).x.tolist() == method.x.tolist()


def test_threads_are_any_kind_of_integer():
    for threads in (2, np.int64(2), True):
        assert [y.data for y in bt.parallel(lambda k: bt.Value(k) * 2.0, [1.0, 2.0], threads=threads)] == [2.0, 4.0]


def test_bounds_of_clamp_are_arrays_too():
    low, high = np.array([0.0, 3.0]), [4.0, 5.0]
    assert bt.clamp(np.array([5.0, 1.0]), low, high).tolist() == [4.0, 3.0]
    assert bt.clamp([5.0, 1.0], low).tolist() == [5.0, 3.0]
    x = bt.Vector([5.0, 1.0])
    y = bt.clamp(x, low, high)
    y.sum().backward()
    assert (list(y.data), list(x.grad)) == ([4.0, 3.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"clamp\(\) expects low <= high"):
        bt.clamp(A[0], low, [4.0, 2.0])
    with pytest.raises(ValueError, match="must not be NaN"):
        bt.clamp(A[0], np.array([0.0, np.nan]))


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_of_lists_of_values_has_a_gradient(name):
    values = [bt.Value(float(x)) for x in (1, 3, 8)]
    y = getattr(bt, name)(values)
    y.backward()
    assert y.data == pytest.approx(getattr(np, name)([1.0, 3.0, 8.0]))
    expected = bt.grad(getattr(bt, name))(np.array([1.0, 3.0, 8.0]))
    assert [x.grad for x in values] == pytest.approx(expected.tolist())
    assert getattr(bt, name)(bt.Vector([1.0, 3.0, 8.0])).data == pytest.approx(y.data)


def test_reductions_are_named_as_they_were_called():
    for name in ("max", "min", "mean", "reduce_max", "logsumexp"):
        with pytest.raises(ValueError, match=rf"^{name} of no values is undefined"):
            getattr(bt, name)([])
    for name in ("max", "mean", "softmax", "log_softmax", "norm2"):
        for one in (3, 3.0, bt.Value(3.0)):
            with pytest.raises(TypeError, match=rf"^{name}\(\) expects a Vector or a sequence of Values or numbers"):
                getattr(bt, name)(one)


def test_second_derivatives_name_themselves():
    with pytest.raises(bt.TraceError, match=r"^hessian\(.*\) needs a function that returns one float"):
        bt.hessian(lambda x: x)(np.ones(2))
    with pytest.raises(bt.TraceError, match=r"^hvp\(.*\) needs a function that returns one float"):
        bt.hvp(lambda x: x, (np.ones(2),), (np.ones(2),))


def test_axes_of_arguments_are_named():
    with pytest.raises(ValueError, match="in_axes 5 is not an axis of an argument with 1"):
        bt.vmap(lambda x: x, in_axes=5)(np.ones(3))
