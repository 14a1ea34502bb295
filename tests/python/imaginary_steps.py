"""Functions of arrays for NumPy's numbers, real or complex, and for burtorch's Arrays.

A step along an imaginary number gives a derivative. Functions that NumPy has not for complex numbers decide by
real parts and multiply the imaginary part with the derivative, which is exact for the tiny ones of the tests.
"""

from __future__ import annotations

import numpy as np

import burtorch as bt


class UnsuitableError(Exception):
    """The reference is not applicable: an infinity, a kink, incompatible shapes."""


def is_plain(x):
    return isinstance(x, (np.ndarray, np.generic))


def is_complex(*arrays):
    return any(is_plain(a) and a.dtype.kind == "c" for a in arrays)


def real(x):
    return x.real if is_complex(x) else x


def dual(f, *slopes):
    """A function of real numbers, with its partial derivatives, as one of complex numbers."""

    def call(*xs):
        if not is_complex(*xs):
            return f(*xs)
        parts = [real(x) for x in xs]
        moved = sum(slope(*parts) * x.imag for slope, x in zip(slopes, xs, strict=True) if is_complex(x))
        return f(*parts) + 1j * moved

    return call


def paired(name):
    """``maximum`` or ``minimum``; equal operands share."""
    choose = np.greater if name == "maximum" else np.less

    def call(x, y):
        if not is_complex(x, y):
            return getattr(np, name)(x, y)
        a, b = np.real(x), np.real(y)
        return np.where(choose(a, b), x, np.where(a == b, (x + y) / 2, y))

    return call


def decide_surely(x, top, wins):
    """Refuses numbers that are equal, or nearly so, by rounding: others may round them apart."""
    near = np.abs(x.real - top) <= 1e-9 * np.maximum(1, np.abs(top))
    if (near & ~wins).any() or ((x.real[near] * 2**20 % 1 != 0).any() and near.sum() > np.size(top)):
        raise UnsuitableError


def extreme(name):
    """``max`` or ``min`` along axes; equal elements share."""

    def call(x, axis, keepdims):
        if not is_complex(x):
            return getattr(np, name)(x, axis=axis, keepdims=keepdims)
        top = getattr(np, name)(x.real, axis=axis, keepdims=True)
        wins = x.real == top
        decide_surely(x, top, wins)
        found = np.sum(np.where(wins, x, 0), axis=axis, keepdims=keepdims)
        return found / np.sum(wins, axis=axis, keepdims=keepdims)

    return call


def absolute(x):
    return x * np.sign(x.real) if is_complex(x) else np.abs(x)


def clip(x, low, high):
    return minimum(maximum(x, low), high)


def own_clip(x, low, high):
    return clip(x, low, high) if is_complex(x) else np.clip(x, low, high)


def logsumexp(x, axis=-1, keepdims=False):
    if is_plain(x):
        top = x.real.max(axis=axis, keepdims=True)
        found = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
        return found if keepdims else np.squeeze(found, axis)
    return bt.logsumexp(x, axis=axis, keepdims=keepdims)


def softmax(x, axis=-1):
    return np.exp(x - logsumexp(x, axis, True)) if is_plain(x) else bt.softmax(x, axis=axis)


def layer_norm(x):
    if not is_plain(x):
        return bt.layer_norm(x, epsilon=1e-3)
    middle = x - x.mean(-1, keepdims=True)
    return middle / np.sqrt((middle * middle).mean(-1, keepdims=True) + 1e-3)


def variance(x, axis, keepdims):
    if not is_complex(x):
        return np.var(x, axis=axis, keepdims=keepdims)
    middle = x - np.mean(x, axis=axis, keepdims=True)
    return np.mean(middle * middle, axis=axis, keepdims=keepdims)


def deviation(x, axis, keepdims):
    # A root of zero has no derivative.
    if is_plain(x) and (np.ptp(x.real, axis=axis) < 1e-3).any():
        raise UnsuitableError
    return np.sqrt(variance(x, axis, keepdims)) if is_complex(x) else np.std(x, axis=axis, keepdims=keepdims)


def in_order(x):
    if not x.ndim:
        return x
    return np.take_along_axis(x, np.argsort(x.real, -1, kind="stable"), -1) if is_complex(x) else np.sort(x, -1)


def median(x):
    if x.size == 0:
        raise UnsuitableError
    if not is_complex(x) or not x.ndim:
        return np.median(x, -1, keepdims=True) if x.ndim else x
    n, rows = x.shape[-1], in_order(x)
    return (rows[..., (n - 1) // 2, None] + rows[..., n // 2, None]) / 2


def norm(x, axis=None):
    if is_plain(x) and ((x.real**2).sum(axis=axis) < 1e-6).any():
        raise UnsuitableError
    return np.sqrt(np.sum(x * x, axis=axis)) if is_complex(x) else np.linalg.norm(x, axis=axis)


def rows_of(x):
    return [x[k] for k in range(len(x))]


def scan(f, carry, xs):
    if not is_plain(xs):
        return bt.scan(f, carry, xs)
    ys = []
    for x in rows_of(xs):
        carry, y = f(carry, x)
        ys.append(y)
    return carry, np.stack(ys)


def mapped(f, x, in_axis=0, out_axis=0):
    if not is_plain(x):
        return bt.vmap(f, in_axis, out_axis)(x)
    return np.stack([f(row) for row in rows_of(np.moveaxis(x, in_axis, 0))], out_axis)


def repeated(n, f, x):
    if not is_plain(x):
        return bt.fori_loop(0, n, lambda _, x: f(x), x)
    for _ in range(n):
        x = f(x)
    return x


def either(f, g, x):
    """One function of two, chosen by the sum of x; sums of normalised rows are 0 but for rounding."""
    total = np.sum(x)
    if is_plain(x):
        return f(x) if total.real > 0.137 else g(x)
    return bt.cond(total > 0.137, f, g, x)


def of_pairs(choose, x, y):
    return np.where(real(x) > real(y), choose[0](x, y), choose[1](x, y))


maximum, minimum = paired("maximum"), paired("minimum")
arctan2 = dual(np.arctan2, lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y))
hypot = dual(np.hypot, lambda x, y: x / np.hypot(x, y), lambda x, y: y / np.hypot(x, y))
logaddexp = dual(np.logaddexp, lambda x, y: 1 / (1 + np.exp(y - x)), lambda x, y: 1 / (1 + np.exp(x - y)))
cbrt = dual(np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2))
