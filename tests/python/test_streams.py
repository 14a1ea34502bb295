"""Gradients in parts: each parameter once, in a fixed order, with the bits of the whole gradient, on any thread."""

from __future__ import annotations

import hashlib
import itertools
import random
import threading

import numpy as np
import pytest

import burtorch as bt


def any_model(kind, dtype, draw):
    params = bt.Parameters(dtype=dtype, seed=draw.randrange(100))
    if draw.random() < 0.3:
        params.tensor(draw.randrange(1, 5))
    if kind == "gpt":
        return bt.nn.GPT(params, vocab=7, context=4, layers=draw.choice([1, 3]), heads=2, width=6)
    if kind == "char":
        return bt.nn.CharMLP(params, vocab=7, context=4, embedding=draw.randrange(1, 6), hidden=draw.choice([3, 16]))
    return bt.nn.MLP(params, [4] + [draw.randrange(1, 20) for _ in range(draw.randrange(4))] + [7])


def batch_of(kind, n, draw):
    if kind == "mlp":
        return [[draw.uniform(-1, 1) for _ in range(4)] for _ in range(n)], [draw.randrange(7) for _ in range(n)]
    tokens = [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    if kind == "gpt":
        return tokens, [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    return tokens, [draw.randrange(7) for _ in range(n)]


def parts_of(oracle, x, y, **options):
    """The loss, and a list of (range, array)."""
    came = []
    loss = oracle.stream(x, y, lambda r, g: came.append((r, np.array(g))), **options)
    return loss, came


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["char", "gpt", "mlp"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_parameter_comes_once_with_its_bits(kind, dtype, threads):
    draw = random.Random(threads)
    for _ in range(6):
        model = any_model(kind, dtype, draw)
        params = model.params
        left = np.full(params.n, 3.0, dtype)
        if draw.random() < 0.4:
            frozen = sorted(draw.sample(range(params.n), params.n // 3))
            params.freeze(frozen)
            left[frozen] = 0.0
        oracle = bt.Oracle(model, threads=threads, lanes=draw.choice([None, None, 4, 8]))
        order = set()
        for n in (1, 3, 16, 17, 64, 70, 140):
            x, y = batch_of(kind, n, draw)
            loss, grad = oracle(x, y)
            full = np.array(grad)
            for options in ({}, {"keep": False}, {"on_thread": True}, {"keep": False, "on_thread": True}):
                params.grads[:] = left
                found, came = parts_of(oracle, x, y, **options)
                assert found == loss
                assert sorted(k for r, _ in came for k in r) == list(range(params.n))
                for r, part in came:
                    assert part.dtype == full.dtype
                    assert part.tobytes() == full[r.start : r.stop].tobytes()
                if options.get("keep", True):
                    assert np.array(params.grads).tobytes() == full.tobytes()
                else:
                    assert np.array(params.grads).tobytes() == left.tobytes()
                order.add(tuple(r for r, _ in came))
        assert len(order) == 1


def test_the_last_layers_come_first():
    params = bt.Parameters(dtype="float64")
    oracle = bt.Oracle(bt.nn.MLP(params, [3, 4, 5, 2]))
    _, came = parts_of(oracle, [[1.0, 2.0, 3.0]], [1])
    bounds = [53, 51, 41, 36, 16, 12, 0]
    assert [r for r, _ in came] == [range(start, stop) for stop, start in itertools.pairwise(bounds)]
    gpt = bt.nn.GPT(bt.Parameters(seed=1), vocab=9, context=6, layers=3, heads=2, width=8)
    _, came = parts_of(bt.Oracle(gpt), [[1, 2, 3, 4, 5, 6]], [[2, 3, 4, 5, 6, 7]])
    starts = [r.start for r, _ in came]
    assert len(starts) > 6
    assert starts == sorted(starts, reverse=True)


def test_one_hash_over_threads():
    draw = random.Random(1)
    x, y = batch_of("char", 333, draw)
    hashes = set()
    for threads in (1, 2, 8):
        for keep in (True, False):
            model = bt.nn.CharMLP(bt.Parameters(seed=4), vocab=7, context=4, embedding=5, hidden=32)
            found = hashlib.sha256()
            for r, part in parts_of(bt.Oracle(model, threads=threads), x, y, keep=keep)[1]:
                found.update(repr(r).encode() + part.tobytes())
            hashes.add(found.hexdigest())
    assert len(hashes) == 1


def test_parts_come_before_the_sweep_ends():
    """When the last layer is emitted, the gradient of the first one has not been written."""
    params = bt.Parameters(dtype="float64")
    oracle = bt.Oracle(bt.nn.MLP(params, [3, 4, 2]))
    x, y = [[1.0, 2.0, 3.0]], [1]
    grads = np.asarray(params.grads)
    grads[:] = 7.0
    seen = []
    oracle.stream(x, y, lambda r, g: seen.append((r, (grads[:16] == 7.0).all())))
    assert seen == [(range(24, 26), True), (range(16, 24), True), (range(12, 16), False), (range(12), False)]


@pytest.mark.parametrize("on_thread", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("n", [1, 200])
def test_an_exception_of_emit_ends_the_pass(on_thread, keep, n):
    draw = random.Random(2)
    model = any_model("char", "float64", draw)
    params = model.params
    oracle = bt.Oracle(model, threads=2)
    x, y = batch_of("char", n, draw)
    loss, grad = oracle(x, y)
    full, values = np.array(grad), np.array(params.values).tobytes()
    n_parts = len(parts_of(oracle, x, y)[1])
    for k in range(n_parts):
        left = [k]

        def emit(r, g, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise ZeroDivisionError("no more")

        params.grads[:] = 5.0
        with pytest.raises(ZeroDivisionError, match="no more"):
            oracle.stream(x, y, emit, keep=keep, on_thread=on_thread)
        assert np.array(params.values).tobytes() == values
        if not keep:
            assert set(params.grads) == {5.0}
        else:
            assert not np.array(params.grads).any()
        assert oracle(x, y)[0] == loss
        assert np.array(params.grads).tobytes() == full.tobytes()


def test_another_thread_receives_parts():
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.MLP(params, [3, 4, 2]))
    told = []
    oracle.stream([[1.0, 2.0, 3.0]], [1], lambda r, g: told.append(threading.get_ident()), on_thread=True)
    assert len(set(told)) == 1
    assert threading.get_ident() not in told
    oracle.stream([[1.0, 2.0, 3.0]], [1], lambda r, g: told.append(threading.get_ident()))
    assert told[-1] == threading.get_ident()


def test_points_and_memory_of_the_caller():
    draw = random.Random(3)
    model = any_model("char", "float64", draw)
    oracle = bt.Oracle(model)
    x, y = batch_of("char", 5, draw)
    point = np.array(model.params.values) * 0.5
    out = np.empty(model.params.n)
    loss, grad = oracle(x, y, at=point, out=np.empty(model.params.n))
    for options in ({}, {"out": out}, {"keep": False}):
        found, came = parts_of(oracle, x, y, at=point, **options)
        assert found == loss
        for r, part in came:
            assert part.tobytes() == grad[r.start : r.stop].tobytes()
    assert out.tobytes() == grad.tobytes()


def test_nothing_is_used_within_emit():
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.MLP(params, [3, 4, 2]))
    x, y = [[1.0, 2.0, 3.0]], [1]
    with pytest.raises(bt.BusyError):
        oracle.stream(x, y, lambda r, g: oracle(x, y))
    with pytest.raises(bt.BusyError):
        oracle.stream(x, y, lambda r, g: params.zero_grad())
    assert oracle(x, y)[0] > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [None, 4])
def test_a_callable_comes_tensor_by_tensor(dtype, lanes):
    """In lanes the newest comes first, with numbers on their own in one range; a program passes on what it reads, and
    then the rest. More tensors than wait for another thread."""
    params = bt.Parameters(dtype=dtype, seed=1)
    w = params.tensor(3, init="normal")
    a, b = params.tensor(1, init=0.5), params.tensor(1, init=1.5)
    for _ in range(300):
        params.tensor(2)
    last = params.tensor((2, 3), init="normal")
    x = np.arange(12.0).reshape(4, 3)

    def call(row):
        return ((w * row).sum() * a[0] + b[0] + (last[1] * row).sum()) ** 2

    oracle = bt.Oracle(call, params=params, lanes=lanes)
    loss, grad = oracle(x)
    full = np.array(grad)
    expected = [range(605, 611), *(range(k, k + 2) for k in range(603, 4, -2)), range(3, 5), range(3)]
    if lanes is None:
        expected = [r for r, _ in parts_of(oracle, x, None)[1]]
        assert sorted(k for r in expected for k in r) == list(range(611))
        assert len(expected) < 9
    for options in ({}, {"keep": False}, {"on_thread": True}, {"keep": False, "on_thread": True}):
        params.grads[:] = 0.5
        found, came = parts_of(oracle, x, None, **options)
        assert found == loss
        assert [r for r, _ in came] == expected
        for r, part in came:
            assert part.dtype == full.dtype
            assert part.tobytes() == full[r.start : r.stop].tobytes()
        assert np.array(params.grads).tobytes() == (full if options.get("keep", True) else full * 0 + 0.5).tobytes()


def layers(params, sizes):
    """A callable of dense layers."""
    weights = [params.tensor((n, m), init="normal") for m, n in itertools.pairwise(sizes)]
    biases = [params.tensor(n, init=0.1) for n in sizes[1:]]

    def loss(row, target):
        for w, b in zip(weights, biases, strict=True):
            row = (w @ row * 0.2 + b).tanh()
        return ((row - target) ** 2).sum()

    return loss


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 16, 37, 300])
def test_a_program_passes_parts_on_while_it_computes(dtype, n):
    """Of one block of samples and of several: the last layer first, with the bits of the whole gradient, also at
    another point."""
    params = bt.Parameters(dtype=dtype, seed=1)
    call = layers(params, [5, 8, 8, 8, 2])
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, 5)), rng.normal(size=(n, 2))
    oracle = bt.Oracle(call, params=params)
    point = np.array(params.values) * 0.5
    # Weights of the layers lie before their biases; a bias needs less of the backward pass than a weight.
    matrices, biases = [0, 40, 104, 168, 184], [184, 192, 200, 208, 210]
    spans = [range(bounds[k], bounds[k + 1]) for k in (3, 2, 1, 0) for bounds in (biases, matrices)]
    for more in ({}, {"at": point}):
        full = np.zeros(params.n, dtype)
        loss, _ = oracle(x, y, out=full, **more)
        for options in ({}, {"keep": False}, {"on_thread": True}, {"out": np.zeros(params.n, dtype)}):
            params.grads[:] = 0.5
            found, came = parts_of(oracle, x, y, **options, **more)
            assert found == loss
            ranges = [r for r, _ in came]
            assert ranges == spans
            for r, part in came:
                assert part.tobytes() == full[r.start : r.stop].tobytes()


