"""Models with other numbers: derivatives by Parameters of any order and mode."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2))


class Net(bt.nn.Module):
    """Layers, a tensor by parts, and a traced function."""

    def __init__(self, params):
        self.first = bt.nn.Linear(params, 3, 4, activation="tanh")
        self.last = bt.nn.Linear(params, 4, 2)
        self.scale = params.tensor((2, 2), init="normal")
        self.square = bt.function(lambda x: x * x * self.scale[1, 0])

    def __call__(self, x):
        y = self.last(self.first(x)) * self.scale[0]
        return y + self.square(y)


def made(dtype="float64"):
    return Net(bt.Parameters(dtype=dtype, seed=3))


def loss(net, tensors):
    return bt.sum((bt.vmap(lambda x: bt.nn.functional_call(net, tensors, x))(X) - Y) ** 2)


def flat(net, x):
    """Tensors by name from all numbers."""
    tensors, start = {}, 0
    for name, tensor in net.named_parameters():
        n = int(np.prod(tensor.shape))
        tensors[name] = x[start : start + n].reshape(tensor.shape)
        start += n
    return tensors


def numbers(net):
    return np.concatenate([np.asarray(tensor.values) for _, tensor in net.named_parameters()])


def called(net, x):
    return net(bt.array(x)).data


def by_values(net, x):
    """The loss at other values of the Parameters themselves."""
    before = list(net.params.values)
    for (_, tensor), part in zip(net.named_parameters(), flat(net, x).values(), strict=True):
        tensor.values[:] = part.ravel()
    found = np.sum([np.sum((called(net, x) - y) ** 2) for x, y in zip(X, Y, strict=True)])
    net.params.values[:] = before
    return found


def test_values_are_those_of_the_model():
    net = made()
    np.testing.assert_allclose(bt.nn.functional_call(net, {}, X[0]), called(net, X[0]), rtol=1e-14)
    own = bt.nn.functional_call(net, dict(net.named_parameters()), X[0])
    np.testing.assert_allclose(own.data, called(net, X[0]), rtol=1e-14)
    other = {name: RNG.normal(size=t.shape) for name, t in net.named_parameters()}
    found = bt.nn.functional_call(net, other, X[0])
    assert not np.allclose(found, called(net, X[0]))
    layer = {name.removeprefix("first."): x for name, x in other.items() if name.startswith("first.")}
    for x in (X[0], list(X[0]), tuple(X[0]), X):
        expected = np.tanh(np.asarray(x) @ layer["weight"].T + layer["bias"])
        np.testing.assert_allclose(bt.nn.functional_call(net.first, layer, x), expected, rtol=1e-13)
    for name, t in net.named_parameters():
        t.values[:] = other[name].ravel()
    np.testing.assert_allclose(found, called(net, X[0]), rtol=1e-14)


def test_gradients_are_those_of_the_parameters():
    net = made()
    gradient = bt.grad(lambda tensors: loss(net, tensors))(dict(net.named_parameters()))
    f = bt.function(lambda k: bt.sum((bt.vmap(net)(X) - Y) ** 2) * k)
    f.value_and_param_grad(1.0)
    for name, tensor in net.named_parameters():
        np.testing.assert_allclose(gradient[name].ravel(), tensor.grads, rtol=1e-12)


def test_second_derivatives():
    net = made()
    x, v = numbers(net), RNG.normal(size=len(numbers(net)))
    f = bt.function(lambda x: loss(net, flat(net, x)))
    hessian = f.hessian(x)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(f.hvp(x, v), hessian @ v, rtol=1e-10, atol=1e-10)
    step = 1e-4
    for k in range(0, len(x), 5):
        unit = np.zeros(len(x))
        unit[k] = step
        along = (by_values(net, x + unit) - 2 * by_values(net, x) + by_values(net, x - unit)) / step**2
        np.testing.assert_allclose(hessian[k, k], along, rtol=1e-4, atol=1e-4)


def test_a_differentiated_step_of_training():
    """The gradient of the loss after a step, by the rate of the step."""
    net = made()
    now = {name: np.reshape(t.values, t.shape) for name, t in net.named_parameters()}

    def after(rate):
        gradient = bt.grad(lambda tensors: loss(net, tensors))(now)
        return loss(net, {name: now[name] - rate * gradient[name] for name in now})

    slope = (bt.function(after)(0.01 + 1e-6) - bt.function(after)(0.01 - 1e-6)) / 2e-6
    np.testing.assert_allclose(bt.grad(after)(0.01), slope, rtol=1e-6)


def test_some_tensors_and_nested_calls():
    net = made()
    name = "last.bias"
    now = np.asarray(net.last.bias.values)
    found = bt.grad(lambda b: bt.sum(bt.nn.functional_call(net, {name: b}, X[0]) ** 2))(now)
    everything = bt.grad(lambda t: bt.sum(bt.nn.functional_call(net, t, X[0]) ** 2))(dict(net.named_parameters()))
    np.testing.assert_allclose(found, everything[name], rtol=1e-13)

    def inner(b, c):
        return bt.nn.functional_call(lambda: bt.nn.functional_call(net, {name: c}, X[0]) + net.last.bias, {}) * b

    np.testing.assert_allclose(bt.function(inner)(np.ones(2), now), called(net, X[0]) + now, rtol=1e-13)


def test_built_in_models_and_float32():
    for dtype in ("float64", "float32"):
        mlp = bt.nn.MLP(bt.Parameters(dtype=dtype, seed=1), [3, 4, 2])
        tensors = dict(mlp.named_parameters())
        gradient = bt.grad(lambda t, mlp=mlp: bt.sum(bt.nn.functional_call(mlp, t, bt.array(X)) ** 2))(tensors)
        assert {name: g.shape for name, g in gradient.items()} == {name: tuple(t.shape) for name, t in tensors.items()}
        assert all(g.dtype == dtype for g in gradient.values())


def test_wrong_tensors_are_named():
    net = made()
    with pytest.raises(ValueError, match=r"no tensors named \['middle'\]"):
        bt.nn.functional_call(net, {"middle": np.ones(2)}, X[0])
    with pytest.raises(ValueError, match=r"last.bias has the shape \(2,\), found \(3,\)"):
        bt.nn.functional_call(net, {"last.bias": np.ones(3)}, X[0])
    before = list(net.params.values)
    with pytest.raises(ZeroDivisionError):
        bt.function(lambda b: bt.nn.functional_call(lambda: 1 / 0, {}))(1.0)
    assert list(net.params.values) == before
    assert called(net, X[0]).shape == (2,)


class Policy(bt.nn.Module):
    """A model whose results include Tensors of its own."""

    def __init__(self, params):
        self.net = bt.nn.Linear(params, 3, 2)
        self.log_std = params.tensor(2, init=1.0)

    def __call__(self, x):
        return {"mean": self.net(x), "rest": [self.log_std, (self.log_std[1], None)]}


def test_tensors_in_results_are_replaced():
    net = Policy(bt.Parameters(dtype="float64"))
    given = {"log_std": np.array([3.0, 5.0])}

    def both(given):
        rest = bt.nn.functional_call(net, given, X[0])["rest"]
        return rest[0].sum() * 2.0 + rest[1][0]

    found = bt.nn.functional_call(net, given, X[0])
    assert found["rest"][0].tolist() == [3.0, 5.0]
    assert found["rest"][1][0] == 5.0
    assert found["rest"][1][1] is None
    assert bt.function(both)(given) == 21.0
    assert bt.grad(both)(given)["log_std"].tolist() == [2.0, 3.0]
    assert bt.vmap(both)({"log_std": np.array([[3.0, 5.0], [1.0, 0.0]])}).tolist() == [21.0, 2.0]


class Scaled(bt.nn.Module):
    """A model with a dict of inputs and a dict of another class as result."""

    def __init__(self, params):
        self.w = params.tensor(2, init=1.0)

    def __call__(self, inputs):
        found = collections.defaultdict(list, own=self.w)
        found["y"] = self.w * inputs["x"] * inputs["factor"]
        return found


def test_dicts_of_inputs_and_results():
    net = Scaled(bt.Parameters(dtype="float64"))
    given, factor = {"w": np.array([2.0, 3.0])}, bt.Value(5.0)
    found = bt.nn.functional_call(net, given, {"x": np.array([1.0, 2.0]), "factor": factor})
    assert found["y"].data.tolist() == [10.0, 30.0]
    assert found["own"].data.tolist() == [2.0, 3.0]
    found["y"].sum().backward()
    assert factor.grad == 8.0


class Product(bt.nn.Module):
    """A Tensor and an input, first of all."""

    def __init__(self, params, of):
        self.w, self.of = params.tensor(3, init=2.0), of

    def __call__(self, x):
        return self.of(self.w, x)


MEETINGS = {
    "w * x": lambda w, x: w * x,
    "x * w": lambda w, x: x * w,
    "x - w": lambda w, x: x - w,
    "w @ x": lambda w, x: w @ x,
    "x ** w": lambda w, x: x**w,
    "np.maximum": lambda w, x: np.maximum(x, w),
    "inner_product": lambda w, x: bt.inner_product(w, x),
    "stack": lambda w, x: bt.stack([w, x]),
    "concat": lambda w, x: np.concatenate([x, w]),
    "where": lambda w, x: bt.where(x > 1.0, w, x),
    "part": lambda w, x: w[1:] * x[1:],
    "element": lambda w, x: w[0] * x,
}


@pytest.mark.parametrize("inside", ["grad", "vmap", "jvp", "checkpoint", "scan", "cond"])
@pytest.mark.parametrize("name", MEETINGS)
def test_inputs_of_outer_traces_meet_replaced_tensors(name, inside):
    of, x, now = MEETINGS[name], np.array([0.5, 1.5, 2.5]), {"w": np.array([1.0, 2.0, 3.0])}
    net = Product(bt.Parameters(dtype="float64"), of)

    def adapted(call):
        def run(x, now):
            if inside == "grad":
                return (bt.grad(lambda d: (call(d, x) ** 2).sum())(now)["w"] ** 2).sum()
            if inside == "vmap":
                return bt.vmap(lambda k: call({"w": now["w"] * k}, x))(np.array([1.0, 2.0])).sum()
            if inside == "jvp":
                return bt.jvp(lambda d: call(d, x).sum(), (now,), ({"w": np.ones(3)},))[1]
            if inside == "checkpoint":
                return bt.checkpoint(lambda d: call(d, x).sum())(now)
            if inside == "cond":
                return bt.cond(x[0] > 0.0, lambda d: call(d, x).sum(), lambda d: d["w"].sum(), now)
            return bt.scan(lambda c, k: (c + call({"w": now["w"] * k}, x).sum(), None), 0.0, np.array([1.0, 2.0]))[0]

        return run

    own = adapted(lambda d, x: bt.nn.functional_call(net, d, x))
    plain = adapted(lambda d, x: of(d["w"], x))
    for derivative in (bt.function, lambda f: bt.grad(f, argnums=(0, 1))):
        found, expected = derivative(own)(x, now), derivative(plain)(x, now)
        if derivative is bt.function:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)
            np.testing.assert_allclose(found[1]["w"], expected[1]["w"], rtol=1e-14)
    rows = bt.vmap(own, in_axes=(0, None))(np.stack([x, 2.0 * x]), now)
    np.testing.assert_allclose(rows, [bt.function(plain)(k * x, now) for k in (1.0, 2.0)], rtol=1e-14)


def test_gradients_outside_of_traces():
    params = bt.Parameters(dtype="float64", seed=1)
    layer, call = bt.nn.Linear(params, 3, 1), bt.nn.functional_call
    weight, bias = np.asarray(layer.weight.values), layer.bias.values[0]
    traced = bt.function(lambda tensors, x: call(layer, tensors, x))
    for run in (lambda tensors, x: call(layer, tensors, x), traced):
        params.zero_grad()
        run(dict(layer.named_parameters()), X[0]).sum().backward()
        np.testing.assert_array_equal(params.grads, [*X[0], 1.0])
        given = bt.array(np.ones((1, 3)))
        run({"weight": given}, X[0]).sum().backward()
        np.testing.assert_array_equal(given.grad, X[:1])
        x = bt.array(X[0])
        y = run({"bias": np.array([4.0])}, x)
        np.testing.assert_allclose(y.data, [weight @ X[0] + 4.0], rtol=1e-14)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad, weight)
        b = bt.Value(2.0)
        y = run({"bias": [b]}, X[0])
        np.testing.assert_allclose(y.data, [weight @ X[0] + 2.0], rtol=1e-14)
        y.sum().backward()
        assert b.grad == 1.0
        v = bt.current_graph().vector(list(X[0]))
        y = run({}, v)
        np.testing.assert_allclose(np.ravel(getattr(y, "data", y)), [weight @ X[0] + bias], rtol=1e-14)
        y.sum().backward()
        np.testing.assert_array_equal(v.grad, weight)


TEXTS = np.array([[1, 2, 3, 0], [4, 6, 5, 1]])


@pytest.mark.parametrize("final_norm", [False, True])
def test_a_gpt_of_other_numbers(final_norm):
    params = bt.Parameters(dtype="float64", seed=2)
    gpt = bt.nn.GPT(params, vocab=7, context=5, layers=2, heads=2, width=4, final_norm=final_norm)
    expected, call = gpt(TEXTS), bt.nn.functional_call
    now = {name: np.asarray(t.values).reshape(t.shape) for name, t in gpt.named_parameters()}
    for found in (call(gpt, now, TEXTS), bt.function(lambda x: gpt(x))(TEXTS), gpt(bt.array(TEXTS)).data):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    for text in (TEXTS[0], list(TEXTS[0]), [1, 2, 3, 0]):
        np.testing.assert_allclose(call(gpt, now, text), expected[0], rtol=1e-12, atol=1e-13)
    for refused in (np.zeros((2, 0), int), np.zeros((1, 6), int), np.array([[0, 7]]), np.array([[-1, 2]])):
        with pytest.raises((ValueError, IndexError)):
            call(gpt, now, refused)

    def loss(tensors):
        return bt.mean(bt.softmax_cross_entropy(call(gpt, tensors, TEXTS[:, :-1]), TEXTS[:, 1:]))

    gradient = bt.grad(loss)(now)
    oracle = bt.Oracle(gpt)
    value, _ = oracle(TEXTS[:, :-1], TEXTS[:, 1:])
    np.testing.assert_allclose(value, loss(now), rtol=1e-12)
    for name, tensor in gpt.named_parameters():
        np.testing.assert_allclose(gradient[name].ravel(), tensor.grads, rtol=1e-9, atol=1e-12)
    direction = {name: RNG.normal(size=w.shape) for name, w in now.items()}
    curvature, step = bt.hvp(loss, (now,), (direction,)), 1e-5
    moved = [bt.grad(loss)({name: w + k * step * direction[name] for name, w in now.items()}) for k in (1, -1)]
    for name in now:
        difference = (moved[0][name] - moved[1][name]) / (2 * step)
        np.testing.assert_allclose(curvature[name], difference, rtol=1e-3, atol=2e-5)


def test_layers_of_text_take_arrays():
    params = bt.Parameters(dtype="float64", seed=1)
    embedding, block = bt.nn.Embedding(params, 7, 4, positions=5), bt.nn.Block(params, 4, 2)
    attention = bt.nn.CausalSelfAttention(params, 4, 2)
    x = embedding(TEXTS)
    assert x.shape == (2, 4, 4)
    np.testing.assert_array_equal(bt.function(lambda: embedding(TEXTS))(), x.data)
    for layer in (block, attention):
        np.testing.assert_array_equal(layer(x.data), layer(x).data)
        for wrong in (np.ones(4), "a", None):
            with pytest.raises(TypeError, match=f"{type(layer).__name__} takes Tokens, an Array or an array"):
                layer(wrong)
    other = block(x.data)
    block.attention.query = bt.nn.Linear(params, 4, 4)
    assert (block(x.data) != other).any()
    np.testing.assert_array_equal(block(x.data), block(x).data)
    model = bt.nn.CharMLP(params, vocab=7, context=4, embedding=2, hidden=3)
    for outside in (-1, 7):
        ids = np.array([[1, 2, 3, outside]])
        for layer in (embedding, model):
            for call in (lambda x, f=layer: f(bt.array(x)), bt.function(lambda x, f=layer: f(x))):
                with pytest.raises(IndexError):
                    call(ids)
    now = {name: np.asarray(t.values).reshape(t.shape) for name, t in embedding.named_parameters()}
    counts = bt.grad(lambda d: bt.nn.functional_call(embedding, d, TEXTS).sum())(now)["weight"]
    assert counts[:, 0].tolist() == [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", [bt.nn.Block, bt.nn.CausalSelfAttention])
def test_layers_of_text_take_arrays_in_traces(kind):
    layer, x = kind(bt.Parameters(dtype="float64", seed=1), 4, 2), RNG.normal(size=(2, 3, 4))
    expected, call = layer(x), bt.nn.functional_call
    now = {name: np.asarray(t.values).reshape(t.shape) for name, t in layer.named_parameters()}
    np.testing.assert_allclose(call(layer, now, x), expected, rtol=1e-13)
    for f in (lambda s: layer(x) * s, lambda s: bt.vmap(layer)(x) * s, lambda s: layer(bt.array(x)) * s):
        np.testing.assert_allclose(bt.function(f)(1.0), expected, rtol=1e-13)
    captured = bt.grad(lambda d: (call(layer, d, x) ** 2).sum())(now)
    given = bt.grad(lambda d, x: (call(layer, d, x) ** 2).sum())(now, x)
    for name in now:
        np.testing.assert_allclose(captured[name], given[name], rtol=1e-12, atol=1e-14)
    oracle = bt.Oracle(lambda s: (layer(x) ** 2).sum() * s, params=layer.params)
    _, gradient = oracle([1.0])
    flat = np.concatenate([given[name].ravel() for name in now])
    np.testing.assert_allclose(gradient, flat, rtol=1e-12, atol=1e-14)


READS = {
    "sum": lambda w: w.sum(axis=0),
    "cumsum": np.cumsum,
    "stack": lambda w: np.stack([w, w]),
    "sort": np.sort,
    "segments": lambda w: bt.segment_sum(w, [0, 1, 0], 2),
    "at": lambda w: w.at[0].set(1.0),
    "array": bt.array,
    "square": lambda w: w * w,
}


@pytest.mark.parametrize("name", READS)
def test_functions_of_tensors_alone(name):
    w = bt.Parameters(dtype="float64", seed=3).tensor(3, init="normal")
    expected = READS[name](bt.array(np.asarray(w.values)))
    np.testing.assert_array_equal(bt.function(lambda: READS[name](w))(), expected.data)
