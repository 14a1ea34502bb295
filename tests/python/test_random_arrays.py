"""Random programs over arrays against NumPy: values, first derivatives by steps along imaginary numbers, and second
derivatives by differences of the first, in every mode and in eager code, over rows, in containers, and in float32.

As a script it counts: ``python test_random_arrays.py 100000 7`` checks 10^5 programs that no other seed than 7 draws.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")
sys.path.insert(0, str(Path(__file__).parent))
from array_programs import Program  # noqa: E402
from imaginary_steps import UnsuitableError  # noqa: E402

# Hypothesis has a hook in the garbage collector that reads the clock.
pytestmark = pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning")
# Programs per block; BURTORCH_PROGRAMS=10000 makes 10^5, BURTORCH_SEED selects others.
PROGRAMS = int(os.environ.get("BURTORCH_PROGRAMS", "30"))
SEED = int(os.environ.get("BURTORCH_SEED", "1"))
BLOCKS = 10
# Its square is 0, so that real parts are those of real numbers.
STEP = 1e-180


def near(found, expected, tolerance, scale=1.0):
    return abs(found - expected) <= tolerance * max(scale, abs(expected))


def reference(body, x, v, *, kinks=False):
    """The value, the derivative along v, and, without kinks, the second derivative by differences of the first."""
    step = 1e-5

    def slope(t):
        return (body(*(a + t * d + 1j * STEP * d for a, d in zip(x, v, strict=True))) / STEP).imag

    with np.errstate(all="ignore"):
        value, first = body(*x), slope(0.0)
        if not np.isfinite([value, first]).all() or abs(first) > 1e6:
            raise UnsuitableError
        if kinks:
            return value, first, None
        ends = [slope(t) for t in (-2 * step, -step, step, 2 * step)]
        second = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
        coarse = (ends[3] - ends[0]) / (4 * step)
    # Across a kink the slope jumps, and the two differences disagree.
    if not np.isfinite(second) or not near(coarse, second, 1e-3):
        raise UnsuitableError
    return value, first, second


def along(gradient, v):
    """A product, and the sum of the magnitudes of its terms."""
    terms = [g * d for g, d in zip(gradient, v, strict=True)]
    return sum(float(t.sum()) for t in terms), max(1.0, sum(float(np.abs(t).sum()) for t in terms))


def drawn(seed, *, ties=False):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = Program(f"{SEED} {seed}", ties=ties)
        x = body.arguments
        v = [np.cos(np.arange(a.size) + 0.5).reshape(a.shape) for a in x]
        return body, x, v, reference(body, x, v, kinks=ties)


def check(seed, *, ties=False, modes=True):
    """Whether a program could be checked; without ``modes`` only in one nest of transforms, which is fast."""
    try:
        body, x, v, (value, first, second) = drawn(seed, ties=ties)
    except UnsuitableError:
        return False
    everything = tuple(range(len(x)))
    f = bt.value_and_grad(body, argnums=everything)
    moving = bt.jvp(f)
    (found, gradient), (forward, moved) = moving(*x, *v)
    assert near(found, value, 1e-11), (seed, "value", found, value)
    product, size = along(gradient, v)
    assert near(product, first, 1e-9, size), (seed, "gradient", product, first)
    assert near(forward, first, 1e-9, size), (seed, "jvp", forward, first)
    curved, size = along(moved, v)
    if not ties:
        assert near(curved, second, 1e-4, size), (seed, "forward over reverse", curved, second)
    check_elsewhere(seed, body, moving, [0.5 - a if ties else 0.9 * a - 0.03 for a in x], v)
    if not modes:
        return True
    given = (*x, *body.indices)
    # Others are traced with Values, which not all of NumPy's functions take.
    if any(a.ndim > 1 for a in given):
        assert near(bt.function(body)(*given), value, 1e-11), (seed, "function")
    again, by_itself = f(*given)
    assert near(again, value, 1e-11), (seed, "value beside the gradient")
    product, size = along(by_itself, v)
    assert near(product, first, 1e-9, size), (seed, "gradient of the function", product, first)
    _, twice = bt.jvp(lambda *x: bt.jvp(body, x, tuple(v))[1], tuple(x), tuple(v))
    curved, size = along(moved, v)
    assert near(curved, twice, 1e-9, size), (seed, "twice forward", curved, twice)
    own = [bt.array(a) for a in x]
    result = body(*own)
    result.backward()
    assert near(float(result), value, 1e-11), (seed, "eager value")
    product, size = along([np.asarray(a.grad) for a in own], v)
    assert near(product, first, 1e-9, size), (seed, "eager gradient", product, first)
    check_other_arguments(seed, body, x, gradient)
    if not ties:
        check_other_products(seed, body, x, v, moved)
    return True


def check_elsewhere(seed, body, moving, x, v):
    """The same planned program at other numbers."""
    try:
        with np.errstate(all="ignore"):
            if not body.is_tame(*x):
                return
        value, first, _ = reference(body, x, v, kinks=True)
    except UnsuitableError:
        return
    (found, gradient), (forward, _) = moving(*x, *v)
    assert near(found, value, 1e-11), (seed, "value elsewhere", found, value)
    product, size = along(gradient, v)
    assert near(product, first, 1e-9, size), (seed, "gradient elsewhere", product, first)
    assert near(forward, first, 1e-9, size), (seed, "jvp elsewhere", forward, first)


def nested(x, indices):
    """The arguments of a program in containers."""
    return {"first": x[0], "rest": [(a,) for a in x[1:]]}, (list(indices), None)


def check_other_arguments(seed, body, x, gradient):
    """Arguments in containers, and of fewer digits."""

    def of_nested(tree, others):
        return body(tree["first"], *(a for (a,) in tree["rest"]), *others[0])

    value, found = bt.value_and_grad(of_nested)(*nested(x, body.indices))
    again, expected = bt.value_and_grad(body, argnums=tuple(range(len(x))))(*x, *body.indices)
    assert value == again or (value != value and again != again), (seed, "nested value", value, again)
    for by_place, one in zip([found["first"], *(a for (a,) in found["rest"])], expected, strict=True):
        np.testing.assert_array_equal(by_place, one)
    short = [a.astype(np.float32) for a in x]
    alone = bt.value_and_grad(body, argnums=tuple(range(len(x))))
    (value, found), (again, expected) = alone(*short), alone(*(a.astype(float) for a in short))
    assert value == again or (value != value and again != again), (seed, "value of fewer digits", value, again)
    for one, full in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.float32 or np.ndim(one) == 0, (seed, "dtype")
        np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(full, np.float32))


def check_other_products(seed, body, x, v, moved):
    """Products with the Hessian, and for few numbers the Hessian itself."""
    everything = tuple(range(len(x)))
    scale = max(1.0, *(np.abs(m).max(initial=0) for m in moved))
    along_v = bt.hvp(body, tuple(x), tuple(v))
    for found, expected in zip(along_v if len(x) > 1 else [along_v], moved, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale, err_msg=f"hvp {seed}")
    if sum(a.size for a in x) <= 12:
        rows = bt.hessian(body, argnums=everything)(*x)
        for row, expected in zip(rows, moved, strict=True):
            found = sum(np.tensordot(part, d, d.ndim) for part, d in zip(row, v, strict=True))
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * scale, err_msg=f"Hessian {seed}")
        _, pulled = bt.vjp(body, *x)
        for found, expected in zip(pulled(1.0), bt.grad(body, argnums=everything)(*x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=f"vjp {seed}")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs(block):
    checked = sum(check(block * PROGRAMS + k) for k in range(PROGRAMS))
    print(f"{checked} programs of {PROGRAMS}")
    assert checked > 0.5 * PROGRAMS


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs_with_equal_numbers(block):
    assert sum(check(block * PROGRAMS + k, ties=True) for k in range(PROGRAMS)) > 0.5 * PROGRAMS


def check_rows(seed):
    """Whether a program could be run over rows: enough of them to be split into columns."""
    try:
        body, x, _, _ = drawn(seed)
    except UnsuitableError:
        return False
    rows = 70
    stacked = [np.stack([a * (1 + 0.003 * k) for k in range(rows)]) for a in x]
    f = bt.value_and_grad(body, argnums=tuple(range(len(x))))
    expected = {k: f(*(a[k] for a in stacked)) for k in (0, 41, rows - 1)}
    values, gradients = bt.vmap(f)(*stacked)
    for k, (value, gradient) in expected.items():
        # Far from the arguments that were drawn, logarithms may be of numbers below 0.
        is_nan = np.isnan(values[k]) and np.isnan(value)
        assert is_nan or values[k] == value or near(values[k], value, 1e-12), (seed, k, values[k], value)
        for found, by_row in zip(gradients, gradient, strict=True):
            finite = np.abs(by_row)[np.isfinite(by_row)]
            size = max(1, finite.max(initial=0))
            np.testing.assert_allclose(found[k], by_row, rtol=1e-9, atol=1e-9 * size, err_msg=f"{seed}")
    return True


def check_float32(seed):
    """Whether a program could be run in float32, within what rounded arguments change."""
    try:
        body, x, v, _ = drawn(seed)
        short = [a.astype(np.float32) for a in x]
        exact = [a.astype(float) for a in short]
        value, first, _ = reference(body, exact, v, kinks=True)
        waves = [np.cos(7.0 * np.arange(a.size)).reshape(a.shape) for a in x]
        near_by = [[a * (1 + size * w) for a, w in zip(exact, waves, strict=True)] for size in (2e-6, -2e-6, 5e-6)]
        others = [reference(body, a, v, kinks=True)[:2] for a in near_by]
    except UnsuitableError:
        return False
    f = bt.value_and_grad(bt.function(body, dtype="float32"), argnums=tuple(range(len(x))))
    (found, gradient), (forward, _) = bt.jvp(f)(*short, *(d.astype(np.float32) for d in v))
    product, size = along(gradient, v)
    unsure = max(abs(other[0] - value) for other in others), max(abs(other[1] - first) for other in others)
    if unsure[0] > 1e-3 * max(1, abs(value)) or unsure[1] > 3e-3 * size:
        return False
    assert abs(found - value) <= 2e-3 * max(1, abs(value)) + 20 * unsure[0], (seed, "float32 value", found, value)
    for name, slope in (("gradient", product), ("jvp", forward)):
        assert abs(slope - first) <= 1e-2 * size + 20 * unsure[1], (seed, f"float32 {name}", slope, first)
    return True


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs_in_float32(block):
    assert sum(check_float32(block * PROGRAMS + k) for k in range(PROGRAMS)) > 0.5 * PROGRAMS


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_programs_over_rows(block):
    checked = sum(check_rows(block * PROGRAMS + k) for k in range(PROGRAMS))
    assert checked > 0.5 * PROGRAMS


def main(programs, seed):
    """Checks programs until as many have been checked; every eighth in all modes, some over rows, some in float32."""
    global SEED
    SEED = seed
    checked, wrong, number, start = 0, 0, 0, time.monotonic()
    gc.freeze()  # the modules
    warnings.simplefilter("ignore")
    while checked < programs:
        number += 1
        try:
            checked += check(number, ties=number % 5 == 0, modes=number % 8 == 0)
            if number % 40 == 1:
                check_rows(number)
            elif number % 40 == 21:
                check_float32(number)
        except Exception:  # every failure is printed, and the next program is drawn
            wrong += 1
            print(f"program {number}", traceback.format_exc(limit=-3), flush=True)
        if number % 1000 == 0:
            minutes = (time.monotonic() - start) / 60
            print(f"{checked} of {number} checked, {wrong} failed, {minutes:.1f} min", flush=True)
    print(f"{checked} of {number} checked, {wrong} failed, seed {seed}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
