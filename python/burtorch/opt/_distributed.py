"""Methods with compressed messages of clients: DCGD, DIANA, MARINA, EF21."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, ClassVar, Required, Unpack

import numpy as np

from burtorch import _core
from burtorch.opt._arguments import probability
from burtorch.opt._base import Method, squared
from burtorch.opt._clients import divided
from burtorch.opt._engines import agree, engine_of
from burtorch.opt._methods import page_step, pl_rate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from burtorch._core import Compressor
    from burtorch.opt._base import Plain, Vector
    from burtorch.opt._clients import Clients, Problem
    from burtorch.opt._clock import Network
    from burtorch.opt._engines import Engine
    from burtorch.opt._record import Record
    from burtorch.opt._smoothness import Smoothness

    class Sent(Plain, total=False):
        """Keywords of every method with clients, for type checkers."""

        start: str
        network: Network | None
        client_dtype: str
        engine: str | Engine

    class Shared(Sent, total=False):
        """Those of methods that do not name the constants."""

        constants: Smoothness | None

    class Divided(Shared, total=False):
        """Those of methods that do not name the clients either."""

        clients: Clients

    class Compressed(Divided, total=False):
        """Those of methods that do not name the compressor either."""

        compressor: Required[Compressor]


UNTOLD = {"threads", "constants", "x_star", "f_star", "lyapunov", "network"}
"""Arguments that may differ between processes, or that are long arrays."""


def _is_perm_k(compressor: Compressor) -> bool:
    return type(compressor).__name__ == "PermK"


def covered(method: str, name: str, found: float, most: float) -> None:
    """Raises ValueError if a factor exceeds that of the method's theorem by more than rounding."""
    if found > most * (1.0 + 1e-12):
        raise ValueError(
            f"the theory of {method} does not cover {name} above {most:g}, found {found:g}; give a number as step"
        )


class Distributed(Method):
    """A method with clients, each with its own samples: the base of all of them.

    f is the mean over clients of the means of their samples, and constants are those of these means.

    Args of every such method, besides those of `Method`:
        problem: a FiniteSum, or a list of `Client` objects.
        clients: the samples of each client, such as a split of the data, each sample once; or a number of clients with
            consecutive samples; by default one client per sample.
        compressor: of `burtorch.compress`, for compressing methods.
        start: the initial shifts of the clients, "gradient" or "zero". MARINA and its variants start at the gradient.
        network: a `Network`, for the virtual time of the records.
        client_dtype: "float32" halves the memory of the clients' vectors, for `EF21`, `EF21PP` and `EF21SGDM`
            with a compressor that sends exact numbers (Identity, TopK, TopLEK), and for `Scaffold`. Clients then
            send the change of their rounded vectors, so the server's mean stays that of the clients. Rounding leaves a
            gradient of some 1e-8 of those of the clients.
        engine: "local", "mpi", or an engine such as `burtorch.mpi.Engine`: the processes of the clients. It
            changes no bit of an iterate. Every process receives the whole problem, and all call the same methods.
    """

    _has_clients = True
    _why_float64: ClassVar[str | None] = "keeps no vectors of clients: client_dtype saves nothing"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        clients: Clients = None,
        start: str = "gradient",
        network: Network | None = None,
        client_dtype: str = "float64",
        engine: str | Engine = "local",
        **more: Any,
    ) -> None:
        if network is not None:
            more["network"] = network._given
        if start not in ("gradient", "zero"):
            raise ValueError(f'start must be "gradient" or "zero", found {start!r}')
        self.from_gradient = start == "gradient"
        if client_dtype not in ("float64", "float32"):
            raise ValueError(f'client_dtype must be "float64" or "float32", found {client_dtype!r}')
        if client_dtype == "float32":
            if self._why_float64 is not None:
                raise ValueError(f"{type(self).__name__} {self._why_float64}")
            more["is_single"] = True
        problem, parts = divided(problem, clients)
        self.n_clients = len(parts)
        self.engine = engine_of(engine)
        if self.engine is not None:
            told = [(name, more[name]) for name in sorted(more.keys() - UNTOLD) if not callable(more[name])]
            sizes = problem.n, problem.d, [zlib.crc32(np.asarray(part).tobytes()) for part in parts]
            agree(self.engine, (type(self).__name__, start, sizes, told))
            more |= {"here": self.engine.here(len(parts)), "gather": self.engine.gather}
        super().__init__(problem, x0, clients=parts, from_gradient=self.from_gradient, **more)
        if self.engine is not None:
            agree(self.engine, (self._gamma, self.x.tobytes()))

    def _state(self) -> dict[str, Any]:
        arrays = super()._state()
        if self.engine is not None:
            # Arrays whose names end in _i have one row per client.
            rows = {name: part for name, part in arrays.items() if name.endswith("_i")}
            arrays |= {name: self.engine.rows(part).astype(part.dtype) for name, part in rows.items()}
        return arrays

    def _load(self, arrays: dict[str, Any], round: int, cost: Any) -> None:
        if self.engine is not None:
            n, (start, end) = self.n_clients, self.engine.here(self.n_clients)
            for name in [name for name in arrays if name.endswith("_i")]:
                rows = np.asarray(arrays[name])
                if rows.size != n * self.problem.d:
                    expected = f"{n * self.problem.d} of {n} clients"
                    raise ValueError(f"the state {name!r} has {rows.size} numbers, expected {expected}")
                arrays = {**arrays, name: rows.reshape(n, -1)[start:end].ravel()}
        super()._load(arrays, round, cost)

    def step(self, *, stop: _core.Stop | None = None, deadline: float | None = None, **more: Any) -> Record:
        if self.engine is not None and (stop is not None or deadline is not None):
            raise ValueError("processes would not end at the same step: step without stop and deadline")
        return super().step(stop=stop, deadline=deadline, **more)

    step.__doc__ = Method.step.__doc__

    def run(
        self, steps: int | None = None, *, seconds: float | None = None, stop: _core.Stop | None = None, **more: Any
    ) -> list[Record]:
        if self.engine is not None and (seconds is not None or stop is not None):
            raise ValueError(
                "processes would not end at the same step: give steps, epochs or bits instead of seconds and stop"
            )
        return super().run(steps, seconds=seconds, stop=stop, **more)

    run.__doc__ = Method.run.__doc__


