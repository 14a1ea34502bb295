"""Optimisers from Python, against figures of PyTorch 2.13 in float64."""

import math

import numpy as np
import pytest

import burtorch as bt

START = [1.0, -2.0, 0.5, 3.0, 0.0]


def five_steps(make):
    params = bt.Parameters(dtype="float64")
    params.tensor(5, init=0.0)
    params.values[:] = START
    optimizer = make(params)
    for t in range(5):
        params.grads[:] = [0.3 * ((k * 7 + t * 3) % 11 - 5) for k in range(5)]
        optimizer.step()
    return list(params.values)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda p: bt.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
            [1.3310998104141922, -2.056322497857568, 0.4611978657359199, 1.8452861563875358, -0.21136949094235202],
        ),
        (
            lambda p: bt.optim.Adam(p, lr=0.1),
            [1.279622806687568, -2.2968430333552723, 0.6081274055921185, 2.8366420811452744, -0.19939162696786933],
        ),
        (
            lambda p: bt.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2),
            [1.1869600693765037, -2.1432282029610445, 0.5428573376385839, 2.691401976147311, -0.1787686589375936],
        ),
        (
            lambda p: bt.optim.AdamW(p, lr=0.1, weight_decay=0.2),
            [1.168191442695765, -2.089584371712249, 0.5523690525925178, 2.558627895677198, -0.18637287200819283],
        ),
    ],
)
def test_steps_are_pytorchs(make, expected):
    assert five_steps(make) == pytest.approx(expected, rel=1e-12)


def test_settings_can_be_read_and_bad_ones_are_refused():
    params = bt.Parameters()
    adam = bt.optim.AdamW(params)
    assert isinstance(adam, bt.optim.Adam)
    assert (adam.lr, adam.betas, adam.eps, adam.weight_decay, adam.n_steps) == (1e-3, (0.9, 0.999), 1e-8, 0.01, 0)
    assert repr(adam) == "AdamW(lr=0.001)"
    assert adam.params is params
    adam.step()
    assert adam.n_steps == 1
    for wrong in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": float("inf")}, {"weight_decay": float("nan")}):
        with pytest.raises(ValueError):
            bt.optim.Adam(params, **wrong)
    with pytest.raises(ValueError):
        adam.lr = -1.0
    with pytest.raises(TypeError):
        bt.optim.AdamW(3)
    with pytest.raises(ValueError):
        bt.optim.clip_grad_norm(params, -1.0)


def test_schedules_set_the_rate():
    sgd = bt.optim.SGD(bt.Parameters(), lr=0.3)
    schedule = bt.optim.Schedule(sgd, "step", every=3, factor=0.4)
    rates = []
    for _ in range(8):
        rates.append(sgd.lr)
        schedule.step()
    assert rates == pytest.approx([0.3, 0.3, 0.3, 0.12, 0.12, 0.12, 0.048, 0.048])
    assert schedule.n_steps == 8
    for wrong in ({"kind": "line"}, {"kind": "step"}, {"kind": "cosine"}, {"kind": "cosine", "total": 0}):
        with pytest.raises(ValueError):
            bt.optim.Schedule(sgd, **wrong)


@pytest.mark.parametrize("wrong", [None, 3, "sgd"])
def test_a_schedule_needs_an_optimiser(wrong):
    with pytest.raises(TypeError, match="optimizer must have an lr, such as"):
        bt.optim.Schedule(wrong)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("float64", [1e-300, 1e-200, 1e-150, 1e-5, 1.0, 1e150, 1e200, 1e300]),
        ("float32", [1e-40, 1e-30, 1e-20, 1e-5, 1.0, 1e15, 1e20, 1e30]),
    ],
)
def test_norms_are_measured_without_overflow_and_underflow(dtype, sizes):
    params = bt.Parameters(dtype=dtype)
    params.tensor(2)
    params.tensor(2)
    for size in sizes:
        params.grads[:] = [3.0 * size, 0.0, -4.0 * size, 0.0]
        before = list(params.grads)
        expected = math.hypot(*before)
        assert bt.optim.clip_grad_norm(params, float("inf")) == pytest.approx(expected, rel=1e-6)
        assert list(params.grads) == before
        assert bt.optim.clip_grad_norm(params, 1.0) == pytest.approx(expected, rel=1e-6)
        assert math.hypot(*params.grads) <= 1.0 + 1e-6
    params.grads[:] = 0.0
    assert bt.optim.clip_grad_norm(params, float("inf")) == 0.0
    for value in (float("inf"), float("nan")):
        params.grads[1] = value
        assert repr(bt.optim.clip_grad_norm(params, float("inf"))) == repr(value)
        assert repr(params.grads[1]) == repr(value)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="the greatest norm must be at least 0"):
            bt.optim.clip_grad_norm(params, wrong)


def test_an_array_is_not_trained():
    w = bt.array([0.0, 0.0])
    for given in (w, [w], {"w": w}):
        for make in (bt.optim.SGD, bt.optim.Adam, lambda given: bt.optim.clip_grad_norm(given, 1.0)):
            with pytest.raises(TypeError, match=r"found an Array, which is immutable: train a Tensor, params.tensor"):
                make(given)


@pytest.mark.parametrize("make", [bt.optim.Adam, bt.optim.AdamW])
@pytest.mark.parametrize("beta", [0.9, 0.999, 0.9999, 0.99999, 0.999999])
def test_float32_rounds_the_shares_of_moments_once(make, beta):
    """1 - beta is not that of the rounded beta: the first step of any gradient is the learning rate."""
    params = bt.Parameters(dtype="float32")
    params.tensor(3, init=0.0)
    adam = make(params, lr=1.0, betas=(0.9, beta))
    params.grads[:] = [1.0, -3.0, 1e-3]
    adam.step()
    np.testing.assert_allclose(params.values, [-1.0, 1.0, -1.0 / (1 + 1e-5)], rtol=3e-7)


def test_schedules_show_their_course():
    sgd = bt.optim.SGD(bt.Parameters(), lr=0.1)
    schedule = bt.optim.Schedule(sgd, "cosine", total=4, warm_up=1)
    schedule.step()
    assert repr(schedule) == f'Schedule({sgd!r}, "cosine", total=4, last=0.0, warm_up=1, base=0.1, n_steps=1)'
    assert '"step", every=2, factor=0.5' in repr(bt.optim.Schedule(sgd, "step", every=2, factor=0.5))
    assert '"constant"' in repr(bt.optim.Schedule(sgd))
