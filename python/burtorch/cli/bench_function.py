"""``burtorch bench function``: recorded functions called with floats, on buffers and on rows, beside rivals.

The functions are those of ``bench eager``: tiny (Figure 1 of the BurTorch paper) and small (micrograd's README). Every
contender's answer is checked before anything is timed; contenders take turns in short slices. Then a random graph of
10,000 operations, the cost of a gradient and of a direction over that of a value, and Rosenbrock's function
minimised by SciPy, where NumPy and SciPy are installed.
"""

from __future__ import annotations

import random
from array import array
from time import perf_counter
from typing import Any, Callable

import burtorch as bt
from burtorch.cli import bench_graphs

Loop = Callable[[int], Any]
N_ROWS = 100_000
POINT = {"tiny": (-41.0, 2.0), "small": (-4.0, 2.0)}


def tiny(a: Any, b: Any) -> Any:
    c = a + b
    d = a * b + b**3
    e = c - d
    return e**2 / 2


def small(a: Any, b: Any, relu: Callable[[Any], Any] = lambda x: x.relu()) -> Any:
    c = a + b
    d = a * b + b**3
    c = c + c + 1
    c = c + 1 + c + (-a)
    d = d + d * 2 + relu(b + a)
    d = d + 3 * d + relu(b - a)
    e = c - d
    f = e**2
    return f / 2.0 + 10.0 / f


BODIES: dict[str, Callable[..., Any]] = {"tiny": tiny, "small": lambda a, b: small(a, b)}


def calls(graph: str, peers: list[str]) -> dict[str, Loop]:
    """Contenders that compute one value and gradient per round."""
    a, b = POINT[graph]
    f = bt.function(BODIES[graph])
    x, grad = array("d", [a, b]), array("d", [0.0, 0.0])
    bound = f.bind(x, grad)

    def floats(n: int) -> Any:
        for _ in range(n):
            value, (da, db) = f.value_and_grad(a, b)
        return value, da, db

    def buffers(n: int) -> Any:
        for _ in range(n):
            value = bound()
        return value, grad[0], grad[1]

    by_hand = {"tiny": bench_graphs.tiny_by_hand, "small": bench_graphs.small_by_hand}[graph]
    found: dict[str, Loop] = {
        "burtorch, called with floats": floats,
        "burtorch, preset buffers": buffers,
        "Python floats, gradient by hand": by_hand,
    }
    for peer in peers:
        found.update(_PEER_CALLS[peer](graph))
    return found


