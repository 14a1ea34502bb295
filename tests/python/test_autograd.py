"""``burtorch.autograd``: programs like the published examples of HIPS autograd, and each function of the module."""

from __future__ import annotations

import itertools
import math
import runpy
from pathlib import Path

import pytest

np_plain = pytest.importorskip("numpy")

import burtorch as bt  # noqa: E402
import burtorch.autograd.numpy as np  # noqa: E402
import burtorch.autograd.numpy.random as npr  # noqa: E402
import burtorch.autograd.scipy.stats.norm as norm  # noqa: E402
from burtorch import autograd as ag  # noqa: E402
from burtorch.autograd import elementwise_grad, grad, hessian, hessian_vector_product, jacobian, value_and_grad  # noqa: E402
from burtorch.autograd.misc.flatten import flatten  # noqa: E402
from burtorch.autograd.misc.optimizers import adam, rmsprop, sgd  # noqa: E402
from burtorch.autograd.scipy.special import gammaln, logsumexp  # noqa: E402

same = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))["same"]
RS = np_plain.random.RandomState(0)


def check(f, x, *rest, tolerance=1e-6):
    """The gradient with respect to the first argument, a nest, against differences in a random direction, three
    times."""
    value, gradient = value_and_grad(f)(x, *rest)
    assert same(value, f(x, *rest), 1e-10)
    row, back = flatten(x)
    slope, _ = flatten(gradient)
    assert slope.shape == row.shape
    for _ in range(3):
        direction = RS.randn(*row.shape)
        h = 1e-6
        change = (f(back(row + h * direction), *rest) - f(back(row - h * direction), *rest)) / (2 * h)
        assert abs(change - slope @ direction) <= tolerance * (1 + abs(slope) @ abs(direction))


def test_tanh_and_its_derivatives():
    def tanh(x):
        return (1.0 - np.exp(-2.0 * x)) / (1.0 + np.exp(-2.0 * x))

    x = np.linspace(-3, 3, 9)
    derivatives = [tanh]
    for _ in range(4):
        derivatives.append(elementwise_grad(derivatives[-1]))
    t = np.tanh(x)
    assert same(derivatives[1](x), 1 - t**2)
    assert same(derivatives[2](x), -2 * t * (1 - t**2))
    assert same(derivatives[3](x), (1 - t**2) * (6 * t**2 - 2))
    assert same(derivatives[4](x), (1 - t**2) * (16 * t - 24 * t**3), 1e-11)
    assert same(grad(tanh)(1.0), 1 - math.tanh(1.0) ** 2)
    assert same(grad(grad(grad(np.sin)))(0.5), -math.cos(0.5))


def test_a_series_with_a_condition():
    def sine(x):
        total, term, k = x, x, 1
        while np.abs(term) > 1e-9:
            term = -term * x * x / ((k + 1) * (k + 2))
            total = total + term
            k += 2
        return total

    assert same(grad(sine)(1.3), math.cos(1.3), 1e-8)
    assert same(grad(grad(sine))(1.3), -math.sin(1.3), 1e-6)


def test_logistic_regression():
    inputs, targets = RS.randn(20, 3), RS.rand(20) > 0.5

    def probabilities(w):
        return 0.5 * (np.tanh(np.dot(inputs, w) / 2) + 1)

    def loss(w):
        p = probabilities(w)
        return -np.sum(np.log(p * targets + (1 - p) * (1 - targets)))

    check(loss, np.array([0.1, -0.2, 0.3]))
    w = np.zeros(3)
    start = loss(w)
    for _ in range(50):
        w = w - grad(loss)(w) * 0.02
    assert loss(w) < start


def layers(sizes):
    return [(RS.randn(m, n) * 0.5, RS.randn(n) * 0.1) for m, n in itertools.pairwise(sizes)]


def network(params, x):
    for w, b in params:
        out = np.dot(x, w) + b
        x = np.tanh(out)
    return out - logsumexp(out, axis=1, keepdims=True)


def l2(params):
    row, _ = flatten(params)
    return np.dot(row, row)


