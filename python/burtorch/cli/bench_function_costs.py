"""The large functions of ``burtorch bench function``: a random graph, five functions, Rosenbrock's.

The random graph has 20 inputs and at least 10,000 scalar operations. Each of its nodes is, with equal
probability, a softplus, a sum of four, a product of four (each of the three times a constant: two operations) or a
softmax of four (four exponentials, their sum, four quotients: nine), of results drawn uniformly from the previous 60;
it returns the sum of all. Its answers are checked against the eager graph before anything is timed.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

import burtorch as bt


def random_graph(n_ops: int) -> Callable[[Any], Any]:
    """A function of 20 numbers: softplus, sums, products and softmaxes on earlier results, at least ``n_ops`` nodes.

    A softmax of four is four exponentials, their sum and four quotients. Results are scaled to keep them moderate.
    """
    dice = random.Random(0)
    drawn: list[tuple[Any, ...]] = []
    n_nodes, n = 20, 0
    while n < n_ops:
        kind = dice.choice(["softplus", "sum", "product", "softmax"])
        drawn.append((kind, tuple(dice.randrange(max(0, n_nodes - 60), n_nodes) for _ in range(4))))
        n += 9 if kind == "softmax" else 2
        n_nodes += 4 if kind == "softmax" else 1

    # Tuples are immutable, so calls need not compare them.
    plan = tuple(drawn)

    def body(x: Any) -> Any:
        nodes = [x[k] for k in range(20)]
        for kind, operands in plan:
            found = [nodes[k] for k in operands]
            if kind == "softplus":
                nodes.append(found[0].softplus() * 0.5)
            elif kind == "sum":
                nodes.append(bt.reduce_sum(found) * 0.25)
            elif kind == "product":
                nodes.append(bt.reduce_mul(found) * 0.5)
            else:
                exps = [v.exp() for v in found]
                total = bt.reduce_sum(exps)
                nodes.extend(e / total for e in exps)
        return bt.reduce_sum(nodes[20:])

    return body


def _polynomial(x: Any) -> Any:
    total = x[0]
    for k in range(1, 1500):
        total = total * x[k % 10] * 0.5 + x[(k + 3) % 10]
    return total


def _rosenbrock(x: Any) -> Any:
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


def _layers(x: Any) -> Any:
    units = [x[k] for k in range(10)]
    for layer in range(12):
        units = [bt.tanh(0.3 * sum(units[i] for i in range(k, k + 4)) + 0.1 * layer) for k in range(6)] + units[:4]
    return sum(units)


def _log_sum_exp(x: Any) -> Any:
    total = sum(bt.exp(x[k % 10] * (0.01 * k)) for k in range(500))
    return bt.log(total)


def _trigonometric(x: Any) -> Any:
    return sum(
        bt.sin(x[k % 10] * (1.0 + 0.01 * k)) * bt.cos(x[(k + 1) % 10]) / (1.5 + bt.sin(x[k % 10])) for k in range(300)
    )


COSTS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "polynomial": (_polynomial, 10),
    "rosenbrock, n = 400": (_rosenbrock, 400),
    "tanh layers": (_layers, 10),
    "log of a sum of exp": (_log_sum_exp, 10),
    "sin, cos, quotients": (_trigonometric, 10),
}


def best(run: Callable[[], Any], seconds: float = 0.1) -> float:
    """The median time of one run, in nanoseconds, over slices of a hundredth of a second."""
    run()
    start = perf_counter()
    run()
    repeats = max(1, int(0.01 / max(perf_counter() - start, 1e-7)))
    times: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(times) < 5:
        start = perf_counter()
        for _ in range(repeats):
            run()
        times.append((perf_counter() - start) / repeats * 1e9)
    return sorted(times)[len(times) // 2]


def large() -> dict[str, float]:
    """The random graph: ns per operation for tracing, and for one value and gradient."""
    import gc

    body = random_graph(10_000)
    x, grad = array("d", [0.01 * k for k in range(20)]), array("d", [0.0] * 20)
    times = []
    for _ in range(5):
        gc.collect()
        start = perf_counter()
        f = bt.trace(body, array("d", x))
        times.append(perf_counter() - start)
        n_ops = len(f.program)
    bound = f.bind(x, grad)
    check_large(body, x, bound, grad)
    return {
        "operations": float(n_ops),
        "record, ns per operation": sorted(times)[2] * 1e9 / n_ops,
        "value, ns per operation": best(f.bind(x)) / n_ops,
        "value and gradient, ns per operation": best(bound) / n_ops,
    }


def check_large(body: Callable[[Any], Any], x: Any, bound: Callable[[], float], grad: Any) -> None:
    """Raise AssertionError unless a bound call has the bits of the eager graph."""
    leaves = bt.Graph().vector(list(x))
    root = body(leaves)
    root.backward()
    if (bound(), list(grad)) != (root.data, list(leaves.grad)):
        raise AssertionError("the random graph: a replay differs from the eager graph")


def costs() -> dict[str, dict[str, float]]:
    """For five functions: the cost of a gradient and of a direction, relative to the value."""
    table = {}
    for name, (body, n) in COSTS.items():
        x, grad = array("d", [0.3 + 0.02 * (k % 10) for k in range(n)]), array("d", [0.0] * n)
        f = bt.function(body)
        value = best(f.bind(x))
        row = {
            "operations": float(len(f.program)),
            "value, ns": value,
            "gradient / value": best(f.bind(x, grad)) / value,
        }
        direction = array("d", [1.0] * n)
        row["direction / value"] = best(lambda f=f, x=x, d=direction: f.jvp(x, d)) / value  # type: ignore[misc]
        table[name] = row
    return table


def solve(peers: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Rosenbrock's function minimised by SciPy, with gradients and Hessian products of each contender."""
    import numpy as np
    from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

    table: dict[str, dict[str, dict[str, float]]] = {}
    for n in (2, 100):
        x0 = np.tile([-1.2, 1.0], n // 2)
        rivals = {"burtorch": _rosenbrock_burtorch, "jax": _rosenbrock_jax, "autograd": _rosenbrock_autograd}
        for name in ["burtorch", *(peer for peer in peers if peer in rivals)]:
            try:
                value_and_grad, hvp = rivals[name]()
            except ImportError:
                continue
            for method, more in (("BFGS", {}), ("Newton-CG", {"hessp": hvp})):
                minimize(value_and_grad, x0, jac=True, method=method, **more)
                start = perf_counter()
                found = minimize(value_and_grad, x0, jac=True, method=method, **more)
                elapsed = perf_counter() - start
                row = {"minimum": float(found.fun), "calls": float(found.nfev), "ms": elapsed * 1e3}
                row["hessian products"] = float(getattr(found, "nhev", 0))
                table.setdefault(f"n = {n}, {method}", {})[name] = row
    return table


def _rosenbrock_burtorch() -> tuple[Any, Any]:
    f = bt.function(_rosenbrock)
    return f.value_and_grad, f.hvp


def _whole(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def _rosenbrock_jax() -> tuple[Any, Any]:
    import importlib

    import numpy as np

    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    both = jax.jit(jax.value_and_grad(_whole))
    product = jax.jit(lambda x, v: jax.jvp(jax.grad(_whole), (x,), (v,))[1])

    def value_and_grad(x: Any) -> Any:
        value, grad = both(x)
        return float(value), np.asarray(grad)

    return value_and_grad, lambda x, v: np.asarray(product(x, v))


def _rosenbrock_autograd() -> tuple[Any, Any]:
    import importlib

    autograd = importlib.import_module("autograd")
    return autograd.value_and_grad(_whole), autograd.hessian_vector_product(_whole)
