"""Loops and choices that remain one instruction, against Python loops."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

import burtorch as bt

XS = np.array([0.5, -1.25, 2.0, 0.75])


def unrolled(f, carry, xs, reverse=False):
    """The definition of scan: the carry, and the results of the steps."""
    rows = list(reversed(xs)) if reverse else list(xs)
    ys = []
    for x in rows:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, list(reversed(ys)) if reverse else ys


def same(x, y):
    """Equal bits; the sign of NaN is unknown."""
    x, y = (np.where(np.isnan(z), np.nan, z) for z in (np.asarray(x, np.float64), np.asarray(y, np.float64)))
    assert x.shape == y.shape
    assert x.tobytes() == y.tobytes(), (x, y)


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


BINARY = [lambda x, y: x * y, lambda x, y: x + y, lambda x, y: x - y, lambda x, y: bt.sin(x) * y + x]
UNARY = [bt.sin, bt.cos, bt.tanh, lambda x: x * 0.5, lambda x: 1.0 / (x * x + 1.0), bt.sigmoid]


def random_body(seed):
    """A random step with a carry, a slice and a captured weight: arithmetic on existing values."""
    rng = random.Random(seed)
    plan = [(rng.choice(UNARY), rng.choice(BINARY), rng.random(), rng.random()) for _ in range(rng.randint(1, 5))]

    def body(w):
        def step(c, x):
            known = [c, x, w]
            for unary, binary, a, b in plan:
                one, other = known[int(a * len(known))], known[int(b * len(known))]
                known.append(binary(unary(one), other))
            return bt.tanh(known[-1] + c * x), known[-1] * c

        return step

    return body


@pytest.mark.parametrize("seed", range(60))
def test_random_bodies_have_the_bits_of_a_loop_of_python(seed):
    body, reverse = random_body(seed), seed % 2 == 1
    xs, c, w = np.random.default_rng(seed).normal(size=7), 0.3, 0.8

    def rolled(c, w, xs):
        carry, ys = bt.scan(body(w), c, xs, reverse=reverse)
        return carry + ys.sum() * 0.0, ys

    def plain(c, w, xs):
        carry, ys = unrolled(body(w), c, [xs[k] for k in range(len(xs))], reverse)
        return carry + bt.stack(ys).sum() * 0.0, bt.stack(ys)

    for x, y in zip(bt.function(rolled)(c, w, xs), bt.function(plain)(c, w, xs)):
        same(x, y)
    gradients = [bt.grad(lambda c, w, xs, f=f: f(c, w, xs)[0], argnums=(0, 1, 2))(c, w, xs) for f in (rolled, plain)]
    for x, y in zip(*gradients):
        same(x, y)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: bt.sin(c + x),
        lambda c, x: bt.cos(c * x),
        lambda c, x: bt.sin(x) * c + bt.cos(x),
        lambda c, x: bt.cos(c) - bt.sin(c) * x,
        lambda c, x: bt.sin(bt.cos(c)) * bt.cos(bt.sin(c)) + x,
        lambda c, x: bt.sin(c) * bt.sin(c) + bt.cos(c) * bt.cos(c) * x,
    ],
)
def test_sines_and_cosines_of_one_number_have_the_bits_of_each_alone(step, dtype):
    special = [0.0, -0.0, 1e-10, 1e-40, 1e-6, 0.75, np.pi / 4, -2.0, 1e5, 2.0**20, 1e22, -1e38, np.inf, np.nan]

    def rolled(c, xs):
        return bt.scan(lambda c, x: (step(c, x), c), c, xs)[0]

    def plain(c, xs):
        for k in range(2):
            c = step(c, xs[k])
        return c

    made = [bt.function(f, dtype=dtype) for f in (rolled, plain)]
    for c in special:
        for x in special:
            xs = np.array([x, 0.5], dtype)
            values = [bt.value_and_grad(f, argnums=(0, 1))(c, xs) for f in made]
            for one, other in zip(*map(flat, values)):
                same(one, other)


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, (tuple, list)) else [x]


@pytest.mark.parametrize("seed", range(20))
def test_derivatives_of_every_kind_are_those_of_a_loop_of_python(seed):
    body, w = random_body(seed), 0.6

    def rolled(w, xs):
        return bt.scan(body(w), 0.2, xs)[0]

    def plain(w, xs):
        return unrolled(body(w), 0.2, [xs[k] for k in range(len(XS))])[0]

    for transform in (
        lambda f: bt.grad(bt.grad(f))(w, XS),
        lambda f: bt.hessian(f, argnums=1)(w, XS),
        lambda f: bt.jacobian(f, argnums=1)(w, XS),
        lambda f: bt.jvp(f, (w, XS), (1.0, XS))[1],
        lambda f: bt.hvp(f, (w, XS), (1.0, XS))[1],
        lambda f: bt.vjp(f, w, XS)[1](2.0)[1],
        lambda f: bt.vmap(f, in_axes=(0, None))(XS, XS),
        lambda f: bt.vmap(bt.grad(f), in_axes=(None, 0))(w, np.stack([XS, XS[::-1]])),
        lambda f: bt.grad(lambda w: bt.vmap(f, in_axes=(None, 0))(w, np.stack([XS, XS[::-1]])).sum())(w),
    ):
        close(transform(rolled), transform(plain))


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 1, 3, 100])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 9, 10])
@pytest.mark.parametrize("reverse", [False, True])
def test_checkpoints_change_no_bits(checkpoint, n, reverse):
    xs = np.linspace(-1.0, 1.0, n)

    def f(w, xs, checkpoint):
        carry, ys = bt.scan(lambda c, x: (bt.sin(c * w) + x, c * x), 0.4, xs, reverse=reverse, checkpoint=checkpoint)
        return carry + ys.sum()

    found = bt.value_and_grad(lambda w, xs: f(w, xs, checkpoint), argnums=(0, 1))(1.3, xs)
    kept = bt.value_and_grad(lambda w, xs: f(w, xs, None), argnums=(0, 1))(1.3, xs)
    close(found[0], kept[0])
    for x, y in zip(found[1], kept[1]):
        close(x, y)


def test_nests_of_carries_slices_and_results():
    def step(c, x):
        p, (q, n) = c["p"], c["rest"]
        return {"p": p + x["u"], "rest": [q * 2.0 + x["v"], n + 1]}, (p, [n, None])

    init = {"p": 0.0, "rest": [np.ones(2), np.int64(5)]}
    xs = {"u": XS, "v": np.arange(8.0).reshape(4, 2)}
    carry, (p, (n, nothing)) = bt.scan(step, init, xs)
    assert nothing is None
    assert carry["rest"][1] == 9
    assert n.tolist() == [5, 6, 7, 8]
    close(p, np.cumsum(XS) - XS)
    close(carry["p"], XS.sum())
    close(carry["rest"][0], 16.0 + sum(xs["v"][k] * 2.0 ** (3 - k) for k in range(4)))


def test_steps_without_slices_and_results():
    assert bt.scan(lambda c, _: (c * 2.0, None), 1, length=5) == (32.0, None)
    carry, ys = bt.scan(lambda c, x: (c, x * x), None, XS)
    assert carry is None
    same(ys, XS * XS)
    assert bt.scan(lambda c, x: (0, None), 1.0, XS) == (0.0, None)


def test_empty_slices():
    carry, ys = bt.scan(lambda c, x: (c * x, c), 2.0, np.ones((0,)))
    assert carry == 2.0
    assert ys.shape == (0,)
    assert bt.grad(lambda c, xs: bt.scan(lambda c, x: (c * x, None), c, xs)[0])(2.0, np.ones(0)) == 1.0


def test_a_body_captures_outer_values_and_is_traced_once():
    calls = []

    def f(a, xs):
        def step(c, x):
            calls.append(1)
            inner = bt.scan(lambda d, _: (d * a + x, None), c, length=2)[0]
            return inner + a, bt.grad(lambda z: z * z * a)(x)

        return bt.scan(step, a, xs)

    traced = bt.function(f)
    carry, ys = traced(0.5, XS)
    expected = 0.5
    for x in XS:
        expected = (expected * 0.5 + x) * 0.5 + x + 0.5
    close(carry, expected)
    close(ys, XS)
    assert len(calls) == 1
    h = 1e-6
    slope = (traced(0.5 + h, XS)[0] - traced(0.5 - h, XS)[0]) / (2 * h)
    assert bt.grad(lambda a: f(a, XS)[0])(0.5) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_parameters_in_bodies(dtype):
    params = bt.Parameters(dtype=dtype)
    w, b = params.tensor((2, 2), init=0.25), params.tensor(2, init=0.5)
    xs = np.arange(6.0).reshape(3, 2)

    def loss(h, xs, loop):
        return loop(lambda h, x: (bt.tanh(w @ h + b) * x + w[0], None), h, xs)[0].sum()

    rolled = bt.function(lambda h, xs: loss(h, xs, bt.scan))
    plain = bt.function(lambda h, xs: loss(h, xs, lambda f, h, xs: unrolled(f, h, [xs[0], xs[1], xs[2]])))
    value, gradient = rolled.value_and_param_grad(np.ones(2), xs)
    gradient = np.array(gradient)
    expected, other = plain.value_and_param_grad(np.ones(2), xs)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert value == pytest.approx(expected, rel=tolerance)
    np.testing.assert_allclose(gradient, np.array(other), rtol=tolerance)
    params.values[:] = 0.1
    assert rolled(np.ones(2), xs) == pytest.approx(plain(np.ones(2), xs), rel=tolerance)
    assert rolled(np.ones(2), xs) != pytest.approx(value)


def collatz_like(x, w, loop):
    return loop(lambda c: c[0] < 50.0, lambda c: (c[0] * w + bt.sin(c[1]), c[1] + 0.5), (x, 0.0))[0]


def while_of_python(cond, body, carry):
    while cond(carry):
        carry = body(carry)
    return carry


@pytest.mark.parametrize("w", [1.5, 2.25, 60.0])
def test_while_and_its_derivatives(w):
    def rolled(x, w):
        return collatz_like(x, w, bt.while_loop)

    def plain(x, w):
        return collatz_like(x, w, while_of_python)

    same(bt.function(rolled)(1.0, w), bt.function(plain)(1.0, w))
    same(rolled(1.0, w), plain(1.0, w))
    for x, y in zip(bt.grad(rolled, argnums=(0, 1))(1.0, w), bt.grad(plain, argnums=(0, 1))(1.0, w)):
        close(x, y)
    close(bt.jvp(rolled, (1.0, w), (0.5, 2.0))[1], bt.jvp(plain, (1.0, w), (0.5, 2.0))[1])
    close(bt.grad(bt.grad(rolled), argnums=1)(1.0, w), bt.grad(bt.grad(plain), argnums=1)(1.0, w))
    rows = np.array([w, 1.25, 3.0])
    close(bt.vmap(rolled, in_axes=(None, 0))(1.0, rows), [plain(1.0, float(row)) for row in rows])


def test_while_ends_after_most_steps():
    assert bt.while_loop(lambda x: True, lambda x: x * 3, 1.0, max_steps=4) == 81.0
    assert bt.while_loop(lambda x: x < 0, lambda x: x * 3, 1.0) == 1.0
    assert bt.while_loop(lambda x: True, lambda x: x * 3, 1.0, max_steps=0) == 1.0


def test_fori():
    def f(x, n):
        return bt.fori_loop(0, n, lambda i, x: x * 1.5 + i, x)

    expected = 0.5
    for i in range(6):
        expected = expected * 1.5 + i
    assert f(0.5, 6) == expected
    assert bt.grad(lambda x: f(x, 6))(0.5) == 1.5**6
    assert bt.fori_loop(3, 1, lambda i, x: x * 2, 7.0) == 7.0
    assert bt.fori_loop(-2, 2, lambda i, c: (c[0] + i, c[1]), (np.int64(0), 1.0)) == (-2, 1.0)


def test_cond_both_ways():
    def h(x, y):
        return bt.cond(x > 0.0, lambda x, d: (x * x * y, d["k"]), lambda x, d: (-x, d["k"] * 2), x, {"k": 3.0})

    assert h(2.0, 5.0) == (20.0, 3.0)
    assert bt.function(h)(-2.0, 5.0) == (2.0, 6.0)
    assert bt.grad(lambda x, y: h(x, y)[0], argnums=(0, 1))(2.0, 5.0) == (20.0, 4.0)
    assert bt.grad(lambda x, y: h(x, y)[0], argnums=(0, 1))(-2.0, 5.0) == (-1.0, 0.0)
    assert bt.grad(bt.grad(lambda x, y: h(x, y)[0]))(2.0, 5.0) == 10.0
    rows = bt.vmap(bt.grad(lambda x: h(x, 5.0)[0]))(np.array([2.0, -2.0]))
    assert rows.tolist() == [20.0, -1.0]
    for known in (True, np.True_):
        assert bt.cond(known, lambda: 1, lambda: 2.5) == 1.0
    assert bt.cond(False, lambda x: x, lambda x: -x, 4.0) == -4.0


def test_cond_runs_one_branch_only():
    def f(n):
        return bt.cond(n > 0.0, lambda: bt.while_loop(lambda x: x > 0.5, lambda x: x + 1.0, n), lambda: n)

    assert f(-1.0) == -1.0


def test_derivatives_run_no_loop_of_a_branch_that_is_not_taken():
    def f(x, n):
        return bt.cond(
            n > 0.0,
            lambda: bt.while_loop(lambda c: c > 0.0, lambda c: c + bt.exp(x), x),  # never ends
            lambda: bt.sin(x) * n,
        )

    x, n = np.array(0.7), np.array(-2.0)
    sin, cos = np.sin(0.7), np.cos(0.7)
    np.testing.assert_allclose(bt.grad(f, (0, 1))(x, n), (-2 * cos, sin), rtol=1e-15)
    np.testing.assert_allclose(bt.hessian(f, (0, 1))(x, n), [[2 * sin, cos], [cos, 0]], rtol=1e-15)
    np.testing.assert_allclose(bt.grad(bt.grad(f))(x, n), 2 * sin, rtol=1e-15)
    np.testing.assert_allclose(bt.jacobian(bt.grad(f, 1))(x, n), cos, rtol=1e-15)
    np.testing.assert_allclose(bt.jvp(f, (x, n), (1.0, 0.0)), (-2 * sin, -2 * cos), rtol=1e-15)


def test_derivatives_of_a_while_in_a_branch():
    def looped(x, n):
        def steps():
            first = (x * x, x)
            return bt.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] * 1.5, c[1] * bt.sin(c[0] * x)), first)[1]

        return bt.cond(n > 0.0, steps, lambda: bt.exp(x) * n)

    def unrolled(x, n):
        if n < 0:
            return bt.exp(x) * n
        size, product = x * x, x
        while size < 3.0:
            size, product = size * 1.5, product * bt.sin(size * x)
        return product

    xs, ns = np.array([0.7, 0.7, 0.3]), np.array([1.0, -2.0, 1.0])
    plain = [bt.function(lambda x, n=n: unrolled(x, n)) for n in ns]
    slopes = np.array([f.grad(x) for f, x in zip(plain, xs)])
    bends = np.array([f.hessian(x)[0, 0] for f, x in zip(plain, xs)])
    same = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-12)  # noqa: E731
    same([bt.grad(looped)(x, n) for x, n in zip(xs, ns)], slopes)
    same([bt.hessian(looped)(x, n) for x, n in zip(xs, ns)], bends)
    same([bt.grad(bt.grad(looped))(x, n) for x, n in zip(xs, ns)], bends)
    same([bt.hvp(lambda x, n=n: looped(x, n))(x, 1.0) for x, n in zip(xs, ns)], bends)
    same(bt.vmap(bt.grad(looped))(xs, ns), slopes)
    same(bt.vmap(bt.hessian(looped))(xs, ns), bends)
    same(bt.grad(lambda xs: bt.sum(bt.vmap(looped)(xs, ns)))(xs), slopes)


def test_a_function_of_numbers_takes_loops():
    f = bt.function(lambda a, b: bt.scan(lambda c, x: (c * a + x, None), b, XS)[0])
    g = bt.function(lambda a: bt.scan(lambda c, x: (c * a + x, None), 1.0, XS)[0])
    assert f(0.5, 1.0) == g(0.5) == unrolled(lambda c, x: (c * 0.5 + x, None), 1.0, XS.tolist())[0]


def of(f, *args):
    return lambda: bt.function(f)(*args)


REFUSED = {
    "shape of a carry": (
        lambda: bt.scan(lambda c, x: (c * XS, None), 0.0, XS),
        bt.TraceError,
        r"float of shape \(\) and becomes",
    ),
    "dtype of a carry": (lambda: bt.scan(lambda c, x: (c * 0.5, None), np.int64(0), XS), bt.TraceError, "int of shape"),
    "structure of a carry": (lambda: bt.scan(lambda c, x: ([c[0]], None), (0.0,), XS), bt.TraceError, "structure"),
    "carry of while": (lambda: bt.while_loop(lambda c: c < 1, lambda c: (c, c), 0.0), bt.TraceError, "structure"),
    "shape in while": (lambda: bt.while_loop(lambda c: True, lambda c: c + XS, 0.0), bt.TraceError, "becomes"),
    "carry of fori": (lambda: bt.fori_loop(0, 2, lambda i, c: c + XS, {"a": 0.0}["a"]), bt.TraceError, "becomes"),
    "place of a carry": (
        lambda: bt.scan(lambda c, x: ({"a": c["a"], "b": XS}, None), {"a": 1.0, "b": 2.0}, XS),
        bt.TraceError,
        r"carry\['b'\]",
    ),
    "no pair": (lambda: bt.scan(lambda c, x: c, 0.0, XS), bt.TraceError, "tuple"),
    "lengths": (lambda: bt.scan(lambda c, x: (c, None), 0.0, (XS, np.ones(5))), ValueError, r"xs\[1\] has 5"),
    "length": (lambda: bt.scan(lambda c, x: (c, None), 0.0, XS, length=5), ValueError, "takes 5 steps and xs has 4"),
    "negative length": (lambda: bt.scan(lambda c, x: (c, None), 0.0, length=-1), ValueError, "integer"),
    "no length": (lambda: bt.scan(lambda c, x: (c, None), 0.0), ValueError, "length="),
    "no axis": (lambda: bt.scan(lambda c, x: (c, None), 0.0, 2.0), ValueError, "first axis"),
    "checkpoint": (lambda: bt.scan(lambda c, x: (c, x), 0.0, XS, checkpoint="all"), ValueError, "sqrt"),
    "no function": (lambda: bt.scan(3, 0.0, XS), TypeError, "takes a function, found int"),
    "no condition": (lambda: bt.while_loop(3, lambda c: c, 0.0), TypeError, "takes a function, found int"),
    "no body": (lambda: bt.while_loop(lambda c: True, 3, 0.0), TypeError, "takes a function, found int"),
    "no body of fori": (lambda: bt.fori_loop(0, 1, 3, 0.0), TypeError, "takes a function, found int"),
    "no branch": (lambda: bt.cond(True, lambda c: c, 3, 0.0), TypeError, "takes a function, found int"),
    "bound": (lambda: bt.fori_loop(0, 1.5, lambda i, c: c, 0.0), TypeError, "integer"),
    "float condition": (lambda: bt.while_loop(lambda c: c, lambda c: c, 0.0), bt.TraceError, "one bool"),
    "several conditions": (lambda: bt.while_loop(lambda c: c < 1, lambda c: c, XS), bt.TraceError, r"\(4,\)"),
    "several predicates": (of(lambda x: bt.cond(x > 0, lambda: x, lambda: x), XS[None]), TypeError, "one bool"),
    "text as a predicate": (of(lambda x: bt.cond("yes", lambda: x, lambda: x), 1.0), TypeError, "one bool"),
    "array predicate": (lambda: bt.cond(np.array([True]), lambda: 1, lambda: 2), TypeError, "one bool"),
    "branches of two shapes": (lambda: bt.cond(True, lambda x: x, lambda x: x * XS, 1.0), bt.TraceError, "same shapes"),
    "branches of two nests": (lambda: bt.cond(True, lambda x: x, lambda x: (x,), 1.0), bt.TraceError, "same shapes"),
    "a question": (lambda: bt.scan(lambda c, x: (c if x > 0 else -c, None), 1.0, XS), bt.TraceError, "bt.cond"),
    "no number": (lambda: bt.scan(lambda c, x: (c, "a"), 0.0, XS), bt.TraceError, "returned str"),
    "error of a body": (lambda: bt.scan(lambda c, x: (c[3], x), (1.0,), XS), IndexError, "range"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_change_nothing(case):
    refused, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        refused()

    def around(x):
        before = x * 2.0
        with pytest.raises(error, match=message):
            refused()
        return before + bt.scan(lambda c, x: (c + x, None), x, XS)[0]

    assert bt.function(around)(np.ones(1)).tolist() == [3.0 + XS.sum()]


def test_parameter_gradients_are_not_of_bodies():
    w = bt.Parameters(dtype="float64").tensor(2, init=1.0)
    inner = bt.function(lambda x: (x * w).sum())
    with pytest.raises(bt.TraceError, match="loop bodies"):
        bt.scan(lambda c, x: (inner.value_and_param_grad(c)[0], None), 1.0, XS)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_ends_a_while_that_does_not_end():
    code = (
        "import burtorch as bt, signal\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "try:\n    bt.while_loop(lambda x: x < 2.0, lambda x: x * 0.5, 1.0)\n"
        "except KeyboardInterrupt:\n    print('ended', bt.while_loop(lambda x: x < 2.0, lambda x: x * 2, 1.0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ended 2.0\n", done.stderr


@pytest.mark.parametrize("unroll", [None, 1, 4, True, False])
def test_unroll_has_no_effect(unroll):
    def step(c, x):
        return c + x, c * x

    assert bt.scan(step, 1.0, np.arange(3.0), unroll=unroll)[0] == 4.0
    assert bt.fori_loop(0, 3, lambda i, c: c + i, 1.0, unroll=unroll) == 4.0
    assert bt.grad(lambda a: bt.scan(step, a, np.arange(3.0), unroll=unroll)[0])(1.0) == 1.0


@pytest.mark.parametrize("unroll", [0, -1, 1.5, "all"])
def test_unroll_is_checked(unroll):
    with pytest.raises(ValueError, match="unroll is a bool or an integer of at least 1"):
        bt.scan(lambda c, x: (c, x), 1.0, np.arange(3.0), unroll=unroll)
    with pytest.raises(ValueError, match="unroll is a bool or an integer of at least 1"):
        bt.fori_loop(0, 3, lambda i, c: c, 1.0, unroll=unroll)
