"""Arrays of a graph: the same bits as a traced function in numbers and gradients, and the guarantees of a graph's
nodes."""

from __future__ import annotations

import array
import copy
import gc
import itertools
import operator
import pickle
import random
import runpy
import signal
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

cases = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_array_gradients.py"))))
reference = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("second_derivatives.py"))))
# Bodies draw from a seed; and special values overflow.
pytestmark = pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning", "ignore::RuntimeWarning")
A = cases.A
SPECIAL = np.array(reference.SPECIAL)
PAIRS = np.array(list(itertools.product(reference.SPECIAL, repeat=2))).T


def bits(x):
    """The bits of numbers as float64; all NaNs have the same."""
    x = np.asarray(x, float)
    return np.where(np.isnan(x), np.nan, x).view("u8").tolist()


SHARING = ("products", "vectors", "repeats", "softmax", "diff")
"""Bodies with a common subexpression, which a traced program computes once, so that it adds adjoints in another
order."""


def check(body, *arrays, of=None, is_shared=False):
    """Numbers and gradients of both, for a body that returns an Array."""
    name = "float32" if all(x.dtype == np.float32 for x in arrays) else "float64"
    loss = of or cases.total(body)
    value, gradients = bt.value_and_grad(bt.function(loss, dtype=name), tuple(range(len(arrays))))(*arrays)
    graph = bt.Graph(dtype=name)
    xs = [graph.array(x) for x in arrays]
    with graph:
        y = loss(*xs)
        y.backward()
    compared = [(y.data, value), *((x.grad, gradient) for x, gradient in zip(xs, gradients))]
    if of is None:
        compared.append((body(*xs).data, bt.function(body, dtype=name)(*arrays)))
    for found, expected in compared:
        if is_shared:
            assert cases.same(found, expected, 1e-13 if name == "float64" else 2e-5)
        else:
            assert bits(found) == bits(expected)


@pytest.mark.parametrize("name", cases.BODIES)
def test_bodies_have_the_bits_of_traced_ones(name):
    check(cases.BODIES[name], A, is_shared=name in SHARING)
    check(cases.BODIES[name], A.astype(np.float32), is_shared=name in SHARING)


@pytest.mark.parametrize("name", reference.UNARY)
def test_ops_of_one_operand_at_special_values(name):
    check(getattr(bt, name), SPECIAL)
    check(getattr(bt, name), np.linspace(-3, 3, 77, dtype=np.float32))


@pytest.mark.parametrize("name", reference.BINARY)
def test_ops_of_two_operands_at_special_values(name):
    op = getattr(bt, name)
    weights = np.cos(np.arange(PAIRS.shape[1]))
    check(op, *PAIRS, of=lambda x, y: (op(x, y) * weights).sum())


SMOOTH = [
    np.sin,
    np.tanh,
    lambda x: np.exp(-x),
    lambda x: x**2,
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x[..., 1:],
    lambda x: np.cumsum(x, -1),
    lambda x: x[[0, -1, 0]],
]
PAIRS_OF = [
    np.add,
    np.multiply,
    np.subtract,
    np.logaddexp,
    lambda x, y: np.where(x > y, x, y),
    np.maximum,
    operator.truediv,
    lambda x, y: x * y[:1],
    lambda x, y: x @ y.T,
]


