"""Values of every dtype compared with foreign objects; the result types for operands of every kind."""

from __future__ import annotations

import decimal
import fractions
import itertools
import math
import operator
import subprocess
import sys

import numpy as np
import pytest

import burtorch as bt

DTYPES = ["float64", "float32", "float16", "bfloat16", "float128", "float32x4", "float64x2"]
ORDERS = [operator.lt, operator.le, operator.gt, operator.ge]


class Other:
    """Not comparable."""


class Friendly:
    """Implements comparisons itself."""

    __hash__ = None

    def __eq__(self, other):
        return "equal"

    def __gt__(self, other):
        return "greater"


FOREIGN = [
    (),
    (1.0,),
    (1.0, 1.0),
    (1.0,) * 4,
    [],
    [1.0],
    None,
    "",
    "1.0",
    b"1",
    {},
    {1.0},
    object(),
    Other(),
    Other,
    ...,
    1j,
    1.0 + 0j,
    fractions.Fraction(1, 2),
    range(3),
    slice(1),
    len,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_foreign_is_equal(dtype):
    value = bt.Graph(dtype=dtype).value(1.0)
    for x in FOREIGN:
        assert (value == x, x == value, value != x, x != value) == (False, False, True, True), x
        for order in ORDERS:
            for pair in ((value, x), (x, value)):
                with pytest.raises(TypeError):
                    order(*pair)
    assert value not in FOREIGN
    assert [*FOREIGN, value].index(value) == len(FOREIGN)
    assert (value == Friendly(), Friendly() == value, value < Friendly()) == ("equal", "equal", "greater")
    assert {value: 1}[value] == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_any_type_are_compared(dtype):
    value = bt.Graph(dtype=dtype).value(1.0)
    for x in (1, 1.0, True, np.float32(1), np.float64(1), np.int8(1), np.bool_(True), np.array(1.0)):
        assert value == x
        assert not (value != x)  # noqa: SIM202
    for x in (0, 2.0, False, np.float32(0.5), math.nan, math.inf, 10**400):
        assert value != x
        assert not (value == x)  # noqa: SIM201
    if "x" not in dtype:
        for x in (2, 1.5, np.float32(1.25), math.inf, 10**400):
            assert value < x <= x
            assert not value > x
    else:
        with pytest.raises(ValueError, match="no order"):
            operator.lt(value, 2.0)
    if dtype == "float128":
        assert value == decimal.Decimal(1)
        assert value < decimal.Decimal("1.1")


def test_the_list_of_kinds():
    """Without an operand that has a length, a result is a Value, otherwise a Vector with NumPy's broadcast length."""
    graph = bt.current_graph()
    value, vector, weight = bt.Value(2.0), graph.vector([1.0, 2.0, 3.0]), bt.parameter(1.5)
    scalars = [value, weight, 2, 2.0, True, np.float32(2), np.int64(2), np.array(2.0)]
    many = [vector, [value, value, 1.0], (1.0, value, weight), np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]]

    def names_a_graph(x):
        if isinstance(x, (list, tuple)):
            return any(map(names_a_graph, x))
        return isinstance(x, (bt.Value, bt.Vector))

    n = 0
    for op in (
        bt.add,
        bt.sub,
        bt.mul,
        bt.div,
        bt.pow,
        bt.mean,
        bt.max,
        bt.min,
        bt.atan2,
        bt.add_squares,
        bt.mean_squares,
    ):
        for x, y in itertools.product(scalars + many, repeat=2):
            if not (names_a_graph(x) or names_a_graph(y)):
                continue
            n += 1
            result = op(x, y)
            is_scalar = any(x is s for s in scalars) and any(y is s for s in scalars)
            assert type(result) is (bt.Value if is_scalar else bt.Vector), (op, x, y, result)
            assert is_scalar or len(result) == 3
    assert n > 900


