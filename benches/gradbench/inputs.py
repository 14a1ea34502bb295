"""Inputs of the evals for a size, drawn as in the suite."""

import numpy as np

CAMERA = [
    -0.758453,
    -1.109613,
    -0.845551,
    34.556073,
    39.676747,
    53.881673,
    419.194514,
    5.864426,
    -8.51887,
    0.087812,
    0.002739,
]
POINT, WEIGHT, FEATURE = [7.203245, 0.001144, 3.023326], 0.417022, [271.760969, 834.209256]
BA_SIZES = {1: (49, 7776, 31843), 14: (356, 226730, 1255268)}


def draw(name, *size):
    return globals()[name](np.random.default_rng(31337), *size)


def hello(rng):
    return 3.0


def lse(rng, n):
    return {"x": rng.random(n)}


def gmm(rng, d, k, n=1000):
    return {
        **{"d": d, "k": k, "n": n, "m": 0, "gamma": 1.0, "x": rng.normal(size=(n, d)), "alpha": rng.normal(size=k)},
        **{"mu": rng.random((k, d)), "q": rng.normal(size=(k, d)), "l": rng.normal(size=(k, d * (d - 1) // 2))},
    }


def kmeans(rng, k, n, d):
    points = rng.random((n, d))
    return {"points": points, "centroids": points[-k:].copy()}


def det(rng, n):
    return {"A": rng.random(n * n), "ell": n}


def ba(rng, number=None):
    n, m, p = BA_SIZES.get(number, (2, 3, 20))
    return {"n": n, "m": m, "p": p, "cam": CAMERA, "x": POINT, "w": WEIGHT, "feat": FEATURE}


def llsq(rng, n, m=128):
    return {"x": rng.random(m), "n": n}


def ode(rng, n, s):
    return {"x": rng.random(n), "s": s}


def lstm(rng, layers, characters, size=14):
    sequence = rng.integers(0, 2, (characters, size)).astype(float)
    shapes = {"main_params": (2 * layers, 4 * size), "extra_params": (3, size), "state": (2 * layers, size)}
    return {**{name: rng.random(shape) for name, shape in shapes.items()}, "sequence": sequence}


def particle(rng):
    return {"w": 0.0}


def saddle(rng):
    return {"start": [1.0, 1.0]}
