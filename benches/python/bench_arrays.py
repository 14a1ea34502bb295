"""Times derivatives of arrays and sparse derivatives beside NumPy by hand, JAX, PyTorch and CasADi, on one core.

    python bench_arrays.py [--rounds 50] [--only Hessian] [--record]

Answers must agree with each rival's to 1e-9 (1e-4 in float32) of their largest number before anything is timed. A rival
that is not installed is left out. Contenders take turns; minima in microseconds.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from burtorch.cli.reproduce.programs import hold_to_one_thread

hold_to_one_thread()
import numpy as np  # noqa: E402
from record import least, write_record  # noqa: E402

import burtorch as bt  # noqa: E402
from burtorch.cli.reproduce.programs.cells import mlp_cell, mlp_shapes, split  # noqa: E402

Call = Callable[[], Any]
# Of a cell the calls by contender, burtorch first, and how far answers may be apart.
Cell = tuple[dict[str, Call], float]
CELLS: dict[str, Callable[[], Cell]] = {}
VISIT_SECONDS = 0.002
CLOSE = 1e-9


def cell(title: str) -> Callable[[Any], Any]:
    def named(make: Any) -> Any:
        CELLS[title] = make
        return make

    return named


def installed(name: str) -> Any:
    """This module, or nothing; JAX with float64, PyTorch on one thread."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    if name == "jax":
        module.config.update("jax_enable_x64", True)
    if name == "torch":
        module.set_num_threads(1)
    return module


def ready(compiled: Any, *arguments: Any) -> Call:
    """A call of a function of JAX that ends when its numbers are there."""
    import jax

    given = [jax.numpy.asarray(x) for x in arguments]
    return lambda: jax.block_until_ready(compiled(*given))


def rosenbrock(x: Any) -> Any:
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


def rosenbrock_by_slices(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


@cell("sparse Hessian of Rosenbrock, n = 1,000, into an array")
def sparse_hessian() -> Cell:
    x = np.linspace(-1.0, 1.5, 1000)
    f = bt.function(rosenbrock)
    out = f.sparse_hessian(x)
    for _ in range(400):
        f.sparse_hessian(x, out=out)

    def ours() -> Any:
        return f.sparse_hessian(x, out=out).data

    calls: dict[str, Call] = {"burtorch": ours}
    if casadi := installed("casadi"):
        symbol = casadi.SX.sym("x", len(x))
        function = casadi.Function("h", [symbol], [casadi.hessian(rosenbrock_of_casadi(symbol), symbol)[0]])
        calls["casadi"] = lambda: np.asarray(function(x).nonzeros())
        # The call refers to the buffer, which must live as long.
        buffer, evaluate = function.buffer()
        data = np.zeros(function.nnz_out(0))
        buffer.set_arg(0, memoryview(x))
        buffer.set_res(0, memoryview(data))

        def preset(_: Any = buffer) -> Any:
            evaluate()
            return data

        calls["casadi, preset buffers"] = preset
    return calls, CLOSE


def rosenbrock_of_casadi(x: Any) -> Any:
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(x.numel() - 1))


@cell("dense Hessian of Rosenbrock, n = 50")
def dense_hessian() -> Cell:
    x = np.linspace(-1.0, 1.5, 50)
    f = bt.function(rosenbrock)
    calls: dict[str, Call] = {"burtorch": lambda: f.hessian(x)}
    if jax := installed("jax"):
        calls["jax"] = ready(jax.jit(jax.hessian(rosenbrock_by_slices)), x)
    return calls, CLOSE


@cell("Jacobian of tanh(A x), 30 x 40")
def jacobian() -> Cell:
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((30, 40)) / 6, rng.standard_normal(40)
    f = bt.function(lambda x: np.tanh(A @ x))
    calls: dict[str, Call] = {"burtorch": lambda: f.jacobian(x)}
    if jax := installed("jax"):
        calls["jax"] = ready(jax.jit(jax.jacrev(lambda x: jax.numpy.tanh(A @ x))), x)
    return calls, CLOSE


def by_slices(n: int, make_call: Callable[[Call], Call]) -> Callable[[], Cell]:
    def make() -> Cell:
        x = np.linspace(-1.0, 1.5, n)
        f = make_call(rosenbrock_by_slices)

        def by_hand() -> Any:
            inner, apart = 1.0 - x[:-1], x[1:] - x[:-1] ** 2
            gradient = np.zeros_like(x)
            gradient[:-1] = -400.0 * x[:-1] * apart - 2.0 * inner
            gradient[1:] += 200.0 * apart
            return (100.0 * apart**2 + inner**2).sum(), gradient

        calls: dict[str, Call] = {"burtorch": lambda: f(x), "numpy": by_hand}
        if jax := installed("jax"):
            calls["jax"] = ready(jax.jit(jax.value_and_grad(rosenbrock_by_slices)), x)
        return calls, CLOSE

    return make


for count in (1_000, 10_000):
    title = f"value and gradient of Rosenbrock by slices, n = {count:,}"
    CELLS[f"{title}, bt.value_and_grad(f)"] = by_slices(count, bt.value_and_grad)
    CELLS[f"{title}, bt.function(f).value_and_grad"] = by_slices(count, lambda f: bt.function(f).value_and_grad)


