"""Random programs of arrays: values against NumPy, derivatives against complex steps."""

from __future__ import annotations

import os
import random

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

# Hypothesis has a hook in the garbage collector that reads the clock.
pytestmark = pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning")
# Programs per block; BURTORCH_PROGRAMS=10000 makes 10^5, BURTORCH_SEED selects others.
PROGRAMS = int(os.environ.get("BURTORCH_PROGRAMS", "30"))
SEED = int(os.environ.get("BURTORCH_SEED", "1"))
BLOCKS = 10
STEP = 1e-30


class UnsuitableError(Exception):
    """The reference is not applicable: an infinity, a kink, incompatible shapes."""


def is_complex(*arrays):
    return any(isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind == "c" for a in arrays)


def chosen(choose, x, y):
    """One of two arrays, elementwise, chosen by their real parts."""
    return np.where(choose(x.real, y.real), x, y)


def maximum(x, y):
    return chosen(np.greater_equal, np.asarray(x), np.asarray(y)) if is_complex(x, y) else np.maximum(x, y)


def extreme(name):
    def reduce(x, axis, keepdims):
        if not is_complex(x):
            return getattr(np, name)(x, axis=axis, keepdims=keepdims)
        if axis is None:
            found = x.ravel()[getattr(np, "arg" + name)(x.real)]
            return found.reshape((1,) * x.ndim) if keepdims else found
        places = np.expand_dims(getattr(np, "arg" + name)(x.real, axis=axis), axis)
        found = np.take_along_axis(x, places, axis)
        return found if keepdims else np.squeeze(found, axis)

    return reduce


def absolute(x):
    return np.where(x.real < 0, -x, x) if is_complex(x) else np.abs(x)


def clip(x, low, high):
    return np.where(x.real < low, low, np.where(x.real > high, high, x)) if is_complex(x) else np.clip(x, low, high)


def logsumexp(x, axis=-1, keepdims=False):
    if isinstance(x, (np.ndarray, np.generic)):
        top = x.real.max(axis=axis, keepdims=True)
        found = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
        return found if keepdims else np.squeeze(found, axis)
    return bt.logsumexp(x, axis=axis, keepdims=keepdims)


def softmax(x, axis=-1):
    return np.exp(x - logsumexp(x, axis, True)) if isinstance(x, (np.ndarray, np.generic)) else bt.softmax(x, axis=axis)


def layer_norm(x):
    if not isinstance(x, (np.ndarray, np.generic)):
        return bt.layer_norm(x, epsilon=1e-3)
    middle = x - x.mean(-1, keepdims=True)
    return middle / np.sqrt((middle * middle).mean(-1, keepdims=True) + 1e-3)


def variance(x, axis, keepdims):
    middle = x - np.mean(x, axis=axis, keepdims=True)
    return (
        np.mean(middle * middle, axis=axis, keepdims=keepdims)
        if is_complex(x)
        else np.var(x, axis=axis, keepdims=keepdims)
    )


def in_order(x):
    if not is_complex(x):
        return np.sort(x, -1) if x.ndim else x
    return np.take_along_axis(x, np.argsort(x.real, -1), -1) if x.ndim else x


def median(x):
    if x.size == 0:
        raise UnsuitableError
    if not is_complex(x) or not x.ndim:
        return np.median(x, -1, keepdims=True) if x.ndim else x
    n, rows = x.shape[-1], in_order(x)
    return (rows[..., (n - 1) // 2, None] + rows[..., n // 2, None]) / 2


UNARY = [
    np.sin, np.cos, np.tanh, np.exp, np.square, np.negative, np.reciprocal, absolute, np.sinh, np.arctan,
    lambda x: np.sqrt(1 + x * x), lambda x: np.log(2 + np.sin(x)), lambda x: x**3, lambda x: (2 + np.cos(x)) ** -1.5,
    lambda x: np.log1p(np.exp(-x)), lambda x: np.expm1(np.tanh(x)),
    lambda x: clip(x, -0.5, 0.75), lambda x: maximum(x, 0.0), in_order, lambda x: x - median(x),
]  # fmt: skip
BINARY = [
    np.add, np.subtract, np.multiply, maximum, lambda x, y: x / (1.5 + np.sin(y)), lambda x, y: (2 + np.tanh(x)) ** y,
    lambda x, y: np.where((x if not is_complex(x) else x.real) > (y if not is_complex(y) else y.real), x * y, y - x),
    lambda x, y: -y + x * 0.5,
]  # fmt: skip
REDUCTIONS = [
    lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims),
    lambda x, axis, keepdims: np.mean(x, axis=axis, keepdims=keepdims),
    lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims),
    extreme("max"),
    extreme("min"),
    variance,
]


