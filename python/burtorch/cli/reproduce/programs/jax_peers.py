"""JAX on one thread: the whole step, or the whole gradient oracle, is one jitted function.

Chosen by measurement on the CPU: weights are the left operand of every product (`x @ w.T` is 15 times slower for one
sample), tokens lie in one matrix (1.6 times faster at batch 8), buffers are not donated (0.26 against 0.37 ms at
e=1024, b=1), dispatch is synchronous. Weights are a list of arrays; batches lie on the device beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .cells import Cell, Floats, Sizes, gpt_shapes, mlp_shapes, split
from .peer import Peer

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_enable_async_dispatch", False)

Arrays = list[jax.Array]


def linear(weights: jax.Array, x: jax.Array) -> jax.Array:
    """x @ weights.T, in the order that is fast in XLA's CPU code."""
    return (weights @ x.T).T


def mlp_loss(w: Arrays, X: jax.Array, Y: jax.Array) -> jax.Array:
    """Mean cross-entropy of the character MLP."""
    h = jnp.tanh(linear(w[1], w[0][X].reshape(len(X), -1)) + w[2])
    return cross_entropy(linear(w[3], h) + w[4], Y)


def gpt_loss(sizes: Sizes, w: Arrays, X: jax.Array, Y: jax.Array) -> jax.Array:
    """Mean cross-entropy of the GPT over all positions."""
    d, heads = sizes.width, sizes.heads
    x = (w[0][X] + w[1]).reshape(-1, d)
    for layer in range(sizes.layers):
        g1, c1, wq, wk, wv, wo, bo, g2, c2, w1, b1, w2, b2 = w[2 + 13 * layer : 15 + 13 * layer]
        y = layer_norm(x, g1, c1)
        q, k, v = (linear(m, y).reshape(-1, sizes.context, heads, d // heads) for m in (wq, wk, wv))
        x = x + linear(wo, attention(q, k, v).reshape(-1, d)) + bo
        x = x + linear(w2, jax.nn.relu(linear(w1, layer_norm(x, g2, c2)) + b1)) + b2
    return cross_entropy(linear(w[-2], x) + w[-1], Y.reshape(-1))


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal, all heads at once; operands and result are (samples, positions, heads, numbers per head)."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    past = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(past, scores, -jnp.inf)), v)


def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    """Over the last axis, biased variance, epsilon 1e-5 (as torch)."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias


def cross_entropy(logits: jax.Array, Y: jax.Array) -> jax.Array:
    """Mean over all positions, in nats."""
    picked = jnp.take_along_axis(logits, Y[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def make(cell: Cell) -> Peer:
    """The rival for a cell."""
    if cell.weights.dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    loss: Callable[..., jax.Array] = mlp_loss if cell.model == "mlp" else partial(gpt_loss, cell.sizes)
    shapes = mlp_shapes(cell.hidden, cell.sizes) if cell.model == "mlp" else gpt_shapes(cell.sizes)
    w = [jnp.array(part) for part in split(cell.weights, shapes)]
    batches = [(jnp.array(x, jnp.int32), jnp.array(y, jnp.int32)) for x, y in zip(cell.X, cell.Y)]
    oracle = jax.jit(jax.value_and_grad(loss))

    def train(w: Arrays, X: jax.Array, Y: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(w, X, Y)
        return value, [a - cell.lr * g for a, g in zip(w, grads)]

    started = time.perf_counter()
    if cell.model == "mlp":
        compiled = jax.jit(train).lower(w, *batches[0]).compile()
    else:
        compiled = oracle.lower(w, *batches[0]).compile()
    seconds = time.perf_counter() - started
    step = Step(compiled, w, batches, cell.model == "mlp")
    return Peer("jax", step, lambda: step.loss_and_grad(oracle), lambda: flat(step.w), seconds)


class Step:
    """Runs the compiled function on the next batch; dispatch is synchronous, so it returns when the computation is
    done."""

    def __init__(self, compiled: Callable[..., Any], w: Arrays, batches: list[Any], train: bool) -> None:
        self.compiled, self.w, self.batches, self.train = compiled, w, batches, train
        self.turn = 0

    def __call__(self) -> object:
        self.turn = (self.turn + 1) % len(self.batches)
        value, result = self.compiled(self.w, *self.batches[self.turn])
        if self.train:
            self.w = result
            return float(value)
        return float(value), result

    def loss_and_grad(self, oracle: Callable[..., Any]) -> tuple[float, Floats]:
        value, grads = oracle(self.w, *self.batches[0])
        return float(value), flat(grads)


def flat(arrays: Arrays) -> Floats:
    """One NumPy vector of several arrays."""
    return np.concatenate([np.asarray(a).ravel() for a in arrays])
