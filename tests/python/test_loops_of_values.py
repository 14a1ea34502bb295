"""Loops and branches over Values, outside of traced functions: each step appends to the graph."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import burtorch as bt

State = namedtuple("State", "h n")
XS = np.array([0.5, -1.0, 2.0])


def gradient(loop, *numbers):
    """The value and the gradient of a loop over Values."""
    with bt.Graph():
        values = [bt.Value(x) for x in numbers]
        total = loop(*values)
        total.backward()
        return total.data, [v.grad for v in values]


def unrolled(w, reverse):
    h, ys = 1.0, []
    for x in XS[::-1] if reverse else XS:
        h = bt.tanh(w * h) + x
        ys.append(h * x)
    return h, ys[::-1] if reverse else ys


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("checkpoint", [None, 1, 2, "sqrt"])
def test_a_scan_has_the_bits_of_its_unrolled_steps(reverse, checkpoint):
    def rolled(w, h0):
        h, ys = bt.scan(
            lambda h, x: (bt.tanh(w * h) + x, (bt.tanh(w * h) + x) * x), h0, XS, reverse=reverse, checkpoint=checkpoint
        )
        return h + bt.sum(ys) * 3.0

    def by_hand(w, h0):
        h, ys = h0, []
        for x in XS[::-1] if reverse else XS:
            h, y = bt.tanh(w * h) + x, (bt.tanh(w * h) + x) * x
            ys.append(y)
        return h + bt.sum(ys[::-1] if reverse else ys) * 3.0

    value, grads = gradient(rolled, 0.7, 1.0)
    expected, by_steps = gradient(by_hand, 0.7, 1.0)
    assert (value, grads) == (expected, by_steps)


def test_values_may_be_captured_only():
    with bt.Graph():
        w = bt.Value(0.7)
        h, ys = bt.scan(lambda h, x: (bt.tanh(w * h) + x, h), 1.0, XS)
        h.backward()
        expected, _ = unrolled(v := bt.Value(0.7), False)
        expected.backward()
        assert (h.data, w.grad) == (expected.data, v.grad)
        assert isinstance(ys, bt.Vector)
        assert len(ys) == 3
        assert bt.while_loop(lambda c: c < 9.0, lambda c: c * (w + 1.3), 1.0).data == pytest.approx(16.0)
        assert bt.fori_loop(0, 3, lambda k, c: c * w + k, 1.0).data == pytest.approx(3.043)
        assert bt.cond(True, lambda x: x * w, lambda x: x, 2.0).data == 1.4
        assert bt.cond(w > 1.0, lambda x: x * w, lambda x: x - w, 2.0).data == 1.3


CARRIES = [
    lambda v: v,
    lambda v: (v, 1.0),
    lambda v: [v, [v * 2.0]],
    lambda v: {"a": v, "b": (v, None)},
    lambda v: State(v, 0),
    lambda v: bt.stack(v, v * 3.0),
]


def twice(x):
    """Each leaf doubled."""
    if isinstance(x, dict):
        return {key: twice(item) for key, item in x.items()}
    if isinstance(x, State):
        return State(*map(twice, x))
    if isinstance(x, (list, tuple)):
        return type(x)(map(twice, x))
    return None if x is None else x * 2.0


def total(x):
    if isinstance(x, dict):
        return total(list(x.values()))
    if isinstance(x, (list, tuple)):
        return sum(total(item) for item in x if item is not None)
    return bt.sum(x) if isinstance(x, bt.Vector) else x


@pytest.mark.parametrize("make", CARRIES)
def test_carries_of_every_structure(make):
    loops = [
        lambda c: bt.scan(lambda c, _: (twice(c), None), c, length=3)[0],
        lambda c: bt.scan(lambda c, x: (twice(c), (x, c)), c, {"x": XS})[0],
        lambda c: bt.fori_loop(2, 5, lambda k, c: twice(c), c),
        lambda c: bt.while_loop(lambda c: True, twice, c, max_steps=3),
        lambda c: bt.checkpoint(lambda c: twice(twice(twice(c))))(c),
        lambda c: bt.cond(True, lambda c: twice(twice(twice(c))), twice, c),
    ]
    value, grads = gradient(lambda v: total(twice(twice(twice(make(v))))), 1.5)
    for loop in loops:
        assert gradient(lambda v, loop=loop: total(loop(make(v))), 1.5) == (value, grads)
        assert type(loop(make(bt.Value(1.0)))) is type(make(bt.Value(1.0)))


def test_results_of_steps_are_stacked():
    v = bt.Value(2.0)
    _, found = bt.scan(
        lambda c, x: (c * x, {"v": c, "n": x, "row": np.ones(2) * x, "none": None}), v, np.array([3.0, 4.0])
    )
    assert list(found["v"].data) == [2.0, 6.0]
    assert found["n"].tolist() == [3.0, 4.0]
    assert found["row"].tolist() == [[3.0] * 2, [4.0] * 2]
    assert found["none"] is None
    rows = bt.scan(lambda c, x: (c, bt.stack(c, c * x)), v, XS)[1]
    assert [list(row.data) for row in rows] == [[2.0, 1.0], [2.0, -2.0], [2.0, 4.0]]


def test_slices_of_values():
    xs = bt.Vector([1.0, 2.0, 3.0])
    carry, _ = bt.scan(lambda c, x: (c * x, None), 1.0, xs)
    carry.backward()
    assert (carry.data, list(xs.grad)) == (6.0, [6.0, 3.0, 2.0])


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda v: bt.scan(lambda c, x: (c, None), v), ValueError, "neither xs nor length"),
        (lambda v: bt.scan(lambda c, x: (c, None), v, XS, length=2), ValueError, r"lengths \[2, 3\]"),
        (lambda v: bt.scan(lambda c, x: (c, None), v, (XS, XS[1:])), ValueError, r"lengths \[2, 3\]"),
        (lambda v: bt.scan(lambda c, x: c, v, XS), bt.TraceError, "tuple of the next carry"),
        (lambda v: bt.scan(lambda c, x: ((c, c), None), v, XS), bt.TraceError, "must keep its structure"),
        (lambda v: bt.while_loop(lambda c: True, lambda c: [c], v), bt.TraceError, "must keep its structure"),
        (lambda v: bt.fori_loop(0, 2, lambda k, c: bt.stack(c, c), v), bt.TraceError, "must keep its structure"),
        (lambda v: bt.scan(lambda c, x: (c, None), v, length=0), ValueError, "needs a step"),
        (lambda v: bt.cond(float("nan"), abs, abs, v), ValueError, "NaN"),
        (lambda v: bt.cond("a", abs, abs, v), TypeError, "found str"),
        (lambda v: bt.fori_loop(0, 1.5, lambda k, c: c, v), TypeError, "64-bit integers"),
        (lambda v: bt.while_loop(lambda c: True, lambda c: c, v, max_steps=-1), ValueError, "max_steps"),
    ],
)
def test_bad_input_is_one_error(call, kind, text):
    with pytest.raises(kind, match=text):
        call(bt.Value(1.0))


def test_other_type_errors_of_bodies_are_not_hidden():
    with pytest.raises(TypeError, match="unsupported operand"):
        bt.fori_loop(0, 2, lambda k, c: c + None, 1.0)
    with bt.Graph():
        v, calls = bt.Value(1.0), []

        def body(k, c):
            calls.append(k)
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            bt.fori_loop(0, 2, body, v)
        assert calls == [0]
