"""Primitives with Arrays: every transform, compared with the same function without a primitive; wrong rules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import burtorch as bt


def plain(x, y):
    return bt.tanh(x * y) + x * x


def made(kind):
    """The function as a primitive, with a rule for adjoints, tangents, or both."""
    p = bt.primitive(lambda x, y: bt.tanh(x * y) + x * x)
    if kind != "forward":

        @p.defvjp
        def _(g, z, x, y):
            t = bt.tanh(x * y)
            s = 1.0 - t * t
            return g * (s * y + 2.0 * x), g * (s * x)

    if kind != "reverse":

        @p.defjvp
        def _(tangents, z, x, y):
            t = bt.tanh(x * y)
            s = 1.0 - t * t
            return tangents[0] * (s * y + 2.0 * x) + tangents[1] * (s * x)

    return p


KINDS = ["reverse", "forward", "both"]
RNG = np.random.default_rng(7)
SHAPES = [(), (3,), (2, 3)]


def total(f):
    return lambda x, y: bt.sum(bt.sin(f(x, y)) * x) if getattr(x, "ndim", 0) else bt.sin(f(x, y)) * x


TRANSFORMS = {
    "value": lambda f, x, y, v: bt.function(lambda x, y: f(x, y))(x, y),
    "grad": lambda f, x, y, v: bt.grad(f, argnums=(0, 1))(x, y),
    "value_and_grad": lambda f, x, y, v: bt.value_and_grad(f)(x, y),
    "jacobian": lambda f, x, y, v: bt.jacobian(f, argnums=(0, 1))(x, y),
    "hessian": lambda f, x, y, v: bt.hessian(f)(x, y),
    "jvp": lambda f, x, y, v: bt.jvp(f)(x, y, v, v),
    "vjp": lambda f, x, y, v: bt.vjp(f)(x, y, 1.5),
    "hvp": lambda f, x, y, v: bt.hvp(f)(x, y, v, v),
    "grad of grad": lambda f, x, y, v: bt.grad(lambda x, y: bt.sum(bt.grad(f)(x, y) * v))(x, y),
    "reverse over forward": lambda f, x, y, v: bt.grad(lambda x: bt.jvp(lambda x: f(x, y))(x, v)[1])(x),
    "third": lambda f, x, y, v: bt.jvp(lambda x: bt.grad(lambda x: bt.jvp(lambda x: f(x, y))(x, v)[1])(x))(x, v)[1],
    "rows": lambda f, x, y, v: bt.vmap(f)(np.stack([x, 2 * x, v]), np.stack([y, v, y])),
    "gradients of rows": lambda f, x, y, v: bt.vmap(bt.grad(f, argnums=(0, 1)), in_axes=(0, None))(np.stack([x, v]), y),
    "gradient of shared": lambda f, x, y, v: bt.grad(
        lambda x, y: bt.sum(bt.vmap(f, in_axes=(None, 0))(x, y)), argnums=(0, 1)
    )(x, np.stack([y, v])),
    "gradient of totals": lambda f, x, y, v: bt.grad(bt.vmap(f, in_axes=(None, 0), reduce="sum"), argnums=(0, 1))(
        x, np.stack([y, v])
    ),
    "tangents of rows": lambda f, x, y, v: bt.jvp(bt.vmap(f, in_axes=(0, None)))(
        np.stack([x, v]), y, np.stack([v, x]), v
    ),
    "scan": lambda f, x, y, v: bt.grad(
        lambda x, y: bt.sum(bt.scan(lambda c, s: (c * 0.5 + f(c, y) * s, c), x, np.array([1.0, -0.5, 0.25]))[0]),
        argnums=(0, 1),
    )(x, y),
    "checkpointed": lambda f, x, y, v: bt.grad(bt.checkpoint(f))(x, y),
}


def leaves(x):
    return list(itertools.chain.from_iterable(map(leaves, x))) if isinstance(x, tuple) else [np.asarray(x)]


def check(found, expected, **bound):
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, **(bound or {"rtol": 1e-12, "atol": 1e-12}))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_transforms_agree_with_those_without_a_primitive(name, kind):
    for shape in SHAPES:
        x, y, v = RNG.normal(size=(3, *shape))
        if not shape:
            x, y, v = float(x), float(y), float(v)
        run = TRANSFORMS[name]
        if name == "value" and shape == (3,):
            # Functions of one-dimensional arrays have Vectors.
            continue
        check(run(total(made(kind)), x, y, v), run(total(plain), x, y, v))
        if shape and not any(word in name for word in ("value", "rows", "shared", "totals")):
            f = total(made(kind))
            traced = bt.function(lambda x, y, v, f=f, run=run: run(f, x, y, v))
            for _ in range(2):
                check(traced(x, y, v), run(total(plain), x, y, v))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_of_a_graph(kind, dtype):
    p = made(kind)
    for shape in SHAPES:
        x0, y0 = RNG.normal(size=(2, *shape))
        grads = []
        for f in (p, plain):
            with bt.Graph(dtype=dtype):
                x, y = bt.array(x0), bt.array(y0)
                z = bt.sum(bt.sin(f(x, y)) * x)
                z.backward()
                grads.append((z.data, x.grad, y.grad))
        rel = 1e-12 if dtype == "float64" else 1e-5
        check(grads[0], grads[1], rtol=rel, atol=rel)
        x = bt.array(x0)
        g = bt.grad(total(p))(x, y0)
        g.sum().backward()
        check(x.grad, bt.grad(lambda x, y: bt.sum(bt.grad(total(plain))(x, y)))(x0, y0))


@pytest.mark.parametrize("kind", KINDS)
def test_finite_differences(kind):
    x, y = RNG.normal(size=(2, 3))
    f, h = total(plain), 1e-6
    slopes = [(f(x + h * e, y) - f(x - h * e, y)) / (2 * h) for e in np.eye(3)]
    check(bt.grad(total(made(kind)))(x, y), np.stack(slopes), rtol=1e-7, atol=1e-7)
    f = bt.grad(total(made(kind)))
    columns = [(f(x + h * e, y) - f(x - h * e, y)) / (2 * h) for e in np.eye(3)]
    check(bt.hessian(total(made(kind)))(x, y), np.stack(columns, 1), rtol=1e-7, atol=1e-7)


def test_the_rule_decides():
    straight = bt.primitive(lambda x: np.floor(x))
    straight.defvjp(lambda g, z, x: g)
    x = np.array([0.3, 1.7])
    check(bt.grad(lambda x: (straight(x) * x).sum())(x), np.floor(x) + x)
    check(bt.jvp(straight)(x, np.array([1.0, 2.0])), (np.floor(x), [1.0, 2.0]))
    y = bt.array(x)
    straight(y).sum().backward()
    check(y.grad, [1.0, 1.0])
    clipped = bt.primitive(lambda x: x)
    clipped.defvjp(lambda g, z, x: np.clip(g, -1.0, 1.0))
    check(bt.grad(lambda x: (clipped(x) * np.array([5.0, 0.5])).sum())(x), [1.0, 0.5])


def test_a_rule_that_calls_its_own_primitive_has_no_transpose():
    p = bt.primitive(lambda x: x + x)
    p.defjvp(lambda tangents, z, x: p(tangents[0]))
    x = np.ones(3)
    np.testing.assert_array_equal(bt.jvp(p)(x, 3.0 * x)[1], 6.0 * x)
    for derivative in (bt.grad(lambda x: p(x).sum()), lambda x: bt.vjp(p)(x, x), bt.hessian(lambda x: p(x).sum())):
        with pytest.raises(ValueError, match=r"rules must be of both directions for .*itself has no transpose"):
            derivative(x)
    p.defvjp(lambda g, z, x: p(g))
    np.testing.assert_array_equal(bt.grad(lambda x: p(x).sum())(x), 2.0 * x)


def test_rules_may_call_their_own_primitive():
    own = bt.primitive(lambda x: bt.exp(x))
    own.defjvp(lambda t, z, x: t[0] * own(x))
    d = own
    for _ in range(4):
        d = bt.grad(d)
        check(d(0.7), np.exp(0.7))
    s = bt.primitive(lambda x: bt.sin(x))
    c = bt.primitive(lambda x: bt.cos(x))
    s.defvjp(lambda g, z, x: g * c(x))
    c.defvjp(lambda g, z, x: -g * s(x))
    d, e = s, bt.sin
    for _ in range(4):
        d, e = bt.grad(d), bt.grad(e)
        check(d(0.7), e(0.7))
    x = bt.array(np.array([0.7, 0.1]))
    s(x).sum().backward()
    check(x.grad, np.cos([0.7, 0.1]))


def test_perturbations_are_kept_apart():
    p = bt.primitive(lambda x, y: x * y)
    p.defvjp(lambda g, z, x, y: (g * y, g * x))
    assert bt.grad(lambda x: x * bt.grad(lambda y: p(x, y))(2.0))(3.0) == 6.0
    assert bt.grad(lambda x: x * bt.grad(lambda y: x + p(y, 1.0))(2.0))(1.0) == 1.0
    assert bt.jvp(lambda x: bt.jvp(lambda y: p(x, y))(2.0, 1.0)[1])(3.0, 1.0) == (3.0, 1.0)
    assert bt.grad(lambda x: bt.jvp(lambda y: p(p(x, x), y))(2.0, 1.0)[1])(3.0) == 6.0


def test_containers_and_integers():
    p = bt.primitive(lambda a, k: {"y": a["x"][k] * a["b"], "k": k + 1})

    @p.defvjp
    def _(g, z, a, k):
        assert g["k"] is None
        zero = a["x"] * 0.0
        return {"x": zero + bt.where(np.arange(3) == k, g["y"] * a["b"], 0.0), "b": g["y"] * a["x"][k]}, None

    def f(p):
        return lambda x, b, k: p({"x": x, "b": b}, k)["y"] * b

    q = lambda a, k: {"y": a["x"][k] * a["b"]}  # noqa: E731
    x = np.array([1.0, 2.0, 3.0])
    check(bt.grad(f(p), argnums=(0, 1))(x, 2.0, np.int64(1)), bt.grad(f(q), argnums=(0, 1))(x, 2.0, np.int64(1)))
    check(bt.grad(f(p))(x, 2.0, np.int64(2)), bt.grad(f(q))(x, 2.0, np.int64(2)))
    with pytest.raises(TypeError, match="contains integers"):
        bt.grad(f(p), argnums=2)(x, 2.0, np.int64(1))


def test_parameters_as_arguments():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3,), init=0.5)
    found = []
    for p in (made("reverse"), plain):
        value, grad = bt.function(lambda x, p=p: bt.sum(p(w, x))).value_and_param_grad(np.array([1.0, 2.0, 3.0]))
        found.append((value, np.array(grad)))
    check(*found)


WRONG = {
    "too many": (lambda g, z, x, y: (g, g, g), ValueError, "derivative of f returned 3 contributions for 2 arguments"),
    "too few": (lambda g, z, x, y: g * y, ValueError, "returned 1 contributions for 2 arguments"),
    "none": (lambda g, z, x, y: None, ValueError, "returned 1 contributions for 2 arguments"),
    "one None": (lambda g, z, x, y: (g, None), TypeError, "returned None for argument 1; return an Array of shape"),
    "shape": (lambda g, z, x, y: (g, g.sum()), ValueError, r"returned shape \(\) for argument 1 of shape \(2,?\)"),
    "text": (lambda g, z, x, y: ("no", g), TypeError, "returned str for argument 0; return Arrays or numbers"),
    "integers": (lambda g, z, x, y: (np.array([1, 2]), g), TypeError, "returned no floats for argument 0"),
    "containers": (lambda g, z, x, y: ([g], g), (ValueError, TypeError), "derivative of f returned"),
    "branch": (
        lambda g, z, x, y: (g, g) if x.sum() > 0 else (g, y),
        bt.TraceError,
        "derivative rule has no outcome",
    ),
    "raises": (lambda g, z, x, y: 1 / 0, ZeroDivisionError, "division"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_one_error(name):
    rule, error, match = WRONG[name]

    def f(x, y):
        return x * y

    p = bt.primitive(f)
    p.defvjp(rule)
    x = np.array([1.0, 2.0])
    for call in (
        lambda: bt.grad(lambda x, y: p(x, y).sum())(x, x),
        lambda: bt.vmap(bt.grad(lambda x, y: p(x, y).sum()))(np.stack([x, x]), np.stack([x, x])),
        lambda: bt.jvp(p)(x, x, x, x),
        lambda: p(bt.array(x), x),
    ):
        with pytest.raises(error, match=match):
            call()
    check(bt.function(p)(np.eye(2), np.eye(2)), np.eye(2))
    p.defvjp(lambda g, z, x, y: (g * y, g * x))
    check(bt.grad(lambda x, y: p(x, y).sum())(x, x), x)


def test_wrong_directions_and_no_rule():
    x = np.array([1.0, 2.0])
    p = bt.primitive(lambda x: x * x)
    with pytest.raises(TypeError, match="no derivative; give it one with defvjp"):
        bt.grad(lambda x: p(x).sum())(x)
    with pytest.raises(TypeError, match="no derivative; give it one with defvjp"):
        p(bt.array(x))
    with bt.no_grad():
        check(p(bt.array(x)).data, x * x)
    p.defjvp(lambda t, z, x: (t[0] * x).sum())
    for call in (lambda: bt.jvp(p)(x, x), lambda: bt.grad(lambda x: p(x).sum())(x)):
        with pytest.raises(ValueError, match=r"returned shape \(\) for the result of shape \(2,?\)"):
            call()
    nothing = bt.primitive(lambda x: None)
    with pytest.raises(bt.TraceError, match="returned no numbers"):
        bt.grad(lambda x: nothing(x))(1.0)


def test_captured_values_of_a_primitive_are_refused():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2,), init=0.5)
    x = np.array([1.0, 2.0])
    used = []
    p = bt.primitive(lambda x: x * used[0])
    p.defvjp(lambda g, z, x: g * 2.0)
    q = bt.primitive(lambda x: x * x)
    q.defvjp(lambda g, z, x: g * used[0])

    def f(p, other):
        def body(x, y):
            used[:] = [y if other is None else other]
            return p(x).sum() + y.sum()

        return body

    for primitive in (p, q):
        for other in (None, w):
            with pytest.raises(bt.TraceError, match=r"captures an Array|which is over"):
                bt.grad(f(primitive, other))(x, x)


def test_changed_globals_are_seen():
    space = {"bt": bt, "c": 2.0, "d": 3.0}
    exec(
        "p = bt.primitive(lambda x: c * x)\n"
        "def helper(g): return g * d\n"
        "def rule(g, z, x): return helper(g)\n"
        "_ = p.defvjp(rule)\n"
        "def f(x): return bt.sum(p(x) * x)\n",
        space,
    )
    x = np.array([1.0, 2.0])
    g, value = bt.grad(space["f"]), bt.function(space["f"])
    h = bt.hessian(space["f"])
    first = h(x)
    check(g(x), 2.0 * x + 3.0 * x)
    check(value(x[None]), 2.0 * (x * x).sum())
    space["d"] = 5.0
    check(g(x), 2.0 * x + 5.0 * x)
    assert not np.array_equal(first, h(x))
    space["c"] = 7.0
    check(g(x), 7.0 * x + 5.0 * x)
    check(value(x[None]), 7.0 * (x * x).sum())
    space["p"].defvjp(lambda g, z, x: g * 11.0)
    check(g(x), 7.0 * x + 11.0 * x)
    space["p"] = bt.primitive(lambda x: x)
    space["p"].defvjp(lambda g, z, x: g)
    check(g(x), 2.0 * x)
    y = bt.array(x)
    space["f"](y).backward()
    check(y.grad, 2.0 * x)
    space["p"].defvjp(lambda g, z, x: g * 4.0)
    y = bt.array(x)
    space["f"](y).backward()
    check(y.grad, 5.0 * x)


def test_a_primitive_that_is_made_on_the_way():
    def f(x):
        p = bt.primitive(lambda x: bt.sin(x))
        p.defvjp(lambda g, z, x: g * bt.cos(x))
        return p(x).sum()

    x = np.array([0.1, 0.2])
    check(bt.grad(f)(x), np.cos(x))
    check(bt.hessian(f)(x), np.diag(-np.sin(x)))
    y = bt.array(x)
    f(y).backward()
    check(y.grad, np.cos(x))
    y = bt.array(x)
    bt.grad(f)(y).sum().backward()
    check(y.grad, -np.sin(x))


def test_branches_of_the_function():
    p = bt.primitive(lambda x: x * 2.0 if x.sum() > 0.0 else x * 3.0)
    p.defvjp(lambda g, z, x: g * (z / x))
    f = bt.grad(lambda x: p(x).sum())
    x = np.array([1.0, 2.0])
    for _ in range(2):
        check(f(x), [2.0, 2.0])
        check(f(-x), [3.0, 3.0])
    with pytest.raises(bt.TraceError, match="row"):
        bt.vmap(p)(np.stack([x, -x]))


def test_files_hold_no_primitives(tmp_path):
    f = bt.function(lambda x: made("reverse")(x, x).sum())
    f(np.eye(2))
    with pytest.raises(ValueError, match="free of primitives, or with registered ones: a file holds no code"):
        f.save(tmp_path / "f.bt")


def test_ctrl_c_in_a_rule():
    p = bt.primitive(lambda x: x)

    @p.defvjp
    def _(g, z, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bt.grad(lambda x: p(x))(1.0)
    p.defvjp(lambda g, z, x: g)
    assert bt.grad(lambda x: p(x))(1.0) == 1.0
