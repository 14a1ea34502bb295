"""Methods with local steps between exchanges: Scaffnew, FedAvg and SCAFFOLD."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from burtorch.opt._arguments import positive, probability, whole
from burtorch.opt._base import squared
from burtorch.opt._clients import divided
from burtorch.opt._distributed import Distributed
from burtorch.opt._rules import Full, Nice, Sampling
from burtorch.opt._smoothness import Smoothness, smoothness

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from burtorch.opt._base import Vector
    from burtorch.opt._clients import Clients, Problem
    from burtorch.opt._distributed import Divided, Sent


class Scaffnew(Distributed):
    """Scaffnew, which is ProxSkip for clients: local steps with corrections h_i, and with probability p an
    average.

    A step is a local one: y_i = x_i - step (grad f_i(x_i) - h_i). With probability p all x_i become the mean of y_i and
    h_i += (p/step)(x_i - y_i), otherwise x_i becomes y_i. `x` is the mean of x_i. There is no proximal term.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        p: by default sqrt(mu/L_max).
        others: see `Distributed`; "gradient" starts h_i at grad f_i - grad f.

    Theorem (Mishchenko, Malinovsky, Stich and Richtarik 2022; f_i mu-strongly convex): for step = 1/L_max, p =
    sqrt(mu/L_max) and Phi = sum |x_i - x*|^2 + (step^2/p^2) sum |h_i - grad f_i(x*)|^2, E Phi+ <= max(1 - step mu, 1 -
    p^2) Phi. Memory: 2 d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0], l2=0.1)
        >>> method = bt.opt.Scaffnew(f, clients=2)
        >>> records = method.run(3000)
        >>> records[-1].grad_norm < 1e-9, records[-1].rounds < 1000
        (True, True)
    """

    _name = "scaffnew"
    _why_float64 = "keeps h_i in float64: the sum of rounded ones would not stay 0"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        p: float | None = None,
        clients: Clients = None,
        constants: Smoothness | None = None,
        **more: Unpack[Sent],
    ) -> None:
        problem, parts = divided(problem, clients)
        if p is None:
            constants = smoothness(problem, parts) if constants is None else constants
            if constants.mu_min <= 0.0:
                raise ValueError(
                    "the strong convexity of the clients' functions is unknown: pass p, or add l2 to the problem"
                )
            p = math.sqrt(constants.mu_min / constants.L_max)
        self.p = probability(p)
        super().__init__(problem, x0, clients=parts, p=self.p, constants=constants, **more)

    def theory_step(self) -> float:
        """1/L_max."""
        return 1.0 / self._if_convex().L_max

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        return max(1.0 - self.gamma * self._if_convex().mu_min, 1.0 - self.p**2)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        state = self._state()
        own = squared(state["x_i"].reshape(self.n_clients, -1) - self.x_star)
        shifts = squared(state["h_i"].reshape(self.n_clients, -1) - self._at_solution())
        return own + (self.gamma / self.p) ** 2 * shifts


class FedAvg(Distributed):
    """FedAvg: clients start at x, take `local_steps` steps on their own samples, and x+ is the mean of their
    results.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        local_steps: steps of each client in a round.
        cohort: the participating clients of a round: by default `Full`, or `Nice`.
        sampling: the batches of a local step; by default `Full`.
        others: see `Distributed`; there are no shifts and no proximal term.

    McMahan et al. 2017. With one local step, all clients and full batches it is gradient descent, and "theory" is 1/L;
    otherwise, if clients differ, its fixed point is not x*, no theorem is claimed, and `step` is a number or a
    function of the round. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.FedAvg(f, clients=2, local_steps=5, step=0.1)
        >>> records = method.run(500)
        >>> records[-1].rounds, records[-1].oracle_calls, records[-1].loss < 0.05
        (500, 5000, True)
    """

    _name = "fed_avg"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        local_steps: int = 1,
        cohort: Sampling | None = None,
        sampling: Sampling | None = None,
        **more: Unpack[Divided],
    ) -> None:
        self.local_steps = whole(local_steps, "local_steps")
        self.local_sampling = Full() if sampling is None else sampling
        cohort = Full() if cohort is None else cohort
        if not isinstance(cohort, (Full, Nice)):
            raise ValueError(f"the cohort of FedAvg must be Full or Nice, found {cohort!r}")
        self._is_gd = local_steps == 1 and isinstance(cohort, Full) and isinstance(self.local_sampling, Full)
        super().__init__(
            problem, x0, sampling=cohort, local_steps=local_steps, local_sampling=self.local_sampling.rule, **more
        )

    def theory_step(self) -> float:
        """1/L if it is gradient descent."""
        if not self._is_gd:
            raise ValueError("no theorem is claimed for FedAvg with local steps or batches; give a number as step")
        return 1.0 / self.constants.L


class Scaffold(Distributed):
    """SCAFFOLD: clients of the cohort start at x and take `local_steps` steps y -= step (grad f_i(y) - c_i + c); then
    c_i+ = c_i - c + (x - y)/(local_steps step), x+ = x + server_step mean (y - x), and c is the mean of all c_i.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        local_steps: steps of each client in a round.
        server_step: the factor of the mean difference.
        cohort: the participating clients of a round: by default `Full`, or `Nice`.
        sampling: the batches of a local step; by default `Full`.
        others: see `Distributed`; "gradient" starts c_i at grad f_i. There is no proximal term.

    Theorem (Karimireddy et al. 2020, "SCAFFOLD", Theorem III and its lemmas, option II; convex f_i, mu-strongly convex
    f, full batches, server_step >= 1): with r of n clients in a round, t = local_steps server_step step <= min(1/(81
    L_max), r/(15 mu n)) and Phi = |x - x*|^2 + 9 (n/r) t^2 mean |c_i - grad f_i(x*)|^2, E Phi+ <= max(1 - t mu/2, 1 -
    r/(30 n)) Phi, however clients differ; "theory" is the largest such step. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.Scaffold(f, clients=2, local_steps=5, step=0.05)
        >>> records = method.run(600)
        >>> method.x.round(9)
        array([-1.5,  2.5])
    """

    _name = "scaffold"
    _why_float64 = None

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        local_steps: int = 1,
        server_step: float = 1.0,
        cohort: Sampling | None = None,
        sampling: Sampling | None = None,
        **more: Unpack[Divided],
    ) -> None:
        self.local_steps, self.server_step = whole(local_steps, "local_steps"), positive(server_step, "server_step")
        self.local_sampling = Full() if sampling is None else sampling
        cohort = Full() if cohort is None else cohort
        if not isinstance(cohort, (Full, Nice)):
            raise ValueError(f"the cohort of Scaffold must be Full or Nice, found {cohort!r}")
        super().__init__(
            problem,
            x0,
            sampling=cohort,
            local_steps=local_steps,
            server_step=server_step,
            local_sampling=self.local_sampling.rule,
            **more,
        )

    def theory_step(self) -> float:
        """min(1/(81 L_max), r/(15 mu n))/(local_steps server_step)."""
        c = self._if_convex()
        longest = min(1.0 / (81.0 * c.L_max), self._share() / (15.0 * c.mu) if c.mu else math.inf)
        return longest / (self.local_steps * self.server_step)

    def _share(self) -> float:
        """The share of clients that take part."""
        return self.sampling.expected_size(self.n_clients) / self.n_clients

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        t = self.local_steps * self.server_step * self.gamma
        return max(1.0 - 0.5 * t * self._if_convex().mu, 1.0 - self._share() / 30.0)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        t = self.local_steps * self.server_step * self.gamma
        shifts = self._state()["c_i"].reshape(self.n_clients, -1) - self._at_solution()
        return squared(self.x - self.x_star) + 9.0 * t**2 / self._share() * squared(shifts) / self.n_clients
