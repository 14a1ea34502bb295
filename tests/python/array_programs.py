"""Random programs over arrays, written with NumPy's functions, for NumPy, for imaginary steps and for burtorch.

A program is a list of steps, each a function of earlier values. It is drawn by running it on numbers: a step that NumPy
refuses is replaced by the next draw, and a step that only burtorch refuses is an error of burtorch.
"""

from __future__ import annotations

import random

import numpy as np

import burtorch as bt
from array_steps import further_step
from imaginary_steps import (
    UnsuitableError,
    absolute,
    arctan2,
    cbrt,
    deviation,
    either,
    extreme,
    hypot,
    in_order,
    is_complex,
    is_plain,
    layer_norm,
    logaddexp,
    logsumexp,
    mapped,
    maximum,
    median,
    minimum,
    norm,
    of_pairs,
    own_clip,
    real,
    repeated,
    scan,
    softmax,
    variance,
)

LARGEST = 400

UNARY = [
    np.sin, np.cos, np.tanh, np.exp, np.square, np.negative, np.reciprocal, absolute, np.sinh, np.arctan,
    lambda x: np.sqrt(1 + x * x), lambda x: np.log(2 + np.sin(x)), lambda x: x**3, lambda x: (2 + np.cos(x)) ** -1.5,
    lambda x: np.log1p(np.exp(-x)), lambda x: np.expm1(np.tanh(x)),
    lambda x: own_clip(x, -0.5, 0.75), lambda x: maximum(x, 0.0), in_order, lambda x: x - median(x),
    lambda x: np.arcsinh(x), lambda x: np.arcsin(0.9 * np.tanh(x)), lambda x: np.arctanh(0.9 * np.sin(x)),
    lambda x: cbrt(2 + np.sin(x)), lambda x: x * np.floor(real(x)), lambda x: np.sign(real(x)) * x * x,
    lambda x: 2.0 ** x, lambda x: x**0, lambda x: x**2.0, lambda x: +x / 3, lambda x: 1 - x,
    lambda x: 2 / (3 + np.sin(x)),
    # Not a number, or infinite, where it is not chosen.
    lambda x: np.where(real(x) > 0.2, np.log(x), x), lambda x: np.where(real(x) < 0.1, -x, np.sqrt(x)) * x,
    lambda x: np.where(np.abs(real(x)) > 0.1, 1 / x, 0.5), lambda x: np.where(real(x) > 50, np.exp(x * x), np.cos(x)),
    lambda x: repeated(3, lambda x: np.tanh(x) + 0.5 * x, x), lambda x: either(np.sin, lambda x: x * 0.5, x),
]  # fmt: skip
BINARY = [
    np.add, np.subtract, np.multiply, maximum, minimum, lambda x, y: x / (1.5 + np.sin(y)),
    lambda x, y: (2 + np.tanh(x)) ** y, lambda x, y: of_pairs((np.multiply, lambda x, y: y - x), x, y),
    lambda x, y: -y + x * 0.5, lambda x, y: arctan2(x, 2 + np.cos(y)), lambda x, y: hypot(1.5 + np.sin(x), y),
    logaddexp, lambda x, y: of_pairs((lambda x, y: np.sqrt(x - y), lambda x, y: x + y), x, y),
    lambda x, y: np.where(real(x) > 0, y, 0.0), lambda x, y: x - np.floor(real(y)) * 0.25,
]  # fmt: skip
REDUCTIONS = [
    lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims),
    lambda x, axis, keepdims: np.mean(x, axis=axis, keepdims=keepdims),
    lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims),
    extreme("max"),
    extreme("min"),
    variance,
    deviation,
]
# Functions of a row with the gradient by hand, for derivatives within programs.
SLOPES = [
    (lambda r: np.sum(np.sin(r) * r), lambda r: np.cos(r) * r + np.sin(r)),
    (lambda r: logsumexp(r), softmax),
    (lambda r: np.sum(np.tanh(r)) ** 2, lambda r: 2 * np.sum(np.tanh(r)) * (1 - np.tanh(r) ** 2)),
    (lambda r: scan(lambda c, a: (c * 0.5 + np.sin(a), c * a), np.sum(r) * 0, r)[0],
     lambda r: np.cos(r) * 0.5 ** np.arange(len(r) - 1.0, -1.0, -1.0)),
    (lambda r: np.sum(r[::-1] * r), lambda r: 2 * r[::-1]),
    (lambda r: np.sum(repeated(2, lambda x: x * x, r)), lambda r: 4 * r**3),
]  # fmt: skip


