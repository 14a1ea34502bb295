"""Dicts whose keys come in another order: carries, branches, directions and weights are matched by key."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import burtorch as bt


class State(NamedTuple):
    a: dict
    b: float


def swapped(carry):
    """The carry with the keys of its dicts in the reverse order."""
    if isinstance(carry, dict):
        return {key: swapped(carry[key]) for key in reversed(carry)}
    if isinstance(carry, State):
        return State(*map(swapped, carry))
    if isinstance(carry, (list, tuple)):
        return type(carry)(map(swapped, carry))
    return carry


def moved(carry):
    """The next carry: every number of it changes in another way."""

    def next_of(x, k):
        return x * (1.0 + 0.125 * k) + 0.5

    c = iter(range(9))

    def walk(x):
        if isinstance(x, dict):
            return {key: walk(x[key]) for key in sorted(x)}
        if isinstance(x, State):
            return State(*map(walk, x))
        if isinstance(x, (list, tuple)):
            return type(x)(map(walk, x))
        return next_of(x, next(c))

    return walk(carry)


def scaled(carry, factor):
    """The carry with all numbers multiplied."""
    if isinstance(carry, dict):
        return {key: scaled(x, factor) for key, x in carry.items()}
    if isinstance(carry, State):
        return State(*(scaled(x, factor) for x in carry))
    if isinstance(carry, (list, tuple)):
        return type(carry)(scaled(x, factor) for x in carry)
    return carry * factor


CARRIES = [
    {"x": 1.0, "v": 2.0},
    {"v": {"b": 1.0, "a": np.arange(3.0)}, "k": 4.0},
    [{"z": 1.0, "y": 2.0}, ({"d": 3.0, "c": 4.0}, 5.0)],
    (State({"q": 1.0, "p": 2.0}, 3.0), {"w": 4.0}),
]


def same(found, expected):
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for x, y in zip(found, expected, strict=True):
            same(x, y)
    else:
        np.testing.assert_array_equal(found, expected)


LOOPS = {
    "scan": lambda body, carry: bt.scan(lambda c, _: (body(c), 0.0), carry, length=4)[0],
    "fori_loop": lambda body, carry: bt.fori_loop(0, 4, lambda i, c: body(c), carry),
    "while_loop": lambda body, carry: bt.while_loop(lambda c: True, body, carry, max_steps=4),
    "cond": lambda body, carry: bt.cond(True, lambda c: c, body, carry),
    "cond, false": lambda body, carry: bt.cond(False, lambda c: c, body, carry),
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("k", range(len(CARRIES)))
@pytest.mark.parametrize("loop", LOOPS)
def test_a_carry_with_keys_in_another_order_is_the_same_carry(loop, k, traced):
    carry = CARRIES[k]

    def run(body):
        if not traced:
            return LOOPS[loop](body, carry)
        # Arguments contain no named tuples.
        return bt.function(lambda one: LOOPS[loop](body, scaled(carry, one)))(1.0)

    same(run(lambda c: swapped(moved(c))), run(lambda c: moved_in_place(c)))


def moved_in_place(carry):
    """As `moved`, with every dict in the order of the carry."""
    new = moved(carry)

    def order(x, like):
        if isinstance(like, dict):
            return {key: order(x[key], like[key]) for key in like}
        if isinstance(like, State):
            return State(*(order(a, b) for a, b in zip(x, like, strict=True)))
        if isinstance(like, (list, tuple)):
            return type(like)(order(a, b) for a, b in zip(x, like, strict=True))
        return x

    return order(new, carry)


def test_gradients_through_such_a_loop():
    def f(x, v):
        end = bt.fori_loop(
            0, 3, lambda i, c: {"v": c["v"] - 0.1 * c["x"], "x": c["x"] + 0.1 * c["v"]}, {"x": x, "v": v}
        )
        return end["x"] * end["v"]

    def by_hand(x, v):
        for _ in range(3):
            x, v = x + 0.1 * v, v - 0.1 * x
        return x * v

    assert bt.grad(f, argnums=(0, 1))(1.0, 2.0) == bt.grad(by_hand, argnums=(0, 1))(1.0, 2.0)


def test_directions_and_weights():
    def f(p):
        return {"s": p["a"] * p["b"], "d": p["a"] - p["b"]}

    point = {"a": 2.0, "b": 3.0}
    value, change = bt.jvp(f, (point,), ({"b": 0.0, "a": 1.0},))
    assert (value, change) == ({"s": 6.0, "d": -1.0}, {"s": 3.0, "d": 1.0})
    _, pull = bt.vjp(f, point)
    assert pull({"d": 10.0, "s": 1.0}) == ({"a": 13.0, "b": -8.0},)
    assert bt.hvp(lambda p: p["a"] ** 2 * p["b"], (point,), ({"b": 0.0, "a": 1.0},)) == {"a": 6.0, "b": 4.0}


@pytest.mark.parametrize(
    "changed",
    [{"x": 1.0}, {"x": 1.0, "w": 2.0}, {"x": 1.0, "v": 2.0, "w": 3.0}, [1.0, 2.0], (1.0, 2.0), 3.0, None],
)
def test_other_keys_are_refused(changed):
    with pytest.raises(bt.TraceError, match="structure unchanged"):
        bt.fori_loop(0, 2, lambda i, c: changed, {"x": 1.0, "v": 2.0})
