"""Parameters and their tensors: shared memory, initial values, freezing, the caller's memory."""

from __future__ import annotations

import gc
from array import array

import pytest

import burtorch as bt
from burtorch._core import token_affine, token_embedding, token_layer_norm


@pytest.mark.parametrize(("dtype", "code", "size"), [("float32", "f", 4), ("float64", "d", 8)])
def test_arrays_share_memory_and_are_writable(dtype, code, size):
    params = bt.Parameters(dtype=dtype)
    w = params.tensor((2, 3), name="w", init=0.5)
    b = params.tensor(2, init="ones")
    assert (params.n, len(params), params.n_trainable, params.dtype) == (8, 8, 8, dtype)
    view = memoryview(params.values)
    assert (view.format, view.itemsize, view.readonly, view.shape) == (code, size, False, (8,))
    view[7] = -2.0
    b.values[0] = 4.0
    assert list(params.values) == [0.5] * 6 + [4.0, -2.0]
    assert (w.shape, w.name, w.span, len(w)) == ((2, 3), "w", (0, 6), 2)
    assert (b.shape, b.name, b.span) == ((2,), None, (6, 8))
    params.grads[6] = 3.0
    assert b.grads.tolist() == [3.0, 0.0]
    params.zero_grad()
    assert not any(params.grads)


def test_indexing_is_that_of_a_sequence():
    params = bt.Parameters(dtype="float64")
    params.tensor(5, init=0.0)
    values = params.values
    values[:] = range(5)
    assert (values[0], values[-1], list(values[1:3]), list(values[9:])) == (0.0, 4.0, [1.0, 2.0], [])
    values[1:3][0] = 10.0
    values[3:] = 7.0
    assert list(values) == [0.0, 10.0, 2.0, 7.0, 7.0]
    for index in (5, -6, 10**12):
        with pytest.raises(IndexError):
            values[index]
        with pytest.raises(IndexError):
            values[index] = 0.0
    with pytest.raises(ValueError, match="steps of 1"):
        values[::2]
    with pytest.raises(ValueError, match="do not fit"):
        values[:2] = [1.0]
    with pytest.raises(TypeError):
        values["a"]
    with pytest.raises(TypeError):
        values[0] = "a"
    assert "n=5" in repr(values)


def test_a_seed_decides_all_initial_values():
    def values(seed):
        params = bt.Parameters(seed=seed)
        for init in ("glorot", "glorot_normal", "he", "he_normal", "fan_in", ("uniform", -2, 2), ("normal", 1, 0.1)):
            params.tensor((4, 5), init=init)
        return list(params.values)

    assert values(3) == values(3) != values(4)
    assert all(abs(x) <= 2 for x in values(0)[100:120])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shape": ()}, ValueError),
        ({"shape": (0, 2)}, ValueError),
        ({"shape": -1}, ValueError),
        ({"shape": (2**20, 2**20)}, ValueError),
        ({"shape": (1, 1, 1, 1, 1)}, ValueError),
        ({"shape": "a"}, TypeError),
        ({"shape": 2.5}, TypeError),
        ({"shape": 2, "name": "taken"}, ValueError),
        ({"shape": 2, "init": "xavier"}, ValueError),
        ({"shape": 2, "init": float("nan")}, ValueError),
        ({"shape": 2, "init": ("uniform", 1, 0)}, ValueError),
        ({"shape": 2, "init": ("normal", 0, -1)}, ValueError),
        ({"shape": 2, "init": ("gamma", 0, 1)}, ValueError),
        ({"shape": 2, "init": ("uniform", 1)}, ValueError),
        ({"shape": 2, "init": []}, TypeError),
    ],
)
def test_a_bad_tensor_changes_nothing(arguments, error):
    params = bt.Parameters(seed=1)
    params.tensor(3, name="taken")
    with pytest.raises(error):
        params.tensor(**arguments)
    assert (params.n, params.names) == (3, ["taken"])
    params.tensor(3)
    undisturbed = bt.Parameters(seed=1)
    undisturbed.tensor(6)
    assert len(params.values) == 6


def test_bad_parameters_are_refused():
    for arguments in ({"dtype": "float32x4"}, {"values": array("f", [0.0])}, {"capacity": 2**62}):
        with pytest.raises((ValueError, MemoryError)):
            bt.Parameters(**arguments)
    with pytest.raises(ValueError, match="seed must be at least 0, found -1"):
        bt.Parameters(seed=-1)
    for shape in (-1, 0, (2, -1), (2, 0)):
        with pytest.raises(ValueError, match="each number of shape must be at least 1"):
            bt.Parameters().tensor(shape)


def test_names_and_freezing():
    params = bt.Parameters()
    w = params.tensor(4, name="w", init=1.0)
    params.tensor(2, name="b", init=1.0, trainable=False)
    assert (params.names, params.n_trainable, params.named("b").trainable) == (["w", "b"], 4, False)
    w.freeze()
    assert (params.n_trainable, w.trainable) == (0, False)
    params.unfreeze((0, 3))
    params.freeze("w")
    params.unfreeze("b")
    params.unfreeze(w)
    params.freeze((1, 2))
    assert params.n_trainable == 5
    params.grads[:] = 1.0
    bt.optim.SGD(params, lr=1.0).step()
    assert list(params.values) == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    for what, error in [("x", KeyError), ((3, 2), ValueError), ((0, 7), ValueError), (3, TypeError)]:
        with pytest.raises(error):
            params.freeze(what)
    with pytest.raises(KeyError):
        params.named("x")
    other = bt.Parameters()
    with pytest.raises(bt.GraphMismatchError):
        other.freeze(w)
    assert params.n_trainable == 5


