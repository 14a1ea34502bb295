"""One rule for dtypes: a derivative has the dtype of its argument, however the function is traced."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

PAIRS = [("float64", "float32"), ("float32", "float64"), ("float16", "float32")]


def by_values(x, y):
    """Traced with Values: primitives of Values, and few numbers."""
    return bt.inner_product(x, y) * 0.5 + x[0] ** 2


def by_arrays(x, y):
    return (x * y).sum() * 0.5 + (x[:1] ** 2).sum()


def with_arrays_only(x, y):
    return np.sum(np.outer(x, y)) + np.max(x)


def of_matrices(x, y):
    return (x.reshape(-1, 1) * y.reshape(1, -1)).sum() + (x**2).sum()


# By name: the function and the shape of its arguments; long ones are traced with Arrays at once.
FUNCTIONS = {
    "Values": (by_values, (5,)),
    "Arrays after Values": (with_arrays_only, (5,)),
    "long arrays": (by_arrays, (300,)),
    "long arrays with Values": (lambda x, y: by_values(x, y) + sum(x[k] * y[k] for k in range(len(x))), (300,)),
    "matrices": (of_matrices, (4, 3)),
}


def leaves(tree):
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def second(result):
    return result[1]


# By name: the call, and the arguments by which its arrays are derivatives, in order.
METHODS = {
    "f.grad": (lambda f, x, y: f.grad(x, y), (0, 1)),
    "f.grad, argnums": (lambda f, x, y: f.grad(x, y, argnums=1), (1,)),
    "f.value_and_grad": (lambda f, x, y: second(f.value_and_grad(x, y)), (0, 1)),
    "f.vjp": (lambda f, x, y: second(f.vjp(x, y, 1.0)), (0, 1)),
    "f.hvp": (lambda f, x, y: f.hvp(x, y, x, y), (0, 1)),
    "f.hvp, argnums": (lambda f, x, y: f.hvp(x, y, y, argnums=1), (1,)),
    "bt.grad": (lambda f, x, y: bt.grad(f, argnums=(1, 0))(x, y), (1, 0)),
    "bt.value_and_grad": (lambda f, x, y: second(bt.value_and_grad(f, argnums=1)(x, y)), (1,)),
    "bt.hvp": (lambda f, x, y: bt.hvp(f)(x, y, x, y), (0, 1)),
    "bt.vjp": (lambda f, x, y: second(bt.vjp(f, x, y))(1.0), (0, 1)),
    "bt.jacobian": (lambda f, x, y: bt.jacobian(f, argnums=(0, 1))(x, y), (0, 1)),
    "bt.hessian": (lambda f, x, y: bt.hessian(f, argnums=(0, 1))(x, y), (0, 1, 0, 1)),
    "in a body": (lambda f, x, y: bt.function(lambda x, y: bt.grad(f, argnums=(0, 1))(x, y))(x, y), (0, 1)),
    "of a gradient": (lambda f, x, y: bt.grad(lambda x, y: (bt.grad(f)(x, y) * x).sum(), argnums=(0, 1))(x, y), (0, 1)),
    "over rows": (lambda f, x, y: bt.vmap(bt.grad(f, argnums=(0, 1)))(np.stack([x, x]), np.stack([y, y])), (0, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_derivative_has_the_dtype_of_its_argument(name, dtype):
    body, shape = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    for first, other in PAIRS:
        x, y = rng.standard_normal(shape).astype(first), rng.standard_normal(shape).astype(other)
        kinds = [x.dtype, y.dtype]
        for method, (call, by) in METHODS.items():
            if "in a body" in method and name.startswith("long arrays with"):
                continue
            found = leaves(call(bt.function(body, dtype=dtype), x, y))
            dtypes = [np.asarray(leaf).dtype for leaf in found]
            assert dtypes == [kinds[k] for k in by], (method, first, other, dtypes)