def any_callable(draw, dtype):
    """A random callable of dense layers, and its weights that are read once, the lowest layer first."""
    params, width = bt.Parameters(dtype=dtype, seed=draw.randrange(100)), draw.choice([2, 3, 8])
    weights = [params.tensor((width, width), init="normal") for _ in range(draw.randrange(2, 6))]
    shapes = [draw.choice([None, width, (3, width)]) for _ in weights]
    others = [shape and params.tensor(shape, init="normal") for shape in shapes]
    if draw.random() < 0.3:
        params.tensor(3)
    reads = list(range(len(weights)))
    if draw.random() < 0.3:
        reads.append(draw.randrange(len(weights)))

    def loss(row, *target):
        for k in reads:
            row, other = weights[k] @ row, others[k]
            if other is not None:
                row = row + (other if shapes[k] == width else other[1] - other[2])
            row = row.tanh() if k % 2 else row * 0.3
        return (row * row).sum()

    once = [k for k in reads if reads.count(k) == 1]
    return params, loss, width, [weights[k].span for k in once]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(12))
def test_random_callables_pass_on_the_last_layer_first(dtype, seed):
    """Layers in a row, with weights read twice, or not at all: each parameter once, with the bits of the whole
    gradient, in one order for all batches, in which weights of a layer come before those of the layers below."""
    draw = random.Random(seed)
    params, call, width, spans = any_callable(draw, dtype)
    oracle, orders = bt.Oracle(call, params=params), set()
    for n in (1, 2, 16, 37, 300):
        x = np.random.default_rng(n).normal(size=(n, width))
        loss, grad = oracle(x)
        full = np.array(grad)
        for options in ({}, {"keep": False}, {"on_thread": True}, {"frozen": True}):
            if options.pop("frozen", False):
                params.freeze(sorted(draw.sample(range(params.n), params.n // 3)))
                full = np.array(oracle(x)[1])
            found, came = parts_of(oracle, x, None, **options)
            assert found == loss
            assert sorted(k for r, _ in came for k in r) == list(range(params.n))
            for r, part in came:
                assert part.tobytes() == full[r.start : r.stop].tobytes()
            for k in (1, params.n // 2):
                message = oracle(x, compress=bt.compress.TopK(k))[1]
                assert message == bt.compress.TopK(k).compress(full)
            params.unfreeze(params)
            orders.add(tuple(r for r, _ in came))
    assert len(orders) == 1
    order = orders.pop()
    when = [next(k for k, r in enumerate(order) if start in r) for start, _ in spans]
    assert when == sorted(when, reverse=True)


def test_another_oracle_streams_within_emit():
    """A stream, its bits and its order do not depend on one that runs within it."""
    outer, inner = bt.Parameters(dtype="float64", seed=1), bt.Parameters(dtype="float64", seed=2)
    first, second = (bt.Oracle(layers(params, [3, 4, 2]), params=params) for params in (outer, inner))
    x, y, came = np.ones((5, 3)), np.zeros((5, 2)), []
    expected = [parts_of(oracle, x, y)[1] for oracle in (first, second)]

    def emit(part, gradient):
        came.append((part, np.array(gradient)))
        again = parts_of(second, x, y)[1]
        assert [(r, g.tobytes()) for r, g in again] == [(r, g.tobytes()) for r, g in expected[1]]

    first.stream(x, y, emit)
    assert [(r, g.tobytes()) for r, g in came] == [(r, g.tobytes()) for r, g in expected[0]]


def test_an_empty_batch_streams_nothing():
    params = bt.Parameters(dtype="float64", seed=1)
    for oracle in (bt.Oracle(layers(params, [3, 2]), params=params), bt.Oracle(bt.nn.MLP(bt.Parameters(), [3, 2]))):
        oracle.params.grads[:] = 2.0
        with pytest.raises(ValueError, match=r"empty|at least one"):
            oracle.stream(np.ones((0, 3)), np.ones((0, 2)), lambda r, g: pytest.fail("a part came"))
        assert set(oracle.params.grads) <= {0.0, 2.0}


@pytest.mark.parametrize("n", [1, 4, 37])
def test_a_token_that_is_set_when_the_first_part_comes_ends_the_rest(n):
    params = bt.Parameters(dtype="float64", seed=1)
    weights = [params.tensor((8, 8), init="normal") for _ in range(5)]

    def loss(row):
        for w in weights:
            row = w @ row
        return (row * row).sum()

    oracle, stop, seen = bt.Oracle(loss, params=params), bt.Stop(), []

    def emit(part, gradient):
        seen.append(part)
        stop.set()

    params.grads[:] = 0.5
    with pytest.raises(bt.StoppedError):
        oracle.stream(np.ones((n, 8)), None, emit, stop=stop)
    assert len(seen) == 1
    assert not np.array(params.grads).any()


@pytest.mark.parametrize("on_thread", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("lanes", [None, 2])
def test_an_exception_of_emit_is_raised_for_a_callable(on_thread, keep, lanes):
    params = bt.Parameters(dtype="float64", seed=1)
    w, _ = params.tensor(3, init="normal"), params.tensor(2)
    oracle = bt.Oracle(lambda row: ((w * row).sum()) ** 2, params=params, lanes=lanes)
    x, seen = np.arange(6.0).reshape(2, 3), []

    def emit(part, gradient):
        seen.append(part)
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        oracle.stream(x, None, emit, on_thread=on_thread, keep=keep)
    assert seen == [range(3) if lanes is None else range(3, 5)]
    assert parts_of(oracle, x, None)[0] == oracle(x)[0]


def test_frozen_parameters_and_branches_of_a_program():
    """Frozen numbers have a gradient of 0; what branches decide on at the end comes afterwards. Bits are the same."""
    params = bt.Parameters(dtype="float64", seed=1)
    w, v = params.tensor(3, init="normal"), params.tensor(2, init="normal")
    x = np.arange(6.0).reshape(2, 3)
    for call in (lambda row: (w * row).sum() * v[0], lambda row: (w * row).sum() if row[0] < 100 else v[0]):
        oracle = bt.Oracle(call, params=params)
        for frozen in (False, True):
            if frozen:
                w.freeze()
            full = np.array(oracle(x)[1])
            _, came = parts_of(oracle, x, None)
            assert sorted(k for r, _ in came for k in r) == list(range(5))
            for r, part in came:
                assert part.tobytes() == full[r.start : r.stop].tobytes()
        w.unfreeze()


def test_a_callable_that_changes_is_not_mixed_up():
    """Parts are of the callable as it is now, though an earlier program was planned."""
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor(3, init="normal")
    scale = [2.0]
    oracle = bt.Oracle(lambda row: (w * row).sum() * scale[0], params=params)
    x = np.arange(6.0).reshape(2, 3)
    for factor in (2.0, 3.0, 2.0):
        scale[0] = factor
        found, came = parts_of(oracle, x, None)
        assert found == oracle.loss(x)
        assert came[0][1].tolist() == (factor * x.mean(axis=0)).tolist()


def test_tensors_of_a_file_come_by_their_names(tmp_path):
    params = bt.Parameters(dtype="float64", seed=1)
    params.tensor(3, name="w", init="normal")
    params.tensor(4)
    params.tensor(2, name="v", init="normal")
    params.save(tmp_path / "p.bt")
    loaded = bt.load_parameters(tmp_path / "p.bt")
    w, v = loaded.named("w"), loaded.named("v")
    oracle = bt.Oracle(lambda row: (w * row).sum() * v[0], params=loaded, lanes=1)
    assert [r for r, _ in parts_of(oracle, np.ones((1, 3)), None)[1]] == [range(7, 9), range(3, 7), range(3)]


def test_memory_is_that_of_gradients_in_flight():
    """In a chain of equal layers, one or two are in flight."""
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.MLP(params, [64] * 40 + [2]))
    x, y = [[0.1] * 64], [1]
    oracle.stream(x, y, lambda r, g: None)
    before = oracle.memory()["adjoints"]
    oracle.stream(x, y, lambda r, g: None, keep=False)
    more = oracle.memory()["adjoints"] - before
    assert 0 < more <= 3 * 4 * (64 * 64 + 64)
    assert more * 10 < 4 * params.n


def test_invalid_arguments_are_refused():
    oracle = bt.Oracle(bt.nn.MLP(bt.Parameters(), [3, 4, 2]))
    x, y = [[1.0, 2.0, 3.0]], [1]
    oracle.params.grads[:] = 2.0
    with pytest.raises(TypeError, match="emit must be a callable"):
        oracle.stream(x, y, 3)
    with pytest.raises(ValueError, match="out needs keep=True"):
        oracle.stream(x, y, print, out=np.empty(26, "float32"), keep=False)
    with pytest.raises(ValueError, match="contexts must have shape"):
        oracle.stream([[1.0]], y, print)
    assert set(oracle.params.grads) == {2.0}


USES = {
    "the oracle": lambda oracle, other, sgd: oracle([[2.0] * 4] * 7, [1] * 7),
    "its loss": lambda oracle, other, sgd: oracle.loss([[2.0] * 4], [1]),
    "another oracle": lambda oracle, other, sgd: other([[2.0] * 4], [1]),
    "zero_grad": lambda oracle, other, sgd: oracle.params.zero_grad(),
    "a step": lambda oracle, other, sgd: sgd.step(),
}


@pytest.mark.parametrize("on_thread", [False, True])
@pytest.mark.parametrize("by", ["emit", "another thread"])
@pytest.mark.parametrize("name", USES)
def test_nothing_changes_a_gradient_that_is_being_received(name, by, on_thread):
    draw = random.Random(5)
    params = bt.Parameters(dtype="float64", seed=1)
    model = bt.nn.MLP(params, [4, 5, 6, 7])
    oracle, other, sgd = bt.Oracle(model), bt.Oracle(model), bt.optim.SGD(params, lr=0.5)
    x, y = batch_of("mlp", 7, draw)
    full, before = np.array(oracle(x, y)[1]), list(params.values)
    refused, got = [], np.zeros(params.n)

    def use():
        with pytest.raises(bt.BusyError):
            USES[name](oracle, other, sgd)
        refused.append(True)

    def emit(r, g):
        if by == "emit":
            use()
        else:
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
        got[r.start : r.stop] = g

    oracle.stream(x, y, emit, on_thread=on_thread)
    np.testing.assert_array_equal(got, full)
    np.testing.assert_array_equal(params.grads, full)
    assert list(params.values) == before
    assert len(refused) >= 3
    sgd.step()
