"""Root mean square normalisation against PyTorch's definition, and against its expansion into scalar ops."""

from __future__ import annotations

import math

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

EPS = 1e-5


def definition(x: np.ndarray, gain: np.ndarray, eps: float = EPS) -> np.ndarray:
    """``torch.nn.functional.rms_norm``: ``x / sqrt(mean(x**2, -1) + eps) * weight``."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def gradients(x: np.ndarray, gain: np.ndarray, g: np.ndarray, eps: float = EPS) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of the rows of ``x`` and of the gains for the outputs' adjoints ``g``."""
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    unit, part = x * scale, gain * g
    return (part - unit * np.mean(part * unit, axis=-1, keepdims=True)) * scale, (g * unit).sum(0)


def setting(n: int, width: int, dtype: str = "float64"):
    """Numbers of n rows, gains, adjoints, and Parameters with the rows and the gains."""
    rng = np.random.default_rng(n * 100 + width)
    x, gain, g = rng.normal(size=(n, width)), rng.normal(size=width), rng.normal(size=(n, width))
    params = bt.Parameters(dtype=dtype)
    table, weight = params.tensor((n, width)), params.tensor(width)
    table.values[:], weight.values[:] = x.ravel(), gain
    return x, gain, g, table, weight


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-13), ("float32", 2e-5)])
@pytest.mark.parametrize("width", [1, 2, 7, 16, 33])
def test_a_vector_is_normalised_as_a_whole(dtype: str, rtol: float, width: int) -> None:
    """Values and gradients of a single row."""
    x, gain, g, _, weight = setting(1, width, dtype)
    with bt.Graph(dtype=dtype) as graph:
        v = graph.vector(x[0])
        y = bt.rms_norm(v, weight, EPS)
        bt.inner_product(y, list(g[0])).backward()
        dx, dgain = gradients(x, gain, g)
        np.testing.assert_allclose(y.data, definition(x, gain)[0], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(v.grad, dx[0], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(weight.grads, dgain, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("n", [1, 3, 8, 11, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_each_token_is_normalised_over_its_features(n: int, dtype: str) -> None:
    """Values and gradients of any number of tokens."""
    x, gain, g, table, weight = setting(n, 6, dtype)
    tolerance = {"float64": 1e-13, "float32": 2e-5}[dtype]
    norm = bt.nn.RMSNorm(bt.Parameters(dtype=dtype), 6)
    norm.weight = weight
    with bt.Graph(dtype=dtype):
        from burtorch._core import token_embedding

        tokens = bt.nn.Tokens(token_embedding(table, None, list(range(n))), n)
        y = norm(tokens)
        rows = [[y.at(token, feature) for feature in range(6)] for token in range(n)]
        total = bt.reduce_sum([bt.inner_product(row, list(part)) for row, part in zip(rows, g)])
        total.backward()
        dx, dgain = gradients(x, gain, g)
        np.testing.assert_allclose(
            [[v.data for v in row] for row in rows], definition(x, gain), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_allclose(np.reshape(table.grads, (n, 6)), dx, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(weight.grads, dgain, rtol=tolerance, atol=tolerance)


def test_an_output_that_is_not_read_contributes_nothing() -> None:
    """An infinite gain on it has no effect, and the other outputs are unaffected."""
    x, gain, _, _, weight = setting(1, 5)
    weight.values[3] = math.inf
    with bt.Graph() as graph:
        v = graph.vector(x[0])
        bt.rms_norm(v, weight, EPS)[1].backward()
        seed = np.zeros((1, 5))
        seed[0, 1] = 1.0
        dx, dgain = gradients(x, gain, seed)
        np.testing.assert_allclose(v.grad, dx[0], rtol=1e-13)
        np.testing.assert_allclose(weight.grads, dgain, rtol=1e-13)


def test_it_equals_its_expansion_into_scalar_ops() -> None:
    """The block and the same formula written with Values."""
    x, gain, g, _, weight = setting(1, 9)
    with bt.Graph() as graph:
        v, w = graph.vector(x[0]), [bt.Value(a) for a in gain]
        scale = bt.inv_sqrt(bt.reduce_mean_squares(v) + EPS)
        expansion = [a * scale * b for a, b in zip(v, w)]
        bt.inner_product(expansion, list(g[0])).backward()
        block_input = graph.vector(x[0])
        y = bt.rms_norm(block_input, weight, EPS)
        bt.inner_product(y, list(g[0])).backward()
        np.testing.assert_allclose(y.data, [e.data for e in expansion], rtol=1e-14)
        np.testing.assert_allclose(block_input.grad, v.grad, rtol=1e-12)
        np.testing.assert_allclose(weight.grads, [b.grad for b in w], rtol=1e-13)


@pytest.mark.parametrize("lanes", [1, 4, 8, "auto"])
def test_oracles_give_the_mean_gradient_at_every_width(lanes: int | str) -> None:
    """A callable over samples: one graph of lanes, or one sample after another."""
    params = bt.Parameters(dtype="float64", seed=3)
    norm, head = bt.nn.RMSNorm(params, 6), params.tensor((2, 6), init="glorot")
    rng = np.random.default_rng(5)
    batch, labels = rng.normal(size=(16, 6)), rng.integers(0, 2, size=16)

    def model(x, y):
        return bt.softmax_cross_entropy(bt.affine(head, norm(x)), y)

    loss, gradient = bt.Oracle(model, params=params, lanes=lanes)(batch, labels)
    loss, gradient = float(loss), np.array(gradient)

    def reference() -> float:
        z = definition(batch, np.array(norm.weight.values)) @ np.reshape(head.values, (2, 6)).T
        z = z - z.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(16), labels]))

    assert loss == pytest.approx(reference(), rel=1e-12)
    for k in range(len(gradient)):
        step, values = 1e-6, params.values
        before = float(values[k])
        values[k] = before + step
        above = reference()
        values[k] = before - step
        below = reference()
        values[k] = before
        assert gradient[k] == pytest.approx((above - below) / (2 * step), abs=1e-7)


def test_frozen_gains_receive_nothing() -> None:
    """And the input still has a gradient."""
    x, _, _, _, weight = setting(1, 4)
    weight.freeze()
    with bt.Graph() as graph:
        v = graph.vector(x[0])
        bt.rms_norm(v, weight).sum().backward()
        assert list(weight.grads) == [0.0] * 4
        assert all(v.grad)


def test_bad_input_is_refused_and_changes_nothing() -> None:
    """Lengths, eps, concatenations, dtypes."""
    _, _, _, _, weight = setting(1, 4)
    with bt.Graph() as graph:
        v = graph.vector([1.0, 2.0, 3.0])
        n = len(graph)
        for bad in (
            lambda: bt.rms_norm(v, weight),
            lambda: bt.rms_norm(bt.concat(v, v), weight),
            lambda: bt.rms_norm(v, weight, tokens=2),
            lambda: bt.rms_norm(graph.vector([1.0] * 4), weight, eps=-1.0),
            lambda: bt.rms_norm(graph.vector([1.0] * 4), weight, eps=math.nan),
        ):
            with pytest.raises(ValueError, match=r"\w"):
                bad()
        assert len(graph) == n + 8
    with bt.Graph(dtype="float16") as half, pytest.raises(TypeError, match="float32 and float64"):
        bt.rms_norm(half.vector([1.0] * 4), weight)


def test_a_saved_graph_keeps_it(tmp_path) -> None:
    """After loading, recomputation and a backward pass it has the same numbers."""
    x, _, g, _, weight = setting(1, 8)
    with bt.Graph() as graph:
        v = graph.vector(x[0])
        y = bt.rms_norm(v, weight, EPS)
        root = bt.inner_product(y, list(g[0]))
        root.backward()
    graph.save(tmp_path / "graph.burtorch")
    loaded = bt.load_graph(tmp_path / "graph.burtorch", weight.params)
    assert loaded.raw_bytes() == graph.raw_bytes()
    before = [weight.grads[k] for k in range(8)]
    for each in (graph, loaded):
        each.zero_grad()
        weight.params.zero_grad()
        last = each.node(root.index)
        each.recompute(last)
        last.backward()
        assert [weight.grads[k] for k in range(8)] == before
    assert loaded.raw_bytes(what="both") == graph.raw_bytes(what="both")