def test_a_neural_network_and_adam():
    images = RS.randn(16, 5)
    labels = np.eye(3)[RS.randint(0, 3, 16)]
    batches = 4

    def objective(params, step):
        batch = slice(step % batches * 4, (step % batches + 1) * 4)
        return -np.sum(network(params, images[batch]) * labels[batch]) + 0.01 * l2(params)

    params = layers([5, 7, 3])
    check(objective, params, 2)
    seen = []
    trained = adam(grad(objective), params, lambda p, k, g: seen.append(k), num_iters=60, step_size=0.05)
    assert seen == list(range(60))
    assert objective(trained, 0) < objective(params, 0) / 2
    for optimiser in (sgd, rmsprop):
        assert objective(optimiser(grad(objective), params, num_iters=30, step_size=0.05), 0) < objective(params, 0)


def rosenbrock(x):
    return 100 * np.sum((x[1:] - x[:-1] ** 2) ** 2) + np.sum((1 - x[:-1]) ** 2)


def test_rosenbrock_with_second_derivatives():
    x = np.array([0.8, 1.1, -0.4, 0.3])
    check(rosenbrock, x, tolerance=1e-5)
    h = hessian(rosenbrock)(x)
    expected = np.zeros((4, 4))
    for k in range(3):
        expected[k, k] += 1200 * x[k] ** 2 - 400 * x[k + 1] + 2
        expected[k, k + 1] = expected[k + 1, k] = -400 * x[k]
        expected[k + 1, k + 1] += 200
    assert same(h, expected, 1e-10)
    v = np.array([1.0, 2.0, -1.0, 0.5])
    assert same(hessian_vector_product(rosenbrock)(x, v), expected @ v, 1e-10)
    hvp, gradient = ag.make_hvp(rosenbrock)(x)
    assert same([hvp(v), gradient], [expected @ v, grad(rosenbrock)(x)], 1e-10)
    for _ in range(60):
        x = x - np.linalg.solve(hessian(rosenbrock)(x), grad(rosenbrock)(x))
    assert same(grad(rosenbrock)(x), np.zeros(4), 1e-8)


def test_a_mixture_of_gaussians():
    data = RS.randn(30, 2)

    def log_likelihood(params, data):
        weights = params["log proportions"] - logsumexp(params["log proportions"])
        scores = []
        for weight, mean, chol in zip(weights, params["means"], params["lower triangles"]):
            z = np.linalg.solve(np.tril(chol) + 2 * np.eye(2), (data - mean).T)
            size = np.sum(np.log(np.abs(np.diag(np.tril(chol) + 2 * np.eye(2)))))
            scores.append(weight - 0.5 * np.sum(z**2, 0) - size - math.log(2 * math.pi))
        return np.sum(logsumexp(np.vstack(scores), axis=0))

    params = {"log proportions": RS.randn(3), "means": RS.randn(3, 2), "lower triangles": RS.randn(3, 2, 2) * 0.3}
    check(log_likelihood, params, data)


def test_a_fluid():
    shape = (6, 7)

    def project(vx, vy):
        pressure = np.zeros(shape)
        divergence = -0.5 * (np.roll(vx, -1, 1) - np.roll(vx, 1, 1) + np.roll(vy, -1, 0) - np.roll(vy, 1, 0)) / 6
        for _ in range(3):
            neighbours = [np.roll(pressure, step, axis) for step in (1, -1) for axis in (0, 1)]
            pressure = (divergence + sum(neighbours)) / 4
        return (
            vx - 3 * (np.roll(pressure, -1, 1) - np.roll(pressure, 1, 1)),
            vy - 3 * (np.roll(pressure, -1, 0) - np.roll(pressure, 1, 0)),
        )

    def advect(f, vx, vy):
        rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
        y, x = (rows - vy).ravel(), (columns - vx).ravel()
        top, left = np.floor(y).astype(int), np.floor(x).astype(int)
        right, bottom = (left + 1) % shape[1], (top + 1) % shape[0]
        dy, dx = y - np.floor(y), x - np.floor(x)
        top, left = top % shape[0], left % shape[1]
        upper = (1 - dx) * f[top, left] + dx * f[top, right]
        lower = (1 - dx) * f[bottom, left] + dx * f[bottom, right]
        return np.reshape((1 - dy) * upper + dy * lower, shape)

    smoke, target = RS.rand(*shape), RS.rand(*shape)

    def distance(params):
        vx, vy = params[: smoke.size].reshape(shape), params[smoke.size :].reshape(shape)
        now = smoke + 0.0 * vx  # an array of numbers does not accept integers of a trace as indices
        for _ in range(4):
            vx, vy = advect(vx, vx, vy), advect(vy, vx, vy)
            vx, vy = project(vx, vy)
            now = advect(now, vx, vy)
        return np.mean((now - target) ** 2)

    check(distance, RS.randn(2 * smoke.size) * 0.3, tolerance=1e-5)


