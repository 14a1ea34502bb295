"""Complex numbers, text, bytes, dates, durations, None and other objects are no numbers: each is a TypeError."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pytest

import burtorch as bt


class Other:
    """No number."""


KINDS = {
    "complex": 1j,
    "NumPy's complex": np.complex128(1 + 2j),
    "text": "1.5",
    "NumPy's text": np.str_("1.5"),
    "bytes": b"12",
    "NumPy's bytes": np.bytes_(b"1.5"),
    "date": datetime.date(2020, 1, 1),
    "NumPy's date": np.datetime64("2020-01-01"),
    "duration": datetime.timedelta(1),
    "NumPy's duration": np.timedelta64(5, "s"),
    "None": None,
    "object": Other(),
    "NaT": np.datetime64("NaT"),
    "NaT of a duration": np.timedelta64("NaT"),
    "bytes without a type": np.void(b"abcdefgh"),
}


def forms(x):
    """The object alone, in lists and in arrays."""
    objects = np.empty(2, object)
    objects[:] = [1.0, x]
    lists = [[x, x], [1.0, x], (x, x), [[1.0, 2.0], [1.0, x]]]
    return [x, *lists, np.array([x, x]), np.array([[x, x]]), np.array(x), objects]


def outcome(call, x):
    """The error of a call, or its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call(x)
        except Exception as error:
            return error


def calls():
    """Calls that take numbers or arrays of them, by name."""
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 2), init=0.5)
    layer, net = bt.nn.Linear(params, 2, 1), bt.nn.MLP(params, [2, 2])
    chars = bt.nn.CharMLP(params, vocab=3, context=2, embedding=2, hidden=2)
    rows = [[0.0, 1.0], [1.0, 2.0]]
    classes, squares = bt.Oracle(net), bt.Oracle(net, loss="mse")
    own = bt.Oracle(lambda x, y: bt.softplus(bt.inner_product(x, w[0]) * y), params=params)
    f, total = bt.function(lambda x: x * 2.0), bt.function(lambda x: (x * x).sum())
    problem = bt.opt.logistic_regression(np.array(rows), [1.0, -1.0])
    two = np.array([1.0, 2.0])
    sgd = bt.optim.SGD(params, lr=0.1)
    return {
        "Value": bt.Value,
        "Value.data": lambda x: setattr(bt.Value(1.0), "data", x),
        "Value.grad": lambda x: setattr(bt.Value(1.0), "grad", x),
        "Value +": lambda x: bt.Value(1.0) + x,
        "+ Value": lambda x: x + bt.Value(1.0),
        "Vector": bt.Vector,
        "Vector.data": lambda x: setattr(bt.Vector([1.0, 2.0]), "data", x),
        "Vector *": lambda x: bt.Vector([1.0, 2.0]) * x,
        "inner_product": lambda x: bt.inner_product(bt.Vector([1.0, 2.0]), x),
        "array": bt.array,
        "Array +": lambda x: bt.array([1.0, 2.0]) + x,
        "Array.data": lambda x: setattr(bt.array([1.0, 2.0]), "data", x),
        "numpy.add": lambda x: np.add(bt.array([1.0, 2.0]), x),
        "exp": bt.exp,
        "softmax": bt.softmax,
        "mean": bt.mean,
        "norm2": bt.norm2,
        "layer_norm": bt.layer_norm,
        "quantile": lambda x: bt.quantile(bt.array([1.0, 2.0]), x),
        "values": lambda x: params.values.__setitem__(slice(0, 2), x),
        "a value": lambda x: params.values.__setitem__(0, x),
        "gradients": lambda x: w.grads.__setitem__(slice(0, 2), x),
        "state": lambda x: layer.load_state_dict({"weight": x, "bias": [0.0]}),
        "Linear": layer,
        "MLP": net,
        "logits": chars.logits,
        "gather": lambda x: bt.gather(w, x),
        "classes": lambda x: bt.softmax_cross_entropy(bt.Vector([1.0, 2.0]), x),
        "contexts": lambda x: classes.loss(x, [0, 1]),
        "targets": lambda x: squares.loss(rows, x),
        "contexts of a callable": lambda x: own.loss(x, [1.0, 2.0]),
        "gradients of samples": lambda x: own.per_sample_grads(x, [1.0, 2.0]),
        "point": lambda x: classes.grad(rows, [0, 1], at=x),
        "step": lambda x: classes.step(rows, [0, 1], x),
        "function": f,
        "total": total,
        "grad": total.grad,
        "map": f.map,
        "jvp": lambda x: total.jvp(two, x),
        "hvp": lambda x: total.hvp(two, x),
        "bt.grad": bt.grad(lambda x: (x * x).sum()),
        "vmap": bt.vmap(lambda x: x * 2.0),
        "captured": lambda x: bt.grad(lambda a: (a * x).sum())(two),
        "parameter": bt.parameter,
        "rate": lambda x: bt.optim.SGD(params, lr=x),
        "rate of Adam": lambda x: bt.optim.Adam(params, lr=x),
        "a rate": lambda x: setattr(sgd, "lr", x),
        "clip_grad_norm": lambda x: bt.optim.clip_grad_norm(params, x),
        "features": lambda x: bt.opt.logistic_regression(x, [1.0, -1.0]),
        "labels": lambda x: bt.opt.logistic_regression(np.array(rows), x),
        "point of a problem": problem.loss,
        "gradient of a problem": problem.grad,
    }


ABSENT = {"exp", "mean", "softmax", "norm2", "point", "layer_norm"}
"""Calls for which None is no argument, or no point."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_is_a_type_error(kind):
    for name, call in calls().items():
        for k, (x, number) in enumerate(zip(forms(KINDS[kind]), forms(1))):
            if x is None and name in ABSENT:
                continue
            found = outcome(call, x)
            # NumPy's own error for arrays of dates, which have no buffer, names their type.
            if isinstance(found, ValueError) and "cannot include dtype" in str(found):
                continue
            # Shapes and ranges are checked as well: a form that fits with numbers is refused for its type.
            if not isinstance(found, TypeError) and not isinstance(outcome(call, number), Exception):
                raise AssertionError(f"{name}, form {k} of {kind} gave {type(found).__name__}: {found}")


def test_the_error_names_what_was_found():
    params = bt.Parameters(dtype="float64")
    params.tensor(2)
    for call, found in (
        (lambda: bt.Vector([1.0, "a"]), "str"),
        (lambda: params.values.__setitem__(0, 1j), "complex"),
        (lambda: bt.array(["1.5"]), "<U3"),
        (lambda: bt.function(lambda x: x).map(np.array(["2020-01-01"], "datetime64[D]")), r"datetime64\[D\]"),
        (lambda: bt.optim.SGD(params, lr=np.timedelta64(1, "s")), "timedelta64"),
        (lambda: params.values.__setitem__(0, bt.Value(1.0)), "Value; use its .data"),
    ):
        with pytest.raises(TypeError, match=found):
            call()


def test_numbers_of_other_classes_are_numbers():
    import decimal
    import fractions

    params = bt.Parameters(dtype="float64")
    params.tensor(3)
    params.values[:] = [fractions.Fraction(1, 2), decimal.Decimal("0.25"), np.float32(2.0)]
    assert list(params.values) == [0.5, 0.25, 2.0]
    assert bt.function(lambda x: x * 2.0).map(np.array([fractions.Fraction(1, 2)], object)).tolist() == [1.0]
    assert bt.Vector([True, np.int8(3), np.float16(0.5)]).data == [1.0, 3.0, 0.5]
