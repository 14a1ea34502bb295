"""Functions of NumPy on Values, Arrays, Tensors and Parameters keep the gradient or are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import burtorch as bt

SKIPPED = {
    "array2string", "array_repr", "array_str", "bmat", "busday_count", "busday_offset", "datetime_as_string",
    "from_dlpack", "frombuffer", "fromfile", "fromiter", "fromregex", "fromstring", "genfromtxt", "load", "loadtxt",
    "save", "savetxt", "savez", "savez_compressed", "setbufsize", "seterr", "seterrcall", "set_printoptions",
    "show_config", "show_runtime", "test", "info",
}  # fmt: skip
"""Functions of files, settings and text."""

ZERO = {"empty_like", "full_like", "ones_like", "tri", "zeros_like", "imag", "sign", "heaviside"}
"""Functions whose derivative is 0, with a number for a result."""

MADE = {
    "array",
    "asanyarray",
    "asarray",
    "asarray_chkfinite",
    "ascontiguousarray",
    "asfortranarray",
    "asmatrix",
    "copy",
    "imag",
    "real",
    "real_if_close",
    "require",
}
"""Functions that NumPy does not dispatch, and copies."""

EXTRA = {
    "interp": ([0.0, 1.0, 2.0], [0.0, 3.0, 5.0]), "clip": (0.0, 1.0), "tile": (2,), "repeat": (2,),
    "broadcast_to": ((2, 3),), "quantile": (0.5,), "percentile": (50.0,), "nanquantile": (0.5,),
    "nanpercentile": (50.0,), "roll": (1,), "reshape": ((-1,),), "round": (1,), "around": (1,), "take": (0,),
    "expand_dims": (0,), "append": ([1.0],), "insert": (0, 2.0), "digitize": ([0.0, 1.0],), "polyval": ([1.0],),
    "pad": (1,), "array_split": (1,), "split": (1,), "rot90": (1,), "resize": ((4,),), "full_like": (2.0,),
    "delete": (0,), "diag": (0,), "convolve": ([1.0, 2.0],), "correlate": ([1.0, 2.0],), "searchsorted": (0.5,),
    "partition": (0,),
}  # fmt: skip
"""Further arguments of functions that need some."""


def functions():
    """NumPy's public functions and ufuncs, by name."""
    found = {name: getattr(np, name) for name in dir(np) if not name.startswith("_") and name not in SKIPPED}
    found |= {f"linalg.{name}": getattr(np.linalg, name) for name in np.linalg.__all__}
    return {name: f for name, f in found.items() if callable(f) and not isinstance(f, type)}


def loses(found, depth=0):
    """Whether a result contains floats of its own, and nothing with a gradient."""
    if isinstance(found, (tuple, list)) and depth < 4:
        return any(loses(one, depth + 1) for one in found)
    kind = getattr(getattr(found, "dtype", None), "kind", None)
    if isinstance(found, (bt.Array, bt.Value, bt.Vector)):
        return False
    return isinstance(found, (float, complex)) or kind in ("f", "c")


def tensor(shape):
    return bt.Parameters(dtype="float64").tensor(shape, init=0.5)


