"""The results of the evals without a differentiation tool: hand-written derivatives, or complex steps."""

import math

import numpy as np


def expected(name, function, given):
    return REFERENCES[name, function](given)


def imaginary_steps(f, x):
    """The derivatives of the results of f by each number of x, in the last axis; exact up to rounding."""
    x, found = np.asarray(x, dtype=float), []
    for i in range(x.size):
        moved = x.astype(complex).ravel()
        moved[i] += 1e-30j
        found.append(np.imag(f(moved.reshape(x.shape))) / 1e-30)
    return np.stack(found, axis=-1)


def lse(given):
    return math.log(math.fsum(np.exp(given["x"])))


def lse_gradient(given):
    weights = np.exp(given["x"])
    return weights / math.fsum(weights)


def gmm_parts(given):
    """For each component its root, the scaled distances of the points, and the logarithm of weight times density."""
    d, x = given["d"], np.asarray(given["x"])
    weights = np.exp(given["alpha"]) / np.sum(np.exp(given["alpha"]))
    for weight, *rest in zip(weights, *(np.asarray(given[name]) for name in ("mu", "q", "l"))):
        mu, q, entries = rest
        root, at = np.diag(np.exp(q)), 0
        for column in range(d):
            below = d - 1 - column
            root[column + 1 :, column] = entries[at : at + below]
            at += below
        away = x - mu
        scaled = away @ root.T
        density = -0.5 * np.sum(scaled**2, 1) + np.sum(q) - d / 2 * math.log(2 * math.pi)
        yield root, away, scaled, math.log(weight) + density


def log_wishart(precision, m, gamma):
    p = len(precision)
    n, trace = p + m + 1, gamma**2 * np.trace(precision)
    gamma_function = p * (p - 1) / 4 * math.log(math.pi) + sum(math.lgamma((n - j) / 2) for j in range(p))
    scale = n * p / 2 * math.log(2) - n * p * math.log(gamma) + gamma_function
    return (n - p - 1) / 2 * np.linalg.slogdet(precision)[1] - trace / 2 - scale


def gmm(given):
    parts = list(gmm_parts(given))
    prior = sum(log_wishart(root.T @ root, given["m"], given["gamma"]) for root, *_ in parts)
    return float(np.sum(np.logaddexp.reduce([density for *_, density in parts], axis=0)) + prior)


def gmm_gradient(given):
    parts = list(gmm_parts(given))
    densities = np.array([density for *_, density in parts])
    shares = np.exp(densities - np.logaddexp.reduce(densities, axis=0))
    weights = np.exp(given["alpha"]) / np.sum(np.exp(given["alpha"]))
    found = {"alpha": shares.sum(1) - given["n"] * weights, "mu": [], "q": [], "l": []}
    for (root, away, scaled, _), share in zip(parts, shares):
        found["mu"].append((share[:, None] * scaled).sum(0) @ root)
        by_root = -(share[:, None] * scaled).T @ away - given["gamma"] ** 2 * root
        found["q"].append(np.diag(by_root) * np.diag(root) + share.sum() + given["m"])
        found["l"].append(np.concatenate([by_root[column + 1 :, column] for column in range(given["d"])]))
    return {name: np.array(part) for name, part in found.items()}


def squared_distances(given):
    points, centres = np.asarray(given["points"]), np.asarray(given["centroids"])
    return np.stack([np.sum((points - centre) ** 2, axis=1) for centre in centres], axis=1)


def kmeans(given):
    return math.fsum(squared_distances(given).min(1))


def kmeans_direction(given):
    """Newton's step moves a centre to the mean of its points."""
    centres, points = np.asarray(given["centroids"]), np.asarray(given["points"])
    nearest = squared_distances(given).argmin(1)
    sums = np.zeros(centres.shape)
    np.add.at(sums, nearest, points)
    return centres - sums / np.bincount(nearest, minlength=len(centres))[:, None]


def det(given):
    return float(np.linalg.det(np.reshape(given["A"], (given["ell"], -1))))


def det_gradient(given):
    a = np.reshape(given["A"], (given["ell"], -1))
    return np.linalg.det(a) * np.linalg.inv(a).T.ravel()


def projection_error(numbers, feature):
    """Both errors of one observation, given camera, point and weight in a row, with the rotation as a matrix."""
    camera, point, weight = numbers[:11], numbers[11:14], numbers[14]
    x, y, z = camera[:3]
    cross = np.array([[0 * x, -z, y], [z, 0 * x, -x], [-y, x, 0 * x]])
    angle = np.sqrt(x * x + y * y + z * z)
    if angle == 0:
        rotation = np.eye(3) + cross
    else:
        rotation = np.eye(3) + np.sin(angle) / angle * cross + (1 - np.cos(angle)) / angle**2 * cross @ cross
    turned = rotation @ (point - camera[3:6])
    plane = turned[:2] / turned[2]
    radius = plane @ plane
    return weight * (plane * (1 + camera[9] * radius + camera[10] * radius**2) * camera[6] + camera[7:9] - feature)


def ba(given):
    numbers = np.array([*given["cam"], *given["x"], given["w"]])
    return {
        "reproj_error": {"elements": projection_error(numbers, np.array(given["feat"])), "repeated": given["p"]},
        "w_err": {"element": 1 - given["w"] ** 2, "repeated": given["p"]},
    }


