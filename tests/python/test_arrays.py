"""Arrays over the memory of a graph or of Parameters: shared if the memory never moves, otherwise copies; through
the buffer protocol and DLPack; holding an array makes no call fail."""

from __future__ import annotations

import array
import gc
import math
import struct

import pytest

import burtorch as bt
from burtorch import Value

np = pytest.importorskip("numpy")


def fixed(dtype="float64", capacity=64):
    return bt.Graph(dtype, capacity=capacity, fixed=True)


def in_buffer(dtype="float64", capacity=64):
    return bt.Graph(dtype, buffer=bytearray(bt.bytes_needed(capacity, dtype)), capacity=capacity)


@pytest.mark.parametrize("make", [fixed, in_buffer])
@pytest.mark.parametrize(("dtype", "code"), [("float64", "d"), ("float32", "f"), ("float16", "e")])
def test_vectors_of_graphs_that_never_move_are_shared(make, dtype, code):
    graph = make(dtype)
    x = graph.vector([1.0, 2.0, 3.0])
    y = x * x
    data = x.data
    assert (data.is_copy, data.dtype, len(data)) == (False, dtype, 3)
    assert memoryview(data).format == code
    view = np.asarray(data)
    assert np.shares_memory(view, np.asarray(x.data))
    view[1] = 5.0
    assert (x[1].data, x.data[1]) == (5.0, 5.0)
    x.data = [7.0, 8.0, 9.0]
    assert view.tolist() == [7.0, 8.0, 9.0]
    x.data = [1.0, 2.0, 3.0]
    y.sum().backward()
    grads = np.asarray(x.grad)
    assert grads.tolist() == [2.0, 4.0, 6.0]
    grads[:] = 0
    assert list(x.grad) == [0.0] * 3
    y.sum().backward()
    assert grads.tolist() == [2.0, 4.0, 6.0]
    assert (x.grad.is_copy, y.data.is_copy, y[1:].data.is_copy) == (False, False, False)
    assert list(y[1:].data) == [4.0, 9.0]


def test_adjoints_are_shared_and_read_only():
    graph = fixed()
    x = graph.vector([1.0, 2.0, 3.0])
    y = x * x
    y[1].backward()
    grads = y.grad
    assert (list(grads), grads.is_copy) == ([0.0, 1.0, 0.0], False)
    assert not np.asarray(grads).flags.writeable
    assert memoryview(grads).readonly
    with pytest.raises(TypeError, match="adjoints"):
        grads[0] = 1.0
    with pytest.raises(TypeError, match="adjoints"):
        grads[:2] = 1.0
    y.grad = 2.0
    assert list(grads) == [2.0] * 3
    y[0].backward()
    assert list(grads) == [1.0, 0.0, 0.0]


def test_unshareable_memory_is_copied_and_marked():
    growing = bt.Graph()
    x = growing.vector([1.0, 2.0])
    copy = x.data
    assert copy.is_copy
    assert "copy" in repr(copy)
    copy[0] = 9.0
    assert x.data[0] == 1.0
    assert (growing.values[0:1].is_copy, x.grad.is_copy) == (True, True)
    graph = fixed()
    a, b = graph.vector([1.0]), graph.vector([2.0])
    y = a + b
    joined = bt.concat(y, a)
    assert (joined.data.is_copy, joined.grad.is_copy, list(joined.data)) == (True, True, [3.0, 1.0])
    half = bt.Graph("bfloat16", capacity=8, fixed=True).vector([1.5, 2.5])
    assert (half.data.is_copy, half.data.dtype, np.asarray(half.data).tolist()) == (True, "float64", [1.5, 2.5])
    lanes = bt.Graph("float64x2", capacity=8, fixed=True).vector([1.0, 2.0])
    assert lanes.data == ((1.0, 1.0), (2.0, 2.0))


@pytest.mark.parametrize("make", [fixed, in_buffer, bt.Graph], ids=lambda make: make.__name__)
def test_graph_values_by_index(make):
    graph = make()
    x = graph.vector([1.0, 2.0, 3.0])
    y = x * 2
    values = graph.values
    assert (len(values), values[0], values[-1], list(values)) == (7, 1.0, 6.0, [1, 2, 3, 2, 2, 4, 6])
    part = values[4:7]
    assert list(part) == [2.0, 4.0, 6.0]
    assert part.is_copy is (make is bt.Graph)
    assert np.asarray(values).tolist() == np.from_dlpack(values).tolist() == list(values)
    values[0] = 10.0
    values[1:3] = [20.0, 30.0]
    assert list(x.data) == [10.0, 20.0, 30.0]
    values[4:] = 0.5
    assert list(y.data) == [0.5] * 3
    assert "7 nodes" in repr(values)
    for wrong, error in [
        (lambda: values[7], IndexError),
        (lambda: values["a"], TypeError),
        (lambda: values[::2], ValueError),
        (lambda: values.__setitem__(0, "a"), TypeError),
        (lambda: values.__setitem__(slice(0, 2), [1.0]), ValueError),
        (lambda: values.__setitem__(slice(0, 2), None), TypeError),
        (lambda: values.__setitem__(99, 1.0), IndexError),
    ]:
        with pytest.raises(error):
            wrong()
    assert list(x.data) == [10.0, 20.0, 30.0]
    graph.clear()
    assert (len(values), list(values), len(values[:])) == (0, [], 0)


