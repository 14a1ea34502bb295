"""Constants of problems, computed from eigenvalues, and their solutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from burtorch import _core
from burtorch.opt._arguments import not_negative
from burtorch.opt._clients import divided

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from burtorch._core import FiniteSum
    from burtorch.opt._clients import Clients, Problem

    Matrix = NDArray[np.float64]

CURVATURE = {"logistic": 0.25, "squares": 1.0, "robust": 1.0, "softmax": 0.5}
"""The largest second derivative of each loss."""

DENTS = {"robust": 0.125}
"""The negative of the least second derivative, of losses that are not convex."""

LARGEST = 1e150
"""A bound of the squared norm of a row, because constants use its square."""

EXACT_UP_TO = 2000
"""The largest matrix whose eigenvalues are computed."""


@dataclass(frozen=True, slots=True, eq=False)
class Smoothness:
    """Constants of a finite sum f = mean of f_i, where i counts samples or clients.

    L: the smoothness of f. L_i: that of each f_i. L_pm: the root of the Hessian variance:
    mean |(grad f_i(x) - grad f_i(y)) - (grad f(x) - grad f(y))|^2 <= L_pm^2 |x - y|^2. mu: the strong convexity of f, 0
    if unknown; mu_min: that of every f_i. `bound` says how L and L_pm were computed: "eigenvalues" are exact for
    quadratic problems, and for others exact for the largest second derivatives of the losses; all other names are upper
    bounds.
    """

    L: float
    L_i: NDArray[np.float64]
    L_pm: float
    mu: float
    mu_min: float
    bound: dict[str, str]

    def _fields(self) -> tuple[object, ...]:
        numbers = self.L, tuple(self.L_i.tolist()), self.L_pm, self.mu, self.mu_min
        return *numbers, tuple(sorted(self.bound.items()))

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Smoothness) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    @property
    def L_max(self) -> float:
        """The largest L_i."""
        return float(self.L_i.max())

    @property
    def L_AM(self) -> float:
        """The arithmetic mean of L_i."""
        return float(self.L_i.mean())

    @property
    def L_plus(self) -> float:
        """The quadratic mean of L_i."""
        return float((self.L_i**2).mean() ** 0.5)


def _largest(gram: Matrix) -> float:
    import numpy as np

    return float(np.linalg.eigvalsh(gram)[-1]) if gram.size else 0.0


def _least(gram: Matrix, n: int) -> float:
    """The least eigenvalue of a mean over n rows a of a a'; 0 if it is below the rounding errors of the mean and of
    eigvalsh."""
    import numpy as np

    found = float(np.linalg.eigvalsh(gram)[0])
    return found if found > 2.0**-53 * (n + len(gram)) * float(np.trace(gram)) else 0.0


def _norm_squared(rows: Matrix) -> float:
    """The largest eigenvalue of rows' rows."""
    return _largest(rows.T @ rows if rows.shape[1] <= rows.shape[0] else rows @ rows.T)


def _curvature(problem: FiniteSum) -> float:
    found = CURVATURE.get(problem.kind)
    if found is None:
        raise ValueError("the smoothness of a Python function is unknown; pass a step size instead")
    return found


def _shift(problem: FiniteSum) -> float:
    """The largest second derivative of the regulariser."""
    return problem.l2 + 2.0 * problem.nonconvex


def _dent(problem: FiniteSum) -> float:
    """The least second derivative of the regulariser, which may be negative."""
    return problem.l2 - 0.5 * problem.nonconvex


def smoothness_of_samples(problem: FiniteSum) -> Matrix:
    """L_i of each sample."""
    import numpy as np

    if problem.kind == "clients":
        return np.concatenate([smoothness_of_samples(child) for child in problem._children])
    own: Matrix = _curvature(problem) * problem._row_squares() + _shift(problem)
    return own


