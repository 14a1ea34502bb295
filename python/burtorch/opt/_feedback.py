"""Methods with error feedback: EF14, EF21-SGDM, EF21-PP, EF21-BC; and DASHA."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from burtorch.compress import TopK
from burtorch.opt._arguments import probability
from burtorch.opt._base import squared
from burtorch.opt._clients import divided
from burtorch.opt._distributed import EF21, _Compressed, covered, theta_beta_of
from burtorch.opt._methods import page_step
from burtorch.opt._rules import Full, Independent, Nice, Sampling

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from burtorch._core import Compressor
    from burtorch.opt._base import Vector
    from burtorch.opt._clients import Problem
    from burtorch.opt._distributed import Compressed, Shared


class EF14(_Compressed):
    """EF14, the original error feedback: clients send m_i = C(e_i + step grad f_i(x)) and keep e_i+ = e_i + step
    grad f_i(x) - m_i; x+ is x less the mean of m_i. There is no proximal term.

    Seide et al. 2014. The point x - mean e_i moves by exactly step grad f(x). Theorem (Stich and Karimireddy 2020, "The
    error-feedback framework", Lemmas 7 and 8, here for several clients; convex f_i, contractive C): with theta and beta
    as for `EF21`, step <= min(1/(4 L), 1/sqrt(48 (beta/theta) L L_max)) and Phi = |x - mean e_i - x*|^2 + (6 L
    step/theta) mean |e_i|^2, E Phi+ <= max(1 - step mu/2, 1 - theta/2) Phi + 12 (beta/theta) L step^3 mean |grad
    f_i(x*)|^2: to a neighbourhood of x*, with one client to x*. Memory: d for each client. Arguments: see
    `Distributed`.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.EF14(f, clients=2, compressor=bt.compress.TopK(1))
        >>> records = method.run(4000)
        >>> method.x.round(6)
        array([1., 1.])
    """

    _name = "ef14"
    _why_float64 = "keeps e_i in float64: x - mean e_i would not move by step grad f(x) if they were rounded"

    def _theta_beta(self) -> tuple[float, float]:
        return theta_beta_of(self.compressor.alpha(self.problem.d, self.n_clients))

    def theory_step(self) -> float:
        """min(1/(4 L), 1/sqrt(48 (beta/theta) L L_max))."""
        c, (theta, beta) = self._if_convex(), self._theta_beta()
        far = math.sqrt(48.0 * beta / theta * c.L * c.L_max)
        return 1.0 / max(4.0 * c.L, far)

    def rate(self) -> float:
        """The proven factor of Phi per step, up to the noise."""
        return max(1.0 - 0.5 * self.gamma * self._if_convex().mu, 1.0 - 0.5 * self._theta_beta()[0])

    def noise(self) -> float:
        """12 (beta/theta) L step^3 mean |grad f_i(x*)|^2. Needs x_star."""
        theta, beta = self._theta_beta()
        return 12.0 * beta / theta * self.constants.L * self.gamma**3 * self._spread_at_solution()

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        errors = self._state()["e_i"].reshape(self.n_clients, -1)
        weight = 6.0 * self.constants.L * self.gamma / self._theta_beta()[0]
        return squared(self.x - errors.mean(axis=0) - self.x_star) + weight * squared(errors) / self.n_clients


class EF21SGDM(_Compressed):
    """EF21-SGDM: EF21 of stochastic gradients with momentum. x+ = prox(x - step g); v_i+ = (1 - momentum) v_i +
    momentum grad of a batch of client i's samples at x+; clients send m_i = C(v_i - g_i); g_i += m_i, g = mean g_i.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        momentum: above 0 and at most 1.
        sampling: the batches of each client; by default `Nice(1)`.
        others: see `Distributed`.

    Theorem (Fatkhullin, Tyurin and Richtarik 2023, "Momentum provably improves error feedback!", Theorem 3, with the
    constants of its proof; contractive C): with theta and beta as for `EF21`, m = momentum, Q = 2 (beta/theta) (m^2 +
    (1 - m)^2) L_plus^2 + ((1 - m)/m)^2 L^2, step = 1/(L + sqrt(2 Q)) and Phi = f(x) - f* + (step/theta) mean |g_i -
    v_i|^2 + 2 step (beta m/theta) mean |v_i - grad f_i(x)|^2 + (step/m) |mean v_i - grad f(x)|^2, E Phi+ <= Phi -
    (step/2) |grad f(x)|^2 + step m^2 ((1 - alpha)/theta + 2 beta m/theta + 1/(m n)) s2, with s2 the mean variance of
    the clients' batches at x+; f need not be convex. With a proximal term the same holds without (step/2) |grad
    f(x)|^2, as for `PAGE`. With momentum = 1 and all samples it is EF21, bit for bit. Memory: 2 d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.EF21SGDM(f, clients=2, compressor=bt.compress.TopK(1), momentum=0.5)
        >>> records = method.run(10_000)
        >>> method.x.round(6)
        array([-1.5,  2.5])
    """

    _name = "ef21"
    _why_float64 = None

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        momentum: float = 0.1,
        sampling: Sampling | None = None,
        **more: Unpack[Compressed],
    ) -> None:
        self.momentum = probability(momentum, "momentum")
        self.local_sampling = Nice(1) if sampling is None else sampling
        super().__init__(problem, x0, momentum=self.momentum, local_sampling=self.local_sampling.rule, **more)

    def theory_step(self) -> float:
        """1/(L + sqrt(2 Q))."""
        c, m, (theta, beta) = self.constants, self.momentum, self._theta_beta()
        Q = 2.0 * beta / theta * (m**2 + (1.0 - m) ** 2) * c.L_plus**2 + ((1.0 - m) / m * c.L) ** 2
        return 1.0 / (c.L + math.sqrt(2.0 * Q))

    def _theta_beta(self) -> tuple[float, float]:
        return theta_beta_of(self.compressor.alpha(self.problem.d, self.n_clients))

    def noise(self) -> float:
        """The factor of s2 in the theorem."""
        m, (theta, beta) = self.momentum, self._theta_beta()
        alpha = self.compressor.alpha(self.problem.d, self.n_clients)
        return self.gamma * m**2 * ((1.0 - alpha + 2.0 * beta * m) / theta + 1.0 / (m * self.n_clients))

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        m, state, (theta, beta) = self.momentum, self._state(), self._theta_beta()
        own, sent = self._gradients(self.x), state["g_i"].reshape(self.n_clients, -1)
        # Without momentum v_i is the gradient of the last batch, which g_i estimates.
        averages = state["v_i"].reshape(self.n_clients, -1) if m < 1.0 else own
        errors = averages - own
        spread = squared(sent - averages) / theta + 2.0 * beta * m / theta * squared(errors)
        whole = squared(np.asarray(errors.mean(axis=0)))
        return loss - self.f_star + self.gamma * (spread / self.n_clients + whole / m)


class EF21PP(EF21):
    """EF21-PP: EF21 with a cohort in each round; the g_i of other clients do not change.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        cohort: the participating clients, `Nice` or `Independent`.
        pl: as for `EF21`.
        others: see `Distributed`.

    Theorem (Fatkhullin, Sokolov, Gorbunov, Li and Richtarik 2021, "EF21 with bells & whistles"): a client that takes
    part with probability q sends C or nothing, which together is a contractive compressor with q alpha in place of
    alpha, for which the theorem of EF21 holds in expectation. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.EF21PP(f, clients=2, compressor=bt.compress.TopK(1), cohort=bt.opt.Nice(1))
        >>> records = method.run(5000)
        >>> method.x.round(6), records[-1].oracle_calls == 2 + 5000
        (array([-1.5,  2.5]), True)
    """

    def __init__(self, problem: Problem, x0: ArrayLike | None = None, *, cohort: Sampling, **more: Any) -> None:
        if not isinstance(cohort, (Full, Nice, Independent)):
            raise ValueError(f"the cohort of EF21PP must be Full, Nice or Independent, found {cohort!r}")
        super().__init__(problem, x0, sampling=cohort, **more)

    def theta_beta(self) -> tuple[float, float]:
        """theta and beta of the theorem."""
        share = self.sampling.expected_size(self.n_clients) / self.n_clients
        return theta_beta_of(share * self.compressor.alpha(self.problem.d, self.n_clients))


class EF21BC(EF21):
    """EF21-BC, with compression in both directions: x+ = prox(x - step g); clients send m_i = C(grad f_i(x+) - g_i),
    g_i += m_i; the server sends b = D(mean g_i - g), and g+ = g + b.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        downlink: the contractive compressor D of the server.
        pl: as for `EF21`.
        others: see `Distributed`.

    Theorem (Fatkhullin, Sokolov, Gorbunov, Li and Richtarik 2021, "EF21 with bells & whistles", EF21-BC, with the
    constants of its proof and the best free ones): with theta and beta of C and D as for `EF21`, u =
    sqrt(beta_C/theta_C), v = k sqrt(beta_D/theta_D), k = 1 for TopK and otherwise 1 + sqrt(1 - alpha_C), step = 1/(L +
    L_AM ((1 + u)(1 + v) - 1)), G = mean (L_AM/L_i) |g_i - grad f_i(x)|^2 and Phi = f(x) - f* + step/(2 theta_C) (1 + v)
    (1 + v + v/u) G + step/(2 theta_D) (1 + u/(v (1 + u))) |g - mean g_i|^2, E Phi+ <= Phi - (step/2) |grad f(x)|^2; f
    need not be convex. With a proximal term E Phi+ <= Phi, as for `PAGE`. With pl and no proximal term, u and v are
    sqrt(2) times as large, the step is at most min(theta_C, theta_D)/(2 mu), both weights are doubled, and E Phi+ <= (1
    - step mu) Phi. With D the identity it is EF21. Memory: d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> top = bt.compress.TopK(1)
        >>> method = bt.opt.EF21BC(f, clients=2, compressor=top, downlink=top)
        >>> records = method.run(5000)
        >>> method.x.round(9), records[-1].bits_down == records[-1].bits_up + 2 * (2 * 64 - (64 + 1))
        (array([-1.5,  2.5]), True)
    """

    def __init__(
        self, problem: Problem, x0: ArrayLike | None = None, *, downlink: Compressor, clients: Any = None, **more: Any
    ) -> None:
        problem, parts = divided(problem, clients)
        self.downlink = downlink
        self._down = theta_beta_of(downlink.alpha(problem.d, 1))
        super().__init__(problem, x0, clients=parts, downlink=downlink, **more)

    def _u_v(self) -> tuple[float, float]:
        (theta, beta), (theta_down, beta_down) = self.theta_beta(), self._down
        alpha = self.compressor.alpha(self.problem.d, self.n_clients)
        k = 1.0 if isinstance(self.compressor, TopK) else 1.0 + math.sqrt(1.0 - alpha)
        twice = 2.0 if self.pl else 1.0
        return math.sqrt(twice * beta / theta), k * math.sqrt(twice * beta_down / theta_down)

    def theory_step(self) -> float:
        """1/(L + L_AM ((1 + u)(1 + v) - 1)), or with `pl` at most min(theta_C, theta_D)/(2 mu)."""
        if self.pl:
            self._without_prox("EF21BC with pl")
        c, (u, v) = self.constants, self._u_v()
        step = 1.0 / (c.L + c.L_AM * ((1.0 + u) * (1.0 + v) - 1.0))
        theta = min(self.theta_beta()[0], self._down[0])
        return min(step, theta / (2.0 * c.mu)) if self.pl and c.mu else step

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        c, state, (u, v) = self.constants, self._state(), self._u_v()
        own = state["g_i"].reshape(self.n_clients, -1)
        errors = own - self._gradients(self.x)
        spread = float((c.L_AM / c.L_i * (errors**2).sum(axis=1)).mean())
        twice = 1.0 if self.pl else 2.0
        # If a compressor is exact, its error is 0 and needs no weight.
        up = (1.0 + v) * (1.0 + v + v / u) / (twice * self.theta_beta()[0]) if u else 0.0
        down = (1.0 + u / (v * (1.0 + u))) / (twice * self._down[0]) if v else 0.0
        return loss - self.f_star + self.gamma * (up * spread + down * squared(state["g"] - own.mean(axis=0)))


class DASHA(_Compressed):
    """DASHA: x+ = prox(x - step g); clients send m_i = C(grad f_i(x+) - h_i - a (g_i - h_i)), g_i += m_i, h_i = grad
    f_i(x+), g = mean g_i: as MARINA, without uncompressed rounds.

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        a: by default 1/(2 omega + 1); the theorem covers no larger one.
        others: see `Distributed`; with start="zero" the g_i start at 0, and nothing is sent before the first step.

    Theorem (Tyurin and Richtarik 2023, "DASHA", Theorem 6.1 with the constants of its proof, for any initial g_i;
    unbiased C): for a <= 1/(2 omega + 1), step = 1/(L + sqrt(2 omega (2 omega + 1/a)/n) L_plus) and Phi = f(x) - f* +
    step/(2 a) |g - grad f(x)|^2 + (step omega/n) mean |g_i - grad f_i(x)|^2, E Phi+ <= Phi - (step/2) |grad f(x)|^2; f
    need not be convex. With a proximal term E Phi+ <= Phi, as for `PAGE`. Memory: 2 d for each client.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.DASHA(f, clients=2, compressor=bt.compress.RandK(1))
        >>> records = method.run(3000)
        >>> method.x.round(9), records[-1].bits_up == 2 * 2 * 64 + 3000 * 2 * 64
        (array([-1.5,  2.5]), True)
    """

    _name = "dasha"
    _why_float64 = "keeps g_i and h_i in float64: messages of rounded ones would be biased"

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        a: float | None = None,
        compressor: Any,
        clients: Any = None,
        **more: Unpack[Shared],
    ) -> None:
        problem, parts = divided(problem, clients)
        omega = 0.0 if a is not None else compressor.omega(problem.d, len(parts))
        self.a = 1.0 / (2.0 * omega + 1.0) if a is None else probability(a, "a")
        super().__init__(problem, x0, compressor=compressor, clients=parts, alpha=self.a, **more)

    def _slack(self, omega: float) -> float:
        """1/a - (2 omega + 1)."""
        return 0.0 if self.a == 1.0 / (2.0 * omega + 1.0) else 1.0 / self.a - (2.0 * omega + 1.0)

    def theory_step(self) -> float:
        """1/(L + sqrt(2 omega (2 omega + 1/a)/n) L_plus)."""
        omega = self._omega()
        covered("DASHA", "a", self.a, 1.0 / (2.0 * omega + 1.0))
        K = 2.0 * omega * (4.0 * omega + 1.0 + self._slack(omega)) / self.n_clients
        return page_step(self.constants.L, self.constants.L_plus, K)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        omega, state = self._omega(), self._state()
        own = self._gradients(self.x)
        errors = state["g_i"].reshape(self.n_clients, -1) - own
        whole = squared(state["g"] - np.asarray(own.mean(axis=0)))
        spread = squared(errors) / self.n_clients
        weight = 0.5 * (2.0 * omega + 1.0 + self._slack(omega))
        return loss - self.f_star + self.gamma * (weight * whole + omega / self.n_clients * spread)