def rows(graph: str, peers: list[str]) -> dict[str, tuple[int, Loop]]:
    """Contenders that compute values and gradients of many points per round, and how many."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = np.asarray(POINT[graph]) * (1.0 + 0.1 * rng.normal(size=(N_ROWS, 2)))
    x[0] = POINT[graph]
    f = bt.function(BODIES[graph])
    values, grads = np.zeros(N_ROWS), np.zeros((N_ROWS, 2))

    def batch(n: int) -> Any:
        for _ in range(n):
            f.map_value_and_grad(x, out=(values, grads))
        return float(values[0]), float(grads[0, 0]), float(grads[0, 1])

    found: dict[str, tuple[int, Loop]] = {"burtorch, rows of float64": (N_ROWS, batch)}
    for peer in peers:
        if peer in _PEER_ROWS:
            found.update(_PEER_ROWS[peer](graph, x))
    return found


def _jax_body(graph: str) -> Callable[..., Any]:
    import importlib

    relu = importlib.import_module("jax.numpy")
    return tiny if graph == "tiny" else lambda a, b: small(a, b, lambda x: relu.maximum(x, 0.0))


def _jax_calls(graph: str) -> dict[str, Loop]:
    import importlib

    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(jax.value_and_grad(_jax_body(graph), argnums=(0, 1)))

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grads = f(*POINT[graph])
            value.block_until_ready()
        return float(value), float(grads[0]), float(grads[1])

    return {"jax.jit": loop}


def _jax_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    import importlib

    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(jax.vmap(jax.value_and_grad(_jax_body(graph), argnums=(0, 1))))
    a, b = jax.numpy.asarray(x[:, 0]), jax.numpy.asarray(x[:, 1])

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grads = f(a, b)
            value.block_until_ready()
        return float(value[0]), float(grads[0][0]), float(grads[1][0])

    return {"jax.jit of vmap": (len(x), loop)}


def _casadi_function(graph: str) -> Any:
    import importlib

    ca = importlib.import_module("casadi")
    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    value = tiny(a, b) if graph == "tiny" else small(a, b, lambda x: ca.fmax(x, 0.0))
    return ca.Function("f", [a, b], [value, ca.gradient(value, a), ca.gradient(value, b)])


def _casadi_calls(graph: str) -> dict[str, Loop]:
    f = _casadi_function(graph)

    def loop(n: int) -> Any:
        for _ in range(n):
            value, da, db = f(*POINT[graph])
        return float(value), float(da), float(db)

    return {"casadi": loop}


def _casadi_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    f = _casadi_function(graph).map(len(x))
    a, b = x[:, 0].reshape(1, -1), x[:, 1].reshape(1, -1)

    def loop(n: int) -> Any:
        for _ in range(n):
            value, da, db = f(a, b)
        return float(value[0]), float(da[0]), float(db[0])

    return {"casadi map": (len(x), loop)}


def _numba_gradient(graph: str) -> Any:
    import importlib

    numba = importlib.import_module("numba")

    def tiny_gradient(a: float, b: float) -> tuple[float, float, float]:
        e = a + b - (a * b + b**3)
        return e * e / 2, e - e * b, e - e * (a + 3 * b * b)

    def small_gradient(a: float, b: float) -> tuple[float, float, float]:
        d0, s, t = a * b + b**3, max(b + a, 0.0), max(b - a, 0.0)
        e = 4 * (a + b) + 3 - a - (4 * (3 * d0 + s) + t)
        f = e * e
        de = (0.5 - 10.0 / (f * f)) * (2 * e)
        from_sum = -4 * de if s > 0 else 0.0
        from_difference = -de if t > 0 else 0.0
        da = 3 * de - 12 * de * b + from_sum - from_difference
        db = 4 * de - 12 * de * (a + 3 * b * b) + from_sum + from_difference
        return f / 2.0 + 10.0 / f, da, db

    return numba, numba.njit(tiny_gradient if graph == "tiny" else small_gradient)


def _numba_calls(graph: str) -> dict[str, Loop]:
    _, f = _numba_gradient(graph)

    def loop(n: int) -> Any:
        for _ in range(n):
            answer = f(*POINT[graph])
        return answer

    return {"numba, gradient by hand": loop}


def _numba_rows(graph: str, x: Any) -> dict[str, tuple[int, Loop]]:
    import numpy as np

    numba, f = _numba_gradient(graph)

    @numba.njit  # type: ignore[untyped-decorator, unused-ignore]
    def over(x: Any, values: Any, grads: Any) -> None:
        for k in range(x.shape[0]):
            values[k], grads[k, 0], grads[k, 1] = f(x[k, 0], x[k, 1])

    values, grads = np.zeros(len(x)), np.zeros_like(x)

    def loop(n: int) -> Any:
        for _ in range(n):
            over(x, values, grads)
        return float(values[0]), float(grads[0, 0]), float(grads[0, 1])

    return {"numba, loop by hand": (len(x), loop)}


def _autograd_calls(graph: str) -> dict[str, Loop]:
    import importlib

    autograd = importlib.import_module("autograd")
    numpy = importlib.import_module("autograd.numpy")
    body = tiny if graph == "tiny" else lambda a, b: small(a, b, lambda x: numpy.maximum(x, 0.0))
    f = autograd.value_and_grad(lambda x: body(x[0], x[1]))
    x = numpy.array(POINT[graph])

    def loop(n: int) -> Any:
        for _ in range(n):
            value, grad = f(x)
        return float(value), float(grad[0]), float(grad[1])

    return {"autograd": loop}


_PEER_CALLS: dict[str, Callable[[str], dict[str, Loop]]] = {
    "jax": _jax_calls,
    "casadi": _casadi_calls,
    "numba": _numba_calls,
    "autograd": _autograd_calls,
}
_PEER_ROWS: dict[str, Callable[[str, Any], dict[str, tuple[int, Loop]]]] = {
    "jax": _jax_rows,
    "casadi": _casadi_rows,
    "numba": _numba_rows,
}
PEERS = list(_PEER_CALLS)


def random_graph(n_ops: int) -> Callable[[Any], Any]:
    """A function of 20 numbers: softplus, sums, products and softmaxes on earlier results, at least ``n_ops`` nodes.

    A softmax of four is four exponentials, their sum and four quotients. Results are scaled so that they stay moderate.
    """
    dice = random.Random(0)
    plan: list[tuple[str, list[int]]] = []
    n_nodes, n = 20, 0
    while n < n_ops:
        kind = dice.choice(["softplus", "sum", "product", "softmax"])
        plan.append((kind, [dice.randrange(max(0, n_nodes - 60), n_nodes) for _ in range(4)]))
        n += 9 if kind == "softmax" else 2
        n_nodes += 4 if kind == "softmax" else 1

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
    """The random graph: ns per operation to record, and for one value and gradient."""
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
    return {
        "operations": float(n_ops),
        "record, ns per operation": sorted(times)[2] * 1e9 / n_ops,
        "value, ns per operation": best(f.bind(x)) / n_ops,
        "value and gradient, ns per operation": best(bound) / n_ops,
    }


def costs() -> dict[str, dict[str, float]]:
    """For five functions: a gradient, and a direction, over the value."""
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


def run(args: Any) -> int:
    from importlib.util import find_spec

    from burtorch.cli.bench import interleaved, wrong_answer

    has_numpy = find_spec("numpy") is not None
    rivals = [peer for peer in args.peers if peer in _PEER_CALLS and find_spec(peer) is not None]
    record: dict[str, Any] = {
        "burtorch": bt.__version__,
        "cpu_level": bt.system.cpu_level(),
        "bench": "function",
        "rounds": args.rounds,
        "calls": {},
        "rows": {},
    }
    for graph in bench_graphs.ANSWERS:
        contenders = {name: (1, loop) for name, loop in calls(graph, rivals).items()}
        tables = [("calls", contenders)]
        if has_numpy:
            tables.append(("rows", rows(graph, rivals)))
        for kind, entries in tables:
            for name, (_, loop) in entries.items():
                wrong = wrong_answer(loop(1), bench_graphs.ANSWERS[graph])
                if wrong:
                    print(f"burtorch bench: {name} is wrong on the {graph} graph: {wrong}")
                    return 1
            times = interleaved({name: loop for name, (_, loop) in entries.items()}, args.rounds)
            record[kind][graph] = {
                name: {which: time / entries[name][0] for which, time in row.items()} for name, row in times.items()
            }
    record["random graph"] = large()
    record["costs"] = costs()
    if has_numpy and find_spec("scipy") is not None:
        record["rosenbrock"] = solve(rivals)
    if args.json:
        import json

        print(json.dumps(record, indent=1))
        return 0
    _print_function(record)
    return 0


def _print_function(record: dict[str, Any]) -> None:
    print(
        f"burtorch {record['burtorch']} ({record['cpu_level']}): value and gradient, {record['rounds']} slices in turn"
    )
    for kind, unit in (("calls", "ns per call"), ("rows", "ns per row")):
        for graph, rows in record[kind].items():
            print(f"\n{f'{graph}, {unit}':<40}{'median':>10}{'minimum':>10}")
            for name, row in rows.items():
                print(f"{name:<40}{row['median']:>10,.1f}{row['minimum']:>10,.1f}")
    print("\na random graph of softplus, sums, products and softmaxes")
    for name, number in record["random graph"].items():
        print(f"{name:<40}{number:>10,.2f}")
    print(f"\n{'cost over the value':<28}{'operations':>12}{'value, ns':>12}{'gradient':>10}{'direction':>10}")
    for name, row in record["costs"].items():
        print(
            f"{name:<28}{row['operations']:>12,.0f}{row['value, ns']:>12,.0f}"
            f"{row['gradient / value']:>10.2f}{row['direction / value']:>10.2f}"
        )
    for problem, rows in record.get("rosenbrock", {}).items():
        print(f"\n{'Rosenbrock, ' + problem:<28}{'minimum':>12}{'calls':>8}{'products':>10}{'ms':>10}")
        for name, row in rows.items():
            counts = f"{row['calls']:>8.0f}{row['hessian products']:>10.0f}"
            print(f"{name:<28}{row['minimum']:>12.2e}{counts}{row['ms']:>10.2f}")