def sigmoid(x):
    return 0.5 * (np.tanh(x / 2) + 1)


def test_recurrent_networks():
    n_hidden, n_in, n_steps = 4, 3, 5
    inputs, targets = RS.randn(n_steps, 2, n_in), RS.randn(n_steps, 2, n_in)

    def rnn(params):
        h, loss = np.repeat(params["start"], 2, axis=0), 0.0
        for x, y in zip(inputs, targets):
            h = np.tanh(np.hstack((x, h, np.ones((2, 1)))) @ params["change"])
            out = h @ params["out"]
            loss = loss + np.sum((out - y) ** 2)
        return loss

    check(
        rnn,
        {
            "start": RS.randn(1, n_hidden),
            "change": RS.randn(n_in + n_hidden + 1, n_hidden),
            "out": RS.randn(n_hidden, n_in),
        },
    )

    def lstm(params):
        h, c, loss = np.zeros((2, n_hidden)), np.zeros((2, n_hidden)), 0.0
        for x, y in zip(inputs, targets):
            xh = np.concatenate((x, h, np.ones((2, 1))), axis=1)
            change, forget, ingate, outgate = (np.dot(xh, params[k]) for k in ("change", "forget", "in", "out"))
            c = c * sigmoid(forget) + np.tanh(change) * sigmoid(ingate)
            h = sigmoid(outgate) * np.tanh(c)
            loss = loss + np.mean((np.dot(h, params["predict"]) - y) ** 2)
        return loss

    gates = {k: RS.randn(n_in + n_hidden + 1, n_hidden) for k in ("change", "forget", "in", "out")}
    check(lstm, {**gates, "predict": RS.randn(n_hidden, n_in)})


def covariance(params, x, y):
    scale, lengths = np.exp(params[0]), np.exp(params[1:])
    diffs = np.expand_dims(x / lengths, 1) - np.expand_dims(y / lengths, 0)
    return scale * np.exp(-0.5 * np.sum(diffs**2, axis=2))


def test_a_gaussian_process():
    x, y = RS.randn(8, 2), RS.randn(8)

    def evidence(params):
        mean, noise = params[0], np.exp(params[1]) + 0.001
        cov = covariance(params[2:], x, x) + noise * np.eye(8)
        _, size = np.linalg.slogdet(cov)
        return 0.5 * np.dot(y - mean, np.linalg.solve(cov, y - mean)) + 0.5 * size

    def by_cholesky(params):
        cov = covariance(params[2:], x, x) + (np.exp(params[1]) + 0.001) * np.eye(8)
        low = np.linalg.cholesky(cov)
        return 0.5 * np.sum(np.linalg.solve(low, y - params[0]) ** 2) + np.sum(np.log(np.diag(low)))

    params = RS.randn(5) * 0.1
    check(evidence, params)
    assert same(grad(evidence)(params), grad(by_cholesky)(params), 1e-9)


def test_variational_inference_draws_other_numbers_at_every_call():
    def log_density(x):
        return norm.logpdf(x[:, 0], 0, np.exp(x[:, 1] / 2)) + norm.logpdf(x[:, 1], 0, 1.35)

    state = npr.RandomState(0)

    def objective(params, step):
        mean, log_std = params[:2], params[2:]
        samples = state.randn(50, 2) * np.exp(log_std) + mean
        return -np.mean(log_density(samples)) - np.sum(log_std)

    first, second = (grad(objective)(np.zeros(4), k) for k in range(2))
    assert not same(first, second)
    assert same(first, second, 1.5)
    state = npr.RandomState(3)
    again = grad(objective)(np.zeros(4), 0)
    state = npr.RandomState(3)
    assert same(grad(objective)(np.zeros(4), 0), again)


