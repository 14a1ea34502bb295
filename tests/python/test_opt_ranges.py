"""Numbers out of range, and matrices of the caller."""

from __future__ import annotations

import numpy as np
import pytest

from burtorch import compress, opt

N, D = 24, 6
RNG = np.random.default_rng(8)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
PARTS = [np.arange(0, 3), np.arange(3, 10), np.arange(10, 12), np.arange(12, N)]
TOP = compress.TopK(2)


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


def test_a_sparse_matrix_of_the_caller_stays_as_it_is():
    sparse = pytest.importorskip("scipy.sparse")
    rows = sparse.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 4))
    f = opt.least_squares(rows, [1.0])
    assert rows.indices.tolist() == [2, 0, 0]
    np.testing.assert_allclose(f.features(), [[5.0, 0.0, 1.0, 0.0]])


RANGES = {
    "rows of zeros": lambda: opt.GD(opt.least_squares(np.zeros((2, 3)), [1.0, 2.0])),
    "tiny features": lambda: opt.EF21(opt.least_squares(FEATURES * 1e-160, TARGETS), compressor=TOP),
    "huge features": lambda: opt.PAGE(opt.least_squares(FEATURES * 1e150, TARGETS)),
    "huge features of clients": lambda: opt.smoothness(opt.least_squares(FEATURES * 1e150, TARGETS), PARTS),
    "steps below 0": lambda: opt.GD(problem()).run(-1),
    "epochs below 0": lambda: opt.GD(problem()).run(epochs=-1.0),
    "epochs that are NaN": lambda: opt.GD(problem()).run(epochs=float("nan")),
    "bits below 0": lambda: opt.GD(problem()).run(bits=-1.0),
    "seconds that are NaN": lambda: opt.GD(problem()).run(seconds=float("nan")),
    "a state of nothing": lambda: opt.GD(problem()).load_state_dict({}),
    "one label name": lambda: opt.logistic_regression(FEATURES, np.ones(N), label_names=(1.0,)),
    "classes below 0": lambda: opt.softmax_regression(FEATURES, np.full(N, -1)),
    "classes between whole numbers": lambda: opt.softmax_regression(FEATURES, np.full(N, 0.5)),
}


@pytest.mark.parametrize("name", RANGES)
def test_numbers_out_of_range_are_one_value_error(name):
    with pytest.raises(ValueError):
        RANGES[name]()


def test_rows_of_zeros_are_taken_with_a_number_as_step():
    f = opt.least_squares(np.zeros((2, 3)), [1.0, 2.0])
    assert opt.GD(f, step=0.5).run(3)[-1].loss == 1.25
    assert opt.softmax_regression(FEATURES, np.arange(N) % 3 * 1.0).d == 3 * D
    with pytest.raises(TypeError, match="step must be"):
        opt.GD(f, step=None)
