"""Further steps of random programs: NumPy's less common functions, linear algebra, choices, loops, layers."""

from __future__ import annotations

import numpy as np

import burtorch as bt
from imaginary_algebra import (
    again,
    correlated,
    counted,
    covariance,
    interpolated,
    logarithm_of_determinant,
    mapped_with,
    own_cholesky,
    own_lstsq,
    own_pinv,
    own_qr,
    positive_definite,
    quantile,
    running_until,
    scan_of,
    square,
    tall,
    transposed,
    winner,
    without,
)
from imaginary_steps import (
    UnsuitableError,
    absolute,
    dual,
    is_complex,
    is_plain,
    logsumexp,
    maximum,
    minimum,
    norm,
    real,
    softmax,
)


def own(function, otherwise):
    """NumPy's function, and another for complex numbers, for which NumPy has none or another one."""
    return lambda *x: otherwise(*x) if is_complex(*x) else function(*x)


remainder = dual(np.remainder, lambda x, y: 1.0 + 0 * x * y, lambda x, y: -np.floor(x / y))
fmod = dual(np.fmod, lambda x, y: 1.0 + 0 * x * y, lambda x, y: -np.trunc(x / y))
logaddexp2 = dual(np.logaddexp2, lambda x, y: 1 / (1 + 2 ** (y - x)), lambda x, y: 1 / (1 + 2 ** (x - y)))
arctan2 = dual(np.arctan2, lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y))

UNARY = [
    np.cosh,
    lambda x: np.tan(0.4 * np.tanh(x)),
    np.exp2,
    lambda x: np.log2(2 + np.sin(x)),
    own(np.deg2rad, lambda x: x * (np.pi / 180)),
    np.positive,
    lambda x: np.log10(1.5 + x * x),
    lambda x: np.arccos(0.9 * np.tanh(x)),
    lambda x: np.arccosh(1.5 + x * x),
    own(np.conjugate, lambda x: x),
    own(np.fabs, absolute),
    np.sinc,
    np.nan_to_num,
    own(lambda x: np.rad2deg(x) / 50, lambda x: x * (3.6 / np.pi)),
    lambda x: x * np.rint(real(x)),
    lambda x: x * np.ceil(real(x)),
    lambda x: np.trunc(real(x)) - x,
    lambda x: np.fix(real(x)) * x,
    lambda x: remainder(x, 0.7),
    lambda x: fmod(x, 0.7),
    lambda x: x * np.floor_divide(real(x), 0.5),
    own(lambda x: np.modf(x)[0], lambda x: x - np.trunc(x.real)),
    own(lambda x: np.ldexp(x, 2), lambda x: 4 * x),
    lambda x: np.heaviside(real(x), 0.5) * x,
    lambda x: np.float_power(2 + np.sin(x), 1.5),
    lambda x: np.where(sign_bit(x), x * x, -x),
    lambda x: np.where(np.logical_and(real(x) > 0, real(x) <= 1), np.sqrt(x), 0.25),
    lambda x: np.where(~(real(x) < 0.3) ^ (real(x) >= 1), x, np.sin(x)),
    lambda x: np.where(np.isnan(np.log(real(x))), x, np.log(x)),
    lambda x: np.where(np.isfinite(1 / real(x)), 1 / (2 + x * x), x),
    lambda x: np.select([real(x) < -0.5, real(x) > 0.5], [x * x, np.sqrt(x)], np.sin(x)),
    lambda x: np.polyval([0.5, -1.0, 2.0], x),
    lambda x: interpolated(x, np.array([-1.0, 0.1, 0.9]), np.array([0.0, 2.0, 1.0])),
    lambda x: x / (1 + np.exp(-x)) if is_plain(x) else bt.silu(x),
    lambda x: np.ones_like(x) * x,
    lambda x: x + np.zeros_like(x),
    lambda x: np.full_like(x, 0.5) - x,
    running_until,
    np.copy,
    lambda x: np.digitize(real(x), [-0.5, 0.1, 0.6]) * x,
]
BINARY = [
    lambda x, y: remainder(x, 1.5 + np.sin(y)),
    lambda x, y: fmod(x, 1.5 + np.sin(y)),
    logaddexp2,
    own(np.fmax, maximum),
    own(np.fmin, minimum),
    own(np.copysign, lambda x, y: np.where(sign_bit(x) == sign_bit(y), x, -x)),
    lambda x, y: np.where(np.logical_or(real(x) > 0, real(y) > 0), x, np.log(y)),
    lambda x, y: np.true_divide(x, 2 + np.cos(y)),
    lambda x, y: np.where(np.logical_xor(real(x) > 0, real(y) > 0), x * y, np.sqrt(0.1 + x * y)),
    lambda x, y: np.broadcast_arrays(x, y)[0] * 0.5,
    lambda x, y: np.where(np.isclose(real(x), real(y)), x, y),
    lambda x, y: np.power(1.5 + np.sin(x), y),
    lambda x, y: np.where(np.not_equal(real(x), real(y)), x - y, 1.0),
    lambda x, y: again(lambda a, b: np.sin(a) * b)(x, y),
    lambda x, y: np.append(x, y),
    lambda x, y: np.meshgrid(np.ravel(x), np.ravel(y))[1],
    lambda x, y: np.vstack([np.atleast_2d(x), np.atleast_2d(y)]),
    lambda x, y: np.hstack([x, y]),
    lambda x, y: np.column_stack([x, y]),
    lambda x, y: np.dstack([x, y]),
    lambda x, y: np.block([[np.atleast_2d(x)], [np.atleast_2d(y)]]),
]


