"""The virtual clock: times of workers and clients, by seeded distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from burtorch.opt._arguments import not_negative, number, numbers, of_kind, positive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


MOST_LOST = 0.99
"""The largest probability that the work of a client is lost."""


class Delays:
    """The times of workers' jobs on a virtual clock.

    Args:
        seconds: the seconds of each worker's job.
        distribution: of a factor: "fixed", 1; "exponential", with mean 1; "log_normal", exp(constant z) with z
            standard normal; "pareto", at least 1 with the exponent constant.
        constant: the constant of the distribution.

    A job's time is a function of (seed, job, worker). Raises ValueError for no numbers, or numbers that are not
    positive.

    Example:
        >>> import burtorch as bt
        >>> delays = bt.opt.Delays([1.0, 3.0], "exponential")
        >>> delays.n, [round(p, 6) for p in delays.probability([1.0, 3.0])]
        (2, [0.632121, 0.632121])
    """

    def __init__(self, seconds: ArrayLike, distribution: str = "fixed", constant: float = 1.0) -> None:
        self.seconds: NDArray[np.float64] = np.atleast_1d(numbers(seconds, "the seconds of workers"))
        if not self.seconds.size:
            raise ValueError("delays need the seconds of at least one worker, found none")
        if not (np.isfinite(self.seconds).all() and (self.seconds > 0.0).all() and self.seconds.ndim == 1):
            raise ValueError("the seconds of workers must be finite and above 0")
        if distribution not in ("fixed", "exponential", "log_normal", "pareto"):
            raise ValueError(
                f'a distribution of delays is "fixed", "exponential", "log_normal" or "pareto", found {distribution!r}'
            )
        self.distribution, self.constant = distribution, positive(constant, "the constant of a distribution")

    @property
    def n(self) -> int:
        """The number of workers."""
        return len(self.seconds)

    @property
    def _given(self) -> tuple[NDArray[np.float64], str, float]:
        return self.seconds, self.distribution, self.constant

    def probability(self, limits: ArrayLike) -> list[float]:
        """The probability that a job of each worker takes at most its limit."""
        ratios = (np.broadcast_to(np.asarray(limits, float), self.seconds.shape) / self.seconds).tolist()
        return [self._below(ratio) for ratio in ratios]

    def _below(self, ratio: float) -> float:
        if ratio <= 0.0:
            return 0.0
        if self.distribution == "fixed":
            return float(ratio >= 1.0)
        if self.distribution == "exponential":
            return -math.expm1(-ratio)
        if self.distribution == "pareto":
            return 0.0 if ratio <= 1.0 else 1.0 - ratio**-self.constant
        return 0.5 * math.erfc(-math.log(ratio) / (self.constant * math.sqrt(2.0)))

    def __repr__(self) -> str:
        return f"Delays({self.n} workers, {self.distribution!r}, {self.constant})"


class Network:
    """The time of a round of clients: the longest time of the participants.

    Args:
        compute: the `Delays` of an oracle call of each client.
        latency: seconds of a message, one way.
        bandwidth: bits per second, from and to a client; by default infinite.
        dropout: the probability, at most 0.99, that a client's work in a round is lost. It is repeated, which takes
            time and changes no iterate.

    Methods with clients take it as `network=`; `Record.time` adds up its rounds. Raises ValueError for a negative or
    infinite latency, a bandwidth of 0 or less, or an invalid dropout.

    Example:
        >>> import burtorch as bt
        >>> network = bt.opt.Network(bt.opt.Delays([1.0, 2.0]), latency=0.5, bandwidth=128.0)
        >>> f = bt.opt.least_squares([[1.0], [2.0]], [1.0, 2.0])
        >>> method = bt.opt.DCGD(f, clients=2, compressor=bt.compress.Identity(), network=network)
        >>> method.run(3)[-1].time  # each round: 2 s of the slower client, 1 s of latency, 1 s for 128 bits
        12.0
    """

    def __init__(
        self, compute: Delays, latency: float = 0.0, bandwidth: float = math.inf, dropout: float = 0.0
    ) -> None:
        of_kind(compute, Delays, "compute", "bt.opt.Delays([1.0, 2.0])")
        self.compute, self.latency = compute, not_negative(latency, "latency")
        self.bandwidth, self.dropout = number(bandwidth, "bandwidth"), number(dropout, "dropout")
        if not self.bandwidth > 0.0:
            raise ValueError(f"bandwidth must be above 0, found {bandwidth}")
        if not 0.0 <= self.dropout <= MOST_LOST:
            raise ValueError(f"dropout must be at least 0 and at most {MOST_LOST}, found {dropout}")

    @property
    def _given(self) -> tuple[Any, float, float, float]:
        return self.compute._given, self.latency, self.bandwidth, self.dropout

    def __repr__(self) -> str:
        rest = f"latency={self.latency}, bandwidth={self.bandwidth}, dropout={self.dropout}"
        return f"Network({self.compute!r}, {rest})"