def index(dice, shape):
    """A random index: slices, integers, an ellipsis, a new axis, arrays of integers, a mask."""
    kind = dice.randrange(8)
    if kind == 0:
        return np.array([dice.randrange(-shape[0], shape[0]) for _ in range(dice.randrange(1, 5))])
    if kind == 1:
        mask = np.array([dice.random() < 0.6 for _ in range(shape[0])])
        mask[dice.randrange(shape[0])] = True
        return mask
    if kind == 2 and len(shape) > 1:
        n = dice.randrange(1, 4)
        return tuple(np.array([dice.randrange(-d, d) for _ in range(n)]) for d in shape[:2])
    parts = []
    for d in shape[: dice.randrange(1, len(shape) + 1)]:
        part = dice.randrange(4)
        if part == 0:
            parts.append(dice.randrange(-d, d))
        elif part == 1:
            start = dice.randrange(d)
            parts.append(slice(start, dice.choice([None, start + 1, d]), dice.choice([None, 1, 2])))
        elif part == 2:
            parts.append(slice(None, None, dice.choice([-1, 1, 2, -2])))
        else:
            parts.append(np.array([dice.randrange(-d, d) for _ in range(dice.randrange(1, 4))]))
    if sum(isinstance(part, np.ndarray) for part in parts) > 1:
        parts = [part if not isinstance(part, np.ndarray) else slice(None) for part in parts]
    if dice.random() < 0.2:
        parts.insert(dice.randrange(len(parts) + 1), None)
    elif dice.random() < 0.2:
        parts.append(Ellipsis)
    return tuple(parts)


def reshaped(dice, x):
    n, shape = x.size, []
    for d in (2, 3, 4):
        if n % d == 0 and dice.random() < 0.6:
            shape.append(d)
            n //= d
    return np.reshape(x, (*shape, -1) if dice.random() < 0.5 else (-1, *shape))


def solved(x, y):
    n = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != n or y.ndim < 2 or y.shape[-2] != n or n > 4:
        raise UnsuitableError
    return np.linalg.solve(x + (3 + n) * np.eye(n), y)


def one(dice, values):
    """A new value of a program, computed from existing ones."""
    x, y, kind = dice.choice(values), dice.choice(values), dice.randrange(16)
    axis, keepdims = (dice.randrange(-x.ndim, x.ndim) if x.ndim else None), dice.random() < 0.5
    if x.size == 0 or y.size == 0 or kind < 3 or x.ndim == 0:
        return dice.choice(UNARY)(x)
    if kind < 6:
        return dice.choice(BINARY)(x, y)
    if kind == 6:
        return dice.choice(REDUCTIONS)(x, dice.choice([axis, None]), keepdims)
    if kind == 7:
        return x[index(dice, x.shape)]
    if kind == 8:
        return reshaped(dice, x)
    if kind == 9:
        return dice.choice([np.transpose, lambda x: np.swapaxes(x, 0, -1), lambda x: np.flip(x, axis), np.ravel])(x)
    if kind == 10:
        return dice.choice(
            [lambda x, y: x @ y, lambda x, y: x @ np.swapaxes(y, -1, -2) if y.ndim > 1 else np.outer(x, y)]
        )(x, y)
    if kind == 11:
        return dice.choice([np.concatenate, np.stack])([x, y], axis=axis)
    if kind == 12:
        return dice.choice([np.cumsum, softmax, logsumexp])(x, axis=axis)
    if kind == 13:
        return dice.choice(
            [layer_norm, lambda x: np.broadcast_to(x, (2, *x.shape)), lambda x: np.repeat(x, 2, axis=axis)]
        )(x)
    if kind == 14:
        return dice.choice(
            [solved, lambda x, y: np.einsum("...i,...i->...", x, y), lambda x, y: np.tensordot(x, y, 1)]
        )(x, y)
    return dice.choice([np.tril, np.triu, lambda x: np.roll(x, 1, axis), lambda x: np.diff(x, axis=axis)])(x)