def sign_bit(x):
    """Complex arithmetic loses the sign of 0."""
    if is_complex(x) and (x.real == 0).any():
        raise UnsuitableError
    return np.signbit(real(x))


def average(x, axis, keepdims):
    if axis is None or isinstance(axis, tuple):
        return np.average(x, axis=axis, keepdims=keepdims)
    return np.average(x, axis=axis, weights=np.arange(1.0, x.shape[axis] + 1), keepdims=keepdims)


def spread(x, axis, keepdims):
    if not is_complex(x):
        return np.ptp(x, axis=axis, keepdims=keepdims)
    raise UnsuitableError


REDUCTIONS = [
    average,
    without("nansum"),
    without("nanmean"),
    without("nanprod"),
    without("nanmax"),
    without("nanvar"),
    lambda x, axis, keepdims: (
        np.sum(x, axis, keepdims=keepdims) * np.count_nonzero(real(x) > 0.1, axis, keepdims=keepdims)
    ),
    lambda x, axis, keepdims: np.sum(x, axis, keepdims=keepdims) * np.any(real(x) > 0.9, axis, keepdims=keepdims),
    lambda x, axis, keepdims: np.where(
        np.all(real(x) > -1.2, axis, keepdims=keepdims), np.sum(np.sin(x), axis, keepdims=keepdims), 0.5
    ),
]


def triangle(x, lower):
    n = square(x)
    return (np.tril(x) if lower else np.triu(x)) + (3 + n) * np.eye(n)


def square_itself(x):
    square(x)
    return x


def matrix_norm(x):
    return np.sqrt(np.sum(x * x, axis=(-2, -1))) if is_complex(x) else np.linalg.matrix_norm(x)


def algebra_step(dice):
    """A step of linear algebra on matrices, single or batched."""
    lower, power = dice.random() < 0.5, dice.randrange(4)
    return dice.choice(
        [
            lambda x: own_cholesky(positive_definite(x)),
            lambda x: own_qr(tall(x))[0],
            lambda x: own_qr(tall(x))[1],
            lambda x: own_pinv(tall(x)),
            lambda x: logarithm_of_determinant(tall(square_itself(x))),
            lambda x: np.linalg.matrix_power(square_itself(x), power),
            matrix_norm,
            lambda x: np.linalg.inv(positive_definite(x)),
            lambda x: np.linalg.solve(positive_definite(x), x),
            lambda x: np.linalg.solve(triangle(x, lower), x),
            np.linalg.matrix_transpose,
            lambda x: np.linalg.multi_dot([x, x.T, x]) if x.ndim == 2 else x,
            lambda x: np.linalg.det(positive_definite(x) / 3),
            np.linalg.trace,
            np.linalg.diagonal,
            covariance,
        ]
    )


def regression(x, y):
    if x.ndim == 2 and x.shape[0] > x.shape[1]:
        return own_lstsq(tall(x), y)
    return np.linalg.solve(tall(square_itself(x)), y)


def in_sequence(f):
    """A function of two sequences that are not empty."""

    def call(x, y):
        if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
            raise UnsuitableError
        return f(x, y)

    return call


def under(x, y):
    """Of a curve with growing distances."""
    if x.shape != y.shape or x.ndim != 1:
        raise UnsuitableError
    return np.trapezoid(x, np.cumsum(1 + y * y))


def read_between(x, y):
    """Values of x at the places y."""
    if x.shape != (3,):
        raise UnsuitableError
    return interpolated(y, np.arange(3.0), x) if is_complex(x, y) else np.interp(y, np.arange(3.0), x)


def vecmat(x, y):
    return (np.swapaxes(y, -1, -2) @ x[..., None])[..., 0] if is_complex(x, y) else np.vecmat(x, y)


def carried(c, ab):
    """A step of a loop over two arrays with two carries."""
    return (c[0] * 0.5 + ab[0], c[1] - ab[1] * c[0]), c[0] * ab[1]