@cell("eager array of 1,000 numbers, (x*x + tanh x).sum() with backward")
def eager() -> Cell:
    x = np.linspace(-2.0, 2.0, 1000)
    graph = bt.Graph()
    given = graph.array(x)

    def ours() -> Any:
        graph.zero_grad()
        (given * given + np.tanh(given)).sum().backward()
        return given.grad

    calls: dict[str, Call] = {"burtorch": ours}
    if torch := installed("torch"):
        leaf = torch.tensor(x, requires_grad=True)

        def theirs() -> Any:
            leaf.grad = None
            (leaf * leaf + torch.tanh(leaf)).sum().backward()
            return leaf.grad.numpy()

        calls["torch"] = theirs
    return calls, CLOSE


@cell("gradients of 64 samples of the character MLP, e = 64, float32")
def per_sample() -> Cell:
    problem = mlp_cell(64, 64)
    X, Y = problem.X[0].astype("int32"), problem.Y[0].astype("int32")
    params = bt.Parameters(seed=0)
    oracle = bt.Oracle(bt.nn.CharMLP(params, 27, 16, 64, 64))
    params.values[:] = problem.weights
    calls: dict[str, Call] = {"burtorch": lambda: oracle.per_sample_grads(X, Y)}
    if jax := installed("jax"):
        parts = [jax.numpy.asarray(part) for part in split(problem.weights, mlp_shapes(64))]

        def loss(w: Any, x: Any, y: Any) -> Any:
            logits = w[3] @ jax.numpy.tanh(w[1] @ w[0][x].ravel() + w[2]) + w[4]
            return jax.nn.logsumexp(logits) - logits[y]

        of_all = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))
        flat = jax.jit(
            lambda w, x, y: jax.numpy.concatenate([part.reshape(64, -1) for part in of_all(w, x, y)], axis=1)
        )
        given = jax.numpy.asarray(X), jax.numpy.asarray(Y)
        calls["jax"] = lambda: jax.block_until_ready(flat(parts, *given))
    return calls, 1e-4


@cell("Black-Scholes prices of 200,000 rows with gradients")
def black_scholes() -> Cell:
    rng = np.random.default_rng(0)
    low, high = np.array([80.0, 80.0, 0.1, 0.0, 0.1]), np.array([120.0, 120.0, 2.0, 0.1, 0.5])
    rows = rng.uniform(low, high, (200_000, 5))

    def price(m: Any, s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
        spread = v * m.sqrt(t)
        ahead = (m.log(s / k) + (r + 0.5 * v * v) * t) / spread
        return s * m.ndtr(ahead) - k * m.exp(-r * t) * m.ndtr(ahead - spread)

    f = bt.function(lambda s, k, t, r, v: price(bt, s, k, t, r, v))
    calls: dict[str, Call] = {"burtorch": lambda: f.map_value_and_grad(rows)}
    if jax := installed("jax"):
        theirs = SimpleNamespace(sqrt=jax.numpy.sqrt, log=jax.numpy.log, exp=jax.numpy.exp, ndtr=jax.scipy.special.ndtr)
        one = jax.value_and_grad(lambda row: price(theirs, *row))
        calls["jax"] = ready(jax.jit(jax.vmap(one)), rows)
    return calls, CLOSE


def flat(result: Any) -> Any:
    """All numbers of a result."""
    parts = result if isinstance(result, tuple) else (result,)
    return np.concatenate([np.ravel(np.asarray(part)) for part in parts])


def measured(make: Callable[[], Cell], rounds: int) -> dict[str, float]:
    """Minima in seconds by contender, whose answers agree."""
    calls, close = make()
    answers = {name: flat(call()).copy() for name, call in calls.items()}
    expected = answers["burtorch"]
    for name, found in answers.items():
        np.testing.assert_allclose(found, expected, rtol=0, atol=close * np.abs(expected).max(), err_msg=name)
    return dict(zip(calls, least(list(calls.values()), rounds, VISIT_SECONDS), strict=True))


def compared(
    doc: str, cells: dict[str, Callable[[], Cell]], what: tuple[str, str], unit: tuple[str, float, int]
) -> None:
    """Times the cells that the command line selects, and may record them. ``what`` is the name of the record and its
    heading, ``unit`` that of the times, how many are a second, and digits.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--only", default="", help="cells whose title has this in it")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    lines = [f"| {unit[0]} | burtorch | rivals | of the best rival |", "|---|---|---|---|"]
    print("\n".join(lines))
    for title, make in cells.items():
        if options.only not in title:
            continue
        found = {name: unit[1] * seconds for name, seconds in measured(make, options.rounds).items()}
        ours = found.pop("burtorch")
        rivals = "; ".join(f"{name} {time:,.{unit[2]}f}" for name, time in found.items()) or "-"
        ratio = f"{ours / min(found.values()):.2f}" if found else "-"
        lines.append(f"| {title} | {ours:,.{unit[2]}f} | {rivals} | {ratio} |")
        print(lines[-1], flush=True)
    if options.record:
        heading = f"# {what[1]}\n\nburtorch {bt.__version__}"
        how = f"minima of {options.rounds} rounds in turns, by `python bench_{what[0]}.py --record`"
        write_record(what[0], f"{heading}; {how}.\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    assert __doc__ is not None
    heading = "Derivatives of arrays and sparse derivatives, one core"
    compared(__doc__, CELLS, ("arrays", heading), ("microseconds", 1e6, 1))