def smoothness(problem: Problem, clients: Clients = None) -> Smoothness:
    """Constants of a problem with terms computed in Rust.

    Args:
        problem: a result of `logistic_regression`, `least_squares`, `robust_regression` or `softmax_regression`; or a
            list of `Client` objects with such problems.
        clients: the samples of each client, each sample once, or a number of clients that share them in order; then
            f_i is the mean over those of client i.

    Eigenvalues are computed for at most 2,000 features or samples: O(n d^2). Otherwise L is bounded by the mean of
    |a_i|^2 ("trace"), and so are the L_i of clients. If clients have problems of several kinds or regularisers, L is
    bounded by the mean of L_i, and mu by that of lower bounds of their second derivatives. An eigenvalue within
    rounding of 0 gives mu = 0.

    Raises:
        TypeError: another kind of problem, or clients that are neither lists nor a number.
        ValueError: a Python function, whose constants are unknown (pass a step size to methods); clients that do
            not contain each sample once.

    Example:
        >>> import burtorch as bt
        >>> c = bt.opt.smoothness(bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [0.0, 0.0], l2=1.0))
        >>> c.L, c.L_i, c.mu, c.bound["L"]
        (3.0, array([2., 5.]), 1.5, 'eigenvalues')
    """
    parts: list[NDArray[np.int64]] | None = None
    if clients is not None or not isinstance(problem, _core.FiniteSum):
        problem, parts = divided(problem, clients)
    if problem.kind == "clients":
        return _of_problems(problem, parts)
    curvature = _curvature(problem)
    shift, dent, bend = _shift(problem), _dent(problem), DENTS.get(problem.kind, 0.0)
    squares = problem._row_squares()
    if not squares.max() < LARGEST:
        found = f"a row whose square is {squares.max():.1e}"
        raise ValueError(f"features are too large for their constants, found {found}; scale them")
    d = problem.d // (problem.classes or 1)
    is_small = min(problem.n, d) <= EXACT_UP_TO
    if parts is not None:
        return _of_clients(problem, parts, curvature, squares, is_small)
    pm, low, name, pm_name = curvature * float(squares.max()), 0.0, "trace", "largest"
    top = curvature * float(squares.mean())
    if is_small:
        rows = problem.features()
        assert rows is not None
        top, name = curvature * _norm_squared(rows) / problem.n, "eigenvalues"
        pm, pm_name = curvature * _norm_squared(rows * (squares**0.5)[:, None]) ** 0.5 / problem.n**0.5, "second moment"
        if problem.kind == "squares" and d <= EXACT_UP_TO:
            hessian = rows.T @ rows / problem.n
            low = _least(hessian, problem.n)
            moment = (rows * squares[:, None]).T @ rows / problem.n
            pm, pm_name = max(_largest(moment - hessian @ hessian), 0.0) ** 0.5, "eigenvalues"
    # Of one number, each term of least squares has a curvature of its own.
    least = float(squares.min()) if problem.kind == "squares" and d == 1 else -bend * float(squares.max())
    mu, mu_min = max(low - bend * top / curvature + dent, 0.0), max(dent + least, 0.0)
    bound = {"L": name, "L_pm": pm_name}
    return Smoothness(top + shift, curvature * squares + shift, pm, mu, mu_min, bound)


def _of_problems(problem: FiniteSum, parts: list[NDArray[np.int64]] | None) -> Smoothness:
    """The constants of clients whose problems differ in kind or regulariser."""
    import numpy as np

    own = divided(problem)[1]
    if parts is not None and [part.tolist() for part in parts] != [part.tolist() for part in own]:
        raise ValueError("the constants of different problems are known only for the clients that have them")
    found = [smoothness(child) for child in problem._children]
    L_i = np.array([c.L for c in found])
    lows = np.array([_low(child, c) for child, c in zip(problem._children, found, strict=True)])
    mu, mu_min = max(float(lows.mean()), 0.0), max(float(lows.min()), 0.0)
    bound = {"L": "mean of L_i", "L_pm": "L_plus"}
    return Smoothness(float(L_i.mean()), L_i, float((L_i**2).mean() ** 0.5), mu, mu_min, bound)


def _low(problem: FiniteSum, c: Smoothness) -> float:
    """A lower bound of the second derivatives of a problem with these constants, which may be negative."""
    if c.mu > 0.0:
        return c.mu
    return _dent(problem) - DENTS.get(problem.kind, 0.0) * (c.L - _shift(problem))


def _is_convex(problem: FiniteSum, constants: Callable[[], Smoothness], of: str) -> bool:
    """Whether all f_i, or f, are known to be convex, or nothing is known of them, as of functions."""
    parts = problem._children if problem.kind == "clients" else [problem]
    bent = [part for part in parts if part.kind in CURVATURE and (part.kind in DENTS or _dent(part) < 0.0)]
    if not bent:
        return True
    c = constants()
    if (c.mu if of == "f" else c.mu_min) > 0.0:
        return True
    if problem.kind == "clients":
        least = min(_low(part, smoothness(part)) for part in bent)
    else:
        least = _dent(problem) - DENTS.get(problem.kind, 0.0) * ((c.L if of == "f" else c.L_max) - _shift(problem))
    return least >= -1e-12 * c.L_max


def check_convex(method: str, problem: FiniteSum, constants: Callable[[], Smoothness], of: str = "f_i") -> None:
    """Raises ValueError if the theorem of a method needs convex f_i, or f, and those of the problem may not be."""
    if not _is_convex(problem, constants, of):
        raise ValueError(
            f"the theory of {method} does not cover this problem: it needs convex {of}, and the robust loss and "
            "nonconvex > 0 are convex only with enough l2; give a number as step, or use a method whose theorem needs "
            "no convexity: GD, PAGE, MARINA, EF21, DASHA or their variants, Rennala, Ringmaster, MindFlayer"
        )


