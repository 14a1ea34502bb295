"""Sampling rules and proximal operators: a name and its numbers; Rust implements them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from burtorch import _core
from burtorch.opt._arguments import not_negative, number, numbers, probability

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class _Rule:
    """A name and its numbers."""

    rule: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(_short, self.rule[1:]))})"


def _short(part: Any) -> str:
    """Long arrays without their middle, on one line."""
    import numpy as np

    return (
        repr(part)
        if isinstance(part, int | float)
        else np.array2string(np.asarray(part), 10**6, separator=", ", threshold=8, edgeitems=2)
    )


def _at_least_1(n: int, what: str = "the size of a batch") -> int:
    """n, if it is a count."""
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"{what} must be an int, found {type(n).__name__}") from None
    if n < 1:
        raise ValueError(f"{what} must be at least 1, found {n}")
    return n


class Sampling(_Rule):
    """A rule that draws batches; each batch is a function of (seed, round).

    Example:
        >>> import burtorch as bt
        >>> S, weights = bt.opt.Nice(2).batch(5, seed=0, round=3)
        >>> len(S), weights.tolist()
        (2, [0.5, 0.5])
    """

    def batch(
        self, n: int, *, seed: int = 0, round: int = 0, client: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The batch of a round among n samples, and the weights that make the sum of gradients unbiased.

        Client or worker k of a method draws as client k + 1.
        """
        return _core._sample(self.rule, n, seed, round, client, getattr(self, "_kept", None))[:2]

    def constants(self, n: int) -> tuple[float, float] | None:
        """A and B of Tyurin et al. (2022), "Sharper rates and flexible framework for nonconvex SGD", or None.

        The estimate g of a mean v of n vectors v_i has E |g - v|^2 <= A mean |v_i|^2/(n q_i) - B |v|^2, with q_i = 1/n
        except for `Importance`; the bound holds with equality.

        Example:
            >>> import burtorch as bt
            >>> bt.opt.Nice(3).constants(9), bt.opt.Independent(0.5).constants(4)
            ((0.25, 0.25), (0.25, 0.0))
        """
        return _core._sample(self.rule, n, 0, 0)[2]

    def expected_size(self, n: int) -> float:
        """The expected number of samples in a batch."""
        return _core._sample(self.rule, n, 0, 0)[3]


class Full(Sampling):
    """All samples in every batch, the sampling of gradient descent. A = B = 0.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.Full().batch(3)[0]
        array([0, 1, 2])
    """

    def __init__(self) -> None:
        self.rule = ("full",)


class Nice(Sampling):
    """`size` different samples, all subsets equally probable, in O(size). A = B = (n - size)/(size (n - 1))."""

    def __init__(self, size: int) -> None:
        self.rule = ("nice", _at_least_1(size))


class WithReplacement(Sampling):
    """`size` samples, each drawn from all. A = B = 1/size."""

    def __init__(self, size: int) -> None:
        self.rule = ("with_replacement", _at_least_1(size))


class Independent(Sampling):
    """Each sample with probability p; a batch may be empty. A = (1 - p)/(n p), B = 0. A draw costs O(n)."""

    def __init__(self, p: float) -> None:
        self.rule = ("independent", probability(p))
        self.batch(1)


class Importance(Sampling):
    """`size` samples, each drawn from all in proportion to `weights`, such as the constants L_i. A = B = 1/size."""

    def __init__(self, size: int, weights: ArrayLike) -> None:
        import numpy as np

        each = numbers(weights, "weights")
        with np.errstate(over="ignore"):
            total = each.sum()
        if np.isfinite(each).all() and not np.isfinite(total):
            raise ValueError(f"the sum of weights must be finite, found {total}; scale them")
        # A copy, because the caller may reuse the array.
        self.rule = ("importance", _at_least_1(size), np.array(weights))
        self.batch(max(1, self.rule[2].size))


class Reshuffle(Sampling):
    """The next `size` samples of a permutation, a new one for each epoch. Biased within an epoch: no constants.

    It keeps the last permutation that `batch`, also that of `burtorch.text`, drew: the other batches of its epoch cost
    O(size)."""

    def __init__(self, size: int) -> None:
        self.rule = ("reshuffle", _at_least_1(size))
        self._kept = _core.KeptDraws()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._kept = _core.KeptDraws()


class Partition(Sampling):
    """One of `parts` blocks of consecutive samples, each with the same probability. Its variance depends on
    the order of samples: no constants."""

    def __init__(self, parts: int) -> None:
        self.rule = ("partition", _at_least_1(parts, "the number of parts"))


