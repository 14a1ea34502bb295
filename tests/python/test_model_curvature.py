"""Products with the Hessian of models, and its exact diagonal, against differences of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt


class Weights:
    """Takes consecutive matrices and vectors from a flat array."""

    def __init__(self, flat):
        self.flat, self.at = flat, 0

    def take(self, *shape):
        first, self.at = self.at, self.at + int(np.prod(shape))
        return self.flat[first : self.at].reshape(shape)


RNG = np.random.default_rng(0)
ROWS, CLASSES = RNG.standard_normal((8, 64)), RNG.integers(0, 10, 8)
SYMBOLS, CONTEXT, WIDTH, HEADS, LAYERS = 9, 5, 8, 2, 2
TEXT = RNG.integers(0, SYMBOLS, CONTEXT + 1)


def mlp(flat):
    """64 inputs, 64 tanh units, 10 classes; the mean cross-entropy of 8 rows."""
    w = Weights(flat)
    hidden = np.tanh(bt.affine(w.take(64, 64), ROWS, w.take(64)))
    return np.mean(bt.softmax_cross_entropy(bt.affine(w.take(10, 64), hidden, w.take(10)), CLASSES))


def normed(x, w):
    return bt.layer_norm(x) * w.take(WIDTH) + w.take(WIDTH)


def gpt(flat):
    """Token and position embeddings, layers of causal attention and gelu, a head; the mean cross-entropy of the next
    token."""
    w = Weights(flat)
    x = w.take(SYMBOLS, WIDTH)[TEXT[:-1]] + w.take(CONTEXT, WIDTH)
    split = WIDTH // HEADS
    for _ in range(LAYERS):
        y = normed(x, w)
        q, k, v = ((y @ w.take(WIDTH, WIDTH)).reshape(CONTEXT, HEADS, split).transpose(1, 0, 2) for _ in range(3))
        mixed = bt.attention(q, k, v, np.tri(CONTEXT, dtype=bool)).transpose(1, 0, 2).reshape(CONTEXT, WIDTH)
        x = x + mixed @ w.take(WIDTH, WIDTH)
        x = x + bt.gelu(normed(x, w) @ w.take(WIDTH, 2 * WIDTH)) @ w.take(2 * WIDTH, WIDTH)
    return np.mean(bt.softmax_cross_entropy(normed(x, w) @ w.take(WIDTH, SYMBOLS), TEXT[1:]))


OF_A_LAYER = 4 * WIDTH + 4 * WIDTH**2 + 4 * WIDTH**2
SIZES = {
    mlp: 64 * 64 + 64 + 10 * 64 + 10,
    gpt: 2 * SYMBOLS * WIDTH + CONTEXT * WIDTH + LAYERS * OF_A_LAYER + 2 * WIDTH,
}


def difference(gradient, w, v, h=2e-3):
    """The derivative of a gradient along v, by Richardson's extrapolation of central differences."""

    def central(h):
        return (gradient(w + h * v) - gradient(w - h * v)) / (2 * h)

    return (4 * central(h / 2) - central(h)) / 3


@pytest.mark.parametrize("model", [mlp, gpt])
def test_products_with_the_hessian(model):
    rng = np.random.default_rng(1)
    w = 0.3 * rng.standard_normal(SIZES[model])
    gradient, product = bt.grad(model), bt.hvp(model)
    for _ in range(5):
        v, u = rng.standard_normal((2, len(w)))
        v, u = v / np.linalg.norm(v), u / np.linalg.norm(u)
        found = product(w, v)
        np.testing.assert_allclose(found, difference(gradient, w, v), rtol=0, atol=1e-8)
        # The Hessian is symmetric.
        assert u @ found == pytest.approx(v @ product(w, u), abs=1e-12)


@pytest.mark.parametrize("model", [mlp, gpt])
def test_the_exact_diagonal_of_the_hessian(model):
    rng = np.random.default_rng(2)
    w = 0.3 * rng.standard_normal(SIZES[model])
    gradient, product = bt.grad(model), bt.hvp(model)
    places = rng.permutation(len(w))[:300]
    for k in places:
        unit = np.zeros(len(w))
        unit[k] = 1.0
        np.testing.assert_allclose(product(w, unit)[k], difference(gradient, w, unit)[k], rtol=0, atol=1e-8)


def test_a_batch_of_products_is_the_diagonal():
    rng = np.random.default_rng(3)
    w = 0.3 * rng.standard_normal(SIZES[gpt])
    product = bt.hvp(gpt)
    units = np.eye(len(w))[::9]
    diagonal = bt.vmap(lambda unit: np.sum(product(w, unit) * unit))(units)
    expected = [product(w, unit) @ unit for unit in units]
    np.testing.assert_allclose(diagonal, expected, rtol=0, atol=1e-13)
