"""The logarithm of the posterior density of a mixture of Gaussians with a Wishart prior, and its gradient."""

import math

import numpy as np

import burtorch as bt


def places(d):
    """The indices of a lower triangular matrix in (0, the strictly lower entries by columns, the diagonal)."""
    found = np.zeros((d, d), dtype=np.int64)
    columns, rows = np.triu_indices(d, 1)
    found[rows, columns] = 1 + np.arange(len(rows))
    found[range(d), range(d)] = 1 + len(rows) + np.arange(d)
    return found


def log_gamma(p, a):
    """The logarithm of the multivariate gamma function of dimension p."""
    return p * (p - 1) / 4 * math.log(math.pi) + sum(math.lgamma(a - j / 2) for j in range(p))


def log_sum_exp(x, axis):
    largest = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(largest, axis) + np.log(np.sum(np.exp(x - largest), axis=axis))


def log_posterior(parameters, x, m, gamma):
    alpha, mu, q, below = (parameters[name] for name in ("alpha", "mu", "q", "l"))
    (k, d), n = mu.shape, len(x)
    entries = np.concatenate([np.zeros((k, 1)), below, np.exp(q)], axis=1)
    roots = entries[:, places(d)]
    traces = np.sum(q, axis=1)
    # The roots times (point - mean), for each component and point, as one matrix product.
    scaled = np.reshape(np.reshape(roots, (k * d, d)) @ x.T, (k, d, n)) - roots @ mu[:, :, None]
    exponents = (alpha + traces)[:, None] - 0.5 * np.sum(scaled * scaled, axis=1)
    likelihood = np.sum(log_sum_exp(exponents, 0)) - n * (d / 2 * math.log(2 * math.pi) + log_sum_exp(alpha, 0))
    freedom = d + m + 1
    constant = k * (freedom * d * math.log(gamma / math.sqrt(2)) - log_gamma(d, freedom / 2))
    return likelihood + constant - gamma**2 / 2 * np.sum(entries * entries) + m * np.sum(traces)


objective = bt.function(lambda parameters, x, *, m, gamma: log_posterior(parameters, x, m, gamma))
gradient = bt.grad(lambda parameters, x, *, m, gamma: log_posterior(parameters, x, m, gamma))

FUNCTIONS = {
    "objective": lambda parameters, x, m, gamma: objective(parameters, x, m=m, gamma=gamma),
    "jacobian": lambda parameters, x, m, gamma: gradient(parameters, x, m=m, gamma=gamma),
}


def prepare(given):
    parameters = {name: np.array(given[name]) for name in ("alpha", "mu", "q", "l")}
    return parameters, np.array(given["x"]), given["m"], given["gamma"]