def test_counts_of_a_negative_binomial():
    counts = np.array([0.0, 3.0, 1.0, 7.0, 2.0])

    def log_likelihood(params):
        r, p = np.exp(params[0]), sigmoid(params[1])
        terms = gammaln(counts + r) - gammaln(counts + 1) - gammaln(r) + counts * np.log(p) + r * np.log(1 - p)
        return np.sum(terms)

    check(log_likelihood, np.array([0.3, -0.2]))
    assert hessian(log_likelihood)(np.array([0.3, -0.2])).shape == (2, 2)


def test_a_hidden_markov_model():
    observed = [0, 2, 1, 1, 0, 2]

    def log_likelihood(params):
        start, moves, emits = (p - logsumexp(p, axis=-1, keepdims=True) for p in params)
        alpha = start + emits[:, observed[0]]
        for symbol in observed[1:]:
            alpha = logsumexp(alpha[:, None] + moves, axis=0) + emits[:, symbol]
        return logsumexp(alpha)

    params = (RS.randn(3), RS.randn(3, 3), RS.randn(3, 3))
    check(log_likelihood, params)
    # The expected counts of a row add up to the visits of its state.
    counts = grad(log_likelihood)(params)
    assert isinstance(counts, tuple)


def test_a_differential_equation():
    def slope(state, _t, params):
        return np.tanh(state @ params[0]) @ params[1]

    def flow(params):
        state, h = np.array([[2.0, 0.0]]), 0.1
        path = [state]
        for k in range(10):
            a = slope(state, k * h, params)
            b = slope(state + h * a / 2, k * h, params)
            c = slope(state + h * b / 2, k * h, params)
            d = slope(state + h * c, k * h, params)
            state = state + h * (a + 2 * b + 2 * c + d) / 6
            path.append(state)
        return np.mean(np.concatenate(path) ** 2)

    check(flow, [RS.randn(2, 5), RS.randn(5, 2)])


def test_adversarial_networks():
    real, noise = RS.randn(6, 2), RS.randn(6, 2)

    def scores(params, x):
        return logsumexp(network(params, x) * np.array([[1.0, 0.0]]), axis=1)

    def objective(generator, critic):
        fake = network(generator, noise)
        return np.mean(np.log(sigmoid(scores(critic, real)))) + np.mean(np.log(1 - sigmoid(scores(critic, fake))))

    generator, critic = layers([2, 4, 2]), layers([2, 4, 2])
    check(objective, generator, critic)
    both = grad(objective, (0, 1))(generator, critic)
    assert same(list(both[1]), list(grad(objective, 1)(generator, critic)))


def test_independent_components():
    data = RS.laplace(size=(40, 3))

    def loss(w):
        _, size = np.linalg.slogdet(w)
        return -size + np.mean(np.sum(np.log(np.cosh(data @ w)), axis=1)) + np.linalg.norm(w) * 0.01

    check(loss, np.eye(3) + 0.1 * RS.randn(3, 3))


def test_a_bayesian_network_of_weights():
    x, y = np.linspace(-2, 2, 10)[:, None], np.cos(np.linspace(-2, 2, 10))[:, None]

    def predictions(weights):
        # One set of weights in each row.
        hidden = weights[:, :5].reshape(-1, 1, 5)
        out = weights[:, 5:].reshape(-1, 5, 1)
        return np.einsum("mnh,mho->mno", np.tanh(np.einsum("ni,mih->mnh", x, hidden)), out)

    def log_posterior(weights):
        prior = -0.1 * np.sum(weights**2, axis=1)
        likelihood = -np.sum((predictions(weights) - y) ** 2, axis=1)[:, 0] / 0.1
        return np.sum(prior + likelihood)

    check(log_posterior, RS.randn(4, 10))


