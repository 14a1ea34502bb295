"""``burtorch.autograd``: primitives with own rules, ``check_grads`` and the multivariate normal distribution."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest

np_plain = pytest.importorskip("numpy")

import burtorch as bt  # noqa: E402
import burtorch.autograd.numpy as np  # noqa: E402
import burtorch.autograd.scipy.stats.multivariate_normal as mvn  # noqa: E402
from burtorch.autograd import elementwise_grad, grad, hessian, jacobian, make_jvp  # noqa: E402
from burtorch.autograd.extend import defjvp, defvjp, primitive  # noqa: E402
from burtorch.autograd.scipy.stats import multivariate_normal  # noqa: E402
from burtorch.autograd.test_util import check_grads  # noqa: E402

same = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))["same"]
RS = np_plain.random.RandomState(0)
X, Y = RS.randn(2, 5)


def logsumexp_of(rules):
    @primitive
    def logsumexp(x):
        """Numerically stable log(sum(exp(x)))."""
        largest = np.max(x)
        return largest + np.log(np.sum(np.exp(x - largest)))

    if rules != "forward":
        defvjp(logsumexp, lambda ans, x: lambda g: np.full(x.shape, 1.0) * g * np.exp(x - ans))
    if rules != "reverse":
        defjvp(logsumexp, lambda g, ans, x: np.sum(g * np.exp(x - ans)))
    return logsumexp


@pytest.mark.parametrize("rules", ["reverse", "forward", "both"])
def test_the_published_example(rules):
    logsumexp = logsumexp_of(rules)
    f = lambda y: np.sum(logsumexp(y**2))  # noqa: E731
    z = np.exp(X**2 - math.log(np.exp(X**2).sum()))
    assert same(grad(f)(X), 2 * X * z)
    assert same(f(X), math.log(np.exp(X**2).sum()))
    assert logsumexp.__name__ == "logsumexp"
    assert "stable" in logsumexp.__doc__
    check_grads(f)(X)
    check_grads(f, modes=["rev"])(X)
    assert same(hessian(f)(X), hessian(lambda y: np.log(np.sum(np.exp(y**2))))(X), 1e-10)
    assert same(bt.grad(f)(X), 2 * X * z)
    assert same(bt.vmap(bt.grad(f))(np.stack([X, Y]))[0], 2 * X * z)


def test_rules_are_by_argument_and_take_keywords():
    seen = []

    @primitive
    def scaled(x, y, z=1.0):
        return x * y * z

    defvjp(scaled, lambda ans, x, y, z=1.0: seen.append((type(y).__name__, z)) or (lambda g: 10.0 * g * y * z))
    defvjp(scaled, lambda ans, x, y, z=1.0: lambda g: g * x * z, argnums=[1])
    assert same(grad(lambda x: np.sum(scaled(x, Y, z=3.0)))(X), 30.0 * Y)
    assert {*seen} == {("ndarray", 3.0)}
    assert same(grad(lambda y: np.sum(scaled(X, y)))(Y), X)
    both = grad(lambda x, y: np.sum(scaled(x, y)), (0, 1))(X, Y)
    assert same(both, (10.0 * Y, X))
    assert same(scaled(X, Y), X * Y)


def test_arguments_without_a_rule_or_without_a_gradient():
    @primitive
    def half(x, y, table):
        return x * y + table["a"]

    defvjp(half, None, lambda ans, x, y, table: lambda g: g * x)
    assert same(grad(lambda y: np.sum(half(X, y, {"a": 1.0})))(Y), X)
    assert same(grad(lambda x: np.sum(half(x, Y, {"a": 1.0})) + np.sum(x))(X), np.ones(5))
    with pytest.raises(NotImplementedError, match=r"VJP of .*half wrt argnum 2 not defined"):
        grad(lambda x: np.sum(half(x, Y, {"a": x})))(X)

    @primitive
    def bare(x):
        return x * 2.0

    with pytest.raises(TypeError, match="bare has no derivative; give it one with defvjp"):
        grad(lambda x: np.sum(bare(x)))(X)


def test_forward_rules():
    @primitive
    def f(x, y):
        return x * y, x + y

    defjvp(f, lambda g, ans, x, y: (g * y, g), None)
    assert same(make_jvp(lambda x: f(x, Y)[0])(X)(Y)[1], Y * Y)
    assert same(make_jvp(lambda y: f(X, y)[0])(Y)(Y)[1], np.zeros(5))
    assert same(make_jvp(lambda x: f(x, x)[1])(X)(Y)[1], Y)
    assert same(grad(lambda x: np.sum(f(x, Y)[0]))(X), Y)

    @primitive
    def double(x):
        return x + x

    defjvp(double, "same")
    assert same(make_jvp(double)(X)(Y)[1], 2.0 * Y)
    assert same(elementwise_grad(double)(X), np.full(5, 2.0))


def test_check_grads_finds_wrong_derivatives():
    @primitive
    def wrong(x):
        return np.sin(x)

    defvjp(wrong, lambda ans, x: lambda g: g * np.cos(x) * 1.001)
    for modes in ("rev", "fwd", ["fwd", "rev"]):
        with pytest.raises(AssertionError, match="a derivative of mode"):
            check_grads(wrong, modes)(X)

    @primitive
    def wrong_twice(x):
        return x * x

    defvjp(wrong_twice, lambda ans, x: lambda g: g * 2.0 * bt.stop_gradient(x))
    check_grads(wrong_twice, order=1)(X)
    with pytest.raises(AssertionError, match="a derivative of mode"):
        check_grads(wrong_twice)(X)
    check_grads(lambda x, table: {"a": x * table["b"]}, order=2)(X, {"b": 3.0})
    for modes in ([], "forward"):
        with pytest.raises(ValueError, match="modes are 'fwd' and 'rev'"):
            check_grads(wrong, modes)


def a_covariance(n):
    root = RS.randn(n, n)
    return root @ root.T + n * np.eye(n)


def test_the_multivariate_normal_distribution():
    for n in (1, 2, 5):
        mean, cov, rows = RS.randn(n), a_covariance(n), RS.randn(4, n)
        solved = np_plain.linalg.solve(cov, (rows - mean).T).T
        expected = -0.5 * (
            ((rows - mean) * solved).sum(1) + n * math.log(2 * math.pi) + np_plain.linalg.slogdet(cov)[1]
        )
        assert same(mvn.logpdf(rows, mean, cov), expected)
        assert same(mvn.pdf(rows, mean, cov), np.exp(expected))
        assert same(mvn.logpdf(rows[0] if n > 1 else rows[0, 0], mean, cov), expected[0])
        assert same(mvn.logpdf(rows.reshape(2, 2, n), mean, cov), expected.reshape(2, 2))
        assert same(
            mvn.entropy(mean, cov), 0.5 * (n * math.log(2 * math.pi * math.e) + np_plain.linalg.slogdet(cov)[1])
        )


def test_derivatives_of_the_multivariate_normal_distribution():
    def f(rows, mean, root):
        cov = root @ root.T + 3.0 * np.eye(3)
        return np.sum(multivariate_normal.logpdf(rows, mean, cov) ** 2) + multivariate_normal.entropy(mean, cov)

    check_grads(f)(RS.randn(4, 3), RS.randn(3), RS.randn(3, 3))


def test_defaults_and_refusals_of_the_multivariate_normal_distribution():
    standard = -0.5 * math.log(2 * math.pi)
    assert same(mvn.logpdf(0.0), standard)
    assert same(mvn.logpdf(np.zeros(3)), np.full(3, standard))
    assert same(mvn.logpdf(np.zeros(3), np.zeros(3)), 3 * standard)
    assert same(mvn.logpdf(np.zeros(3), np.zeros(3), 4.0), 3 * (standard - math.log(2.0)))
    assert same(mvn.logpdf(np.zeros(2), None, np.array([1.0, 4.0])), 2 * standard - math.log(2.0))
    assert same(grad(lambda s: mvn.logpdf(np.zeros(2), np.zeros(2), s))(2.0), -0.5)
    with pytest.raises(TypeError, match="allow_singular"):
        mvn.logpdf(np.zeros(2), np.zeros(2), np.eye(2), allow_singular=True)
    with pytest.raises(ValueError, match="shape"):
        mvn.logpdf(np.zeros(2), np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="2 coordinates"):
        mvn.logpdf(np.zeros((4, 3)), np.zeros(2), np.eye(2))


def test_a_mixture_of_normal_distributions():
    """Maximum likelihood estimation of two Gaussians, as in the published example."""
    rows = np.concatenate([RS.randn(20, 2), RS.randn(20, 2) + 3.0])

    def loss(params):
        weights, means, roots = params["weights"], params["means"], params["roots"]
        each = []
        for weight, mean, root in zip(weights, means, roots):
            each.append(weight - np.log(np.sum(np.exp(weights))) + mvn.logpdf(rows, mean, np.dot(root.T, root)))
        return -np.sum(np.log(np.sum(np.exp(np.stack(each)), axis=0)))

    params = {"weights": RS.randn(2), "means": RS.randn(2, 2), "roots": np.stack([np.eye(2), 2.0 * np.eye(2)])}
    check_grads(loss, order=1)(params)
    before = loss(params)
    for _ in range(40):
        slopes = grad(loss)(params)
        params = {key: x - 0.02 * slopes[key] for key, x in params.items()}
    assert loss(params) < before - 10.0


def test_a_gaussian_process():
    """A kernel's parameters by maximum likelihood, as in the published example."""
    inputs, targets = np.linspace(-3, 3, 12)[:, None], np.sin(np.linspace(-3, 3, 12))

    def likelihood(params):
        mean, noise, scale, lengths = params[0], np.exp(params[1]) + 0.001, np.exp(params[2]), np.exp(params[3:])
        apart = np.expand_dims(inputs / lengths, 1) - np.expand_dims(inputs / lengths, 0)
        cov = scale * np.exp(-0.5 * np.sum(apart**2, axis=2)) + noise * np.eye(12)
        return mvn.logpdf(targets, mean * np.ones(12), cov)

    check_grads(likelihood, modes="rev")(np.array([0.1, -1.0, 0.2, 0.3]))
    assert jacobian(likelihood)(np.zeros(4)).shape == (4,)
