"""Problems of oracles: which oracles a finite sum takes, and frozen layers beside it."""

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

ROWS, TARGETS = np.random.default_rng(0).normal(size=(12, 4)), np.ones(12)
KINDS = {"from_oracle": bt.opt.from_oracle, "Client": bt.opt.Client}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_the_loss_must_be_a_mean(make):
    params = bt.Parameters(dtype="float64", seed=0)
    model, before = bt.nn.Linear(params, 4, 1), list(params.values)
    with pytest.raises(ValueError, match=r'needs reduction="mean", .*found "sum"'):
        make(bt.Oracle(model, loss="mse", reduction="sum"), ROWS, TARGETS)
    assert list(params.values) == before
    problem = make(bt.Oracle(model, loss="mse"), ROWS, TARGETS)
    f = getattr(problem, "problem", problem)
    assert np.allclose(f.grad(np.ones(5)), f.gradients(np.ones(5)).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("frozen", ["a tensor", "a number"])
def test_frozen_numbers_are_refused(make, frozen):
    params = bt.Parameters(dtype="float64", seed=0)
    model = bt.nn.MLP(params, [4, 3, 1])
    params.freeze(next(iter(model.parameters())) if frozen == "a tensor" else params.subset([5]))
    n = 12 if frozen == "a tensor" else 1
    with pytest.raises(
        ValueError, match=rf"found {n} of 19 frozen: unfreeze them, or give frozen layers Parameters of"
    ):
        make(bt.Oracle(model, loss="mse"), ROWS, TARGETS, l2=0.1)


def test_numbers_frozen_later_do_not_change():
    params = bt.Parameters(dtype="float64", seed=0)
    model = bt.nn.MLP(params, [4, 3, 1])
    gd = bt.opt.GD(bt.opt.from_oracle(bt.Oracle(model, loss="mse"), ROWS, TARGETS, l2=0.1), params.values, step=0.1)
    gd.run(3)
    params.freeze(model.layers[0])
    before = list(params.values)
    for use in (lambda: gd.run(3), gd.step, gd.record, lambda: gd.problem.grad(np.zeros(19))):
        with pytest.raises(ValueError, match="found 15 of 19 frozen"):
            use()
        assert list(params.values) == before
    params.unfreeze(model.layers[0])
    gd.run(3)
    assert list(params.values) != before


def test_frozen_layers_with_parameters_of_their_own_are_only_read():
    frozen, params = (bt.Parameters(dtype="float64", seed=seed) for seed in (0, 1))
    body, head = bt.nn.Linear(frozen, 4, 3, activation="tanh"), bt.nn.Linear(params, 3, 1)
    body.freeze()
    before = list(frozen.values)
    oracle = bt.Oracle(lambda x, y: (head(body(x))[0] - y) ** 2, params=params)
    f = bt.opt.from_oracle(oracle, ROWS, TARGETS, l2=0.1)
    features = bt.opt.least_squares(
        np.hstack([np.tanh(ROWS @ np.reshape(before[:12], (3, 4)).T), np.ones((12, 1))]), TARGETS
    )
    x = np.array([0.5, -1.0, 2.0, 0.25])
    assert np.allclose(f.grad(x), 2.0 * features.grad(x) + 0.1 * x, rtol=1e-12)
    assert bt.opt.GD(f, step=0.1).run(20)[-1].loss < f.loss(x)
    assert f.d == 4
    assert list(frozen.values) == before