def program(seed):
    """A random scalar-valued body of one or two arrays, and its arguments."""
    dice = random.Random(f"{SEED} {seed}")
    shapes = [tuple(dice.randrange(1, 5) for _ in range(dice.randrange(1, 4))) for _ in range(dice.randrange(1, 3))]
    if dice.random() < 0.5:
        shapes[-1] = shapes[0][dice.randrange(len(shapes[0])) :]
    arguments = [np.array([dice.uniform(-1.5, 1.5) for _ in range(int(np.prod(s)))]).reshape(s) for s in shapes]
    steps, seed_of_steps = dice.randrange(2, 9), dice.random()

    def body(*arrays):
        dice, values = random.Random(seed_of_steps), list(arrays)
        failed = 0
        while len(values) < len(arrays) + steps:
            state = dice.getstate()
            try:
                found = one(dice, values)
            except (ValueError, IndexError, np.linalg.LinAlgError, UnsuitableError):
                # Incompatible shapes, for NumPy and for burtorch; the next draw is different.
                failed += 1
                if failed > 20:
                    raise UnsuitableError from None
                dice.setstate(state)
                dice.random()
                for _ in range(failed):
                    dice.random()
                continue
            if found.size > 400:
                found = np.sum(found, axis=0)
            if isinstance(found, (np.ndarray, np.generic)) and not np.isfinite(found).all():
                raise UnsuitableError
            values.append(found)
        total, k = 0.0, 0
        for value in values:
            weights = np.cos(np.arange(k + 1.0, k + value.size + 1.0)).reshape(value.shape)
            total, k = total + np.sum(np.tanh(value * 0.3) * weights), k + value.size
        return total

    return body, arguments


def near(found, expected, tolerance, scale=1.0):
    return abs(found - expected) <= tolerance * max(scale, abs(expected))


def reference(body, x, v):
    """The value, the derivative along v, and the second derivative along v by differences of the first."""
    step = 1e-5

    def slope(t):
        return (body(*(a + t * d + 1j * STEP * d for a, d in zip(x, v, strict=True))) / STEP).imag

    with np.errstate(all="ignore"):
        value, first = body(*x), slope(0.0)
        ends = [slope(t) for t in (-2 * step, -step, step, 2 * step)]
        second = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
        coarse = (ends[3] - ends[0]) / (4 * step)
    # Across a kink the slope jumps, and the two differences disagree.
    if not np.isfinite([value, first, second]).all() or abs(first) > 1e6 or not near(coarse, second, 1e-3):
        raise UnsuitableError
    return value, first, second


def check(seed):
    """Whether a program could be checked."""
    body, x = program(seed)
    v = [np.cos(np.arange(a.size) + 0.5).reshape(a.shape) for a in x]
    try:
        value, first, second = reference(body, x, v)
    except UnsuitableError:
        return False
    everything = tuple(range(len(x)))
    found, gradient = bt.value_and_grad(body, argnums=everything)(*x)
    assert near(found, value, 1e-11), (seed, "value", found, value)
    assert near(bt.function(body)(*x), value, 1e-11), (seed, "function")
    product = sum(float((g * d).sum()) for g, d in zip(gradient, v, strict=True))
    size = sum(float(np.abs(g * d).sum()) for g, d in zip(gradient, v, strict=True))
    assert near(product, first, 1e-9, max(1.0, size)), (seed, "gradient", product, first)
    along, forward = bt.jvp(body, tuple(x), tuple(v))
    assert near(along, value, 1e-11), (seed, "jvp's value")
    assert near(forward, first, 1e-9, max(1.0, size)), (seed, "jvp", forward, first)
    _, twice = bt.jvp(lambda *x: bt.jvp(body, x, tuple(v))[1], tuple(x), tuple(v))
    _, moved = bt.jvp(bt.grad(body, argnums=everything), tuple(x), tuple(v))
    curved = sum(float((g * d).sum()) for g, d in zip(moved, v, strict=True))
    size = sum(float(np.abs(g * d).sum()) for g, d in zip(moved, v, strict=True))
    assert near(twice, second, 1e-4, max(1.0, size)), (seed, "twice forward", twice, second)
    assert near(curved, twice, 1e-9, max(1.0, size)), (seed, "forward over reverse", curved, twice)
    return True


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs(block):
    checked = sum(check(block * PROGRAMS + k) for k in range(PROGRAMS))
    print(f"{checked} programs of {PROGRAMS}")
    assert checked > 0.5 * PROGRAMS


def check_rows(seed):
    """Whether a program could be run over rows: enough of them to be split into columns."""
    body, x = program(seed)
    rows = 70
    along = [np.stack([a * (1 + 0.003 * k) for k in range(rows)]) for a in x]
    everything = tuple(range(len(x)))
    try:
        reference(body, x, x)
        f = bt.value_and_grad(body, argnums=everything)
        expected = {k: f(*(a[k] for a in along)) for k in (0, 41, rows - 1)}
    except UnsuitableError:
        return False
    values, gradients = bt.vmap(f)(*along)
    for k, (value, gradient) in expected.items():
        assert near(values[k], value, 1e-12), (seed, k, values[k], value)
        for found, by_row in zip(gradients, gradient, strict=True):
            np.testing.assert_allclose(found[k], by_row, rtol=1e-9, atol=1e-9 * max(1, np.abs(by_row).max(initial=0)))
    return True


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs_over_rows(block):
    checked = sum(check_rows(block * PROGRAMS + k) for k in range(PROGRAMS))
    assert checked > 0.5 * PROGRAMS
