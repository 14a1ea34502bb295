"""Functions of arrays beyond ``imaginary_steps``: linear algebra without conjugates, orders, choices with NaN, loops.

NumPy's linear algebra of complex numbers conjugates, and a step along an imaginary number must not.
"""

from __future__ import annotations

import numpy as np

import burtorch as bt
from imaginary_steps import UnsuitableError, in_order, is_complex, is_plain, real, rows_of


def transposed(x):
    return np.swapaxes(x, -1, -2)


def square(x, largest=4):
    """The extent of square matrices."""
    n = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != n or not 0 < n <= largest:
        raise UnsuitableError
    return n


def tall(x):
    """Of matrices with at least as many rows as columns, one of full rank."""
    if x.ndim < 2 or not 0 < x.shape[-1] <= min(x.shape[-2], 4):
        raise UnsuitableError
    return np.tanh(x) + 2 * np.eye(x.shape[-2], x.shape[-1])


def positive_definite(x):
    n = square(x)
    return 0.1 * x @ transposed(x) + (1 + n) * np.eye(n)


def own_cholesky(a):
    if not is_complex(a):
        return np.linalg.cholesky(a)
    n, root = a.shape[-1], np.zeros_like(a)
    for k in range(n):
        rest = a[..., k:, k] - (root[..., k:, :k] @ root[..., k, :k, None])[..., 0]
        root[..., k:, k] = rest / np.sqrt(rest[..., :1])
    return root


def own_qr(a):
    """The factors, with the signs that NumPy gives them."""
    if not is_complex(a):
        return tuple(np.linalg.qr(a))
    signs = np.sign(np.diagonal(np.linalg.qr(a.real)[1], axis1=-2, axis2=-1))
    upper = transposed(own_cholesky(transposed(a) @ a)) * signs[..., None]
    return transposed(np.linalg.solve(transposed(upper), transposed(a))), upper


def own_pinv(a):
    return np.linalg.solve(transposed(a) @ a, transposed(a)) if is_complex(a) else np.linalg.pinv(a)


def own_lstsq(a, b):
    if is_complex(a, b):
        return np.linalg.solve(transposed(a) @ a, transposed(a) @ b)
    return np.linalg.lstsq(a, b, rcond=None)[0]


def logarithm_of_determinant(a):
    if not is_complex(a):
        return np.linalg.slogdet(a)[1]
    found = np.linalg.det(a)
    return np.log(found * np.sign(found.real))


def covariance(x):
    if x.ndim != 2 or x.shape[1] < 2:
        raise UnsuitableError
    if not is_complex(x):
        return np.cov(x)
    middle = x - x.mean(1, keepdims=True)
    found = middle @ middle.T / (x.shape[1] - 1)
    return found[0, 0] if len(x) == 1 else found


def correlated(x, y, mode):
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise UnsuitableError
    if not is_complex(x, y):
        return np.correlate(x, y, mode)
    # NumPy conjugates the second.
    moved = np.correlate(np.imag(x), np.real(y), mode) + np.correlate(np.real(x), np.imag(y), mode)
    return np.correlate(np.real(x), np.real(y), mode) + 1j * moved


def quantile(x, q, axis):
    if not x.ndim or not x.shape[axis]:
        raise UnsuitableError
    if not is_complex(x):
        return np.quantile(x, q, axis=axis)
    rows = np.moveaxis(in_order(np.moveaxis(x, axis, -1)), -1, 0)
    place = q * (len(rows) - 1)
    low = int(place)
    return rows[low] + (rows[min(low + 1, len(rows) - 1)] - rows[low]) * (place - low)


def interpolated(x, points, values):
    if not is_complex(x, values):
        return np.interp(x, points, values)
    if np.isin(real(x), points).any():
        raise UnsuitableError
    k = np.clip(np.searchsorted(points, real(x)) - 1, 0, len(points) - 2)
    inside = (real(x) >= points[0]) & (real(x) <= points[-1])
    slope = (values[k + 1] - values[k]) / (points[k + 1] - points[k])
    ends = np.where(real(x) < points[0], values[0], values[-1])
    return np.where(inside, values[k] + (x - points[k]) * slope, ends)


def winner(name):
    """The largest or smallest elements along an axis, by their places; the first of equal ones."""

    def call(x, axis):
        at = np.expand_dims(getattr(np, name)(real(x), axis=axis), axis)
        return np.take_along_axis(x, at, axis=axis)

    return call


def without(name):
    """A reduction of the elements above -0.2, the others being NaN."""

    def call(x, axis, keepdims):
        kept = np.where(real(x) > -0.2, x, np.nan)
        if is_plain(x) and np.isnan(kept).all(axis=axis).any():
            raise UnsuitableError
        if name in ("nansum", "nanmean", "nanprod") or not is_complex(x):
            return getattr(np, name)(kept, axis=axis, keepdims=keepdims)
        if name == "nanmax":
            top = np.nanmax(kept.real, axis=axis, keepdims=True)
            wins = kept.real == top
            found = np.sum(np.where(wins, x, 0), axis=axis, keepdims=keepdims)
            return found / np.sum(wins, axis=axis, keepdims=keepdims)
        middle = kept - np.nanmean(kept, axis=axis, keepdims=True)
        return np.nanmean(middle * middle, axis=axis, keepdims=keepdims)

    return call


def running_until(x):
    """A loop that ends by its numbers."""
    if not is_plain(x):
        return bt.while_loop(lambda y: np.sum(y * y) < 30.3, lambda y: 1.5 * y + 0.1 * np.sin(y) + 0.3, x)
    if not x.size:
        raise UnsuitableError
    while np.sum(real(x) ** 2) < 30.3:
        x = 1.5 * x + 0.1 * np.sin(x) + 0.3
    return x


def counted(x):
    """A loop whose steps read elements by the number of the step."""
    if not is_plain(x):
        return bt.fori_loop(0, len(x), lambda i, c: np.tanh(c + x[i]) * x[-1 - i], x[0])
    c = x[0]
    for i in range(len(x)):
        c = np.tanh(c + x[i]) * x[-1 - i]
    return c


def scan_of(f, carry, xs, *, reverse=False, checkpoint=None):
    """A loop whose carries and slices are containers."""
    if not all(is_plain(x) for x in xs):
        return bt.scan(f, carry, xs, reverse=reverse, checkpoint=checkpoint)
    ys, shapes = [], [np.shape(c) for c in carry]
    if len({len(x) for x in xs}) > 1:
        raise UnsuitableError
    for k in range(len(xs[0]))[:: -1 if reverse else 1]:
        carry, y = f(carry, tuple(rows_of(x)[k] for x in xs))
        ys.append(y)
        if shapes != [np.shape(c) for c in carry]:
            raise UnsuitableError
    return carry, np.stack(ys[::-1] if reverse else ys)


def again(f):
    """A function whose steps reverse mode repeats."""
    return lambda *x: f(*x) if is_plain(x[0]) else bt.checkpoint(f)(*x)


def mapped_with(f, x, y, axes):
    """Rows of two arrays, or of one with the whole other."""
    if not is_plain(x):
        return bt.vmap(f, axes)(x, y)
    if axes == (0, 0) and len(x) != len(y):
        raise UnsuitableError
    n = len(x) if axes[0] == 0 else len(y)
    return np.stack([f(*(a if axis is None else a[k] for a, axis in zip((x, y), axes, strict=True))) for k in range(n)])