def numbers_of(x):
    """The numbers that NumPy would receive for an operand."""
    if isinstance(x, (bt.Value, bt.Vector)):
        return x.data
    if isinstance(x, bt.parameter):
        return x.value
    return [numbers_of(element) for element in x] if isinstance(x, (list, tuple)) else x


def test_where_broadcasts():
    graph = bt.current_graph()
    value, vector, weight = bt.Value(2.0), graph.vector([1.0, 2.0, 3.0]), bt.parameter(1.5)
    scalars = [value, weight, 2, 2.0, np.float32(2)]
    many = [vector, [value, 7.0, 1.0], np.array([1.0, 2.0, 3.0])]
    for cond in (True, False, 0.0, value, np.bool_(True), np.array(False), [True, False, True], np.array([0, 1, 1])):
        for a, b in itertools.product(scalars + many, repeat=2):
            if all(isinstance(x, (int, float, np.ndarray, np.float32, bt.parameter)) for x in (a, b)):
                continue
            result = bt.where(cond, a, b)
            has_length = np.ndim(numbers_of(cond)) > 0 or any(any(x is m for m in many) for x in (a, b))
            assert type(result) is (bt.Vector if has_length else bt.Value), (cond, a, b)
            held = numbers_of(cond)
            expected = np.where(held, numbers_of(a), numbers_of(b))
            np.testing.assert_array_equal(np.asarray(result.data), expected.astype(float))
    with pytest.raises(ValueError, match="equal length"):
        bt.where(True, vector, [1.0, 2.0])
    for a, b in (("a", "b"), (None, value), ("a", 1.0), (None, 2.0), ([1.0], "a"), (MASKED, 1.0)):
        with pytest.raises(TypeError):
            bt.where(True, a, b)


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])


@pytest.mark.parametrize("masked", [MASKED, MASKED.astype("float32"), MASKED.astype("int64"), np.ma.masked])
def test_masked_arrays_are_refused(masked):
    graph = bt.current_graph()
    vector, value = graph.vector([1.0, 2.0, 3.0]), bt.Value(2.0)
    f = bt.function(lambda x: bt.reduce_sum(x * x))
    f(np.ones(3))
    params = bt.Parameters(dtype="float64", seed=0)
    oracle = bt.Oracle(bt.nn.Linear(params, 3, 2))
    calls = [
        lambda: graph.vector(masked),
        lambda: vector * masked,
        lambda: bt.add(vector, masked),
        lambda: bt.inner_product(vector, masked),
        lambda: bt.reduce_sum([value, masked]),
        lambda: bt.concat(vector, masked),
        lambda: bt.max(value, masked),
        lambda: f(masked),
        lambda: f.grad(masked),
        lambda: f.map(masked),
        lambda: f.map(np.ma.array(np.ones((4, 3)), mask=True)),
        lambda: f.map(np.ones((3, 3)), out=MASKED),
        lambda: f.bind(masked),
        lambda: f.hessian(masked),
        lambda: oracle(np.ma.array(np.ones((2, 3)), mask=True), [0, 1]),
        lambda: oracle(np.ones((2, 3)), np.ma.array([0, 1], mask=[True, False])),
        lambda: oracle(np.ones((2, 3)), [0, 1], at=np.ma.array(np.ones(len(params)), mask=True)),
    ]
    for k, call in enumerate(calls):
        try:
            result = call()
        except TypeError:
            continue
        pytest.fail(f"call {k} took a masked array and returned {result}")


def test_a_choice_of_arrays_imports_nothing():
    """An import within a trace is read by it: NumPy 2.5 imports numpy.ma when it is named."""
    code = """
import sys
import numpy as np
import burtorch as bt
h = np.ones(3)
before = "numpy.ma" in sys.modules
f = bt.grad(lambda w: (w * bt.where(h > 0.5, h, 2.0)).sum())
print(f(h).tolist(), ("numpy.ma" in sys.modules) == before)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0, 1.0] True\n", "")