def pair_step(dice):
    """A step of linear algebra, of sequences, or of layers on two values."""
    mode, axes = dice.choice(["full", "same", "valid"]), dice.choice([(0, 0), (0, None), (None, 0)])
    reverse, checkpoint, part = dice.random() < 0.5, dice.choice([None, None, 1, 2, "sqrt"]), dice.randrange(2)
    return dice.choice(
        [
            regression,
            in_sequence(lambda x, y: np.convolve(x, y, mode)),
            in_sequence(lambda x, y: correlated(x, y, mode)),
            lambda x, y: np.cross(x, y) if x.shape[-1:] == y.shape[-1:] == (3,) else x * y,
            lambda x, y: np.sum(x * y, -1) if is_complex(x, y) else np.linalg.vecdot(x, y),
            np.matvec,
            vecmat,
            read_between,
            lambda x, y: np.einsum("ij,jk->ki", x, y),
            lambda x, y: np.einsum("...ij,...jk->...ik", x, y),
            lambda x, y: np.einsum("i,i->i", x, y),
            lambda x, y: np.einsum("ij,j->", x, y),
            lambda x, y: np.einsum("bij,bj->bi", x, y),
            lambda x, y: np.einsum("i,j->ji", x, y),
            attention,
            lambda x, y: mapped_with(lambda a, b: np.sin(a) * b + np.sum(b), x, y, axes),
            lambda x, y: mapped_with(lambda a, b: a @ b, x, y, axes),
            under,
            lambda x, y: scan_of(carried, (x[0], y[0]), (x, y), reverse=reverse, checkpoint=checkpoint)[1],
            lambda x, y: scan_of(carried, (x[0], y[0]), (x, y), reverse=reverse, checkpoint=checkpoint)[0][part],
        ]
    )


def attention(x, y):
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1] or not x.shape[-1] or not y.shape[-2]:
        raise UnsuitableError
    if not is_plain(x):
        return bt.attention(x, y, np.sin(y))
    return softmax(x @ transposed(y) / np.sqrt(x.shape[-1])) @ np.sin(y)


def series_step(dice, x, axis):
    """A step along one axis."""
    q, n, k = dice.choice([0.0, 0.3, 0.5, 0.75, 1.0]), x.shape[axis], dice.randrange(3)
    at = dice.randrange(-n, n) if n else 0
    several = [dice.randrange(-n, n) for _ in range(k)] if n else []
    return dice.choice(
        [
            lambda x: quantile(x, q, axis),
            lambda x: winner("argmax")(x, axis),
            lambda x: winner("argmin")(x, axis),
            lambda x: np.gradient(x, axis=axis),
            lambda x: np.gradient(x, 0.5, axis=axis),
            lambda x: np.trapezoid(x, axis=axis),
            np.ediff1d,
            lambda x: np.delete(x, at, axis=axis),
            lambda x: np.delete(x, several, axis=axis),
            lambda x: np.insert(x, at, 0.5, axis=axis),
            lambda x: np.rollaxis(x, axis),
            lambda x: np.resize(x, (2, 3)),
            lambda x: np.diagflat(x[..., 0] if x.ndim > 1 else x),
            np.atleast_3d,
            np.fliplr,
            np.flipud,
            lambda x: np.vsplit(x, 2)[0],
            lambda x: np.hsplit(x, 2)[-1],
            lambda x: np.vander(x, 3) if x.ndim == 1 else np.permute_dims(x),
            lambda x: np.diff(x, 2, axis=axis),
            np.cumulative_sum if x.ndim == 1 else np.copy,
            lambda x: np.cumulative_prod(x, axis=axis),
            lambda x: np.apply_along_axis(lambda r: np.sum(r * r) * r[0], axis, x),
            lambda x: counted(x),
            lambda x: np.nancumsum(np.where(real(x) > 0, x, np.nan), axis=axis),
            lambda x: x - logsumexp(x, axis, True) if is_plain(x) else bt.log_softmax(x, axis=axis),
            rms_norm,
            lambda x: (
                norm(x, axis) if k else np.sum(absolute(x), axis) if is_complex(x) else np.linalg.norm(x, 1, axis)
            ),
            lambda x: own_order(x, axis),
            lambda x: np.take(x, np.searchsorted([-0.5, 0.5], real(np.ravel(x))) % n, axis=axis),
        ]
    )


def own_order(x, axis):
    """Sorted by another quantity than itself."""
    return np.take_along_axis(x, np.argsort(np.sin(7 * real(x)), axis=axis, kind="stable"), axis=axis)


def rms_norm(x):
    if not x.ndim or not x.shape[-1]:
        raise UnsuitableError
    if not is_plain(x):
        return bt.rms_norm(x, 1.0, eps=1e-3)
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-3)


def further_step(dice, x, axes):
    """A function, and how many values it takes."""
    kind = dice.randrange(9) if x.ndim else dice.randrange(4)
    if kind < 2:
        return dice.choice(UNARY), 1
    if kind < 4:
        return dice.choice(BINARY), 2
    if kind == 4:
        reduce, over, keepdims = dice.choice(REDUCTIONS), axes(dice, x), dice.random() < 0.5
        return (lambda x: reduce(x, over, keepdims)), 1
    if kind == 5:
        return algebra_step(dice), 1
    if kind == 6:
        return series_step(dice, x, dice.randrange(-x.ndim, x.ndim)), 1
    return pair_step(dice), 2