def gradient(g, slope):
    return lambda r: slope(r) if is_plain(r) else bt.grad(g)(r)


def curvature(g, slope):
    """The second derivative along the row, by a Hessian or a product with it."""

    def along(r):
        if not is_plain(r):
            return bt.jvp(bt.grad(g), (r,), (r,))[1]
        step = 1e-180
        if not is_complex(r):
            return slope(r + 1j * step * r).imag / step
        raise UnsuitableError

    return along


def jacobian(r):
    """Of r times its sum."""
    if is_plain(r):
        return np.sum(r) * np.eye(len(r)) + r[:, None]
    return bt.jacobian(lambda r: r * np.sum(r))(r)


def hessian(r):
    """Of the sum of third powers times the sum."""
    if is_plain(r):
        squares = 3 * r * r
        return np.sum(r) * np.diag(6 * r) + squares[:, None] + squares[None, :]
    return bt.hessian(lambda r: np.sum(r**3) * np.sum(r))(r)


def product(x, y):
    """A product with a Jacobian, forwards plus backwards."""
    if is_plain(x):
        return np.cos(x) * y + 3 * x * x * y
    return bt.jvp(np.sin, (x,), (y,))[1] + bt.vjp(lambda x: x**3, x)[1](y)[0]


def index(dice, shape):
    """A random index: slices, integers, an ellipsis, a new axis, arrays of integers, a mask."""
    kind = dice.randrange(9)
    if kind == 0 and shape[0]:
        return np.array([dice.randrange(-shape[0], shape[0]) for _ in range(dice.randrange(1, 5))])
    if kind == 1:
        return np.array([dice.random() < 0.6 for _ in range(shape[0])], dtype=bool)
    if kind == 2 and len(shape) > 1 and min(shape[:2]):
        n = dice.randrange(1, 4)
        return tuple(np.array([dice.randrange(-d, d) for _ in range(n)]) for d in shape[:2])
    if kind == 3 and len(shape) > 1 and min(shape[:2]):
        rows, columns = dice.randrange(1, 4), dice.randrange(1, 3)
        return (
            np.array([[dice.randrange(-shape[0], shape[0])] for _ in range(rows)]),
            np.array([dice.randrange(-shape[1], shape[1]) for _ in range(columns)]),
        )
    parts = []
    for d in shape[: dice.randrange(1, len(shape) + 1)]:
        part = dice.randrange(5)
        if part == 0:
            parts.append(dice.randrange(-d, d) if d else slice(None))
        elif part == 1:
            start = dice.randrange(-d - 1, d + 2)
            parts.append(slice(start, dice.choice([None, start + 1, d, -1]), dice.choice([None, 1, 2])))
        elif part == 2:
            parts.append(slice(None, None, dice.choice([-1, 1, 2, -2])))
        elif part == 3:
            parts.append(slice(dice.choice([None, d, -1, 1]), dice.choice([None, 0, -d]), dice.choice([-1, -2, -3])))
        else:
            n = dice.randrange(0, 4) if d else 0
            parts.append(np.array([dice.randrange(-d, d) for _ in range(n)], dtype=int))
    if dice.random() < 0.6 and sum(isinstance(part, np.ndarray) for part in parts) > 1:
        parts = [part if not isinstance(part, np.ndarray) else slice(None) for part in parts]
    if dice.random() < 0.2:
        parts.insert(dice.randrange(len(parts) + 1), None)
    elif dice.random() < 0.2:
        parts.insert(dice.choice([0, len(parts)]), Ellipsis)
    return tuple(parts)


def reshaped(dice, x):
    n, shape = x.size, []
    for d in (2, 3, 4, 1):
        if n % d == 0 and dice.random() < 0.6:
            shape.append(d)
            n //= d
    shape = (*shape, -1) if dice.random() < 0.5 else (-1, *shape)
    return lambda x: np.reshape(x, shape)


def solved(x, y):
    n = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != n or y.ndim < 2 or y.shape[-2] != n or not 0 < n <= 4:
        raise UnsuitableError
    return np.linalg.solve(x + (3 + n) * np.eye(n), y)


