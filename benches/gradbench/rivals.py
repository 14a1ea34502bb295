"""The same programs for JAX, PyTorch and, where they are one expression, CasADi, written like the evals.

Rivals that are not installed are omitted. Numba has no derivatives.
"""

import numpy as np

from evals import ba, det, gmm, kmeans, llsq, lstm, ode


def jax():
    """The functions of the table by eval; float64, compiled."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def log_sum_exp(x):
        largest = jnp.max(x)
        return largest + jnp.log(jnp.sum(jnp.exp(x - largest)))

    def determinant(a):
        n, minors = a.shape[0], 1.0
        for i, columns in reversed(list(enumerate(det.expansion(n)))):
            signs = 1.0 - 2.0 * (np.arange(columns.shape[1]) % 2)
            minors = jnp.sum(signs * a[i][columns] * jnp.reshape(minors, columns.shape if i < n - 1 else ()), axis=1)
        return minors[0]

    def cost(centres, points):
        squares = jnp.sum(points * points, axis=1)[:, None]
        return jnp.sum(jnp.min(squares - 2.0 * (points @ centres.T) + jnp.sum(centres * centres, axis=1), axis=1))

    def direction(centres, points):
        slope, curvature = jax.jvp(lambda c: jax.grad(cost)(c, points), (centres,), (jnp.ones_like(centres),))
        return slope / curvature

    def log_posterior(parameters, x):
        alpha, mu, q, below = (parameters[name] for name in ("alpha", "mu", "q", "l"))
        (k, d), n = mu.shape, len(x)
        entries = jnp.concatenate([jnp.zeros((k, 1)), below, jnp.exp(q)], axis=1)
        roots = entries[:, gmm.places(d)]
        traces = jnp.sum(q, axis=1)
        scaled = ((roots.reshape(k * d, d) @ x.T).reshape(k, d, n)) - roots @ mu[:, :, None]
        exponents = (alpha + traces)[:, None] - 0.5 * jnp.sum(scaled * scaled, axis=1)
        lse = jax.scipy.special.logsumexp
        return jnp.sum(lse(exponents, 0)) - n * lse(alpha) - 0.5 * jnp.sum(entries * entries)

    def objective(x, v, s):
        residuals = s - v @ x
        return 0.5 * jnp.sum(residuals * residuals)

    def least_squares(x, n):
        t = np.linspace(-1.0, 1.0, n)
        return fit(x, *map(jnp.asarray, (np.vander(t, len(x), increasing=True), np.sign(t))))

    fit = jax.jit(jax.grad(objective))

    def last_state(x, s):
        h, one = 2.0 / s, jnp.ones(1)

        def slope(y):
            return x * jnp.concatenate([one, y[:-1]])

        def step(y, _):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

        return jax.lax.scan(step, jnp.zeros(x.shape), length=s)[0][-1]

    def characters(weights, extra, state, sequence):
        layers = weights.shape[0] // 2
        gates = jnp.reshape(weights, (layers, 2, 4, weights.shape[1] // 4))

        def step(carry, x):
            hidden, cell, y = [], [], x
            for i, (before, kept_before) in enumerate(zip(*carry)):
                (forget, ingate, outgate, change), bias = gates[i, 0], gates[i, 1]
                kept = jax.nn.sigmoid(y * forget + bias[0])
                taken = jax.nn.sigmoid(before * ingate + bias[1])
                shown = jax.nn.sigmoid(y * outgate + bias[2])
                cell.append(kept_before * kept + taken * jnp.tanh(before * change + bias[3]))
                hidden.append(y := shown * jnp.tanh(cell[i]))
            return (hidden, cell), y

        start = (list(state[::2]), list(state[1::2]))
        predicted = jax.lax.scan(step, start, sequence[:-1] * extra[0])[1] * extra[1] + extra[2]
        logits = predicted - jnp.log(jnp.sum(jnp.exp(predicted), axis=1, keepdims=True) + 2.0)
        return -jnp.mean(sequence[1:] * logits)

    def rotate(rotation, x):
        squared = jnp.sum(rotation * rotation)
        angle = jnp.sqrt(jnp.where(squared > 0.0, squared, 1.0))
        axis = rotation / angle
        across = jnp.cross(axis, x) * jnp.sin(angle) + axis * ((axis @ x) * (1.0 - jnp.cos(angle)))
        return jnp.where(squared > 0.0, x * jnp.cos(angle) + across, x + jnp.cross(rotation, x))

    def projection_error(camera, point, weight, feature):
        x = rotate(camera[:3], point - camera[3:6])
        plane = x[:2] / x[2]
        squared = jnp.sum(plane * plane)
        distorted = plane * (1.0 + camera[9] * squared + camera[10] * squared**2)
        return weight[0] * (distorted * camera[6] + camera[7:9] - feature)

    @jax.jit
    def slopes(cameras, points, weights, features, at_camera, at_point):
        of = jax.vmap(jax.jacrev(projection_error, argnums=(0, 1, 2)))
        blocks = jnp.concatenate(of(cameras[at_camera], points[at_point], weights[:, None], features), axis=2)
        return jnp.concatenate([blocks.ravel(), jax.vmap(jax.grad(lambda w: 1.0 - w * w))(weights)])

    posterior = jax.jit(jax.grad(log_posterior))
    return {
        "hello": jax.jit(jax.grad(lambda x: x * x)),
        "lse": jax.jit(jax.grad(log_sum_exp)),
        "gmm": lambda parameters, x, m, gamma: posterior(parameters, x),
        "kmeans": jax.jit(direction),
        "det": jax.jit(jax.grad(determinant)),
        "ba": lambda cameras, points, weights, features, seen, pattern: {
            **pattern,
            "vals": np.asarray(slopes(cameras, points, weights, features, *seen)),
        },
        "llsq": least_squares,
        "lstm": jax.jit(jax.grad(characters, argnums=(0, 1))),
        "ode": jax.jit(jax.grad(last_state), static_argnums=1),
    }


def torch():
    """The functions of the table by eval; float64, eager, one thread."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

    def gradient(f):
        def call(x, *others):
            x = {name: torch.tensor(part) for name, part in x.items()} if isinstance(x, dict) else torch.tensor(x)
            leaves = list(x.values()) if isinstance(x, dict) else [x]
            for leaf in leaves:
                leaf.requires_grad_()
            found = torch.autograd.grad(f(x, *others), leaves)
            return dict(zip(x, found)) if isinstance(x, dict) else found[0]

        return call

    def log_sum_exp(x):
        largest = torch.max(x)
        return largest + torch.log(torch.sum(torch.exp(x - largest)))

    def determinant(a):
        n, minors = a.shape[0], torch.ones(())
        for i, columns in reversed(list(enumerate(det.expansion(n)))):
            signs = 1.0 - 2.0 * (torch.arange(columns.shape[1]) % 2)
            minors = (signs * a[i][torch.from_numpy(columns)] * minors.reshape(columns.shape if i < n - 1 else ())).sum(
                1
            )
        return minors[0]

    def cost(centres, points):
        squares = (points * points).sum(1)[:, None]
        return (squares - 2.0 * (points @ centres.T) + (centres * centres).sum(1)).min(1).values.sum()

    def direction(centres, points):
        centres = torch.tensor(centres, requires_grad=True)
        (slope,) = torch.autograd.grad(cost(centres, torch.from_numpy(points)), centres, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), centres)
        return (slope / curvature).detach()

    def log_posterior(parameters, x):
        alpha, mu, q, below = (parameters[name] for name in ("alpha", "mu", "q", "l"))
        (k, d), n, x = mu.shape, len(x), torch.from_numpy(x)
        entries = torch.cat([torch.zeros((k, 1)), below, torch.exp(q)], 1)
        roots = entries[:, torch.from_numpy(gmm.places(d))]
        traces = q.sum(1)
        scaled = (roots.reshape(k * d, d) @ x.T).reshape(k, d, n) - roots @ mu[:, :, None]
        exponents = (alpha + traces)[:, None] - 0.5 * (scaled * scaled).sum(1)
        return torch.logsumexp(exponents, 0).sum() - n * torch.logsumexp(alpha, 0) - 0.5 * (entries * entries).sum()

    def objective(x, n):
        t = torch.linspace(-1.0, 1.0, n)
        residuals = torch.sign(t) - torch.vander(t, len(x), increasing=True) @ x
        return 0.5 * (residuals * residuals).sum()

    posterior = gradient(log_posterior)
    return {
        "hello": gradient(lambda x: x * x),
        "lse": gradient(log_sum_exp),
        "gmm": lambda parameters, x, m, gamma: posterior(parameters, x),
        "kmeans": direction,
        "det": gradient(determinant),
        "llsq": gradient(objective),
    }


