"""``out=``: results of derivatives in the caller's arrays."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

A = np.array([[0.3, -1.2, 2.0], [1.5, 0.7, -0.4]])


def arrays():
    return bt.function(lambda x: (np.sin(x) * x).sum())


def numbers():
    return bt.function(lambda x: (x * x * x).sum())


X = {arrays: A, numbers: A[0]}
METHODS = ["grad", "value_and_grad", "jacobian", "hessian"]


def both(found):
    return found if isinstance(found, tuple) else (None, found)


@pytest.mark.parametrize("make", [arrays, numbers])
@pytest.mark.parametrize("method", METHODS)
def test_results_are_written_in_place(make, method):
    f, x = make(), X[make]
    ask = getattr(f, method)
    value, expected = both(ask(x))
    plain = np.full(expected.shape, np.nan)
    strided = np.full((*expected.shape, 2), np.nan)[..., 1]
    for out in (plain, strided, plain[..., ::-1], np.asfortranarray(plain), np.empty(expected.shape, np.float32)):
        found, written = both(ask(x, out=out))
        assert written is out
        assert found == value
        assert np.array_equal(out, expected.astype(out.dtype))
    assert np.array_equal(both(ask(x, out=None))[1], expected)


@pytest.mark.parametrize("make", [arrays, numbers])
def test_out_may_be_the_argument(make):
    f, x = make(), X[make].copy()
    expected = f.grad(x)
    assert f.grad(x, out=x) is x
    assert np.array_equal(x, expected)
    memory = np.zeros(x.size + 1)
    shifted, out = memory[1:].reshape(x.shape), memory[:-1].reshape(x.shape)
    shifted[...] = X[make]
    f.grad(shifted, out=out)
    assert np.array_equal(out, expected)


def test_several_gradients_go_to_their_containers():
    f = bt.function(lambda w, x: (x @ w["a"]).sum() * w["b"])
    w = {"a": A[0], "b": 2.0}
    expected = f.grad(w, A)
    out = ({"a": np.empty(3), "b": np.empty(())}, np.empty((2, 3)))
    found = f.grad(w, A, out=out)
    assert found[1] is out[1]
    assert found[0]["a"] is out[0]["a"]
    assert out[0]["b"] == expected[0]["b"]
    assert np.array_equal(out[0]["a"], expected[0]["a"])
    assert np.array_equal(out[1], expected[1])
    assert f.grad(w, A, argnums=1, out=out[1]) is out[1]
    with pytest.raises(ValueError, match="containers of the result, with 3 arrays, found 1"):
        f.grad(w, A, out=out[1])


def test_rows_are_written_in_place():
    f = bt.function(lambda x: np.tanh(x).sum(axis=0))
    rows = np.arange(24.0).reshape(4, 2, 3) / 10
    out = np.empty((4, 3))
    assert f.map(rows, out=out) is out
    assert np.array_equal(out, f.map(rows))


@pytest.mark.parametrize("make", [arrays, numbers])
@pytest.mark.parametrize("method", METHODS)
def test_mismatches_are_refused_before_anything_is_written(make, method):
    f, x = make(), X[make]
    ask = getattr(f, method)
    shape = both(ask(x))[1].shape
    locked = np.zeros(shape)
    locked.flags.writeable = False
    for out, error, words in (
        (np.zeros((1, *shape)), ValueError, r"out must have the shape \("),
        (np.zeros(shape, int), TypeError, "out must be an array of float16, float32 or float64"),
        (np.zeros(shape, ">f8"), TypeError, "out must be an array of float16, float32 or float64"),
        (locked, ValueError, "out is read-only"),
        (np.broadcast_to(np.zeros(()), shape), ValueError, "read-only|several entries of out share memory"),
        ([np.zeros(shape)], ValueError, "containers of the result"),
        ("text", TypeError, "out must be an array"),
    ):
        before = np.array(out, copy=True) if isinstance(out, np.ndarray) else None
        with pytest.raises(error, match=words):
            ask(x, out=out)
        assert before is None or np.array_equal(out, before)


def test_two_arrays_of_out_may_not_overlap():
    f = bt.function(lambda x, y: (x * y).sum())
    memory = np.zeros((2, 2, 3))
    with pytest.raises(ValueError, match="overlap"):
        f.grad(A, A, out=(memory[0], memory[0]))
    f.grad(A, A + 1, out=(memory[0], memory[1]))
    assert np.array_equal(memory, [A + 1, A])
    twice = np.lib.stride_tricks.as_strided(memory, (2, 3), (0, 8))
    with pytest.raises(ValueError, match="several entries of out share memory"):
        f.grad(A, A, argnums=0, out=twice)


def test_out_is_for_calls_with_numbers():
    f = arrays()
    with pytest.raises(TypeError, match="calls with numbers"):
        bt.function(lambda x: f.grad(x, out=np.zeros((2, 3))).sum())(A)
    graph = bt.Graph()
    with pytest.raises(TypeError, match="calls with numbers"):
        f.grad(graph.array(A), out=np.zeros((2, 3)))


@pytest.mark.parametrize("method", ["sparse_hessian", "sparse_jacobian"])
def test_sparse_derivatives_are_written_to_a_matrix_with_their_pattern(method):
    scipy = pytest.importorskip("scipy.sparse")
    f = bt.function(lambda x: ((x[1:] - x[:-1] ** 2) ** 2).sum())
    g = bt.function(lambda x: [a * b for a, b in zip(x[1:], x[:-1])])
    ask = getattr(f if method == "sparse_hessian" else g, method)
    x = np.linspace(0.1, 1, 6)
    out = ask(x)
    expected = ask(2 * x)
    data = out.data
    assert ask(2 * x, out=out) is out
    assert out.data is data
    assert np.array_equal(data, expected.data)
    for wrong, error, words in (
        (scipy.csr_matrix(out.shape), ValueError, "pattern of the result"),
        (out.tocsc(), TypeError, "CSR format"),
        (np.zeros(out.shape), TypeError, "CSR format"),
    ):
        with pytest.raises(error, match=words):
            ask(x, out=wrong)
    locked = out.copy()
    locked.data.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ask(x, out=locked)