def test_no_operation_fails_because_an_array_is_held():
    graph = fixed(capacity=40)
    x = graph.vector([1.0, 2.0, 3.0])
    held = [x.data, memoryview(x.data), np.asarray(graph.values[:]), np.from_dlpack(x.data), x.grad]
    mark = graph.mark()
    y = (x * x).sum()
    y.backward()
    graph.zero_grad()
    graph.rewind(mark)
    graph.collect()
    (x + 1).sum().backward()
    assert list(held[-1]) == [1.0] * 3
    graph.clear()
    z = graph.vector([4.0, 5.0, 6.0])
    # The memory has not moved; arrays show the nodes that are there now.
    assert held[2][:3].tolist() == list(z.data)
    del graph, x, y, z, mark
    gc.collect()
    assert held[3].tolist() == [4.0, 5.0, 6.0]
    params = bt.Parameters()
    arrays = [params.values, np.asarray(params.tensor(3).values), params.grads]
    for _ in range(10):
        params.tensor((100, 100))
    params.freeze((0, 50))
    arrays[1][:] = 7.0
    assert list(params.values[:3]) == [7.0] * 3
    memory = bytearray(bt.bytes_needed(10))
    owner = bt.Graph(buffer=memory)
    with pytest.raises(BufferError):
        memory.append(0)  # the owner's memory moves, not the array's
    assert owner.fixed


def test_arrays_behave_as_sequences():
    params = bt.Parameters(dtype="float64")
    a = params.tensor(4, init=1.0).values
    a[:] = [1.0, 2.0, 3.0, 4.0]
    assert a == [1.0, 2.0, 3.0, 4.0] == a.tolist()
    assert a == (1.0, 2.0, 3.0, 4.0)
    assert a == array.array("d", [1, 2, 3, 4])
    assert a == a[:]
    assert a != [1.0, 2.0]
    assert a != "abcd"
    assert a is not None
    with pytest.raises(TypeError):
        hash(a)
    assert a[1:3] == [2.0, 3.0]
    a[1:3][0] = 9.0
    assert a[1] == 9.0
    assert sum(a) == 17.0
    assert math.fsum(a) == 17.0
    copy = Value(1.0).graph.vector(a).data
    assert copy == a
    assert len(bt.current_graph().vector([1.0])[:0].data) == 0
    assert struct.unpack("4d", a) == (1.0, 9.0, 3.0, 4.0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_dlpack_shares_memory(dtype):
    params = bt.Parameters(dtype=dtype)
    w = params.tensor(3, init=2.0)
    view = np.from_dlpack(w.values)
    assert np.shares_memory(view, np.asarray(w.values))
    assert (view.dtype.name, w.values.__dlpack_device__()) == (dtype, (1, 0))
    w.values[1] = 5.0
    assert view.tolist() == [2.0, 5.0, 2.0]
    copied = np.from_dlpack(w.values, copy=True)
    w.values[0] = 9.0
    assert copied.tolist() == [2.0, 5.0, 2.0]
    del params, w
    gc.collect()
    assert view[0] == 9.0


def test_dlpack_refuses_unsupported_types():
    graph = fixed()
    x = graph.vector([1.0, 2.0])
    y = x * x
    y[0].backward()
    adjoints = y.grad
    assert not np.from_dlpack(adjoints).flags.writeable
    with pytest.raises(BufferError, match="max_version"):
        adjoints.__dlpack__()
    with pytest.raises(BufferError, match="CPU"):
        x.data.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="CPU"):
        x.data.__dlpack__(stream=1)
    assert np.from_dlpack(adjoints, copy=True).flags.writeable is not None
    wide = bt.Parameters(dtype="float128")
    wide.tensor(2)
    with pytest.raises(BufferError, match="float128"):
        wide.values.__dlpack__()
    for version in (None, (0, 8), (1, 0), (2, 0)):
        capsule = x.data.__dlpack__(max_version=version)
        assert "dltensor" in repr(capsule)
        del capsule  # an unused capsule frees its array
    gc.collect()


def test_torch_shares_memory():
    torch = pytest.importorskip("torch")
    params = bt.Parameters(dtype="bfloat16")
    params.tensor(2, init=1.5)
    assert torch.from_dlpack(params.values).dtype is torch.bfloat16
    graph = fixed()
    x = graph.vector([1.0, 2.0])
    tensor = torch.from_dlpack(x.data)
    tensor[0] = 5.0
    assert x[0].data == 5.0
    del graph, x
    gc.collect()
    assert tensor.tolist() == [5.0, 2.0]
