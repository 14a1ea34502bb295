"""Clients and their samples: a problem per client, or a split of one problem."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from burtorch import _core
from burtorch._core import FiniteSum
from burtorch.opt._problems import from_oracle, samples_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Clients = int | Sequence[ArrayLike] | None
    Problem: TypeAlias = FiniteSum | Sequence["Client"]
    Vector = NDArray[np.float64]


class Client:
    """A client with its own problem. Methods with clients take a list of Client objects instead of a FiniteSum, and
    minimise the mean over clients of their problems.

    Args:
        problem: a FiniteSum; an `Oracle` of any model, called with `data`; or a function that maps an array x, or
            x and a row of each of `data`, to a number; burtorch differentiates it.
        data: arrays with one row per sample.
        d: the size of x, for a function.
        l2: adds l2/2 |x|^2 to an oracle or function.
        nonconvex: adds nonconvex * sum x_j^2/(1 + x_j^2) to an oracle or function.

    Problems of all clients have the same d. Iterates have the bits of the same samples in one FiniteSum with
    `clients=`.

    Raises:
        TypeError: another kind of problem, or data with a FiniteSum.
        ValueError: a function without d, data of different lengths, an Oracle that `from_oracle` refuses.

    Example:
        >>> import burtorch as bt
        >>> near, far = (bt.opt.least_squares([[1.0], [2.0]], [b, 2 * b]) for b in (1.0, 3.0))
        >>> cubic = bt.opt.Client(lambda x: (x[0] - 2.0) ** 2, d=1)
        >>> gd = bt.opt.FedAvg([bt.opt.Client(near), bt.opt.Client(far), cubic], step=0.2)
        >>> records = gd.run(100)
        >>> gd.x.round(9), cubic.problem.grad([3.0])
        (array([2.]), array([2.]))
    """

    def __init__(
        self,
        problem: FiniteSum | Any,
        *data: ArrayLike,
        d: int | None = None,
        l2: float = 0.0,
        nonconvex: float = 0.0,
    ) -> None:
        if isinstance(problem, FiniteSum):
            if data or d is not None or l2 or nonconvex:
                raise TypeError("a FiniteSum has its own data, d and regularisers: pass nothing else to Client")
            self.problem = problem
        elif isinstance(problem, _core.Oracle):
            self.problem = from_oracle(problem, *data, l2=l2, nonconvex=nonconvex)
        elif callable(problem):
            self.problem = _of_function(problem, data, d, l2, nonconvex)
        else:
            found = type(problem).__name__
            raise TypeError(f"a Client takes a FiniteSum, an Oracle or a function, found {found}")

    def __repr__(self) -> str:
        return f"Client({self.problem!r})"


def _of_function(
    function: Callable[..., Any], data: tuple[ArrayLike, ...], d: int | None, l2: float, nonconvex: float
) -> FiniteSum:
    if d is None:
        raise ValueError("a function needs d, the size of a point")
    arrays = samples_of(data)
    total = _core.vmap(function, in_axes=(None, *(0 for _ in arrays)), reduce="mean") if arrays else function
    both = _core.value_and_grad(total)

    def mean(x: Vector, samples: NDArray[np.int64]) -> tuple[float, Vector]:
        value, gradient = both(x, *(part[samples] for part in arrays))
        return float(value), np.asarray(gradient, float)

    return FiniteSum(mean, len(arrays[0]) if arrays else 1, d, l2=l2, nonconvex=nonconvex)


def divided(problem: Problem, clients: Clients = None) -> tuple[FiniteSum, list[Any]]:
    """The problem of all clients, and the samples of each: lists that hold each sample once."""
    if not isinstance(problem, FiniteSum):
        given: object = problem
        if not isinstance(given, Sequence):
            expected = "a FiniteSum, such as bt.opt.least_squares(features, targets), or a list of Client objects"
            raise TypeError(f"problem must be {expected}, found {type(problem).__name__}")
        if clients is not None:
            raise TypeError("a list of Client objects determines the clients: leave out clients=")
        wrong = next((client for client in problem if not isinstance(client, Client)), None)
        if wrong is not None:
            raise TypeError(f"a list of clients must contain Client objects, found {type(wrong).__name__}")
        problem = FiniteSum._joined([client.problem for client in problem])
    if clients is None and problem._children:
        ends = np.cumsum([child.n for child in problem._children])
        return problem, np.split(np.arange(problem.n), ends[:-1])
    try:
        n_clients = problem.n if clients is None else operator.index(cast("int", clients))
    except TypeError:
        return problem, _lists(clients, problem.n)
    if not 1 <= n_clients <= problem.n:
        raise ValueError(f"clients must be from 1 to the {problem.n} samples, found {n_clients}")
    return problem, np.array_split(np.arange(problem.n), n_clients)


def _lists(clients: Any, n: int) -> list[NDArray[np.int64]]:
    """The samples of each client as arrays; a ValueError unless each of n samples belongs to one of them."""
    if not isinstance(clients, Iterable) or isinstance(clients, str):
        raise TypeError(f"clients must be their number, or a list of the samples of each, found {clients!r}")
    expected = "clients must be lists that hold each sample once"
    parts = []
    for k, part in enumerate(clients):
        samples = np.asarray(part)
        if samples.ndim != 1:
            raise ValueError(f"{expected}, found {part!r} as client {k}")
        if not samples.size:
            raise ValueError(f"{expected}, found client {k} without samples")
        if samples.dtype.kind not in "iu":
            raise TypeError(f"samples of clients must be integers, found {samples.dtype} for client {k}")
        parts.append(samples.astype(np.int64))
    every = np.concatenate(parts) if parts else np.empty(0, np.int64)
    outside = every[(every < 0) | (every >= n)]
    if outside.size:
        raise ValueError(f"{expected}, found sample {outside[0]}, which is out of range")
    counts = np.bincount(every, minlength=n)
    if (counts != 1).any():
        wrong = int(np.argmax(counts != 1))
        found = f"sample {wrong} twice" if counts[wrong] else f"none that holds sample {wrong}"
        raise ValueError(f"{expected}, found {found}")
    return parts