class _Compressed(Distributed):
    """A method with a compressor."""

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        compressor: Compressor,
        clients: Clients = None,
        **more: Any,
    ) -> None:
        self.compressor = compressor
        problem, parts = divided(problem, clients)
        self.density = compressor.density(problem.d, len(parts))
        super().__init__(problem, x0, clients=parts, compressor=compressor, **more)

    def _omega(self) -> float:
        """The omega of messages that clients draw independently."""
        if _is_perm_k(self.compressor):
            raise ValueError(
                f"the theory of {type(self).__name__} needs independent compressors; give a number as step"
            )
        return self.compressor.omega(self.problem.d, self.n_clients)

    def _spread_at_solution(self) -> float:
        """mean |grad f_i(x*)|^2."""
        if self.x_star is None:
            raise ValueError("the noise at x* needs x_star")
        return squared(self._at_solution()) / self.n_clients


class DCGD(_Compressed):
    """DCGD: clients send C(grad f_i(x)); x+ = prox(x - step mean of the messages).

    Theorem (Khirirat, Feyzmahdavian and Johansson 2018; in this form Gorbunov, Hanzely and Richtarik 2020, convex f_i,
    unbiased C): for step <= 1/(L + 2 omega L_max/n), E |x+ - x*|^2 <= (1 - step mu) |x - x*|^2 + 2 step^2 (omega/n)
    mean |grad f_i(x*)|^2.
    Memory: none of clients. Arguments: see `Distributed`.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.DCGD(f, clients=2, compressor=bt.compress.RandK(1))
        >>> records = method.run(400)
        >>> method.x.round(9), records[-1].bits_up
        (array([1., 1.]), 51200.0)
    """

    _name = "dcgd"

    def noise(self) -> float:
        """(omega/n) mean |grad f_i(x*)|^2. Needs x_star."""
        return self._omega() / self.n_clients * self._spread_at_solution()

    def theory_step(self) -> float:
        """1/(L + 2 omega L_max/n)."""
        c = self._if_convex()
        return 1.0 / (c.L + 2.0 * self._omega() * c.L_max / self.n_clients)