class Prox(_Rule):
    """A convex function R, or the indicator of a set, given by its proximal operator.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.L1(1.0)([3.0, -0.5], 0.5), bt.opt.Simplex()([0.5, 1.5])
        (array([2.5, 0. ]), array([0., 1.]))
    """

    def _set(self, *rule: Any) -> None:
        name, *parameters = rule
        self.rule = (name, *(number(value, "a parameter of a proximal term") for value in parameters))
        self([0.0])  # refuses parameters that are none

    def __call__(self, x: ArrayLike, step: float = 1.0, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """argmin over u of step R(u) + |u - x|^2/2, as a new array or in `out`, a float64 array that may be x.

        The result has the shape of x; R is a function of all its numbers, whatever the shape.

        NaN in x stays NaN; if the numbers depend on each other (`Simplex`, `L1Ball`), one that is not finite makes all
        NaN. Raises ValueError for a step that is negative or not finite, and for `out` of another shape.
        """
        import numpy as np

        found: NDArray[np.float64] = _core._prox(self.rule, x, not_negative(step, "step"))[0].reshape(np.shape(x))
        if out is None:
            return found
        if (dtype := getattr(out, "dtype", type(out).__name__)) != found.dtype:
            raise TypeError(f"out must be an array of float64, found {dtype}")
        if out.shape != found.shape:
            raise ValueError(f"out must have the shape {found.shape}, found {out.shape}")
        out[:] = found
        return out

    def value(self, x: ArrayLike) -> float:
        """R(x); 0 for sets, assuming that x is inside."""
        return _core._prox(self.rule, x, 1.0)[1]


class Zero(Prox):
    """R = 0: no proximal term.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.Zero()([3.0, -0.5], 0.5)
        array([ 3. , -0.5])
    """

    def __init__(self) -> None:
        self._set("zero")


class L1(Prox):
    """R(x) = factor |x|_1, which makes coordinates 0.

    Args:
        factor: at least 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.L1(1.0)([3.0, -0.5], 0.5)
        array([2.5, 0. ])
    """

    def __init__(self, factor: float) -> None:
        self._set("l1", factor)


class L2Squared(Prox):
    """R(x) = factor/2 |x|^2.

    Args:
        factor: at least 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.L2Squared(1.0)([3.0, -1.5], 0.5)
        array([ 2., -1.])
    """

    def __init__(self, factor: float) -> None:
        self._set("l2_squared", factor)


class ElasticNet(Prox):
    """R(x) = l1 |x|_1 + l2/2 |x|^2.

    Args:
        l1: at least 0.
        l2: at least 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.ElasticNet(1.0, 1.0)([3.5, -0.5], 0.5)
        array([2., 0.])
    """

    def __init__(self, l1: float, l2: float) -> None:
        self._set("elastic_net", l1, l2)


class Box(Prox):
    """low <= x_j <= high: a projection on a box.

    Args:
        low: the bound of all coordinates from below, also -inf.
        high: the bound from above, also inf.

    Raises ValueError for NaN or low above high.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.Box(0.0, 1.0)([3.0, -0.5], 0.5)
        array([1., 0.])
    """

    def __init__(self, low: float, high: float) -> None:
        self._set("box", low, high)


class Simplex(Prox):
    """x_j >= 0 and sum x_j = total: a projection on a simplex.

    Args:
        total: the sum, above 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.Simplex()([0.5, 1.5], 0.5)
        array([0., 1.])
    """

    def __init__(self, total: float = 1.0) -> None:
        self._set("simplex", total)


class L1Ball(Prox):
    """|x|_1 <= radius: a projection on a ball.

    Args:
        radius: above 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.L1Ball(1.0)([2.0, 0.5], 0.5)
        array([1., 0.])
    """

    def __init__(self, radius: float = 1.0) -> None:
        self._set("l1_ball", radius)


class L2Ball(Prox):
    """|x|_2 <= radius: a projection on a ball.

    Args:
        radius: above 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.L2Ball(2.5)([3.0, 4.0], 0.5)
        array([1.5, 2. ])
    """

    def __init__(self, radius: float = 1.0) -> None:
        self._set("l2_ball", radius)


class LinfBall(Prox):
    """max |x_j| <= radius: a projection on a cube.

    Args:
        radius: above 0.

    Raises ValueError for a number that is not finite or out of range.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.LinfBall(1.0)([3.0, -0.5], 0.5)
        array([ 1. , -0.5])
    """

    def __init__(self, radius: float = 1.0) -> None:
        self._set("linf_ball", radius)
