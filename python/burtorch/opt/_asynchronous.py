"""Asynchronous workers on a virtual clock: Rennala, Ringmaster, MindFlayer, FedBuff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from burtorch.opt._arguments import numbers, positive, whole
from burtorch.opt._base import Method
from burtorch.opt._clients import divided
from burtorch.opt._clock import Delays
from burtorch.opt._rules import Full, Nice, Sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from burtorch._core import FiniteSum
    from burtorch.opt._base import Options, Sampled
    from burtorch.opt._clients import Clients, Problem


class _Asynchronous(Method):
    """Workers draw batches from all samples. `Record.time` is the virtual clock."""

    def __init__(
        self,
        problem: FiniteSum,
        x0: ArrayLike | None = None,
        *,
        delays: Delays,
        sampling: Sampling | None = None,
        **more: Any,
    ) -> None:
        self.delays = delays
        sampling = Nice(1) if sampling is None else sampling
        super().__init__(problem, x0, delays=delays._given, sampling=sampling, **more)


class Rennala(_Asynchronous):
    """Rennala SGD: x+ = prox(x - step mean of the first `gathered` gradients that workers compute at x). Gradients of
    older points are discarded, and their workers restart at x+.

    Args:
        problem: a FiniteSum.
        delays: those of the workers.
        gathered: gradients per step.
        sampling: the batch of a gradient; by default `Nice(1)`.
        others: see `Method`.

    Theorem (Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization methods"): steps
    are those of SGD with `gathered` batches, so "theory" is 1/(2 L), f may be non-convex, and the time to a gradient of
    norm eps is optimal for gathered = max(1, sigma^2/eps^2). It covers no proximal term. Memory: a few numbers per
    worker.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.Rennala(f, delays=bt.opt.Delays([1.0, 2.0, 100.0]), gathered=3)
        >>> records = method.run(2)
        >>> records[-1].time, records[-1].oracle_calls
        (5.0, 6)
    """

    _name = "rennala"

    def __init__(
        self, problem: FiniteSum, x0: ArrayLike | None = None, *, delays: Delays, gathered: int, **more: Unpack[Sampled]
    ) -> None:
        self.gathered = whole(gathered, "gathered")
        super().__init__(problem, x0, delays=delays, gathered=gathered, **more)

    def theory_step(self) -> float:
        """1/(2 L)."""
        self._without_prox("Rennala")
        return 0.5 / self.constants.L


class Ringmaster(_Asynchronous):
    """Ringmaster ASGD: every arriving gradient is a step, x+ = prox(x - step g); a job whose point is `max_delay`
    steps old is stopped, and its worker restarts at the new point.

    Args:
        problem: a FiniteSum.
        delays: those of the workers.
        max_delay: at least 1; with 1 it is SGD of the fastest worker.
        sampling: the batch of a gradient; by default `Nice(1)`.
        others: see `Method`.

    Theorem (Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD", Theorem 4.1): for step = min(1/(2 R L), eps/(4 L
    sigma^2)) with R = max_delay, which is optimal at max(1, sigma^2/eps), the mean of E |grad f|^2 falls below eps;
    "theory" is the first of the two. f may be non-convex. It covers no proximal term. Memory: d per worker.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.Ringmaster(f, delays=bt.opt.Delays([1.0, 2.0, 100.0]), max_delay=4)
        >>> records = method.run(600)
        >>> method.x.round(6), records[-1].time
        (array([1., 1.]), 400.0)
    """

    _name = "ringmaster"

    def __init__(
        self,
        problem: FiniteSum,
        x0: ArrayLike | None = None,
        *,
        delays: Delays,
        max_delay: int,
        **more: Unpack[Sampled],
    ) -> None:
        self.max_delay = whole(max_delay, "max_delay")
        super().__init__(problem, x0, delays=delays, max_delay=max_delay, **more)

    def theory_step(self) -> float:
        """1/(2 max_delay L)."""
        self._without_prox("Ringmaster")
        return 0.5 / (self.max_delay * self.constants.L)


def _per_worker(given: NDArray[Any], n: int, name: str) -> NDArray[Any]:
    """One number for each of n workers, copied."""
    if given.shape not in ((), (1,), (n,)):
        raise ValueError(f"{name} must be one number or {n}, one for each worker of delays, found {given.shape}")
    return np.broadcast_to(given, (n,)).copy()


class MindFlayer(_Asynchronous):
    """MindFlayer SGD: in each step worker i makes `trials[i]` trials of a job, each stopped after `limits[i]` seconds;
    x+ = prox(x - step g) with g the sum of the gradients that arrive in time, divided by their expected number,
    B = sum p_i trials[i].

    Args:
        problem: a FiniteSum.
        delays: those of the workers.
        trials: one number per worker, or one for all.
        limits: seconds per worker, or one number for all; may be infinite.
        sampling: the batch of a gradient; by default `Nice(1)`.
        others: see `Method`.

    Theorem (Maranjyan, Shaikh Omar and Richtarik 2024, "MindFlayer SGD"): g is an unbiased estimate of grad f(x). The
    number N of gradients in time has the variance Var N = sum p_i (1 - p_i) trials[i]. Without the noise of batches
    E |g|^2 = (1 + V) |grad f(x)|^2 for V = Var N/B^2, so E f(x+) <= f(x) - (step/2) |grad f(x)|^2 for steps of at most
    1/(L (1 + V)); f may be non-convex. "theory" is the paper's 1/(2 L) if V <= 1, which B >= 1 implies, and otherwise
    1/(L (1 + V)); an accuracy below the noise of batches needs smaller steps. It covers no proximal term. Memory: d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> delays = bt.opt.Delays([1.0, 2.0], "pareto", 1.0)
        >>> method = bt.opt.MindFlayer(f, delays=delays, trials=4, limits=4.0)
        >>> records = method.run(1000)
        >>> method.expected, method.x.round(3), records[-1].time <= 16_000.0
        (5.0, array([1., 1.]), True)
    """

    _name = "mind_flayer"

    def __init__(
        self,
        problem: FiniteSum,
        x0: ArrayLike | None = None,
        *,
        delays: Delays,
        trials: int | Sequence[int],
        limits: ArrayLike,
        **more: Unpack[Sampled],
    ) -> None:
        counts = np.asarray(trials)
        if not (np.issubdtype(counts.dtype, np.integer) and (counts >= 0).all()):
            raise ValueError("trials must be integers of at least 0")
        self.trials = counts = _per_worker(counts, delays.n, "trials")
        self.limits = _per_worker(numbers(limits, "limits"), delays.n, "limits")
        ends = np.asarray(delays.probability(self.limits))
        self.expected = float(counts @ ends)
        self._variance = float(counts @ (ends * (1.0 - ends)))
        if not self.expected > 0.0:
            raise ValueError("no trial can end within its limit: raise limits or trials")
        super().__init__(problem, x0, delays=delays, trials=counts, limits=self.limits, expected=self.expected, **more)

    def theory_step(self) -> float:
        """1/(2 L), or 1/(L (1 + Var N/B^2)) if this is less."""
        self._without_prox("MindFlayer")
        return 1.0 / (max(2.0, 1.0 + self._variance / self.expected**2) * self.constants.L)


class FedBuff(Method):
    """FedBuff: asynchronous clients start at x, take `local_steps` steps on their own samples, send the difference, and
    start again; after every `buffer` differences x+ = x + server_step times their mean, however old the clients'
    starting points are.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        clients: the samples of each client, as for `Distributed`.
        delays: those of a client's job, which is all of its local steps.
        buffer: differences per step.
        local_steps: steps of a client in a job.
        server_step: the factor of the mean difference.
        sampling: the batch of a local step; by default `Full`.
        others: see `Method`; there is no proximal term.

    Nguyen et al. 2022, "Federated learning with buffered asynchronous aggregation". Fast clients count more,
    so if clients differ the fixed point is not x*; no theorem is claimed, and `step` is a number or a function of
    the round. Memory: d per client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.FedBuff(f, clients=2, delays=bt.opt.Delays([1.0, 3.0]), buffer=2, local_steps=2, step=0.1)
        >>> records = method.run(200)
        >>> method.x.round(6), records[-1].time, records[-1].oracle_calls
        (array([1., 1.]), 300.0, 800)
    """

    _name = "fed_buff"
    _has_clients = True

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        clients: Clients = None,
        delays: Delays,
        buffer: int,
        local_steps: int = 1,
        server_step: float = 1.0,
        sampling: Sampling | None = None,
        **more: Unpack[Options],
    ) -> None:
        problem, parts = divided(problem, clients)
        self.delays, self.buffer = delays, whole(buffer, "buffer")
        self.local_steps, self.server_step = whole(local_steps, "local_steps"), positive(server_step, "server_step")
        self.n_clients = len(parts)
        self.local_sampling = Full() if sampling is None else sampling
        super().__init__(
            problem,
            x0,
            clients=parts,
            delays=delays._given,
            buffer=buffer,
            local_steps=local_steps,
            server_step=server_step,
            local_sampling=self.local_sampling.rule,
            **more,
        )

    def theory_step(self) -> float:
        """Raises ValueError: no theorem is claimed."""
        raise ValueError("no theorem is claimed for FedBuff; give a number as step")