class DIANA(_Compressed):
    """DIANA: clients send m_i = C(grad f_i(x) - h_i); x+ = prox(x - step (h + mean m_i)); h_i += alpha m_i, h = mean
    h_i.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        alpha: by default 1/(1 + omega); the theorem covers no larger one.
        others: see `Distributed`.

    Theorem (Mishchenko, Gorbunov, Takac and Richtarik 2019; Horvath et al. 2019; convex f_i, unbiased C): for alpha <=
    1/(1 + omega), step = 1/(L + 6 omega L_max/n) and Phi = |x - x*|^2 + (4 omega/(alpha n)) step^2 mean |h_i - grad
    f_i(x*)|^2, E Phi+ <= max(1 - step mu, 1 - alpha/2) Phi. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.DIANA(f, clients=2, compressor=bt.compress.RandK(1))
        >>> records = method.run(3000)
        >>> method.x.round(9)
        array([-1.5,  2.5])
    """

    _name = "diana"
    _why_float64 = "keeps h_i in float64: the mean of rounded ones would not be the server's h"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        compressor: Compressor,
        clients: Clients = None,
        alpha: float | None = None,
        **more: Unpack[Shared],
    ) -> None:
        problem, parts = divided(problem, clients)
        self.alpha = (
            1.0 / (1.0 + compressor.omega(problem.d, len(parts))) if alpha is None else probability(alpha, "alpha")
        )
        super().__init__(problem, x0, compressor=compressor, clients=parts, alpha=self.alpha, **more)

    def theory_step(self) -> float:
        """1/(L + 6 omega L_max/n)."""
        c = self._covered()
        return 1.0 / (c.L + 6.0 * self._omega() * c.L_max / self.n_clients)

    def _covered(self) -> Smoothness:
        covered("DIANA", "alpha", self.alpha, 1.0 / (1.0 + self._omega()))
        return self._if_convex()

    def rate(self) -> float:
        """The proven factor of Phi per step. Raises ValueError for an alpha that the theorem does not cover."""
        return max(1.0 - self.gamma * self._covered().mu, 1.0 - self.alpha / 2.0)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        shifts = self._state()["h_i"].reshape(self.n_clients, -1)
        spread = squared(shifts - self._at_solution()) / self.n_clients
        weight = 4.0 * self._omega() / (self.alpha * self.n_clients)
        return squared(self.x - self.x_star) + weight * self.gamma**2 * spread


class MARINA(_Compressed):
    """MARINA: x+ = prox(x - step g); with probability p g+ = grad f(x+), otherwise g+ = g + mean C(grad f_i(x+) - grad
    f_i(x)).

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        p: by default the expected share of numbers that C sends.
        pl: whether "theory" takes the step of the Polyak-Lojasiewicz case, with mu of the problem.
        others: see `Distributed`; there are no shifts.

    Theorem (Gorbunov, Burlachenko, Li and Richtarik 2021; unbiased C): with K = (1 - p) omega/(p n), step = 1/(L +
    sqrt(K) L_plus) and Phi = f(x) - f* + step/(2p) |g - grad f(x)|^2, E Phi+ <= Phi - (step/2) |grad f(x)|^2; f need
    not be convex. With a proximal term E Phi+ <= Phi, as for `PAGE`. With PermK (Szlendak, Tyurin and Richtarik 2021) K
    = (1 - p)/p and L_pm replaces L_plus. With pl, step = min(1/(L + sqrt(2K) L_plus), p/(2 mu)), the weight is step/p,
    and E Phi+ <= (1 - step mu) Phi, without a proximal term. Memory: none of clients.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.MARINA(f, clients=2, compressor=bt.compress.PermK())
        >>> records = method.run(1000)
        >>> method.x.round(9)
        array([-1.5,  2.5])
    """

    _name = "marina"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        compressor: Compressor,
        clients: Clients = None,
        p: float | None = None,
        pl: bool = False,
        start: str = "gradient",
        **more: Any,
    ) -> None:
        if start != "gradient":
            raise ValueError(f'{type(self).__name__} starts at the gradient: start must be "gradient", found {start!r}')
        problem, parts = divided(problem, clients)
        self.p = compressor.density(problem.d, len(parts)) if p is None else probability(p)
        self.pl = pl
        super().__init__(problem, x0, compressor=compressor, clients=parts, p=self.p, **more)

    def _spread(self) -> tuple[float, float]:
        """The factor of (1 - p)/p in K, and the constant in place of L_plus."""
        if _is_perm_k(self.compressor):
            return 1.0, self.constants.L_pm
        return self._omega() / self.n_clients, self.constants.L_plus

    def theory_step(self) -> float:
        """1/(L + sqrt(K) L_plus), or with `pl` min(1/(L + sqrt(2K) L_plus), p/(2 mu))."""
        c, (share, spread) = self.constants, self._spread()
        K = (1.0 - self.p) / self.p * share
        if not self.pl:
            return page_step(c.L, spread, K)
        self._without_prox(f"{type(self).__name__} with pl")
        return min(page_step(c.L, spread, 2.0 * K), self.p / (2.0 * c.mu) if c.mu else math.inf)

    def rate(self) -> float:
        """The proven factor of Phi per step, with `pl` and steps of at most those of "theory"."""
        return pl_rate(self)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        error = squared(self._state()["g"] - self._gradients(self.x).mean(axis=0))
        return loss - self.f_star + self.gamma / (self.p if self.pl else 2.0 * self.p) * error


