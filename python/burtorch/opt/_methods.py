"""Methods without clients: gradient descent, SGD, L-SVRG, SAGA, PAGE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from burtorch.opt._arguments import not_negative, positive, probability, whole
from burtorch.opt._base import Method, squared
from burtorch.opt._rules import Full, Importance, Independent, Nice, Sampling, WithReplacement

if TYPE_CHECKING:
    from burtorch._core import FiniteSum
    from burtorch.opt._base import Options, Sampled, Vector
    from burtorch.opt._clients import Clients, Problem


def constants_of(sampling: Sampling, n: int, method: str) -> tuple[float, float]:
    """A and B of a sampling, for a theorem that needs them."""
    found = sampling.constants(n)
    if found is None:
        raise ValueError(f"the theory of {method} does not cover {sampling!r}; give a number as step")
    return found


def share_of(sampling: Sampling, n: int) -> Vector:
    """n q_i of each sample, with q_i the probabilities of `Importance`, otherwise 1/n."""
    if not isinstance(sampling, Importance):
        return np.ones(n)
    weights = np.asarray(sampling.rule[2], float)
    return np.asarray(weights / weights.mean())


def page_step(L: float, spread: float, K: float) -> float:
    """1/(L + sqrt(K) spread): the step of PAGE and MARINA (Li et al. 2021, Theorem 1; Gorbunov et al. 2021, Theorem
    2.1). Raises ValueError unless L is above 0 and the others at least 0.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.page_step(L=1.0, spread=2.0, K=4.0)
        0.2
    """
    L, spread, K = positive(L, "L"), not_negative(spread, "spread"), not_negative(K, "K")
    return 1.0 / (L + math.sqrt(K) * spread)


def pl_rate(method: Any) -> float:
    """1 - step mu, the factor of the Polyak-Lojasiewicz case of a method."""
    if not method.pl:
        raise ValueError(f"the theory of {type(method).__name__} has a rate only with pl=True")
    return rate_of(method)


def rate_of(method: Method) -> float:
    """1 - step mu, after a check that the theorem covers the step."""
    largest = method.theory_step()
    if method.gamma > largest * (1.0 + 1e-12):
        name = type(method).__name__
        raise ValueError(f"the theory of {name} covers steps up to {largest:g}, found {method.gamma:g}")
    return 1.0 - method.gamma * method.constants.mu


def optimal_batch(n: int, L: float, L_max: float, mu: float, spread: float, eps: float) -> float:
    """The batch size of `Nice` with the least oracle calls of SGD to E |x - x*|^2 <= eps (Gower et al. 2019, Section
    4).

    Args:
        n: the number of samples.
        L: the smoothness of f.
        L_max: the largest smoothness of an f_i.
        mu: the strong convexity.
        spread: mean |grad f_i(x*)|^2 (less the square of the mean, with a proximal term).
        eps: the accuracy.

    Raises ValueError for a spread below 0 and for others that are not above 0. The result is 1 if the noise at x* is
    small relative to L_max, and grows with the noise: "a batch of about 1 is best" holds only in the first case.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.optimal_batch(100, 1.0, 10.0, 0.1, spread=0.0, eps=1e-3)
        1.0
        >>> round(bt.opt.optimal_batch(100, 1.0, 10.0, 0.1, spread=0.003, eps=1e-3), 2)
        34.0
    """
    n, L, L_max = whole(n, "n"), positive(L, "L"), positive(L_max, "L_max")
    q = 2.0 * not_negative(spread, "spread") / (positive(eps, "eps") * positive(mu, "mu"))
    return 1.0 if q <= L_max else n * (q + L - L_max) / (q + n * L - L_max)


class GD(Method):
    """Gradient descent: x+ = prox(x - step grad f(x)).

    Theorem: for convex f and step 1/L, |x+ - x*|^2 <= (1 - step mu) |x - x*|^2 (Nesterov 2018, "Lectures on convex
    optimization", Theorem 2.1.15 and Section 2.2). f need not be convex for f(x+) + R(x+) <= f(x) + R(x) - (step/2)
    |(x - x+)/step|^2, which without a proximal term bounds |grad f(x)| (Section 1.2.3). Memory: d. Arguments: see
    `Method`; with `clients=`, as for `Distributed`, f is the mean over clients of the means of their samples, and
    clients send their gradients.

    Example:
        >>> import burtorch as bt
        >>> gd = bt.opt.GD(bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0]))
        >>> records = gd.run(200)
        >>> gd.x.round(9), records[-1].oracle_calls
        (array([1., 1.]), 400)
    """

    _name = "sgd"
    _takes_clients = True

    if TYPE_CHECKING:

        def __init__(
            self, problem: Problem, x0: Any = None, *, clients: Clients = None, **more: Unpack[Sampled]
        ) -> None: ...

    def theory_step(self) -> float:
        """1/L."""
        return 1.0 / self.constants.L

    def rate(self) -> float:
        """The proven factor of |x - x*|^2 per step, for convex f and steps of at most 1/L."""
        self._if_convex("f")
        return rate_of(self)


class SGD(Method):
    """SGD and Prox-SGD: x+ = prox(x - step g), with g the estimate of grad f(x) from a batch.

    Args:
        problem: a FiniteSum.
        sampling: by default `Nice(1)`.
        eps: the target accuracy E |x - x*|^2 <= eps of "theory" steps, above 0, which needs x_star and mu > 0;
            without it they are the largest.
        others: see `Method`.

    Theorem (Gower et al. 2019, "SGD: general analysis and improved rates"; with a proximal term Gorbunov, Hanzely and
    Richtarik 2020): for convex f_i and step <= 1/(2 Lt), E |x+ - x*|^2 <= (1 - step mu) |x - x*|^2 + 2 step^2 s2. Here
    Lt = A max L_i/(n q_i) + (1 - B) L and s2 = A mean |grad f_i(x*)|^2/(n q_i) - B |grad f(x*)|^2, with A and B of the
    sampling; for Nice(tau), Lt = (n (tau - 1) L + (n - tau) L_max)/(tau (n - 1)). Memory: d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> sgd = bt.opt.SGD(f, sampling=bt.opt.Nice(1), seed=1)
        >>> records = sgd.run(epochs=400)
        >>> sgd.x.round(6), sgd.gamma
        (array([1., 1.]), 0.125)
    """

    _name = "sgd"

    def __init__(
        self,
        problem: FiniteSum,
        x0: Any = None,
        *,
        sampling: Sampling | None = None,
        eps: float | None = None,
        **more: Unpack[Options],
    ) -> None:
        self.eps = None if eps is None else positive(eps, "eps")
        super().__init__(problem, x0, sampling=Nice(1) if sampling is None else sampling, **more)

    def expected_smoothness(self) -> float:
        """Lt of the theorem."""
        a, b = constants_of(self.sampling, self.problem.n, "SGD")
        largest = float((self.constants.L_i / share_of(self.sampling, self.problem.n)).max())
        return a * largest + (1.0 - b) * self.constants.L

    def noise(self) -> float:
        """s2 of the theorem. Needs x_star."""
        a, b = constants_of(self.sampling, self.problem.n, "SGD")
        if self.x_star is None:
            raise ValueError("the noise at x* needs x_star")
        own = self._at_solution()
        squares = (own**2).sum(axis=1) / share_of(self.sampling, self.problem.n)
        return a * float(squares.mean()) - b * float((own.mean(axis=0) ** 2).sum())

    def theory_step(self) -> float:
        """1/(2 Lt), or with `eps` min(1/(2 Lt), eps mu/(4 s2))."""
        self._if_convex()
        step = 0.5 / self.expected_smoothness()
        if self.eps is None:
            return step
        noise = self.noise()
        if noise <= 0.0:
            return step
        if not self.constants.mu > 0.0:
            raise ValueError("the strong convexity of f is unknown: add l2 to the problem, or leave out eps")
        return min(step, self.eps * self.constants.mu / (4.0 * noise))


class LSVRG(Method):
    """L-SVRG: g = grad_S f(x) - grad_S f(w) + grad f(w), x+ = prox(x - step g); with probability p the point w becomes
    x.

    Args:
        problem: a FiniteSum.
        sampling: by default `Nice(1)`.
        p: by default 1/n.
        others: see `Method`.

    Theorem (Kovalev, Horvath and Richtarik 2020, "Don't jump through hoops", Theorem 5; convex f_i, batches of one, and
    larger ones, whose variance is smaller): for step = 1/(6 M) with M = max L_i/(n q_i) and Phi = |x - x*|^2 + (4
    step^2/(p n)) sum |grad f_i(w) - grad f_i(x*)|^2/(n q_i), E Phi+ <= max(1 - step mu, 1 - p/2) Phi. Here q_i are the
    probabilities of `Importance`; for `Nice`, `WithReplacement` and `Full` they are 1/n, and M = L_max. "theory"
    supports no other sampling.
    Memory: 3 d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.LSVRG(f)
        >>> records = method.run(epochs=3000)
        >>> method.x.round(9)
        array([1., 1.])
    """

    _name = "l_svrg"

    def __init__(
        self,
        problem: FiniteSum,
        x0: Any = None,
        *,
        sampling: Sampling | None = None,
        p: float | None = None,
        **more: Unpack[Options],
    ) -> None:
        self.p = 1.0 / problem.n if p is None else probability(p)
        super().__init__(problem, x0, sampling=Nice(1) if sampling is None else sampling, p=self.p, **more)

    def theory_step(self) -> float:
        """1/(6 max L_i/(n q_i)), which is 1/(6 L_max) except with `Importance`."""
        if not isinstance(self.sampling, (Full, Nice, WithReplacement, Importance)):
            raise ValueError(f"the theory of LSVRG does not cover {self.sampling!r}; give a number as step")
        return 1.0 / (6.0 * float((self._if_convex().L_i / share_of(self.sampling, self.problem.n)).max()))

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        return max(1.0 - self.gamma * self._if_convex().mu, 1.0 - self.p / 2.0)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        w = self._state()["w"]
        roots = np.sqrt(share_of(self.sampling, self.problem.n))[:, None]
        spread = squared((self._gradients(w) - self._at_solution()) / roots) / self.problem.n
        return squared(self.x - self.x_star) + 4.0 * self.gamma**2 / self.p * spread


class SAGA(Method):
    """SAGA: g = mean over S of (grad f_i(x) - t_i) + mean of t, x+ = prox(x - step g), and the t_i of S become grad
    f_i(x).

    Args:
        problem: a FiniteSum.
        sampling: by default `Nice(1)`; another size of Nice, or Full.
        others: see `Method`.

    Theorem (Defazio, Bach and Lacoste-Julien 2014; in this form Gorbunov, Hanzely and Richtarik 2020, convex f_i,
    batches of one): for step = 1/(6 L_max) and Phi = |x - x*|^2 + 4 step^2 sum |t_i - grad f_i(x*)|^2, E Phi+ <= max(1
    - step mu, 1 - 1/(2n)) Phi.
    Memory: n d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> method = bt.opt.SAGA(f)
        >>> records = method.run(epochs=800)
        >>> method.x.round(9)
        array([1., 1.])
    """

    _name = "saga"

    def __init__(
        self, problem: FiniteSum, x0: Any = None, *, sampling: Sampling | None = None, **more: Unpack[Options]
    ) -> None:
        sampling = Nice(1) if sampling is None else sampling
        if not isinstance(sampling, (Nice, Full)):
            raise ValueError(f"SAGA supports the samplings Nice and Full, found {sampling!r}")
        super().__init__(problem, x0, sampling=sampling, **more)

    def theory_step(self) -> float:
        """1/(6 L_max)."""
        return 1.0 / (6.0 * self._if_convex().L_max)

    def rate(self) -> float:
        """The proven factor of Phi per step."""
        return max(1.0 - self.gamma * self._if_convex().mu, 1.0 - 0.5 / self.problem.n)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without x_star."""
        if self.x_star is None:
            return None
        table = self._state()["table"].reshape(self.problem.n, -1)
        spread = squared(table - self._at_solution())
        return squared(self.x - self.x_star) + 4.0 * self.gamma**2 * spread