def determinant(x):
    n = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != n or not 0 < n <= 4:
        raise UnsuitableError
    return np.linalg.det(np.tanh(x) + 2 * np.eye(n))


def inverse(x):
    n = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != n or not 0 < n <= 4:
        raise UnsuitableError
    return np.linalg.inv(np.sin(x) + (2 + n) * np.eye(n))


def axes(dice, x):
    """None, an axis, or several."""
    if not x.ndim or dice.random() < 0.3:
        return None
    if x.ndim > 1 and dice.random() < 0.3:
        chosen = dice.sample(range(x.ndim), dice.randrange(1, x.ndim + 1))
        return tuple(k - x.ndim if dice.random() < 0.5 else k for k in chosen)
    return dice.randrange(-x.ndim, x.ndim)


def shape_step(dice, x, axis):
    """A step that moves numbers."""
    other, n = dice.randrange(-x.ndim, x.ndim), dice.randrange(-3, 4)
    times = tuple(dice.randrange(1, 3) for _ in range(dice.randrange(1, 4)))
    widths = [(dice.randrange(3), dice.randrange(3)) for _ in range(x.ndim)]
    counts = [dice.randrange(3) for _ in range(x.shape[axis])]
    return dice.choice([
        np.transpose, lambda x: np.swapaxes(x, axis, other), lambda x: np.flip(x, axis), np.ravel,
        lambda x: np.moveaxis(x, axis, other), lambda x: np.expand_dims(x, axis), np.flip,
        lambda x: np.roll(x, n, axis), lambda x: np.diff(x, axis=axis), lambda x: np.tile(x, times), lambda x: x.T,
        lambda x: np.repeat(x, 2, axis=axis), lambda x: np.repeat(x, counts, axis=axis),
        lambda x: np.broadcast_to(x, (2, *x.shape)), lambda x: np.pad(x, widths), lambda x: np.atleast_2d(x),
        lambda x: np.squeeze(x[..., None, :1] if x.ndim else x), lambda x: np.split(x, [1], axis=axis)[-1],
        lambda x: np.concatenate([x[1:], x[:1]]), lambda x: np.take(x, [0, -1, 0], axis=axis),
        lambda x: np.rot90(x, n) if x.ndim > 1 else x, lambda x: np.array_split(x, 2, axis=axis)[0],
    ])  # fmt: skip


def matrix_step(dice):
    """A step on the last axes of one value."""
    k = dice.randrange(-2, 3)
    return dice.choice([
        lambda x: np.tril(x, k), lambda x: np.triu(x, k), np.trace, lambda x: np.diagonal(x, k),
        lambda x: np.diagonal(x, k, -1, -2), lambda x: np.diag(x, k), determinant, inverse, layer_norm,
        lambda x: np.einsum("...ij->...ji", x), lambda x: np.einsum("ii", x), lambda x: np.einsum("ij->j", x),
    ])  # fmt: skip


def product_step(dice):
    return dice.choice([
        lambda x, y: x @ y, lambda x, y: x @ np.swapaxes(y, -1, -2) if y.ndim > 1 else np.outer(x, y), np.dot,
        lambda x, y: np.swapaxes(x, -1, -2) @ y, np.inner, np.outer, np.kron, solved,
        lambda x, y: np.einsum("...i,...i->...", x, y), lambda x, y: np.tensordot(x, y, 1),
        lambda x, y: np.tensordot(x, y, 0) if np.ndim(x) and np.ndim(y) else x * y,
        lambda x, y: np.einsum("ij,kj->ik", x, y),
        lambda x, y: np.einsum("i...,i...->...", x, y), lambda x, y: np.einsum("ij,ij", x, y), np.matmul,
        lambda x, y: np.sum(np.ravel(x) * np.ravel(y)) if is_complex(x, y) or not (x.ndim and y.ndim) else
        np.vdot(np.ravel(x), np.ravel(y)),
    ])  # fmt: skip


