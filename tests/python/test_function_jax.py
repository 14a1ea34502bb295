"""Derivatives of 200 random functions against those of jax, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

N_PROGRAMS = 200


class Both:
    """The same function written for burtorch and for jax."""

    def __init__(self, seed, n):
        rng = np.random.default_rng(seed)
        self.n = n
        self.plan = [
            (int(rng.integers(9)), *map(int, rng.integers(0, n + i, size=2)), float(rng.normal())) for i in range(16)
        ]

    def run(self, x, ops):
        nodes = [x[k] for k in range(self.n)]
        for kind, a, b, c in self.plan:
            nodes.append(step(kind, nodes[a], nodes[b], c, ops))
        return nodes[-1] + 0.1 * nodes[-2] * nodes[-3]

    def several(self, x, ops):
        nodes = [x[k] for k in range(self.n)]
        for kind, a, b, c in self.plan:
            nodes.append(step(kind, nodes[a], nodes[b], c, ops))
        return nodes[-4:]


def step(kind, u, v, c, ops):
    return [
        lambda: u + v,
        lambda: u - v * c,
        lambda: ops.tanh(u * v),
        lambda: ops.sin(u) * c,
        lambda: ops.sigmoid(v) + u * 0.5,
        lambda: ops.log(u * u + v * v + 1.0),
        lambda: ops.exp(0.3 * ops.tanh(u)) / (2.0 + ops.cos(v)),
        lambda: ops.softplus(u) * 0.5,
        lambda: ops.erf(u) + ops.sqrt(v * v + 1.0),
    ][kind]()


class Burtorch:
    tanh, sin, cos, sigmoid, log, exp = bt.tanh, bt.sin, bt.cos, bt.sigmoid, bt.log, bt.exp
    softplus, erf, sqrt = bt.softplus, bt.erf, bt.sqrt


def test_random_functions_against_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed: nothing to compare with")
    jnp = pytest.importorskip("jax.numpy")
    jax.config.update("jax_enable_x64", True)

    class Jax:
        tanh, sin, cos, log, exp, sqrt = jnp.tanh, jnp.sin, jnp.cos, jnp.log, jnp.exp, jnp.sqrt
        sigmoid, softplus, erf = jax.nn.sigmoid, jax.nn.softplus, jax.scipy.special.erf

    for seed in range(N_PROGRAMS):
        both = Both(seed, 2 + seed % 5)
        f, g = bt.function(lambda x, both=both: both.run(x, Burtorch)), lambda x, both=both: both.run(x, Jax)
        rng = np.random.default_rng(seed + 1000)
        x, v = rng.normal(size=both.n) * 0.7, rng.normal(size=both.n)
        gradient, hessian = np.asarray(jax.grad(g)(x)), np.asarray(jax.hessian(g)(x))
        scale = max(1.0, np.abs(gradient).max(), np.abs(hessian).max())
        close = {"rtol": 0, "atol": 1e-11 * scale}
        np.testing.assert_allclose(f(x), g(x), **close)
        np.testing.assert_allclose(f.grad(x), gradient, **close)
        np.testing.assert_allclose(f.hessian(x), hessian, **close)
        np.testing.assert_allclose(f.sparse_hessian(x).toarray(), hessian, **close)
        np.testing.assert_allclose(f.hvp(x, v), hessian @ v, **close)
        np.testing.assert_allclose(f.jvp(x, v)[1], gradient @ v, **close)
        several = bt.function(lambda x, both=both: both.several(x, Burtorch))
        jacobian = np.asarray(jax.jacobian(lambda x, both=both: jnp.stack(both.several(x, Jax)))(x))
        close["atol"] = 1e-11 * max(1.0, np.abs(jacobian).max())
        np.testing.assert_allclose(several.jacobian(x), jacobian, **close)
        np.testing.assert_allclose(several.sparse_jacobian(x).toarray(), jacobian, **close)
        w = rng.normal(size=4)
        np.testing.assert_allclose(several.vjp(x, w.tolist())[1], w @ jacobian, **close)
