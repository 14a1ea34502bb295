"""Problems with terms computed in Rust, and sums of losses of oracles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burtorch._core import FiniteSum, Oracle
from burtorch.opt._arguments import number, of_kind, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from burtorch._core import Parameters

    Features = Any  # a matrix, a sparse matrix of SciPy, or (starts, columns, values, d)

MOST_CLASSES = 2**32 - 1
"""The most classes of a softmax problem."""


def _rows(features: Features) -> Any:
    """A sparse matrix as arrays for Rust; other features unchanged."""
    found = features
    if isinstance(features, tuple) and len(features) == 4 and isinstance(features[3], tuple):
        found = (*features[:3], features[3][1])
    elif hasattr(features, "tocsr"):
        rows = features.tocsr()
        if not rows.has_canonical_format:
            # In a copy, because the matrix may belong to the caller.
            rows = rows.copy()
            rows.sum_duplicates()
        found = rows.indptr, rows.indices, rows.data, rows.shape[1]
    if isinstance(found, tuple) and len(found) == 4 and found[3] == 0:
        raise ValueError("features must have at least one row and one column, found no column")
    return found


def _rows_for(features: Features, labels: Any, name: str) -> Any:
    """The same, for one label per row."""
    rows = _rows(features)
    if isinstance(rows, tuple) and len(rows) == 4 and hasattr(rows[0], "__len__"):
        n = len(rows[0]) - 1
    else:
        n = len(rows) if hasattr(rows, "__len__") and getattr(rows, "ndim", 2) == 2 else len(labels)
    if n != len(labels):
        raise ValueError(f"{name} must have one number per row of features, found {len(labels)} for {n} rows")
    return rows


def _linear(features: Features, labels: Any, name: str, loss: str, l2: float, nonconvex: float) -> FiniteSum:
    rows = _rows_for(features, labels, name)
    return FiniteSum._linear(rows, labels, loss, number(l2, "l2"), number(nonconvex, "nonconvex"))


def _flat(given: Any, name: str) -> Any:
    """One number per row; a matrix of one column or row may be a mistake and is refused."""
    import numpy as np

    if (found := np.ndim(given)) != 1:
        raise ValueError(f"{name} must have one dimension, found {found}")
    return given


def _two_labels(labels: ArrayLike, names: Sequence[float] | None) -> NDArray[np.float64]:
    """Labels as -1 and 1."""
    import numpy as np

    given = np.asarray(_flat(labels, "labels"))
    if given.dtype.kind not in "biuf":
        raise TypeError(f"labels must be numbers, found {given.dtype}")
    given = given.astype(float)
    found = np.unique(given)
    if names is not None and len(set(names)) != 2:
        raise ValueError(f"label_names must be two different labels, found {', '.join(map(str, names))}")
    negative, positive = (-1.0, 1.0) if names is None else names
    if not set(found.tolist()) <= {negative, positive}:
        shown = ", ".join(f"{label:g}" for label in found[:5])
        expected = f"{negative:g} and {positive:g}"
        raise ValueError(f"labels must be {expected}, found {shown}; pass label_names=(negative, positive)")
    return np.where(given == positive, 1.0, -1.0)


def logistic_regression(
    features: Features,
    labels: ArrayLike,
    *,
    l2: float = 0.0,
    nonconvex: float = 0.0,
    label_names: Sequence[float] | None = None,
) -> FiniteSum:
    """f_i(x) = log(1 + exp(-b_i a_i x)) + regularisers, with labels b_i of -1 and 1.

    Args:
        features: a matrix, a sparse SciPy matrix, or (starts, columns, values, d) of sparse rows.
        labels: one per row.
        l2: adds l2/2 |x|^2.
        nonconvex: adds nonconvex * sum x_j^2/(1 + x_j^2).
        label_names: the two values of the labels, the negative one first; by default -1 and 1.

    Raises:
        ValueError: features that are not finite, different lengths, labels whose shape is not (n,), other labels
            (the error names them).

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.logistic_regression([[1.0, 2.0], [3.0, -1.0]], [0, 1], label_names=(0, 1))
        >>> f.n, f.d, round(f.loss([0.0, 0.0]), 6), f.grad([0.0, 0.0])
        (2, 2, 0.693147, array([-0.5 ,  0.75]))
    """
    return _linear(features, _two_labels(labels, label_names), "labels", "logistic", l2, nonconvex)


def least_squares(features: Features, targets: ArrayLike, *, l2: float = 0.0, nonconvex: float = 0.0) -> FiniteSum:
    """f_i(x) = (a_i x - b_i)^2/2 + regularisers. Arguments and errors as for `logistic_regression`.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.least_squares([[1.0], [2.0]], [1.0, 0.0], l2=0.5).grad([1.0])
        array([2.5])
    """
    return _linear(features, _flat(targets, "targets"), "targets", "squares", l2, nonconvex)


def robust_regression(features: Features, targets: ArrayLike, *, l2: float = 0.0, nonconvex: float = 0.0) -> FiniteSum:
    """f_i(x) = log(1 + (a_i x - b_i)^2/2) + regularisers: Cauchy's loss, a non-convex one.

    Arguments and errors as for `logistic_regression`.

    Example:
        >>> import burtorch as bt
        >>> bt.opt.robust_regression([[1.0]], [0.0]).grad([2.0]).round(6)
        array([0.666667])
    """
    return _linear(features, _flat(targets, "targets"), "targets", "robust", l2, nonconvex)


def softmax_regression(
    features: Features, labels: ArrayLike, *, classes: int | None = None, l2: float = 0.0, nonconvex: float = 0.0
) -> FiniteSum:
    """f_i(x) = logsumexp(X a_i) - (X a_i)[b_i] + regularisers; x contains the rows of X, one per class.

    Args:
        features: as for `logistic_regression`.
        labels: the class of each row, an integer from 0.
        classes: the number of classes; by default one more than the largest label.
        l2: adds l2/2 |x|^2.
        nonconvex: adds nonconvex * sum x_j^2/(1 + x_j^2).

    Example:
        >>> import burtorch as bt
        >>> f = bt.opt.softmax_regression([[1.0], [2.0]], [0, 1])
        >>> f.d, f.grad([0.0, 0.0])
        (2, array([ 0.25, -0.25]))
    """
    import numpy as np

    labels = np.asarray(_flat(labels, "labels"))
    if labels.dtype.kind not in "biuf":
        raise TypeError(
            f"labels must be integers of at least 0, found {labels.dtype}; "
            "np.unique(labels, return_inverse=True)[1] numbers them"
        )
    if labels.dtype.kind == "f" and not (np.mod(labels, 1.0) == 0.0).all():
        raise ValueError("labels must be integers of at least 0")
    if labels.size and labels.min() < 0:
        raise ValueError(f"labels must be integers of at least 0, found {labels.min()}")
    largest = int(labels.max(initial=0))
    classes = largest + 1 if classes is None else whole(classes, "classes")
    if classes > MOST_CLASSES:
        found = f"found {classes}; np.unique(labels, return_inverse=True)[1] numbers labels"
        raise ValueError(f"classes must be at most {MOST_CLASSES}, {found}")
    if largest >= classes:
        raise ValueError(f"labels must be below the number of classes, {classes}, found {largest}")
    labels = labels.astype(np.int64)
    rows = _rows_for(features, labels, "labels")
    return FiniteSum._softmax(rows, labels, classes, number(l2, "l2"), number(nonconvex, "nonconvex"))


def samples_of(data: tuple[Any, ...]) -> list[NDArray[Any]]:
    """Arrays with one row per sample, copied."""
    import numpy as np

    arrays = [np.array(part) for part in data]
    lengths = sorted({len(part) if part.ndim else -1 for part in arrays})
    if len(lengths) > 1 or -1 in lengths:
        found = ", ".join("no rows" if length < 0 else str(length) for length in lengths)
        raise ValueError(f"data must have one row per sample, found the lengths {found}")
    return arrays


def from_oracle(oracle: Any, *data: Any, l2: float = 0.0, nonconvex: float = 0.0) -> FiniteSum:
    """The mean loss of an `Oracle` over samples, as a function of its Parameters: any model or callable.

    Args:
        oracle: a `burtorch.Oracle` with reduction "mean".
        data: its arguments, arrays with one row per sample.
        l2: adds l2/2 |x|^2.
        nonconvex: adds nonconvex * sum x_j^2/(1 + x_j^2).

    Each evaluation writes the point, all numbers of the Parameters, to them and is computed in their precision. Frozen
    layers therefore need Parameters of their own, which the oracle only reads.

    Raises:
        TypeError: ``oracle`` is not an Oracle.
        ValueError: reduction "sum", frozen numbers among its Parameters, data of different lengths; also in an
            evaluation after numbers were frozen.

    Example:
        >>> import burtorch as bt
        >>> import numpy as np
        >>> params = bt.Parameters(dtype="float64")
        >>> model = bt.nn.Linear(params, 2, 1)
        >>> params.values[:] = np.zeros(3)
        >>> oracle = bt.Oracle(model, loss="mse", params=params)
        >>> f = bt.opt.from_oracle(oracle, np.eye(2), np.array([1.0, 2.0]))
        >>> f.n, f.d, f.grad(np.zeros(3))
        (2, 3, array([-1., -2., -3.]))
    """
    of_kind(oracle, Oracle, "oracle", "bt.Oracle(model, loss='mse', params=params)")
    if oracle.reduction != "mean":
        found = f'found "{oracle.reduction}"'
        raise ValueError(f'an oracle of a problem needs reduction="mean", the mean loss of its samples, {found}')
    arrays = samples_of(data)
    params = oracle.params
    _check_trainable(params)

    if not arrays:
        raise ValueError("an oracle needs data: give arrays with one row per sample")
    return FiniteSum(OracleMean(oracle, arrays), len(arrays[0]), len(params.values), l2=l2, nonconvex=nonconvex)


class OracleMean:
    """The mean loss of an oracle over some samples, and its gradient, at any point."""

    def __init__(self, oracle: Oracle, arrays: Any) -> None:
        self.oracle, self.arrays = oracle, arrays

    def __call__(self, x: NDArray[np.float64], samples: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        import numpy as np

        params = self.oracle.params
        _check_trainable(params)
        # NumPy converts in a loop without one call per number.
        np.copyto(np.asarray(params.values), x, casting="same_kind")
        value, gradient = self.oracle(*(part[samples] for part in self.arrays))
        return float(value), np.asarray(gradient, float)


def _check_trainable(params: Parameters) -> None:
    """Raises ValueError for frozen numbers, which methods, regularisers and proximal terms would change."""
    if n_frozen := params.n - params.n_trainable:
        raise ValueError(
            f"methods change all numbers of an oracle's Parameters, found {n_frozen} of {params.n} frozen: unfreeze "
            "them, or give frozen layers Parameters of their own, and the others to bt.Oracle(model, params=others)"
        )
