"""Random graphs against 60-digit arithmetic by definition, and against PyTorch and JAX where they are installed."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import burtorch as bt

UNARY = ("neg", "abs", "relu", "tanh", "sigmoid", "exp", "softplus", "sqr", "pow3", "inv", "log", "sqrt")
BINARY = ("add", "sub", "mul", "div", "mean", "max", "min")
MANY = ("reduce_sum", "reduce_mul", "reduce_mean", "reduce_sum_of_squares")


# Profiles define the number of examples that replaces a hundred here.
TIMES = settings.default.max_examples // 100


class Exact:
    """A node of the reference: its value, and the recursion to its operands. No tape."""

    def __init__(self, value, parents=()):
        self.value, self.parents, self.grad = value, parents, Decimal(0)

    def backward(self):
        order, seen = [], set()

        def visit(node):
            if id(node) not in seen:
                seen.add(id(node))
                for parent, _ in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = Decimal(1)
        for node in reversed(order):
            for parent, partial in node.parents:
                parent.grad += node.grad * partial


def exact_unary(op, x):
    v, one = x.value, Decimal(1)
    e = (-abs(v)).exp()
    sigmoid = one / (one + e) if v >= 0 else e / (one + e)
    tanh = ((2 * v).exp() - 1) / ((2 * v).exp() + 1)
    value, partial = {
        "neg": lambda: (-v, -one),
        "abs": lambda: (abs(v), Decimal((v > 0) - (v < 0))),
        "relu": lambda: (max(v, Decimal(0)), Decimal(v > 0)),
        "tanh": lambda: (tanh, 1 - tanh * tanh),
        "sigmoid": lambda: (sigmoid, sigmoid * (1 - sigmoid)),
        "exp": lambda: (v.exp(), v.exp()),
        "softplus": lambda: ((1 + e).ln() + max(v, Decimal(0)), sigmoid),
        "sqr": lambda: (v * v, 2 * v),
        "pow3": lambda: (v**3, 3 * v * v),
        "inv": lambda: (one / v, -one / (v * v)),
        "log": lambda: (v.ln(), one / v),
        "sqrt": lambda: (v.sqrt(), one / (2 * v.sqrt())),
        "shift": lambda: (v + 2, one),
    }[op]()
    return Exact(value, ((x, partial),))


def exact_binary(op, x, y):
    a, b = x.value, y.value
    share = lambda p, q: Decimal(1) if p > q else Decimal("0.5") if p == q else Decimal(0)  # noqa: E731
    value, da, db = {
        "add": lambda: (a + b, 1, 1),
        "sub": lambda: (a - b, 1, -1),
        "mul": lambda: (a * b, b, a),
        "div": lambda: (a / b, 1 / b, -a / (b * b)),
        "mean": lambda: ((a + b) / 2, Decimal("0.5"), Decimal("0.5")),
        "max": lambda: (max(a, b), share(a, b), share(b, a)),
        "min": lambda: (min(a, b), share(b, a), share(a, b)),
    }[op]()
    return Exact(value, ((x, Decimal(da)), (y, Decimal(db))))


def exact_many(op, xs):
    vs, n = [x.value for x in xs], Decimal(len(xs))
    if op == "reduce_mul":
        products = []
        for k in range(len(vs)):
            others = Decimal(1)
            for j, v in enumerate(vs):
                others *= v if j != k else 1
            products.append(others)
        return Exact(products[0] * vs[0], tuple(zip(xs, products)))
    if op == "reduce_sum_of_squares":
        return Exact(sum(v * v for v in vs), tuple((x, 2 * x.value) for x in xs))
    weight = 1 / n if op == "reduce_mean" else Decimal(1)
    return Exact(weight * sum(vs), tuple((x, weight) for x in xs))


def program_of(seed, n_steps):
    """Leaves, and steps: an op and the indices of its operands. Hypothesis shrinks the number of steps."""
    rng = random.Random(seed)
    leaves = [rng.randint(-32, 32) / 8 + 1 / 64 for _ in range(rng.randint(1, 4))]
    steps = []
    for k in range(len(leaves), len(leaves) + n_steps):
        ops, n = rng.choice(((UNARY, 1), (UNARY, 1), (BINARY, 2), (BINARY, 2), (BINARY, 2), (MANY, rng.randint(1, 5))))
        # Mostly late indices, so that graphs are deep; occasionally the same one twice.
        steps.append((rng.choice(ops), [max(rng.randrange(k), rng.randrange(k)) for _ in range(n)]))
    return leaves, steps


def programs():
    return st.builds(program_of, st.integers(0, 2**32), st.integers(1, 40))


def run(program, leaf, unary, binary, many):
    """Evaluates every node; arguments, and growing results, are squashed."""
    leaves, steps = program
    nodes = [leaf(x) for x in leaves]
    for op, places in steps:
        xs = [nodes[k] for k in places]
        tanh = lambda x: unary("tanh", x)  # noqa: E731
        xs = [unary("shift", tanh(x)) if op in ("inv", "log", "sqrt") else x for x in xs]
        xs = [tanh(x) if op in ("exp", "pow3", "mul", "reduce_mul", "sqr", "reduce_sum_of_squares") else x for x in xs]
        if op == "div":
            xs[1] = unary("shift", tanh(xs[1]))
        node = unary(op, *xs) if op in UNARY else binary(op, *xs) if op in BINARY else many(op, xs)
        nodes.append(node)
    return nodes


def burtorch_nodes(program, dtype):
    graph = bt.Graph(dtype=dtype)
    nodes = run(
        program,
        graph.value,
        lambda op, x: x + 2.0 if op == "shift" else getattr(bt, op)(x),
        lambda op, x, y: getattr(bt, op)(x, y),
        lambda op, xs: getattr(bt, op)(xs),
    )
    nodes[-1].backward()
    return nodes


def exact_nodes(program):
    nodes = run(program, lambda x: Exact(Decimal(x)), exact_unary, exact_binary, exact_many)
    nodes[-1].backward()
    return nodes


def assert_close(found, expected, tolerance):
    scale = max([1.0, *(abs(float(x)) for x in expected)])
    for k, (x, y) in enumerate(zip(found, expected)):
        assert abs(Decimal(x) - Decimal(y)) <= Decimal(tolerance) * Decimal(scale), (k, x, float(y))


def kinks(nodes):
    """Whether an argument is so close to a kink that rounding may decide the side."""
    values = sorted({node.value for node in nodes} | {Decimal(0)})
    return any(b - a < Decimal("1e-9") for a, b in itertools.pairwise(values))


@settings(max_examples=2000 * TIMES, deadline=None)
@given(programs())
def test_random_graphs_match_60_digits(program):
    with localcontext() as context:
        context.prec = 60
        exact = exact_nodes(program)
        if kinks(exact):
            return
        n = len(program[0])
        for dtype, tolerance in (("float64", "1e-12"), ("float128", "1e-29")):
            nodes = burtorch_nodes(program, dtype)
            last = 0 if dtype == "float64" else -1  # writing the digits of a float128 takes long
            assert_close([node.data for node in nodes[last:]], [node.value for node in exact[last:]], tolerance)
            assert_close([leaf.grad for leaf in nodes[:n]], [leaf.grad for leaf in exact[:n]], tolerance)


@settings(max_examples=100 * TIMES, deadline=None)
@given(programs())
def test_random_graphs_match_torch(program):
    torch = pytest.importorskip("torch")
    combine = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
    combine |= {"mean": lambda x, y: (x + y) / 2, "max": torch.maximum, "min": torch.minimum}
    single = {"sqr": torch.square, "pow3": lambda x: x**3, "inv": torch.reciprocal, "shift": lambda x: x + 2.0}
    single["softplus"] = lambda x: torch.logaddexp(x, torch.zeros_like(x))
    total = {"reduce_sum": torch.sum, "reduce_mul": torch.prod, "reduce_mean": torch.mean}
    total["reduce_sum_of_squares"] = lambda x: (x * x).sum()
    nodes = run(
        program,
        lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True),
        lambda op, x: single[op](x) if op in single else getattr(torch, op)(x),
        lambda op, x, y: combine[op](x, y),
        lambda op, xs: total[op](torch.stack(xs)),
    )
    nodes[-1].backward()
    with localcontext() as context:
        context.prec = 60
        if kinks(exact_nodes(program)):
            return
    ours = burtorch_nodes(program, "float64")
    n = len(program[0])
    grads = [0.0 if leaf.grad is None else leaf.grad.item() for leaf in nodes[:n]]
    assert_close([leaf.grad for leaf in ours[:n]], grads, "1e-11")


@settings(max_examples=20 * TIMES, deadline=None)
@given(programs())
def test_random_graphs_match_jax(program):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    with localcontext() as context:
        context.prec = 60
        if kinks(exact_nodes(program)):
            return
    combine = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide}
    combine |= {"mean": lambda x, y: (x + y) / 2, "max": jnp.maximum, "min": jnp.minimum}
    single = {"neg": jnp.negative, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "softplus": jax.nn.softplus}
    single |= {"sqr": jnp.square, "pow3": lambda x: x * x * x, "inv": jnp.reciprocal, "shift": lambda x: x + 2.0}
    total = {"reduce_sum": jnp.sum, "reduce_mul": jnp.prod, "reduce_mean": jnp.mean}
    total["reduce_sum_of_squares"] = lambda x: (x * x).sum()

    def last_node(numbers):
        numbers = iter(numbers)
        nodes = run(
            program,
            lambda x: next(numbers),
            lambda op, x: (single[op] if op in single else getattr(jnp, op))(x),
            lambda op, x, y: combine[op](x, y),
            lambda op, xs: total[op](jnp.stack(xs)),
        )
        return nodes[-1]

    grads = jax.grad(last_node)([jnp.float64(x) for x in program[0]])
    ours = burtorch_nodes(program, "float64")
    assert_close([leaf.grad for leaf in ours[: len(grads)]], [float(g) for g in grads], "1e-11")