@pytest.mark.parametrize(("dtype", "code"), [("float32", "f"), ("float64", "d")])
def test_memory_of_the_caller_is_used_and_kept_alive(dtype, code):
    values, grads = array(code, [9.0] * 8), array(code, [9.0] * 8)
    params = bt.Parameters(dtype=dtype, values=values, grads=grads)
    w = params.tensor(6, init=2.0)
    assert list(values) == [2.0] * 6 + [9.0] * 2
    assert list(grads) == [0.0] * 6 + [9.0] * 2
    grads[0] = 4.0
    bt.optim.SGD(params, lr=0.5).step()
    assert values[0] == 0.0
    with pytest.raises(ValueError, match="parameters in buffers"):
        params.tensor(3)
    assert params.n == 6
    with pytest.raises(BufferError):
        values.append(0.0)
    del values, grads
    gc.collect()
    assert list(w.values) == [0.0] + [2.0] * 5


def test_memory_that_cannot_be_used_is_refused():
    good = array("f", [0.0] * 8)
    shared = memoryview(array("f", [0.0] * 8))
    for bad in (
        array("d", [0.0] * 8),
        array("i", [0] * 8),
        array("f"),
        memoryview(bytes(32)).cast("f"),
        memoryview(array("f", [0.0] * 16))[::2],
        memoryview(bytearray(33))[1:].cast("f"),
        good,
    ):
        with pytest.raises(ValueError, match=r"values and grads|grads must be"):
            bt.Parameters(values=good, grads=bad)
    with pytest.raises(ValueError, match="apart"):
        bt.Parameters(values=shared[:5], grads=shared[4:])
    bt.Parameters(values=shared[:4], grads=shared[4:])
    with pytest.raises(TypeError):
        bt.Parameters(values=good, grads=[0.0])
    with pytest.raises(ValueError, match="not both"):
        bt.Parameters(values=good, grads=array("f", [0.0] * 8), capacity=3)


def test_memory_never_moves_while_an_array_is_held():
    params = bt.Parameters(capacity=4)
    params.tensor(4, init=1.0)
    held = params.values
    with pytest.raises(MemoryError):
        params.tensor(1)
    assert params.n == 4
    view = memoryview(held)
    del held
    with pytest.raises(MemoryError):
        params.tensor(1)
    del view
    params.tensor(1, init=2.0)
    assert list(params.values) == [1.0] * 4 + [2.0]


def test_numpy_shares_the_memory():
    np = pytest.importorskip("numpy")
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3, 2), init=1.0)
    array_ = np.asarray(params.values)
    array_[:] = np.arange(6)
    assert array_.dtype == np.float64
    assert w.values.tolist() == [0, 1, 2, 3, 4, 5]
    np.asarray(w.values).reshape(w.shape)[1, 1] = 10
    assert params.values[3] == 10.0
    params.values[:2] = np.array([7.0, 8.0])
    assert list(params.values[:2]) == [7.0, 8.0]
    del w, params
    gc.collect()
    assert array_[5] == 5.0


ONE_CALL = {
    "affine": (lambda w, b: bt.affine(w, bt.current_graph().vector([1.0, 2.0]), b), [(3, 2), 3]),
    "affine of a tensor": (lambda w, b, x: bt.affine(w, x, b), [(3, 2), 3, 2]),
    "affine of a list": (lambda w, x, y, b: bt.affine(w, [x, 3.0, y], b), [(2, 5), 2, 2, 2]),
    "inner product": (bt.inner_product, [4, 4]),
    "inner product with bias": (lambda x, w, b: bt.inner_product_with_bias(x, w, b[0]), [4, 4, 1]),
    "sum": (lambda x, y: x + y, [3, 3]),
    "concat": (lambda x, y: bt.concat(x, 1.0, y), [3, 2]),
    "norm": (lambda x, y: bt.norm2([x, 0.5, y]), [3, 2]),
    "tokens": (
        lambda table, places, w, b: token_affine([token_embedding(table, places, [1, 0, 1])], 3, w, b),
        [(2, 4), (3, 4), (5, 4), 5],
    ),
    "layer norm": (
        lambda table, gain, b: token_layer_norm(token_embedding(table, None, [1, 0]), 2, gain, b, 1e-5),
        [(2, 4), 4, 4],
    ),
    "model": (lambda *tensors: _perceptron(*tensors), [2, 2]),
}


def _perceptron(x: bt.Tensor, y: bt.Tensor) -> bt.Vector:
    model = bt.nn.MLP(bt.Parameters(dtype="float64", seed=9), [4, 3, 1])
    return model([x, y])


@pytest.mark.parametrize("name", ONE_CALL)
def test_one_call_may_read_several_parameters(name):
    function, shapes = ONE_CALL[name]

    def gradients(params):
        tensors = [p.tensor(shape, init=("uniform", 0.5, 1.5)) for p, shape in zip(params, shapes)]
        start = 0.1
        for p in dict.fromkeys(params):
            for k in range(p.n):
                p.values[k] = start = (start * 7.3 + 0.37) % 1.9
        with bt.Graph():
            y = function(*tensors)
            y = (y * y).sum() if isinstance(y, bt.Vector) else y * y
            y.backward()
        return float(y), [g for p in dict.fromkeys(params) for g in p.grads]

    one = bt.Parameters(dtype="float64")
    several = [bt.Parameters(dtype="float64") for _ in shapes]
    assert gradients(several) == gradients([one] * len(shapes))