def casadi():
    """The functions of the table that are expressions of one vector, by eval; float64, its virtual machine."""
    import casadi

    def gradient(f, x):
        made = casadi.Function("gradient", [x], [casadi.gradient(f(x), x)])
        return lambda numbers: np.asarray(made(numbers)).ravel()

    def by_size(f):
        made = {}

        def call(x, *others):
            key = len(x), *others
            if key not in made:
                made[key] = gradient(lambda x: f(x, *others), casadi.MX.sym("x", len(x)))
            return made[key](x)

        return call

    def log_sum_exp(x):
        largest = casadi.mmax(x)
        return largest + casadi.log(casadi.sum1(casadi.exp(x - largest)))

    def objective(x, n):
        t = np.linspace(-1.0, 1.0, n)
        residuals = np.sign(t) - casadi.DM(np.vander(t, x.numel(), increasing=True)) @ x
        return 0.5 * casadi.dot(residuals, residuals)

    square = casadi.Function("gradient", [x := casadi.SX.sym("x")], [casadi.gradient(x * x, x)])
    return {"hello": lambda x: float(square(x)), "lse": by_size(log_sum_exp), "llsq": by_size(objective)}


def burtorch():
    from evals import hello, lse

    return {
        "hello": hello.FUNCTIONS["double"],
        "lse": lse.FUNCTIONS["gradient"],
        "gmm": gmm.FUNCTIONS["jacobian"],
        "kmeans": kmeans.FUNCTIONS["dir"],
        "det": det.FUNCTIONS["gradient"],
        "ba": ba.FUNCTIONS["jacobian"],
        "llsq": llsq.FUNCTIONS["gradient"],
        "lstm": lstm.FUNCTIONS["jacobian"],
        "ode": ode.FUNCTIONS["gradient"],
    }


MAKERS = {"burtorch": burtorch, "jax": jax, "torch": torch, "casadi": casadi}
