"""``burtorch bench function``: traced functions called with floats, on buffers and on rows, with rivals.

The functions are those of ``bench eager``: tiny (Figure 1 of the BurTorch paper) and small (micrograd's README). Every
contender's answer is checked before anything is timed; contenders alternate in short slices. If NumPy and SciPy are
installed, it also times a random graph of 10,000 operations, the cost of a gradient and of a direction relative to a
value, and the minimisation of Rosenbrock's function by SciPy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import burtorch as bt
from burtorch.cli import bench_function_costs, bench_function_peers, bench_graphs
from burtorch.cli.reproduce.programs.graphs import FLOATS_BY_HAND, POINTS, small, tiny

Loop = Callable[[int], Any]
N_ROWS = 100_000


BODIES: dict[str, Callable[..., Any]] = {"tiny": lambda a, b: tiny(a, b), "small": lambda a, b: small(a, b)}


def calls(graph: str, peers: list[str]) -> dict[str, Loop]:
    """Contenders that compute one value and gradient per round."""
    a, b = POINTS[graph]
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

    found: dict[str, Loop] = {
        "burtorch, called with floats": floats,
        "burtorch, preset buffers": buffers,
        "Python floats, gradient by hand": FLOATS_BY_HAND[graph],
    }
    for peer in peers:
        found.update(bench_function_peers.CALLS[peer](graph))
    return found


def rows(graph: str, peers: list[str]) -> dict[str, tuple[int, Loop]]:
    """Contenders that compute values and gradients of many points per round, with the number of points."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = np.asarray(POINTS[graph]) * (1.0 + 0.1 * rng.normal(size=(N_ROWS, 2)))
    x[0] = POINTS[graph]
    f = bt.function(BODIES[graph])
    values, grads = np.zeros(N_ROWS), np.zeros((N_ROWS, 2))

    def batch(n: int) -> Any:
        for _ in range(n):
            f.map_value_and_grad(x, out=(values, grads))
        return float(values[0]), float(grads[0, 0]), float(grads[0, 1])

    found: dict[str, tuple[int, Loop]] = {"burtorch, rows of float64": (N_ROWS, batch)}
    for peer in peers:
        if peer in bench_function_peers.ROWS:
            found.update(bench_function_peers.ROWS[peer](graph, x))
    return found


def run(args: Any) -> int:
    from importlib.util import find_spec

    from burtorch.cli.bench import interleaved, wrong_answer

    has_numpy = find_spec("numpy") is not None
    rivals = [peer for peer in args.peers if peer in bench_function_peers.CALLS and find_spec(peer) is not None]
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
    record["random graph"] = bench_function_costs.large()
    record["costs"] = bench_function_costs.costs()
    if has_numpy and find_spec("scipy") is not None:
        record["rosenbrock"] = bench_function_costs.solve(rivals)
    if args.json:
        import json

        print(json.dumps(record, indent=1))
        return 0
    _print_function(record)
    return 0


def _print_function(record: dict[str, Any]) -> None:
    print(f"burtorch {record['burtorch']} ({record['cpu_level']}): value and gradient, {record['rounds']} slices")
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
