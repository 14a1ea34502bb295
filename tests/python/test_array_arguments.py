"""A one-dimensional array as the argument of a traced function: the body gives the same result as with NumPy arrays."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

X = np.array([0.3, 0.9, 0.5, -0.2])
A = np.arange(12.0).reshape(3, 4) / 10

BODIES = {
    "np.max": lambda x: np.max(x) + np.log(np.sum(np.exp(x - np.max(x)))),
    "matrix @ x": lambda x: (A @ x).sum(),
    "x @ matrix": lambda x: (x @ A.T).sum(),
    "x @ x": lambda x: x @ x,
    "outer": lambda x: np.outer(x, x).sum(),
    "new axes": lambda x: (x[:, None] * x[None, :]).sum(),
    "reshape": lambda x: x.reshape(2, 2).sum(axis=0)[0],
    "ravel": lambda x: x.ravel().sum(),
    "T": lambda x: (x.T * x).sum(),
    "mean": lambda x: x.mean(),
    "np.mean": lambda x: np.mean(x**2),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(),
    "prod": lambda x: x.prod(),
    "norm": lambda x: np.linalg.norm(x),
    "cumsum": lambda x: np.cumsum(x)[2],
    "slices": lambda x: (x[1:] * x[:-1]).sum(),
    "reversed": lambda x: (x[::-1] * x).sum(),
    "axis": lambda x: x.sum(axis=0),
    "keepdims": lambda x: (x / x.sum(keepdims=True)).max(),
    "where": lambda x: np.where(x > 0, x, 0.1 * x).sum(),
    "shape": lambda x: x[x.shape[0] - 1] * x.ndim / x.size,
    "dot": lambda x: np.dot(x, x),
    "x.dot": lambda x: x.dot(A.T).sum(),
    "einsum": lambda x: np.einsum("i,i->", x, x),
    "places": lambda x: x[[0, 2]].sum(),
    "mask": lambda x: x[np.array([True, False, True, False])].sum(),
    "steps": lambda x: sum(v * v for v in x),
    "len": lambda x: x[len(x) - 1] ** 2,
    "stack": lambda x: np.stack([x, x]).sum(),
    "hstack": lambda x: np.hstack([x, x]).sum(),
    "concatenate": lambda x: np.concatenate([x, 2 * x]).sum(),
    "clip": lambda x: np.clip(x, 0, 0.55).sum(),
    "minimum": lambda x: np.minimum(x, 0.4).sum(),
    "power": lambda x: (2.0**x).sum(),
    "abs": lambda x: abs(x).sum() + np.abs(x).max(),
    "solve": lambda x: np.linalg.solve(2 * np.eye(4) + np.outer(x, x), x).sum(),
    "diag": lambda x: np.diag(x).sum(),
    "astype": lambda x: x.astype(float).sum(),
    "copy": lambda x: x.copy().sum(),
    "argmax": lambda x: x[x.argmax()],
    "all": lambda x: x.sum() if (x > -1).all() else 0 * x.sum(),
    "products": lambda x: A @ x @ A[0, :3],
}


def differences(body, x, h=1e-6):
    return np.array([(body(x + h * e) - body(x - h * e)) / (2 * h) for e in np.eye(len(x))])


@pytest.mark.parametrize("name", BODIES)
def test_a_body_has_the_result_of_numpy(name):
    body = BODIES[name]
    f = bt.function(body)
    value, gradient = f.value_and_grad(X)
    assert value == pytest.approx(body(X), rel=1e-12)
    assert gradient == pytest.approx(differences(body, X), rel=1e-6, abs=1e-8)
    assert gradient == pytest.approx(bt.grad(body)(X), rel=1e-12, abs=1e-15)
    assert f(X) == value
    assert f(np.append(X, X)[:4]) == value
    assert f.hessian(X) == pytest.approx(bt.hessian(body)(X), rel=1e-9, abs=1e-9)


def test_functions_of_a_vector_that_are_no_chain_of_numbers():
    for body in [lambda x: bt.softmax(x)[1], lambda x: bt.logsumexp(x, axis=0), lambda x: bt.log_softmax(x)[2]]:
        f = bt.function(body)
        assert f.grad(X) == pytest.approx(bt.grad(body)(X), rel=1e-12)
    jacobian = bt.function(bt.softmax).jacobian(X)
    p = np.exp(X) / np.exp(X).sum()
    assert jacobian == pytest.approx(np.diag(p) - np.outer(p, p), abs=1e-15)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (lambda x: x + "a", TypeError),
        (lambda x: x.nothing, AttributeError),
        (lambda x: x[7], IndexError),
        (lambda x: x + np.ones(3), ValueError),
        (lambda x: float(x[0]), bt.TraceError),
        (lambda x: None, bt.TraceError),
    ],
)
def test_a_body_that_fails_with_both_fails_as_before(body, kind):
    runs = []

    def counted(x):
        runs.append(type(x).__name__)
        return body(x)

    f = bt.function(counted)
    for _ in range(2):
        with pytest.raises(kind):
            f(X)
    # The next call starts with a Vector again.
    assert runs == ["Vector", "Array", "Vector", "Array"]


def test_an_error_of_the_body_itself_runs_it_once():
    runs = []

    def body(x):
        runs.append(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bt.function(body)(X)
    assert len(runs) == 1


def test_an_interrupt_of_the_second_trace_is_raised():
    def body(x):
        if isinstance(x, bt.Array):
            raise KeyboardInterrupt
        return x.nothing

    with pytest.raises(KeyboardInterrupt):
        bt.function(body)(X)


def test_numbers_alone_are_traced_once():
    runs = []

    def body(x):
        runs.append(x)
        return x.nothing

    with pytest.raises(AttributeError):
        bt.function(body)(2.0)
    assert len(runs) == 1