def theta_beta_of(alpha: float) -> tuple[float, float]:
    """theta and beta of EF21 for a compressor of this alpha."""
    s = math.sqrt(1.0 - alpha)
    return 1.0 - s, (1.0 - alpha) / (1.0 - s)


class EF21(_Compressed):
    """EF21: x+ = prox(x - step g); clients send m_i = C(grad f_i(x+) - g_i); g_i += m_i, g = mean g_i.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        pl: whether "theory" takes the step of the Polyak-Lojasiewicz case, with mu of the problem.
        others: see `Distributed`.

    Theorem (Richtarik, Sokolov and Fatkhullin 2021; with L_AM, the mean of L_i, Richtarik, Gasanov and Burlachenko
    2024; contractive C): with s = sqrt(1 - alpha), theta = 1 - s, beta = (1 - alpha)/(1 - s), step = 1/(L + L_AM
    sqrt(beta/theta)), G = mean (L_AM/L_i) |g_i - grad f_i(x)|^2 and Phi = f(x) - f* + step/(2 theta) G, E Phi+ <= Phi -
    (step/2) |grad f(x)|^2; f need not be convex. With a proximal term E Phi+ <= Phi, as for `PAGE`. For TopK this holds
    in every step, without the expectation. With pl, step = min(1/(L + L_AM sqrt(2 beta/theta)), theta/(2 mu)), the
    weight is step/theta, and E Phi+ <= (1 - step mu) Phi, without a proximal term. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.EF21(f, clients=2, compressor=bt.compress.TopK(1))
        >>> records = method.run(3000)
        >>> method.x.round(9)
        array([-1.5,  2.5])
    """

    _name = "ef21"
    _why_float64 = None

    def __init__(self, problem: Problem, x0: ArrayLike | None = None, *, pl: bool = False, **more: Any) -> None:
        self.pl = pl
        super().__init__(problem, x0, **more)

    def theta_beta(self) -> tuple[float, float]:
        """theta and beta of the theorem."""
        return theta_beta_of(self.compressor.alpha(self.problem.d, self.n_clients))

    def theory_step(self) -> float:
        """1/(L + L_AM sqrt(beta/theta)), or with `pl` min(1/(L + L_AM sqrt(2 beta/theta)), theta/(2 mu))."""
        c, (theta, beta) = self.constants, self.theta_beta()
        if not self.pl:
            return 1.0 / (c.L + c.L_AM * math.sqrt(beta / theta))
        self._without_prox(f"{type(self).__name__} with pl")
        return min(1.0 / (c.L + c.L_AM * math.sqrt(2.0 * beta / theta)), theta / (2.0 * c.mu) if c.mu else math.inf)

    def rate(self) -> float:
        """The proven factor of Phi per step, with `pl` and steps of at most those of "theory"."""
        return pl_rate(self)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        c, theta = self.constants, self.theta_beta()[0]
        errors = self._state()["g_i"].reshape(self.n_clients, -1) - self._gradients(self.x)
        spread = float((c.L_AM / c.L_i * (errors**2).sum(axis=1)).mean())
        return loss - self.f_star + self.gamma / (theta if self.pl else 2.0 * theta) * spread
