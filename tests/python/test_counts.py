"""Invalid counts and dtypes: one clear error that names the argument."""

from __future__ import annotations

import pytest

import burtorch as bt


def linear():
    params = bt.Parameters()
    return bt.nn.Linear(params, 2, 1)


def square():
    return bt.trace(lambda x: x * x, 1.0)


CALLS = {
    "capacity": [
        lambda n: bt.Graph(capacity=n),
        lambda n: bt.Parameters(capacity=n),
        lambda n: bt.load_graph(b"", capacity=n),
    ],
    "n": [lambda n: bt.Graph().branches(n)],
    "n_nodes": [lambda n: bt.bytes_needed(n)],
    "threads": [
        lambda n: bt.Oracle(linear(), threads=n),
        lambda n: bt.parallel(lambda k: bt.Value(k), [1.0], threads=n),
        lambda n: square().map([1.0, 2.0], threads=n),
        lambda n: square().map_value_and_grad([1.0, 2.0], threads=n),
        lambda n: bt.Graph().join(n),
    ],
}
EACH = [(name, call) for name, calls in CALLS.items() for call in calls]


@pytest.mark.parametrize(("name", "call"), EACH)
def test_a_count_out_of_range_is_a_value_error_that_names_it(name, call):
    for n in (-1, -(2**70)) if name != "threads" else (-1, 0, -(2**70)):
        with pytest.raises(ValueError, match=rf"^{name} must be (at least \d|from 0 to \d+), found {n}$"):
            call(n)


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, call in EACH if name != "threads"])
def test_non_integers_are_type_errors(name, call):
    for n in (1.0, "1"):
        with pytest.raises(TypeError, match=name):
            call(n)


def test_valid_counts_are_accepted():
    class Index:
        def __index__(self):
            return 3

    assert len(bt.Graph().branches(Index())) == 3
    assert bt.Graph(capacity=Index()).capacity >= 3
    assert bt.Graph(capacity=None).capacity == bt.Graph().capacity


def test_types_and_dtypes_of_numpy_name_dtypes():
    np = pytest.importorskip("numpy")
    for name in ("float16", "float32", "float64"):
        for dtype in (name, getattr(np, name), np.dtype(name)):
            assert bt.Graph(dtype=dtype).dtype == name
            assert bt.Parameters(dtype=dtype).dtype == name
            assert bt.bytes_needed(10, dtype) == bt.bytes_needed(10, name)
    for make in (bt.Graph, bt.Parameters, lambda dtype: bt.bytes_needed(1, dtype)):
        for wrong in (float, 3, None, np.int64, np.dtype("complex128")):
            with pytest.raises(TypeError, match=r'dtype.*must be a string, such as "float32", found'):
                make(dtype=wrong)


def test_an_oracle_shows_what_it_is_of():
    model = linear()
    oracle = bt.Oracle(model, "sum", lanes=4, threads=2)
    assert repr(oracle) == f'<Oracle of {model!r}, reduction="sum", lanes=4, threads=2>'

    def loss(x, y):
        return (x.sum() - y) ** 2

    shown = repr(bt.Oracle(loss, params=model.params))
    assert shown.endswith('loss, reduction="mean", lanes="auto", threads=1>')