def test_a_convolution():
    images, filters = RS.randn(2, 5, 5), RS.randn(3, 2, 2)

    def features(filters):
        patches = np.stack([images[:, i : i + 4, j : j + 4] for i in range(2) for j in range(2)], -1)
        out = np.maximum(np.dot(patches, filters.reshape(3, 4).T), 0.0)
        pooled = np.max(out.reshape(2, 2, 2, 2, 2, 3), axis=(2, 4))
        return np.sum(np.tanh(pooled) ** 2)

    check(features, filters)


def test_jacobians_and_products():
    a = RS.randn(3, 4)

    def f(x):
        return np.tanh(a @ x)

    x = RS.randn(4)
    slope = (1 - np.tanh(a @ x) ** 2)[:, None] * a
    assert same(jacobian(f)(x), slope)
    assert jacobian(jacobian(f))(x).shape == (3, 4, 4)
    g, v = RS.randn(3), RS.randn(4)
    vjp, value = ag.make_vjp(f)(x)
    assert same([vjp(g), value], [g @ slope, f(x)])
    value, change = ag.make_jvp(f)(x)(v)
    assert same([value, change], [f(x), slope @ v])
    assert same(ag.vector_jacobian_product(f)(x, g), g @ slope)
    assert same(ag.make_ggnvp(f)(x)(v), slope.T @ (slope @ v))
    assert same(ag.deriv(lambda x: x**3)(2.0), 12.0)
    assert same(ag.grad_named(lambda a, b: a * b**2, "b")(3.0, 2.0), 12.0)
    assert ag.multigrad_dict(lambda a, b=2.0: a * b**2)(3.0) == {"a": 4.0, "b": 12.0}
    assert ag.grad_and_aux(lambda x: (np.sum(x**2), "kept"))(np.ones(2))[1] == "kept"
    assert same(grad(lambda x, y: np.sum(x) * y, 1)(x, 2.0), x.sum())
    assert same(list(grad(lambda x, y: np.sum(x) * y, [0, 1])(x, 2.0)), [np.full(4, 2.0), x.sum()])


def test_arrays_of_numbers_that_are_differentiated():
    def rotated(angle):
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.array([1.0, 2.0])

    slope = np.array([-math.sin(0.3) - 2 * math.cos(0.3), math.cos(0.3) - 2 * math.sin(0.3)])
    assert same(jacobian(rotated)(0.3), slope)
    assert np.array([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert same(grad(lambda x: np.linalg.norm(np.array([x, 3.0])))(4.0), 0.8)
    assert np.fft.fft is np_plain.fft.fft
    assert np.linalg.inv is np_plain.linalg.inv


def test_differentiated_arguments_must_be_numbers():
    with pytest.raises(TypeError):
        grad(lambda x: x)("text")
    with pytest.raises((TypeError, ValueError)):
        grad(lambda x: x * 2)(np.ones(3))
    with pytest.raises(TypeError):
        grad(lambda x: math.sin(x))(1.0)


def test_bodies_use_arrays_of_a_function_that_is_traced():
    ones, x = np.ones(3), np.array([1.0, 2.0, 3.0])

    def of_known(c):
        """Derivatives with respect to numbers known at tracing, in bodies that use c."""
        f = lambda z: np.sum(z * z * c)  # noqa: E731
        vjp, _ = ag.make_vjp(lambda z: z * z * c)(ones)
        bent = hessian(f)(ones).sum(0) + hessian_vector_product(f)(ones, ones)
        return grad(f)(ones) + bent + vjp(ones) + ag.make_jvp(lambda z: z * c)(ones)(ones)[1]

    total = 9.0 * x
    assert same(of_known(x), total)
    assert same(bt.function(lambda rows: of_known(rows[0]))(np.stack([x, x])), total)
    assert same(bt.vmap(of_known)(np.stack([x, 2 * x])), np.stack([total, 2 * total]))
    carry, kept = bt.scan(lambda c, y: (c + y * grad(lambda z: np.sum(z * z * c))(ones), c), x, np.array([1.0, 2.0]))
    assert same(carry, 15.0 * x)
    assert same(kept, np.stack([x, 3.0 * x]))
    assert same(bt.grad(lambda c: of_known(c).sum())(x), 9.0 * ones)