def ba_jacobian(given):
    n, m, p = given["n"], given["m"], given["p"]
    block = imaginary_steps(lambda x: projection_error(x, given["feat"]), [*given["cam"], *given["x"], given["w"]])
    columns = [*range(11), 11 * n, 11 * n + 1, 11 * n + 2, 11 * n + 3 * m]
    return {
        "rows": [*range(0, 450, 15), 31 * p],
        "cols": [*columns, *columns, 11 * n + 3 * m + p - 1],
        "vals": [*block.ravel(), -2 * given["w"]],
    }


def llsq_parts(given):
    t = -1 + np.arange(given["n"]) * 2 / (given["n"] - 1)
    powers = np.cumprod(np.stack([np.ones(len(t)), *[t] * (len(given["x"]) - 1)]), axis=0)
    return powers, np.sign(t) - given["x"] @ powers


def llsq(given):
    return float(np.sum(llsq_parts(given)[1] ** 2) / 2)


def llsq_gradient(given):
    powers, residuals = llsq_parts(given)
    return -powers @ residuals


def ode_states(x, s):
    """With the chain as a matrix, a Runge-Kutta step is the first terms of its exponential."""
    n, h = len(x), 2 / s
    chain = np.zeros((n + 1, n + 1), dtype=x.dtype)  # the state before the first one is 1
    chain[range(1, n + 1), range(n)] = h * x
    step = np.eye(n + 1) + chain @ (
        np.eye(n + 1) + chain @ (np.eye(n + 1) + chain @ (np.eye(n + 1) + chain / 4) / 3) / 2
    )
    return np.linalg.matrix_power(step, s)[1:, 0]


def ode_gradient(given):
    return imaginary_steps(lambda x: ode_states(x, given["s"])[-1], given["x"])


def lstm_loss(weights, extra, given):
    """For weights with any leading axes, as many results."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    size, layers = extra.shape[-1], weights.shape[-2] // 2
    gates = np.moveaxis(weights.reshape(*weights.shape[:-1], 4, size), [-3, -2], [0, 1])
    first, scale, shift = np.moveaxis(extra, -2, 0)
    hidden, cell = (list(np.array(given["state"], dtype=complex)[i::2]) for i in range(2))
    total = 0
    for x, following in zip(given["sequence"][:-1], given["sequence"][1:]):
        y = x * first
        for i in range(layers):
            w, b = gates[2 * i], gates[2 * i + 1]
            forget, ingate, outgate = (
                sigmoid(part) for part in (y * w[0] + b[0], hidden[i] * w[1] + b[1], y * w[2] + b[2])
            )
            cell[i] = cell[i] * forget + ingate * np.tanh(hidden[i] * w[3] + b[3])
            y = hidden[i] = outgate * np.tanh(cell[i])
        logits = y * scale + shift
        total = total - (following * (logits - np.log(2 + np.sum(np.exp(logits), axis=-1, keepdims=True)))).sum(-1)
    return total / np.size(given["sequence"][1:])


def lstm(given):
    return float(np.real(lstm_loss(np.array(given["main_params"]), np.array(given["extra_params"]), given)))


def lstm_gradient(given):
    """By a complex step of each weight, all at once."""
    weights, extra = np.array(given["main_params"]), np.array(given["extra_params"])

    def moved(x):
        return x + 1e-30j * np.eye(x.size).reshape(x.size, *x.shape)

    by_parts = lstm_loss(moved(weights), extra, given), lstm_loss(weights, moved(extra), given)
    return np.concatenate([np.imag(part) / 1e-30 for part in by_parts])


REFERENCES = {
    ("hello", "square"): lambda x: x * x,
    ("hello", "double"): lambda x: 2 * x,
    ("lse", "primal"): lse,
    ("lse", "gradient"): lse_gradient,
    ("gmm", "objective"): gmm,
    ("gmm", "jacobian"): gmm_gradient,
    ("kmeans", "cost"): kmeans,
    ("kmeans", "dir"): kmeans_direction,
    ("det", "primal"): det,
    ("det", "gradient"): det_gradient,
    ("ba", "objective"): ba,
    ("ba", "jacobian"): ba_jacobian,
    ("llsq", "primal"): llsq,
    ("llsq", "gradient"): llsq_gradient,
    ("ode", "primal"): lambda given: ode_states(np.asarray(given["x"]), given["s"]),
    ("ode", "gradient"): ode_gradient,
    ("lstm", "objective"): lstm,
    ("lstm", "jacobian"): lstm_gradient,
    # The numbers that the suite itself uses for comparison.
    **{("particle", mode): lambda _: 0.2071918746486116 for mode in ("ff", "fr", "rf", "rr")},
    **{("saddle", mode): lambda _: [8.246324826140356e-06] * 4 for mode in ("ff", "fr", "rf", "rr")},
}


def distance(found, wanted):
    """The largest difference of two results, relative for numbers above 1; infinite if their structures differ."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            return math.inf
        return max(distance(found[name], wanted[name]) for name in wanted)
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    if found.shape != wanted.shape:
        return math.inf
    return float(np.max(np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))))