OBJECTS = {
    "Value": lambda: bt.Value(0.7),
    "number": lambda: bt.array(0.7),
    "Array": lambda: bt.array([0.7, 0.2, 0.4]),
    "matrix": lambda: bt.array([[0.7, 0.2], [0.4, 0.1]]),
    "Vector": lambda: bt.Vector([0.7, 0.2, 0.4]),
    "Tensor": lambda: tensor(3),
    "matrix of parameters": lambda: tensor((2, 2)),
    "Parameters": lambda: tensor(3).params,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", OBJECTS)
def test_no_function_loses_the_gradient(kind):
    lost, n_kept = [], 0
    for name, f in functions().items():
        for extra in [(), EXTRA.get(name, ())]:
            with bt.Graph():
                try:
                    found = f(OBJECTS[kind](), *extra)
                except Exception:
                    continue
            n_kept += isinstance(found, (bt.Array, bt.Value, bt.Vector))
            if loses(found) and name not in ZERO:
                lost.append((name, extra, found))
            if kind in ("Tensor", "matrix of parameters", "Parameters"):
                # No function took it for one number.
                kinds = (type(tensor(2)), bt.Parameters)
                items = (
                    found.ravel()[:1].tolist() if getattr(getattr(found, "dtype", None), "kind", "") == "O" else [found]
                )
                is_itself = name == "positive"
                assert is_itself or name in MADE or not any(isinstance(item, kinds) for item in items), name
    assert lost == []
    assert n_kept > 40


@pytest.mark.parametrize("kind", ["Tensor", "matrix of parameters", "Parameters"])
def test_functions_of_parameters_are_those_of_their_numbers(kind):
    for f in (np.sum, np.exp, np.max, np.mean, np.cumsum, np.sort, np.ravel, np.linalg.norm, np.std, np.sin, np.median):
        x = OBJECTS[kind]()
        params = x if kind == "Parameters" else x.params
        params.values[:] = [0.1 * k + 0.3 for k in range(len(params))]
        numbers = np.asarray(x.values).reshape(getattr(x, "shape", -1))
        y = f(x)
        np.testing.assert_allclose(np.reshape(y.data, np.shape(f(numbers))), f(numbers), rtol=1e-14)
        y.sum().backward()
        expected = np.ravel(bt.grad(lambda v, f=f: f(v).sum())(numbers))
        np.testing.assert_allclose(list(params.grads), expected, rtol=1e-12)
    axis = np.sum(OBJECTS["matrix of parameters"](), axis=0)
    assert axis.data.tolist() == [1.0, 1.0]


def test_lists_of_arrays_keep_the_gradient_or_are_refused():
    x = bt.array([1.0, 2.0, 3.0])
    for make in (
        lambda: bt.array([x[0], x[1]]),
        lambda: bt.array((x[0], 2.0)),
        lambda: bt.array([[x[0], x[1]], [x[2], 4.0]]),
        lambda: bt.array([x, x * 2.0]),
        lambda: bt.array([x, [1.0, 2.0, 3.0]]),
        lambda: np.stack([x[0], x[1]]),
        lambda: np.stack([x, x]),
        lambda: np.concatenate([x, x]),
        lambda: np.vstack([x, x]),
    ):
        graph = bt.current_graph()
        y = make()
        assert isinstance(y, bt.Array)
        graph.zero_grad()
        (y * y).sum().backward()
        assert x.grad[0] >= 2.0
    for refused in (
        lambda: np.array([x[0], x[1]]),
        lambda: np.asarray([x, x]),
        lambda: np.asarray([[x[0]], [x[1]]]),
        lambda: np.array([x[0], 1.0], float),
        lambda: np.median([x[0], x[1]]),
        lambda: np.cumsum([x[0], x[1]]),
        lambda: np.asarray(x),
    ):
        with pytest.raises(TypeError, match="no gradient"):
            refused()
    assert np.asarray(x.detach()).tolist() == [1.0, 2.0, 3.0]
    assert np.asarray(bt.array([1, 2])).tolist() == [1, 2]
    with bt.no_grad():
        assert np.asarray([bt.array(1.0), bt.array(2.0)], float).tolist() == [1.0, 2.0]


def test_lists_of_values_keep_the_gradient_or_are_refused():
    v, w = bt.Value(1.0), bt.Value(2.0)
    x = bt.array(3.0)
    for make in (
        lambda v, w, x: bt.array([v, w]),
        lambda v, w, x: bt.array([[v, 1.0], [w, v]]),
        lambda v, w, x: bt.array((x, v)),
        lambda v, w, x: bt.array([bt.array([v, w]), [2.0, x]]),
    ):
        v.grad = w.grad = x.grad = 0.0
        (make(v, w, x) ** 2).sum().backward()
        expected = bt.grad(lambda v, w, x, make=make: (make(v, w, x) ** 2).sum(), argnums=(0, 1, 2))(1.0, 2.0, 3.0)
        assert (v.grad, w.grad, x.grad) == expected
    with pytest.raises(ValueError, match=r"shape|length|equal"):
        bt.array([[v], [w, w]])
    with pytest.raises(TypeError):
        bt.array([v, "a"])
    for make in (np.array, np.asarray, lambda all: np.stack(all), lambda all: np.vstack(all)):
        y = make([v, w])
        assert y.dtype == object
        v.grad = 0.0
        (y.ravel()[0] * 3.0).backward()
        assert v.grad == 3.0


@pytest.mark.parametrize("x", [-0.5, 0.0, 0.3, 1.0, 2.5, 3.0, 4.0, math.inf, -math.inf])
def test_interp_of_a_value(x):
    xp, fp = [0.0, 1.0, 3.0], [1.0, 3.0, 4.0]
    for ends in ({}, {"left": -7.0}, {"right": 9.0}):
        v = bt.Value(x)
        y = np.interp(v, xp, fp, **ends)
        y.backward()
        assert y.data == np.interp(x, xp, fp, **ends)
        assert v.grad == bt.grad(lambda x, ends=ends: np.interp(x, xp, fp, **ends))(x)
    assert bt.function(lambda x: np.interp(x, xp, fp)).grad(x) == v.grad
    assert math.isnan(np.interp(bt.Value(math.nan), xp, fp).data)


@pytest.mark.parametrize("x", [-1.0, 0.0, -0.0, 0.5, 1.0, 2.0])
def test_clip_has_one_derivative(x):
    for f in (
        lambda x: np.clip(x, 0.0, 1.0),
        lambda x: bt.clip(x, 0.0, 1.0),
        lambda x: bt.clamp(x, 0.0, 1.0),
        lambda x: np.clip(x, 0.0, None),
        lambda x: np.clip(x, None, 1.0),
        lambda x: np.clip(x, min=0.0, max=1.0),
    ):
        v, a = bt.Value(x), bt.array(x)
        f(v).backward()
        f(a).backward()
        every = [v.grad, a.grad, bt.function(f).grad(x), bt.grad(f)(x), bt.vmap(bt.grad(f))(np.array([x]))[0]]
        assert every == [every[0]] * 5


@pytest.mark.parametrize("digits", [None, 0, 1, 2, -1, -2, 5, 300, -400])
def test_round_is_a_value_with_the_derivative_0(digits):
    for x in (2.675, -2.75, 0.5, 1.5, 1234.5678, -0.001, 1e300, 0.0):
        v = bt.Value(x)
        y = round(v) if digits is None else round(v, digits)
        assert isinstance(y, bt.Value)
        expected = round(x, digits) if digits in (300, -400) else np.round(x, digits or 0)
        assert y.data == pytest.approx(expected, rel=1e-15, abs=1e-300)
        (y + 2.0 * v).backward()
        assert v.grad == 2.0
    with pytest.raises(TypeError):
        round(bt.Value(1.0), 1.5)
    assert bt.function(lambda x: round(x, 1) * x).value_and_grad(2.56) == (pytest.approx(2.6 * 2.56), 2.6)


def test_a_bool_is_a_mask():
    for flag in (True, np.bool_(True), np.array(True)):
        assert bt.array(flag).dtype == bool
        assert bt.array([flag, False]).dtype == bool
        assert (~bt.array(flag)).data == False  # noqa: E712
    assert bt.array(1).dtype == bt.array(1.0).dtype == float