class PAGE(Method):
    """PAGE: x+ = prox(x - step g); with probability p g+ = grad f(x+), otherwise g+ = g + grad_S f(x+) - grad_S f(x).

    Args:
        problem: a FiniteSum.
        sampling: by default `Nice(1)`.
        p: by default tau/(n + tau), with tau the expected size of a batch.
        pl: whether "theory" takes the step of the Polyak-Lojasiewicz case, with mu of the problem.
        others: see `Method`.

    Theorem (Li, Bao, Zhang and Richtarik 2021; any sampling: Tyurin, Sun, Burlachenko and Richtarik 2022): with K = (1
    - p)/p A, step = 1/(L + sqrt(K) L_pm) and Phi = f(x) - f* + step/(2p) |g - grad f(x)|^2, E Phi+ <= Phi - (step/2)
    |grad f(x)|^2; f need not be convex. With a proximal term E Phi+ <= Phi, for f + R in place of f and the same step:
    the proof is the same but for R(x+) <= R(x) - g (x+ - x) - |x+ - x|^2/step. For Nice(tau) A = (n - tau)/(tau (n -
    1)); if A and B differ, K L_pm^2 is (1 - p)/p ((A - B) L_plus^2 + B L_pm^2). With pl, step = min(1/(L + sqrt(2K)
    L_pm), p/(2 mu)), the weight is step/p, and E Phi+ <= (1 - step mu) Phi, without a proximal term. Memory: 3 d.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.robust_regression([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
        >>> page = bt.opt.PAGE(f, sampling=bt.opt.Nice(1))
        >>> records = page.run(epochs=400)
        >>> records[-1].grad_norm < 1e-6
        True
    """

    _name = "page"

    def __init__(
        self,
        problem: FiniteSum,
        x0: Any = None,
        *,
        sampling: Sampling | None = None,
        p: float | None = None,
        pl: bool = False,
        **more: Unpack[Options],
    ) -> None:
        sampling = Nice(1) if sampling is None else sampling
        tau = sampling.expected_size(problem.n)
        self.p = tau / (problem.n + tau) if p is None else probability(p)
        self.pl = pl
        super().__init__(problem, x0, sampling=sampling, p=self.p, **more)

    _uniform: ClassVar[tuple[type, ...]] = (Full, Nice, WithReplacement, Independent)

    def theory_step(self) -> float:
        """1/(L + sqrt(K) L_pm), or with `pl` min(1/(L + sqrt(2K) L_pm), p/(2 mu))."""
        if not isinstance(self.sampling, self._uniform):
            raise ValueError(f"the theory of PAGE does not cover {self.sampling!r}; give a number as step")
        c, (a, b) = self.constants, constants_of(self.sampling, self.problem.n, "PAGE")
        spread = ((a - b) * c.L_plus**2 + b * c.L_pm**2) ** 0.5
        K = (1.0 - self.p) / self.p
        if not self.pl:
            return page_step(c.L, spread, K)
        self._without_prox("PAGE with pl")
        return min(page_step(c.L, spread, 2.0 * K), self.p / (2.0 * c.mu) if c.mu else float("inf"))

    def rate(self) -> float:
        """The proven factor of Phi per step, with `pl` and steps of at most those of "theory"."""
        return pl_rate(self)

    def lyapunov(self, loss: float, grad: Vector) -> float | None:
        """Phi of the theorem; None without f_star."""
        if self.f_star is None:
            return None
        error = squared(self._state()["g"] - grad)
        return loss - self.f_star + self.gamma / (self.p if self.pl else 2.0 * self.p) * error
