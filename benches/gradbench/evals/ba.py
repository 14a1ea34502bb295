"""Bundle adjustment: the reprojection and weight errors, and their sparse Jacobian."""

import numpy as np

import burtorch as bt

CAMERA, POINT = 11, 3
SHOWN = 2 * (CAMERA + POINT + 1)


def rotate(rotation, x):
    """Rodrigues' formula; the first terms of its series at angle 0."""
    squared = np.sum(rotation * rotation)
    is_turned = squared > 0.0
    angle = np.sqrt(np.where(is_turned, squared, 1.0))
    axis = rotation / angle
    turned = x * np.cos(angle) + np.cross(axis, x) * np.sin(angle) + axis * ((axis @ x) * (1.0 - np.cos(angle)))
    return np.where(is_turned, turned, x + np.cross(rotation, x))


def projection_error(camera, point, weight, feature):
    x = rotate(camera[:3], point - camera[3:6])
    plane = x[:2] / x[2]
    squared = np.sum(plane * plane)
    distorted = plane * (1.0 + camera[9] * squared + camera[10] * squared**2)
    return weight * (distorted * camera[6] + camera[7:9] - feature)


def weight_error(weight):
    return 1.0 - weight * weight


errors = bt.vmap(projection_error)
weight_errors = bt.vmap(weight_error)
slopes = bt.vmap(
    bt.jacobian(
        lambda camera, point, weight, feature: projection_error(camera, point, weight[0], feature), argnums=(0, 1, 2)
    )
)
weight_slopes = bt.vmap(bt.grad(weight_error))


def objective(cameras, points, weights, features, seen, _pattern):
    at_camera, at_point = seen
    return errors(cameras[at_camera], points[at_point], weights, features), weight_errors(weights)


@bt.function
def compressed(cameras, points, weights, features, at_camera, at_point):
    """Rows of the Jacobian: two per observation, then one per weight."""
    blocks = np.concatenate(slopes(cameras[at_camera], points[at_point], weights[:, None], features), axis=2)
    return np.concatenate([np.ravel(blocks), weight_slopes(weights)])


def jacobian(cameras, points, weights, features, seen, pattern):
    return {**pattern, "vals": compressed(cameras, points, weights, features, *seen)}


FUNCTIONS = {"objective": objective, "jacobian": jacobian}


def places(n, m, p, at_camera, at_point):
    """The columns of the nonzero entries, and the start of each row; they do not depend on numbers."""
    of_weights = CAMERA * n + POINT * m + np.arange(p)
    columns = np.concatenate(
        [
            CAMERA * at_camera[:, None] + np.arange(CAMERA),
            CAMERA * n + POINT * at_point[:, None] + np.arange(POINT),
            of_weights[:, None],
        ],
        axis=1,
    )
    lengths = np.concatenate([np.full(2 * p, columns.shape[1]), np.ones(p, dtype=np.int64)])
    return {
        "cols": np.concatenate([np.repeat(columns, 2, axis=0).ravel(), of_weights]),
        "rows": np.concatenate([[0], np.cumsum(lengths)]),
    }


def prepare(given):
    n, m, p = given["n"], given["m"], given["p"]
    seen = np.arange(p) % n, np.arange(p) % m
    return (
        np.tile(given["cam"], (n, 1)),
        np.tile(given["x"], (m, 1)),
        np.full(p, given["w"]),
        np.tile(given["feat"], (p, 1)),
        seen,
        places(n, m, p, *seen),
    )


def answer(result):
    """The first errors; for a Jacobian, the part of the first observation and the last entry of each list."""
    if isinstance(result, dict):
        return {name: [*numbers[:SHOWN].tolist(), numbers[-1].item()] for name, numbers in result.items()}
    found, of_weights = result
    return {
        "reproj_error": {"elements": found[0].tolist(), "repeated": len(found)},
        "w_err": {"element": float(of_weights[0]), "repeated": len(of_weights)},
    }
