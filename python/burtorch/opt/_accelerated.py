"""Methods of one machine with momentum: accelerated gradient descent and L-Katyusha."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

from burtorch.opt._arguments import not_negative, positive, probability
from burtorch.opt._base import Method, squared
from burtorch.opt._rules import Full, Nice, Sampling
from burtorch.opt._smoothness import Smoothness, smoothness

if TYPE_CHECKING:
    from burtorch._core import FiniteSum
    from burtorch.opt._base import Plain, Vector


def at_most(mu: float, L: float) -> None:
    """Raises ValueError if mu exceeds L by more than rounding."""
    if mu > L * (1.0 + 1e-9):
        raise ValueError(f"mu must be at most L, which is {L}, found {mu}")


class AGD(Method):
    """Accelerated gradient descent of Nesterov; with a proximal term FISTA.

    Args:
        problem: a FiniteSum.
        mu: the strong convexity of f, at most L, and at most 1/step for a number as step: by default that of
            `smoothness`; 0 for convex f.
        others: see `Method`.

    Theorem (Nesterov 2018, "Lectures on convex optimization", Section 2.2; Beck and Teboulle 2009), with y = x + s (z -
    x), x+ = prox(y - step grad f(y)) and G = (y - x+)/step, for step <= 1/L: if mu > 0, theta = sqrt(mu step), s =
    theta/(1 + theta), z+ = z + theta (y - z) - (theta/mu) G and Phi = f(x) - f* + (mu/2) |z - x*|^2, Phi+ <= (1 -
    theta) Phi. If mu = 0, t+ = 1/2 + sqrt(1/4 + t^2), s = 1/t+, z+ = z - t+ step G and Phi = 2 step t^2 (f(x) - f*)
    + |z - x*|^2, Phi+ <= Phi. Memory: 4 d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 9.0]], [1.0, 9.0])
        >>> agd, gd = bt.opt.AGD(f), bt.opt.GD(f)
        >>> [records[-1].grad_norm < 1e-9 for records in (agd.run(300), gd.run(300))]
        [True, False]
    """

    _name = "agd"

    def __init__(
        self,
        problem: FiniteSum,
        x0: Any = None,
        *,
        mu: float | None = None,
        constants: Smoothness | None = None,
        **more: Unpack[Plain],
    ) -> None:
        is_given = mu is not None
        if mu is None:
            constants = smoothness(problem) if constants is None else constants
            mu = constants.mu
        self.mu = not_negative(mu, "mu")
        if constants is not None:
            at_most(mu, constants.L)
        super().__init__(problem, x0, mu=self.mu, constants=constants, **more)
        if (
            is_given
            and self._gamma is not None
            and not isinstance(self._step, str)
            and self.mu * self._gamma > 1.0 + 1e-9
        ):
            raise ValueError(f"mu must be at most 1/step, which is {1.0 / self._gamma:g}, found {mu}")

    def theory_step(self) -> float:
        """1/L."""
        c = self._if_convex("f")
        at_most(self.mu, c.L)
        return 1.0 / c.L

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        self._if_convex("f")
        return 1.0 - math.sqrt(self.mu * self.gamma)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None or self.f_star is None:
            return None
        state = self._state()
        distance = squared(state["z"] - self.x_star)
        if self.mu > 0.0:
            return loss - self.f_star + 0.5 * self.mu * distance
        return 2.0 * self.gamma * float(state["t"][0]) ** 2 * (loss - self.f_star) + distance


class LKatyusha(Method):
    """L-Katyusha, L-SVRG with momentum: at u = theta z + w/2 + (1/2 - theta) x, g = grad_S f(u) - grad_S f(w)
    + grad f(w); z+ = (step mu u + z - step g)/(1 + step mu), x+ = u + theta (z+ - z); with probability p the point w
    becomes x. There is no proximal term.

    Args:
        problem: a FiniteSum.
        sampling: by default `Nice(1)`; another size of Nice, or Full.
        p: by default 1/n.
        theta: by default min(sqrt(2 mu/(3 p L_max)), 1/2); above 0 and at most 1/2.
        mu: the strong convexity of f, above 0 and at most L: by default that of `smoothness`.
        others: see `Method`.

    Theorem (Kovalev, Horvath and Richtarik 2020, "Don't jump through hoops", Theorem 11; convex f_i, batches of one,
    and larger ones, whose variance is smaller): for step = 1/(3 theta L_max), which is eta/L there, and Phi = (1 + step
    mu)/(2 step) |z - x*|^2 + (f(x) - f*)/theta + (1 + theta)/(2 p theta) (f(w) - f*), E Phi+ <= max(1/(1 + step mu), 1
    - theta/2, 1 - p theta/(1 + theta)) Phi: O((n + sqrt(n L_max/mu)) log 1/eps) oracle calls. Memory: 6 d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 9.0]], [1.0, 9.0])
        >>> fast, slow = bt.opt.LKatyusha(f), bt.opt.LSVRG(f)
        >>> [records[-1].grad_norm < 1e-3 for records in (fast.run(epochs=600), slow.run(epochs=600))]
        [True, False]
    """

    _name = "l_katyusha"

    def __init__(
        self,
        problem: FiniteSum,
        x0: Any = None,
        *,
        sampling: Sampling | None = None,
        p: float | None = None,
        theta: float | None = None,
        mu: float | None = None,
        constants: Smoothness | None = None,
        **more: Unpack[Plain],
    ) -> None:
        sampling = Nice(1) if sampling is None else sampling
        if not isinstance(sampling, (Nice, Full)):
            raise ValueError(f"LKatyusha takes the samplings Nice and Full, found {sampling!r}")
        if mu is None or theta is None:
            constants = smoothness(problem) if constants is None else constants
        self.p = 1.0 / problem.n if p is None else probability(p)
        if mu is None:
            assert constants is not None
            mu = constants.mu
            if not mu > 0.0:
                raise ValueError("the strong convexity of f is unknown: pass mu, or add l2 to the problem")
        mu = positive(mu, "mu")
        if theta is None:
            assert constants is not None
            theta = min(math.sqrt(2.0 * mu / (3.0 * self.p * constants.L_max)), 0.5)
        if constants is not None:
            at_most(mu, constants.L)
        self.mu, self.theta = mu, positive(theta, "theta", 0.5)
        super().__init__(problem, x0, sampling=sampling, p=self.p, theta=theta, mu=mu, constants=constants, **more)

    def theory_step(self) -> float:
        """1/(3 theta L_max)."""
        c = self._if_convex()
        at_most(self.mu, c.L)
        return 1.0 / (3.0 * self.theta * c.L_max)

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        self._if_convex()
        theta = self.theta
        return max(1.0 / (1.0 + self.gamma * self.mu), 1.0 - theta / 2.0, 1.0 - self.p * theta / (1.0 + theta))

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None or self.f_star is None:
            return None
        state, theta = self._state(), self.theta
        far = (1.0 + self.gamma * self.mu) / (2.0 * self.gamma) * squared(state["z"] - self.x_star)
        old = self._loss(state["w"]) - self.f_star
        return far + (loss - self.f_star) / theta + (1.0 + theta) / (2.0 * self.p * theta) * old