def nested_step(dice, x):
    """A step with a loop, a map or a derivative of its own."""
    g, slope = dice.choice(SLOPES)
    axis, out = dice.randrange(-x.ndim, x.ndim), dice.choice([0, -1])
    inner = dice.choice([gradient(g, slope), curvature(g, slope)] if dice.random() < 0.3 else [gradient(g, slope)])
    if x.ndim == 1:
        return dice.choice([
            inner, jacobian, hessian, lambda x: product(x, x[::-1]), lambda x: mapped(np.sin, x, axis),
            lambda x: scan(lambda c, a: (np.tanh(c + a), c * a), x[0] * 0.5, x)[1],
            lambda x: scan(lambda c, a: (c * np.cos(a), a), np.sum(x), x)[0],
        ])  # fmt: skip
    if x.ndim == 2:
        return dice.choice([
            lambda x: mapped(inner, x, axis, out), lambda x: mapped(jacobian, x, axis),
            lambda x: scan(lambda c, a: (np.tanh(c + a), c * a), x[0], x)[1],
            lambda x: scan(lambda c, a: (c * 0.5 + maximum(a, 0.1), np.sum(c * a)), x[-1], x)[0],
            lambda x: mapped(lambda r: scan(lambda c, a: (c + a * c, c), np.sum(r), r)[1], x, axis, out),
            lambda x: mapped(lambda r: either(np.sin, np.cos, r), x, axis, out),
        ])  # fmt: skip
    if x.ndim > 3:
        return lambda x: mapped(lambda m: np.sum(m, -1) * m[..., 0], x, axis)
    return dice.choice([
        lambda x: mapped(lambda m: mapped(inner, m, out), x, axis), lambda x: mapped(lambda m: m @ m.T, x, axis, out),
        lambda x: mapped(lambda m: np.sum(m, -1) * m[..., 0], x, axis),
    ])  # fmt: skip


def step(dice, values, indices):
    """A function, and the numbers of the values that it takes."""
    of = dice.randrange(len(values)), dice.randrange(len(values))
    x = values[of[0]]
    kind = dice.randrange(28)
    if kind > 19:
        f, count = further_step(dice, x, axes)
        return f, of[:count]
    if kind < 4 or (x.ndim == 0 and kind < 12):
        return dice.choice(UNARY), of[:1]
    if kind < 8:
        return dice.choice(BINARY), of
    if kind < 10:
        reduce, over, keepdims = dice.choice(REDUCTIONS), axes(dice, x), dice.random() < 0.5
        return (lambda x: reduce(x, over, keepdims)), of[:1]
    if kind == 12 or x.ndim == 0:
        return product_step(dice), of
    axis = dice.randrange(-x.ndim, x.ndim)
    if kind == 10:
        at = index(dice, x.shape)
        return (lambda x: x[at]), of[:1]
    if kind == 11:
        return reshaped(dice, x), of[:1]
    if kind < 15:
        return shape_step(dice, x, axis), of[:1]
    if kind == 15:
        join = dice.choice([np.concatenate, np.stack])
        return (lambda x, y: join([x, y, x], axis=axis)), of
    if kind == 16:
        return dice.choice([
            lambda x: np.cumsum(x, axis=axis), lambda x: softmax(x, axis), lambda x: logsumexp(x, axis),
            lambda x: np.cumprod(x, axis=axis), lambda x: norm(x, axis), norm,
        ]), of[:1]  # fmt: skip
    if kind == 17:
        return matrix_step(dice), of[:1]
    if kind == 18 and indices and x.shape[axis]:
        return Chosen(chosen_step(dice, x.shape[axis], axis, indices)), of[:1]
    return nested_step(dice, x), of[:1]


def chosen_step(dice, n, axis, indices):
    """A step that reads integers or a mask."""
    k = dice.randrange(len(indices))
    if indices[k].dtype == bool:
        return dice.choice(
            [
                lambda x, i: np.where(i[k], x, np.sin(x)),
                lambda x, i: x * i[k],
                lambda x, i: np.where(i[k], np.log(x), 0.5),
                lambda x, i: np.where(~i[k] & (real(x) > 0), np.sqrt(x), x),
                lambda x, i: x + np.sum(i[k]),
            ]
        )
    return dice.choice(
        [
            lambda x, i: np.take(x, i[k] % n, axis=axis),
            lambda x, i: x * i[k],
            lambda x, i: x ** (i[k] % 4),
            lambda x, i: x - i[k] // 2,
            lambda x, i: np.where(i[k] % 3 == 0, x, np.cos(x)),
            lambda x, i: x / (1 + i[k]),
            lambda x, i: i[k] * np.sin(x) - np.max(i[k]),
            lambda x, i: np.take(x, np.argsort(np.ravel(i[k])) % n, axis=axis),
            lambda x, i: x * np.cumsum(np.ravel(i[k]))[-1],
        ]
    )