def program(seed):
    """A random body without common subexpressions."""

    def body(x):
        dice, values, done = random.Random(seed), [x], set()
        while len(values) < 9:
            at, beside, kind = dice.randrange(len(values)), dice.randrange(len(values)), dice.choice([1, 1, 2, 3])
            which = dice.randrange(9)
            x, y = values[at], values[beside]
            of_pair = {7: ("row", beside), 8: (1, 4, beside)}.get(which, (which, at, beside))
            part = [(1, which, at), of_pair, (which % 3, which // 3, at)][kind - 1]
            if x.ndim != 2 or min(x.shape) < 2 or part in done or (kind == 2 and x.shape != y.shape):
                values.append(x * (0.9 + len(values)))
                continue
            done.add(part)
            if kind < 2:
                values.append(SMOOTH[which](x))
            elif kind == 2:
                values.append(PAIRS_OF[which](x, y))
            else:
                reduced = [np.sum, np.max, np.prod][which % 3](x, axis=[None, 0, 1][which // 3], keepdims=True)
                values.append(reduced + len(values) if which % 2 else reduced * y)
        return sum((value * (k + 0.3)).sum() for k, value in enumerate(values))

    return body


@pytest.mark.parametrize("block", range(10))
def test_random_programs_have_the_bits_of_traced_ones(block):
    for seed in range(block * 20, block * 20 + 20):
        try:
            bt.function(program(seed))(A)
        except ValueError:
            continue  # shapes that do not broadcast
        check(None, A, of=program(seed))


def test_unselected_elements_have_no_gradient():
    x = bt.array([[0.0, 4.0], [9.0, 0.0]])
    (np.sqrt(x)[0, 1] + np.where(x > 5, np.sqrt(x), 0.0).sum()).backward()
    assert x.grad.tolist() == [[0.0, 0.25], [1 / 6, 0.0]]
    x.grad = 0
    np.sqrt(x)[x > 0].sum().backward()
    assert x.grad.tolist() == [[0.0, 0.25], [1 / 6, 0.0]]


def test_numbers():
    x = bt.array([[1, 2], [3, 4]])
    assert x.dtype == np.int64
    assert x.tolist() == [[1, 2], [3, 4]]
    assert (x > 2).data.tolist() == [[False, False], [True, True]]
    y = bt.array(2.5)
    assert (y.shape, y.data, float(y), int(y), y.item(), bool(y)) == ((), 2.5, 2.5, 2, 2.5, True)
    assert type(y.data) is float
    assert repr(bt.array([1.0, 2.0])) == "Array([1., 2.])"
    z = bt.Graph(dtype="float32").array(np.arange(3.0))
    assert z.data.dtype == np.asarray(z.detach()).dtype == np.float32
    assert np.asarray(z.detach(), dtype=float).dtype == float
    with pytest.raises(TypeError, match="no gradient"):
        np.asarray(z)
    with pytest.raises(ValueError, match="copied"):
        np.array(z.detach(), copy=False)
    data = z.data
    data[:] = 7
    assert z.data.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="ambiguous"):
        bool(z)
    assert bt.array(array.array("d", [1.0, 2.0])).tolist() == [1.0, 2.0]


def test_gradients_are_added_up():
    x, unused = bt.array([1.0, 2.0]), bt.array([3.0])
    y = x * x
    z = y.sum()
    z.backward()
    assert (x.grad.tolist(), y.grad.tolist(), z.grad, unused.grad.tolist()) == ([2.0, 4.0], [1.0, 1.0], 1.0, [0.0])
    z.backward(2.0)
    assert (x.grad.tolist(), y.grad.tolist()) == ([6.0, 12.0], [2.0, 2.0])
    (x * 5).backward(np.array([1.0, 0.5]))
    assert (x.grad.tolist(), y.grad.tolist()) == ([11.0, 14.5], [0.0, 0.0])
    x.grad = [0.0, 1.0] @ np.eye(2)
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 2.0]
    bt.current_graph().zero_grad()
    assert x.grad.tolist() == [0.0, 0.0]
    for wrong in (np.ones(3), 1.0):
        with pytest.raises(ValueError, match="shape"):
            y.backward(wrong)
    with pytest.raises(ValueError, match="seed="):
        y.backward()
    with pytest.raises(TypeError):
        y.grad = 0
    with pytest.raises(TypeError):
        (x > 1).any().backward()
    x.detach().sum().backward()
    bt.array([1, 2]).sum().astype(float).backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_assigned_data_count_from_then_on():
    x = bt.array([1.0, 2.0])
    y = (x * x).sum()
    x.data = [3.0, 5.0]
    assert y.data == 5.0
    y.backward()
    assert x.grad.tolist() == [6.0, 10.0]
    with pytest.raises(ValueError, match="shape"):
        x.data = np.zeros(3)


def test_no_grad_records_nothing():
    x = bt.array(np.ones(1000))
    with bt.no_grad():
        y = (x * 2).sum()
        leaf = bt.array([1.0])
    y.backward()
    leaf.sum().backward()
    assert not x.grad.any()
    assert not leaf.grad.any()
    graph = bt.Graph()
    v = graph.array([1.0])
    before = graph.set_no_grad(True)
    w = v * 2
    graph.set_no_grad(before)
    w.sum().backward()
    assert v.grad.tolist() == [0.0]


def test_rewinds_make_arrays_stale():
    graph = bt.Graph()
    x = graph.array([1.0, 2.0])
    outer = graph.mark()
    y = x * 2
    inner = graph.mark()
    z = y + 1
    graph.rewind(inner)
    again = y + 1
    assert again.data.tolist() == [3.0, 5.0]
    for use in (lambda: z + 1, lambda: z.data, lambda: z.sum(), lambda: z.tolist(), lambda: z.grad):
        with pytest.raises(bt.StaleValueError):
            use()
    assert "shape" in repr(z)
    graph.rewind(outer)
    with pytest.raises(bt.StaleValueError):
        again.sum()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    with graph.scope():
        inside = x + 1
    with pytest.raises(bt.StaleValueError):
        inside.sum()
    graph.clear()
    with pytest.raises(bt.StaleValueError):
        x.sum()
    with pytest.raises(bt.StaleValueError):
        x.backward(np.ones(2))


def test_arrays_of_two_graphs_do_not_mix():
    x, y = bt.Graph().array([1.0]), bt.Graph().array([1.0])
    with pytest.raises(bt.GraphMismatchError):
        x + y
    with pytest.raises(bt.GraphMismatchError):
        bt.concatenate([x, y])
    for graph in (bt.Graph(dtype="float16"), bt.Graph(dtype="float32x4"), bt.Graph(capacity=9, fixed=True)):
        with pytest.raises(TypeError, match="float64 or float32"):
            graph.array([1.0])


@pytest.mark.parametrize("made", [lambda g: g.value(2.0), lambda g: g.vector([1.0, 2.0])])
def test_values_are_arrays_beside_arrays_of_their_graph(made):
    graph, other = bt.Graph(), bt.Graph()
    x, v = graph.array([1.0, 2.0]), made(graph)
    for use in (lambda: x * v, lambda: v * x, lambda: v - x, lambda: np.add(x, v), lambda: x < v):
        assert isinstance(use(), bt.Array)
    assert isinstance(graph.array(v), bt.Array)
    w = made(other)
    for use in (lambda: x * w, lambda: w * x, lambda: x @ w, lambda: w - x, lambda: np.add(x, w), lambda: x < w):
        with pytest.raises((TypeError, bt.GraphMismatchError), match="graph"):
            use()
    with pytest.raises((TypeError, bt.GraphMismatchError), match="graph"):
        graph.array(w)


def test_what_is_no_array():
    graph = bt.Graph()
    for wrong in ("1", None, 1j, [[1.0], [1.0, 2.0]], ["a"], np.array(["a"]), object()):
        with pytest.raises((TypeError, ValueError)):
            graph.array(wrong)


def test_tensors_of_parameters_take_part():
    params = bt.Parameters(dtype="float64", seed=1)
    w, b = params.tensor((4, 3)), params.tensor(3, init=0.5)
    frozen = params.tensor(3, init=2.0)
    params.freeze(frozen)

    def loss(x):
        return (bt.tanh(x @ w + b) * w[0] * frozen).sum()

    _, expected = bt.function(loss).value_and_param_grad(A)
    expected = np.array(expected)
    params.zero_grad()
    loss(bt.array(A)).backward()
    assert cases.same(params.grads, expected, 1e-14)
    assert not np.array(params.grads)[-3:].any()
    loss(bt.array(A)).backward()
    assert cases.same(params.grads, 2 * expected, 1e-14)
    params.zero_grad()
    with bt.no_grad():
        y = loss(bt.array(A))
    y.backward()
    assert not np.array(params.grads).any()
    alone = bt.current_graph().array(w)
    assert alone.shape == (4, 3)
    alone.sum().backward()
    assert np.array(params.grads).tolist() == [1.0] * 12 + [0.0] * 6
    with pytest.raises(TypeError, match="float32"):
        bt.Graph(dtype="float32").array(A) @ w


def test_a_step_of_training():
    params = bt.Parameters(dtype="float64", seed=0)
    w, optimiser = params.tensor((4, 1), init=0.0), bt.optim.SGD(params, lr=0.05)
    target = A @ np.array([[1.0], [-2.0], [0.5], [3.0]])
    losses = []
    for _ in range(50):
        optimiser.zero_grad()
        loss = ((bt.array(A) @ w - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.data)
    assert losses[-1] < losses[0] / 20


def test_transforms_of_arrays_of_a_graph():
    x = bt.array([1.0, 2.0])
    scale = bt.array(3.0)

    def f(v):
        return (v**3 * scale).sum() if v.sum() > 0 else v.sum()

    slope = bt.grad(f)(x)
    assert slope.data.tolist() == [9.0, 36.0]
    slope.sum().backward()
    assert (x.grad.tolist(), scale.grad) == ([18.0, 36.0], 15.0)
    assert bt.hvp(f)(x, np.array([1.0, 0.0])).data.tolist() == [18.0, 0.0]
    assert bt.jacobian(lambda v: v * scale)(x).data.tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert bt.vmap(lambda v: v * scale)(x).data.tolist() == [3.0, 6.0]
    last, all_of_them = bt.scan(lambda c, v: (c * v + scale, c), bt.array(1.0), x)
    assert (last.data, all_of_them.data.tolist()) == (11.0, [1.0, 4.0])
    x.grad = 0
    last.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert bt.while_loop(lambda c: c < 100.0, lambda c: c * scale, bt.array(1.0)).data == 243.0
    assert bt.cond(x.sum() > 1.0, lambda v: v * 2, lambda v: v, x).data.tolist() == [2.0, 4.0]
    assert bt.function(lambda v: v * 2)(x).data.tolist() == [2.0, 4.0]
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=3.0)
    last, _ = bt.scan(lambda c, v: ((c * w).sum() + v, None), bt.array(1.0), x)
    last.backward()
    assert last.data == 44.0
    value, gradient = bt.function(lambda v: (v * w).sum()).value_and_param_grad(x)
    assert (value.data, gradient.data.tolist()) == (9.0, [1.0, 2.0])


def test_a_graph_keeps_no_parameters_that_nothing_reads():
    graph = bt.Graph()
    x = graph.array([1.0, 2.0])

    def read():
        params = bt.Parameters(dtype="float64")
        y = (x * params.tensor(2, init=3.0)).sum()
        return weakref.ref(params), y

    gone, y = read()
    gc.collect()
    y.backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert list(gone().grads) == [1.0, 2.0]
    del y
    gc.collect()
    assert gone() is None
    others = [read() for _ in range(5)]
    for k, (params, y) in enumerate(others):
        y.backward(k)
        assert list(params().grads) == [k, 2.0 * k]


def test_a_trace_takes_no_array_of_a_graph_for_constant():
    x = bt.array([1.0, 2.0])
    for f in (bt.function(lambda a: (a * x).sum()), bt.grad(lambda a: (a * x).sum())):
        with pytest.raises(bt.TraceError, match="argument"):
            f(np.ones((1, 2)))
    assert bt.function(lambda a: bt.array([1.0, 2.0]) * a)(np.ones((1, 2))).tolist() == [[1.0, 2.0]]


def test_memory_goes_with_the_arrays():
    x = bt.array(np.ones(10))
    kept = weakref.ref(x * 1)
    gc.collect()
    assert kept() is None
    for _ in range(100_000):
        x = x * 1.0
    x.sum().backward()
    del x
    graph = bt.Graph()
    total = graph.array(0.0)
    for _ in range(1000):
        with bt.no_grad():
            total = total + np.ones(100_000)
    assert total.data[0] == 1000.0


def test_singles_cannot_be_copied_to_another_place():
    x = bt.array([1.0])
    assert x.copy() is x
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            use(x)


def test_an_interrupt_changes_nothing():
    x = bt.array(np.full(100_000, 0.3))
    y = x
    for _ in range(100):
        y = np.tanh(y)
    y = y.sum()

    def raising(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raising)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        with pytest.raises(KeyboardInterrupt):
            y.backward()
        assert not x.grad.any()
        assert y.grad == 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_uses_the_graph_is_refused():
    x = bt.array(np.full(100_000, 0.3))
    y = x
    for _ in range(100):
        y = np.tanh(y)
    y, found = y.sum(), []

    def handler(*_):
        for use in (y.backward, lambda: x * 2):
            try:
                use()
            except bt.BusyError as error:
                found.append(error)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        # On a busy machine the alarm may come before the sweep.
        for _ in range(50):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            y.backward()
            if found:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(found) == 2
    assert x.grad.any()


def test_refused_memory_changes_nothing():
    x = bt.array(np.ones(4))
    for use in (lambda: np.broadcast_to(x[:, None], (4, 1 << 45)) * 2.0, lambda: bt.outer(x, bt.tile(x, 1 << 44))):
        with pytest.raises(MemoryError):
            use()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def test_threads_have_graphs_of_their_own():
    found = []

    def work(k):
        with bt.Graph():
            for _ in range(50):
                x = bt.array(np.full(100, float(k)))
                (x * x).sum().backward()
            found.append((k, x.grad[0]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(k, 2.0 * k) for k in range(4)]


class Foreign:
    """An array of a library without dtype kinds, such as PyTorch, which shares its memory."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, object(), array.shape

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_of_other_libraries_are_read(dtype, shape):
    numbers = np.ones(shape, dtype)
    for found in (bt.array(Foreign(numbers)), bt.Graph().array(Foreign(numbers))):
        expected = bt.array(numbers)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(found.data, expected.data)
    if shape:
        total = bt.function(lambda x: (x * bt.array(Foreign(numbers))).sum())
        assert total(np.full(shape, 2.0)) == 2.0 * numbers.size


def test_tensors_of_pytorch_are_read():
    torch = pytest.importorskip("torch")
    x = bt.array(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    (x * x).sum().backward()
    assert x.grad.tolist() == [[2.0, 4.0]]
