"""MARINA with batches and with cohorts: VR-MARINA and PP-MARINA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burtorch.opt._clients import divided
from burtorch.opt._distributed import MARINA
from burtorch.opt._methods import constants_of
from burtorch.opt._rules import Full, Independent, Nice, Sampling, WithReplacement
from burtorch.opt._smoothness import smoothness_of_samples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from burtorch._core import Compressor
    from burtorch.opt._clients import Clients, Problem


class VRMARINA(MARINA):
    """VR-MARINA: MARINA with batches in its compressed rounds: x+ = prox(x - step g); with probability p g+ = grad
    f(x+), otherwise g+ = g + mean C(grad of a batch of f_i at x+ - that at x).

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        sampling: the batches of each client: by default `Nice(1)`; or `Full` or `WithReplacement`.
        p: by default the smaller of the share of numbers that C sends and the least b/(b + m), with b of the m samples
            of a client in a batch.
        pl: as for `MARINA`.
        others: see `Distributed`; there are no shifts.

    Theorem (Gorbunov, Burlachenko, Li and Richtarik 2021, "MARINA", Theorem 3.1; unbiased C): that of MARINA with
    K L_plus^2 replaced by (1 - p)/(p n) (omega L_plus^2 + (1 + omega) mean A_i l_i^2), where l_i^2 is the mean of
    L_ij^2 over client i's samples and A_i the constant of its batches: 1/b with replacement, (m - b)/(b (m - 1)) for
    Nice(b). With full batches it is MARINA, bit for bit. Memory: none of clients.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0], [3.0, 1.0], [1.0, 3.0]], [1.0, 5.0, 2.0, 1.0])
        >>> method = bt.opt.VRMARINA(f, clients=2, compressor=bt.compress.RandK(1), seed=1)
        >>> records = method.run(3000)
        >>> records[-1].grad_norm < 1e-9
        True
    """

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        compressor: Compressor,
        clients: Clients = None,
        sampling: Sampling | None = None,
        p: float | None = None,
        **more: Any,
    ) -> None:
        self.local_sampling = Nice(1) if sampling is None else sampling
        if not isinstance(self.local_sampling, (Full, Nice, WithReplacement)):
            raise ValueError(f"the batches of VRMARINA must be Full, Nice or WithReplacement, found {sampling!r}")
        problem, parts = divided(problem, clients)
        if p is None:
            sizes = [(self.local_sampling.expected_size(len(part)), len(part)) for part in parts if len(part)]
            least = min((b / (b + m) for b, m in sizes), default=1.0)
            whole = isinstance(self.local_sampling, Full)
            p = min(compressor.density(problem.d, len(parts)), 1.0 if whole else least)
        super().__init__(
            problem, x0, compressor=compressor, clients=parts, p=p, local_sampling=self.local_sampling.rule, **more
        )

    def _spread(self) -> tuple[float, float]:
        """The factor of (1 - p)/p in K, and the constant in place of L_plus."""
        assert self.clients is not None
        omega, squares = self._omega(), smoothness_of_samples(self.problem) ** 2
        parts = [(constants_of(self.local_sampling, len(part), "VRMARINA")[0], part) for part in self.clients]
        batches = sum(a * float(squares[part].mean()) for a, part in parts) / self.n_clients
        total = omega * self.constants.L_plus**2 + (1.0 + omega) * batches
        return total / self.n_clients, 1.0


class PPMARINA(MARINA):
    """PP-MARINA: MARINA with a cohort S in its compressed rounds: x+ = prox(x - step g); with
    probability p g+ = grad f(x+) by all clients, otherwise g+ = g + mean over S of C(grad f_i(x+) - grad f_i(x)).

    Args:
        problem: a FiniteSum, or a list of `Client` objects.
        cohort: the participating clients, `Nice` or `Independent`.
        p: by default the share of numbers that C sends times the share of clients that take part.
        pl: as for `MARINA`.
        others: see `Distributed`; there are no shifts.

    Theorem (Gorbunov, Burlachenko, Li and Richtarik 2021, "MARINA", Theorem 4.1, where clients are drawn with
    replacement; subsets by their A and B: Tyurin, Sun, Burlachenko and Richtarik 2022; unbiased C): that of MARINA with
    K L_plus^2 replaced by (1 - p)/p ((omega/r + A - B) L_plus^2 + B L_pm^2), with r the expected size of the cohort;
    for Nice(r) A = B = (n - r)/(r (n - 1)). With all clients it is MARINA, bit for bit. Memory: none of clients.

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.least_squares([[1.0, 1.0], [0.0, 2.0]], [1.0, 5.0])
        >>> method = bt.opt.PPMARINA(f, clients=2, compressor=bt.compress.RandK(1), cohort=bt.opt.Nice(1))
        >>> records = method.run(2000)
        >>> method.x.round(9)
        array([-1.5,  2.5])
    """

    def __init__(
        self,
        problem: Problem,
        x0: ArrayLike | None = None,
        *,
        compressor: Compressor,
        cohort: Sampling,
        clients: Clients = None,
        p: float | None = None,
        **more: Any,
    ) -> None:
        if not isinstance(cohort, (Full, Nice, Independent)):
            raise ValueError(f"the cohort of PPMARINA must be Full, Nice or Independent, found {cohort!r}")
        problem, parts = divided(problem, clients)
        if p is None:
            p = compressor.density(problem.d, len(parts)) * cohort.expected_size(len(parts)) / len(parts)
        super().__init__(problem, x0, compressor=compressor, clients=parts, p=p, sampling=cohort, **more)

    def _spread(self) -> tuple[float, float]:
        """The factor of (1 - p)/p in K, and the constant in place of L_plus."""
        c, (a, b) = self.constants, constants_of(self.sampling, self.n_clients, "PPMARINA")
        share = self._omega() / self.sampling.expected_size(self.n_clients)
        return (share + a - b) * c.L_plus**2 + b * c.L_pm**2, 1.0
