"""Samples: files in LIBSVM format, synthetic problems, and division among clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from burtorch import _core
from burtorch.opt._arguments import numbers, whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Float = Literal["float64", "float32"] | np.dtype[Any] | type[np.float64] | type[np.float32]


class Rows(NamedTuple):
    """A sparse matrix by rows: the entries of row k are those from `starts[k]` to `starts[k + 1]`.

    SciPy calls these arrays indptr, indices and data. Every problem accepts Rows as features.

    Example:
        >>> import burtorch as bt
        >>> features, labels = bt.opt.make_least_squares(3, 4, density=0.5)
        >>> features.shape, features.toarray().shape
        ((3, 4), (3, 4))
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[Any]
    shape: tuple[int, int]

    def _parts(self) -> tuple[object, ...]:
        return *(tuple(part.tolist()) for part in (self.starts, self.columns, self.values)), self.shape

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Rows) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._parts())

    def toarray(self) -> NDArray[Any]:
        """All entries, zeros included."""
        import numpy as np

        dense = np.zeros(self.shape, self.values.dtype)
        dense[np.repeat(np.arange(self.shape[0]), np.diff(self.starts)), self.columns] = self.values
        return dense

    def toscipy(self) -> Any:
        """The matrix as `scipy.sparse.csr_array`; needs SciPy."""
        import importlib

        return importlib.import_module("scipy.sparse").csr_array((self.values, self.columns, self.starts), self.shape)


def _name(dtype: Float) -> str:
    """The name of a dtype."""
    import numpy as np

    return dtype if isinstance(dtype, str) else np.dtype(dtype).name


def _samples(found: tuple[Any, Any]) -> tuple[Any, NDArray[Any]]:
    features, labels = found
    return (Rows(*features) if isinstance(features, tuple) else features), labels


def load_libsvm(
    path: str | bytes | PathLike[str] | PathLike[bytes],
    *,
    n_features: int | None = None,
    labels: Sequence[float] | None = None,
    dense: bool = False,
    dtype: Float = "float64",
    zero_based: bool = False,
) -> tuple[Any, NDArray[Any]]:
    """Read a file in LIBSVM format, as text, gzip or bzip2.

    Args:
        path: the file; its first bytes determine the compression.
        n_features: columns; by default the largest index of the file. A test set may lack the last ones.
        labels: the label that becomes -1 and the one that becomes 1; by default labels are unchanged.
        dense: whether to return a matrix instead of `Rows`.
        dtype: of features and labels: "float64", "float32", or a dtype of NumPy.
        zero_based: whether the first feature has index 0.

    Returns (features, labels). The file is read in chunks; memory is needed only for its content. A `qid:` after the
    label, as in ranking data, is skipped.

    Raises:
        OSError: the file cannot be read.
        ValueError: the number of the line and the problem: indices that do not ascend or are too large, numbers
            that are not finite in the dtype, labels other than the two (the error names those found), a damaged file,
            no samples.

    Example:
        >>> import burtorch as bt, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "data"
        ...     size = path.write_text("1 1:0.5 3:2 # a comment" + chr(10) + "2 2:1")
        ...     features, labels = bt.opt.load_libsvm(path, labels=(1, 2))
        >>> labels.tolist(), features.toarray().tolist()
        ([-1.0, 1.0], [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]])
    """
    pair = None if labels is None else numbers(labels, "labels")
    if pair is not None and pair.shape != (2,):
        raise ValueError(f"labels must be two, the negative one first, found the shape {pair.shape}")
    two = None if pair is None else (float(pair[0]), float(pair[1]))
    return _samples(_core.read_samples(os.fsdecode(path), n_features, two, dense, _name(dtype), zero_based))


def make_least_squares(
    n: int,
    d: int,
    *,
    condition: float = 1.0,
    density: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
    dtype: Float = "float64",
) -> tuple[Any, NDArray[Any]]:
    """Generate `n` samples of `d` features and the targets of a linear model.

    Args:
        n, d: at least 1.
        condition: the ratio of the largest to the least eigenvalue of the covariance of a row; that of the samples
            approaches it for large n.
        density: the probability that an entry is not zero; below 1 the features are `Rows`.
        noise: the standard deviation of the noise of targets, whose signal has variance 1.
        seed: determines all numbers. A longer problem begins with the samples of a shorter one.
        dtype: of features and targets, as for `load_libsvm`.

    Returns (features, targets). Raises ValueError for numbers out of range.
    """
    return _samples(_core.draw_samples("linear", n, d, condition, density, noise, seed, density == 1, _name(dtype)))


def make_logistic(
    n: int,
    d: int,
    *,
    condition: float = 1.0,
    density: float = 1.0,
    seed: int = 0,
    dtype: Float = "float64",
) -> tuple[Any, NDArray[Any]]:
    """Generate `n` samples of `d` features and labels of -1 and 1 of a logistic model.

    Arguments, results and errors as for `make_least_squares`.

    Example:
        >>> import burtorch as bt
        >>> features, labels = bt.opt.make_logistic(1000, 20, condition=100.0, seed=1)
        >>> features.shape, sorted(set(labels.tolist()))
        ((1000, 20), [-1.0, 1.0])
    """
    return _samples(_core.draw_samples("logistic", n, d, condition, density, 0.0, seed, density == 1, _name(dtype)))


def split(
    labels: ArrayLike | int,
    n_clients: int,
    how: Literal["iid", "sorted", "dirichlet"] = "iid",
    *,
    concentration: float = 0.5,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Divide samples among clients: each belongs to one, and each client has at least one.

    Args:
        labels: one for each sample; or the number of samples, for "iid".
        n_clients: at most the number of samples.
        how: "iid", a random division; "sorted", by label; both in parts that differ by one sample at most.
            "dirichlet": for each label, shares of the clients are drawn from a Dirichlet distribution (Hsu, Qi and
            Brown 2019).
        concentration: of the Dirichlet distribution; the smaller it is, the fewer labels a client has.
        seed: determines the division.

    Returns the indices of each client's samples, ascending. Raises ValueError for numbers out of range.

    Example:
        >>> import burtorch as bt
        >>> [part.tolist() for part in bt.opt.split([1, 0, 1, 0, 1], 2, "sorted")]
        [[1, 3], [0, 2, 4]]
    """
    import numpy as np

    if isinstance(labels, (int, np.integer)):
        if how != "iid":
            raise ValueError(f'a division by "{how}" needs the labels, found only the number of samples')
        labels = np.zeros(whole(labels, "samples"))
    return cast("list[NDArray[np.int64]]", _core.divide_samples(labels, n_clients, how, concentration, seed))