def _of_clients(
    problem: FiniteSum,
    parts: list[NDArray[np.int64]],
    curvature: float,
    squares: Matrix,
    is_small: bool,
) -> Smoothness:
    import numpy as np

    shift, dent, bend = _shift(problem), _dent(problem), DENTS.get(problem.kind, 0.0)
    rows = problem.features() if is_small else None
    d = problem.d // (problem.classes or 1)
    tops = np.array([float(squares[part].mean()) for part in parts])
    top, name = float(tops.mean()), "trace"
    lows, low = np.zeros(len(parts)), 0.0
    pm, pm_name = curvature * float((tops**2).mean() ** 0.5), "L_plus without regularisers"
    if rows is not None:
        tops = np.array([_norm_squared(rows[part]) / len(part) for part in parts])
        weights = np.empty(problem.n)
        for part in parts:
            weights[part] = 1.0 / (len(parts) * len(part))
        top, name = _norm_squared(rows * (weights**0.5)[:, None]), "eigenvalues"
        pm = curvature * float((tops**2).mean() ** 0.5)
        if problem.kind == "squares" and d <= EXACT_UP_TO:
            hessian, moment = np.zeros((d, d)), np.zeros((d, d))
            for k, part in enumerate(parts):
                own = rows[part].T @ rows[part] / len(part)
                lows[k] = _least(own, len(part))
                hessian += own / len(parts)
                moment += own @ own / len(parts)
            low = _least(hessian, problem.n)
            pm, pm_name = max(_largest(moment - hessian @ hessian), 0.0) ** 0.5, "eigenvalues"
    mu, mu_min = max(low - bend * top + dent, 0.0), max(float((lows - bend * tops).min()) + dent, 0.0)
    bound = {"L": name, "L_pm": pm_name}
    return Smoothness(curvature * top + shift, curvature * tops + shift, pm, mu, mu_min, bound)


def solve(problem: Problem, clients: Clients = None, *, tolerance: float = 1e-13) -> Matrix:
    """The minimiser of a strongly convex problem of linear terms, by Newton's method, to a gradient of `tolerance`.

    Args:
        problem: a result of `least_squares` or `logistic_regression`, with l2 > 0 or enough samples, without the
            non-convex term; or a list of `Client` objects with such problems, of one kind and regulariser.
        clients: the samples of each client, or their number, if f is the mean over clients.
        tolerance: the largest norm of the gradient at the solution.

    Costs O(n d^2) per step and a dense copy of the features.

    Raises:
        ValueError: another kind of problem, a gradient that stays above the tolerance or becomes small only far away
            (without l2, separable data have no minimiser), or clients that do not contain each sample once.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.solve(bt.opt.least_squares([[2.0], [1.0]], [4.0, 2.0]))
        array([2.])
    """
    import numpy as np

    tolerance = not_negative(tolerance, "tolerance")
    parts: list[NDArray[np.int64]] = []
    if clients is not None or not isinstance(problem, _core.FiniteSum):
        problem, parts = divided(problem, clients)
    if problem.kind not in ("logistic", "squares") or problem.nonconvex:
        raise ValueError("only convex problems of least_squares and logistic_regression can be solved; pass x_star")
    rows = problem.features()
    assert rows is not None
    weights = np.full(problem.n, 1.0 / problem.n)
    for part in parts:
        weights[part] = 1.0 / (len(parts) * len(part))
    everything = np.arange(problem.n)
    x = np.zeros(problem.d)
    g = problem.grad(x, everything, weights=weights)
    for _ in range(100):
        slopes = weights
        if problem.kind == "logistic":
            z = np.clip(np.abs(rows @ x), 0.0, 700.0)
            slopes = weights * np.exp(-z) / (1.0 + np.exp(-z)) ** 2
        hessian = (rows * slopes[:, None]).T @ rows + problem.l2 * np.eye(problem.d)
        way, size = np.linalg.lstsq(hessian, g, rcond=None)[0], 1.0
        if np.linalg.norm(g) <= tolerance:
            # Near a minimiser Newton's step is short; if there is none, each step is as long as the one before it.
            if np.linalg.norm(way) > 1e-3 * (1.0 + np.linalg.norm(x)):
                raise ValueError(
                    "no minimiser was found, only a small gradient far away: add l2, as data may be separable"
                )
            return x
        value = problem.loss(x, everything, weights=weights)
        while size > 1e-10 and problem.loss(x - size * way, everything, weights=weights) > value + 1e-12 * abs(value):
            size /= 2
        x = x - size * way
        g = problem.grad(x, everything, weights=weights)
    raise ValueError(f"the gradient stays at {np.linalg.norm(g):.1e}, above {tolerance:.1e}: add l2 or raise tolerance")