class Chosen:
    """A function that takes the integers and masks of the program as well."""

    def __init__(self, f):
        self.f = f


class Program:
    """A random scalar-valued body of one or two arrays and perhaps of indices, and its arguments."""

    def __init__(self, seed, *, ties=False):
        dice = random.Random(seed)
        extents = [1, 1, 2, 2, 3, 3, 4, 5] + ([0] if dice.random() < 0.15 else [])
        shapes = [tuple(dice.choice(extents) for _ in range(dice.randrange(4))) for _ in range(dice.randrange(1, 3))]
        if dice.random() < 0.5 and shapes[0]:
            shapes[-1] = shapes[0][dice.randrange(len(shapes[0])) :]
        number = (lambda: dice.randrange(-4, 5) / 4) if ties else (lambda: dice.uniform(-1.5, 1.5))
        self.arguments = [np.array([number() for _ in range(int(np.prod(s)))]).reshape(s) for s in shapes]
        self.indices = []
        if dice.random() < 0.3:
            shape = tuple(dice.randrange(1, 4) for _ in range(dice.randrange(3)))
            self.indices.append(np.array([dice.randrange(9) for _ in range(int(np.prod(shape)))]).reshape(shape))
        shape = shapes[0][dice.randrange(len(shapes[0]) + 1) :]
        if dice.random() < 0.2:
            self.indices.append(np.array([dice.randrange(9) for _ in range(int(np.prod(shape)))], int).reshape(shape))
        if dice.random() < 0.2:
            self.indices.append(
                np.array([dice.random() < 0.5 for _ in range(int(np.prod(shape)))], bool).reshape(shape)
            )
        self.steps = []
        self.draw(dice, dice.randrange(2, 9))
        # How numbers come together: of most programs in few operations, which are traced in less time.
        self.is_joined = dice.random() < 0.7

    def draw(self, dice, steps):
        values, failed = list(self.arguments), 0
        while len(self.steps) < steps:
            f, of = step(dice, values, self.indices)
            try:
                found = self.applied(f, of, values, self.indices)
            except (ValueError, IndexError, TypeError, np.linalg.LinAlgError, UnsuitableError, ZeroDivisionError):
                failed += 1
                if failed > 40:
                    raise UnsuitableError from None
                continue
            if (
                not (is_plain(found) and np.isfinite(found).all() and np.abs(found).max(initial=0) < 1e4)
                or found.size > 4000
            ):
                failed += 1
                if failed > 40:
                    raise UnsuitableError
                continue
            values.append(found)
            self.steps.append((f, of))

    @staticmethod
    def applied(f, of, values, indices):
        taken = [values[k] for k in of]
        found = f.f(*taken, indices) if isinstance(f, Chosen) else f(*taken)
        return np.sum(found, axis=0) if np.size(found) > LARGEST and np.ndim(found) else found

    def total(self, values):
        if self.is_joined:
            joined = np.concatenate([np.ravel(value) for value in values])
            return np.sum(np.tanh(joined * 0.3) * np.cos(np.arange(1.0, joined.size + 1.0)))
        total, k = 0.0, 0
        for value in values:
            n = np.size(value)
            weights = np.cos(np.arange(k + 1.0, k + n + 1.0)).reshape(np.shape(value))
            total, k = total + np.sum(np.tanh(value * 0.3) * weights), k + n
        return total

    def is_tame(self, *arrays):
        """Whether all numbers are moderate at these arguments."""
        values = list(arrays)
        for f, of in self.steps:
            values.append(self.applied(f, of, values, self.indices))
            if not (np.isfinite(values[-1]).all() and np.abs(values[-1]).max(initial=0) < 1e4):
                return False
        return True

    def __call__(self, *arrays):
        n = len(self.arguments)
        values, indices = list(arrays[:n]), arrays[n:] or self.indices
        for f, of in self.steps:
            values.append(self.applied(f, of, values, indices))
        return self.total(values)
