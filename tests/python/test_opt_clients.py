"""Methods with clients: against plain references and gradient descent, bit counts, threads, state, errors."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from burtorch import compress, opt

N, D, CLIENTS = 24, 6, 4
RNG = np.random.default_rng(8)
FEATURES = RNG.normal(size=(N, D))
TARGETS = RNG.normal(size=N)
PARTS = [np.arange(k, N, CLIENTS) for k in range(CLIENTS)]
UNEQUAL = [np.arange(0, 3), np.arange(3, 10), np.arange(10, 12), np.arange(12, N)]


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


METHODS = {
    "DCGD": lambda f, **more: opt.DCGD(f, compressor=compress.RandK(2), **more),
    "DIANA": lambda f, **more: opt.DIANA(f, compressor=compress.RandK(2), **more),
    "MARINA": lambda f, **more: opt.MARINA(f, compressor=compress.RandK(2), **more),
    "MARINA PermK": lambda f, **more: opt.MARINA(f, compressor=compress.PermK(), **more),
    "EF21": lambda f, **more: opt.EF21(f, compressor=compress.TopK(2), **more),
    "EF21 zero": lambda f, **more: opt.EF21(f, compressor=compress.TopK(2), start="zero", **more),
    "DIANA zero": lambda f, **more: opt.DIANA(f, compressor=compress.Natural(), start="zero", **more),
    "DASHA": lambda f, **more: opt.DASHA(f, compressor=compress.RandK(2), **more),
    "DASHA zero": lambda f, **more: opt.DASHA(f, compressor=compress.RandK(2), start="zero", **more),
    "DASHA of a smaller a": lambda f, **more: opt.DASHA(f, compressor=compress.RandK(2), a=0.05, **more),
    "EF14": lambda f, **more: opt.EF14(f, compressor=compress.TopK(2), **more),
    "EF21-SGDM": lambda f, **more: opt.EF21SGDM(f, compressor=compress.TopK(2), momentum=0.3, **more),
    "EF21-PP": lambda f, **more: opt.EF21PP(f, compressor=compress.TopK(2), cohort=opt.Nice(2), **more),
    "SCAFFOLD": lambda f, **more: opt.Scaffold(
        f, local_steps=3, cohort=opt.Nice(3), sampling=opt.Nice(2), **{"step": 0.02, **more}
    ),
    "Scaffnew": lambda f, **more: opt.Scaffnew(f, **more),
    "FedAvg": lambda f, **more: opt.FedAvg(f, local_steps=3, sampling=opt.Nice(2), **{"step": 0.02, **more}),
}


def compressed(method, round, client, x):
    """The messages of a client in a round."""
    draw = compress.Draw(5, round, client)
    return method.compressor.compress(x, draw, client=client, n_clients=CLIENTS).decompress()


def reference(method, coins, cohorts, parts):
    """The same steps in NumPy, from the recorded coins and cohorts and the draws of the compressors."""
    f, gamma, x = problem(), method.gamma, np.zeros(D)
    grads = lambda x: np.array([f.grad(x, part) for part in parts])  # noqa: E731
    h = grads(x) if method.from_gradient and not isinstance(method, opt.EF14) else np.zeros((CLIENTS, D))
    own = grads(x) if isinstance(method, opt.DASHA) else h
    g = h.mean(axis=0)
    xs = np.zeros((CLIENTS, D))
    if isinstance(method, opt.Scaffnew):
        h = h - g
    for r, coin in enumerate(coins):
        send = lambda rows, r=r: np.array([compressed(method, r, k, row) for k, row in enumerate(rows)])  # noqa: E731
        if isinstance(method, opt.DCGD):
            x = x - gamma * send(grads(x)).mean(axis=0)
        elif isinstance(method, opt.DIANA):
            m = send(grads(x) - h)
            x = x - gamma * (h.mean(axis=0) + m.mean(axis=0))
            h = h + method.alpha * m
        elif isinstance(method, opt.MARINA):
            old, x = x, x - gamma * g
            g = grads(x).mean(axis=0) if coin else g + send(grads(x) - grads(old)).mean(axis=0)
        elif isinstance(method, opt.EF21):
            x = x - gamma * g
            h = h + send(grads(x) - h) * np.isin(np.arange(CLIENTS), cohorts[r])[:, None]
            g = h.mean(axis=0)
        elif isinstance(method, opt.EF14):
            m = send(h + gamma * grads(x))
            h = h + gamma * grads(x) - m
            x = x - m.mean(axis=0)
        elif isinstance(method, opt.DASHA):
            x = x - gamma * h.mean(axis=0)
            new = grads(x)
            h = h + send(new - own - method.a * (h - own))
            own = new
        else:
            own = np.array([f.grad(row, part) for row, part in zip(xs, parts)])
            y = xs - gamma * (own - h)
            xs = np.tile(y.mean(axis=0), (CLIENTS, 1)) if coin else y
            h = h + method.p / gamma * (xs - y)
            x = xs.mean(axis=0)
    return x


@pytest.mark.parametrize("parts", [PARTS, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("FedAvg", "SCAFFOLD", "EF21-SGDM")])
def test_a_hundred_steps_are_those_of_a_plain_reference(name, parts):
    method = METHODS[name](problem(), clients=parts, seed=5)
    coins, cohorts = [], []
    for _ in range(100):
        method.step()
        coins.append(method.drawn()[1])
        cohorts.append(method.drawn()[0])
    expected = reference(method, coins, cohorts, parts)
    assert np.linalg.norm(method.x - expected) <= 1e-12 * np.linalg.norm(expected)
    if None not in coins:
        assert 5 < sum(coins) < 95


def local_batch(k, n, round, steps, j):
    """The samples of a local step of `Nice(2)` by `Sampling.batch`, which has no clients: given draws are used."""
    return opt.Nice(2).batch(n, seed=5, round=round * steps + j, client=k + 1)[0]


def test_scaffold_is_that_of_a_plain_reference():
    f, gamma, steps = problem(), 0.02, 3
    method = opt.Scaffold(
        f,
        clients=PARTS,
        local_steps=steps,
        cohort=opt.Nice(3),
        sampling=opt.Nice(2),
        step=gamma,
        server_step=0.9,
        seed=5,
    )
    x, shifts = np.zeros(D), np.array([f.grad(np.zeros(D), part) for part in PARTS])
    for r in range(60):
        method.step()
        cohort, c, moves = method.drawn()[0], shifts.mean(axis=0), []
        for k in cohort:
            y = x
            for j in range(steps):
                batch = PARTS[k][local_batch(k, len(PARTS[k]), r, steps, j)]
                y = y - gamma * (f.grad(y, batch) - shifts[k] + c)
            moves.append(y - x)
            shifts[k] = shifts[k] - c - moves[-1] / (steps * gamma)
        x = x + 0.9 * np.mean(moves, axis=0)
    np.testing.assert_allclose(method.x, x, rtol=1e-11, atol=1e-13)
    state = method.state_dict()["arrays"]
    np.testing.assert_allclose(state["c"], state["c_i"].reshape(CLIENTS, D).mean(axis=0), atol=1e-13)


def test_ef21_sgdm_is_that_of_a_plain_reference():
    f, momentum = problem(), 0.3
    method = opt.EF21SGDM(
        f, clients=PARTS, compressor=compress.TopK(2), momentum=momentum, sampling=opt.Nice(2), step=0.02, seed=5
    )
    x, own = np.zeros(D), np.array([f.grad(np.zeros(D), part) for part in PARTS])
    averages = own
    for r in range(100):
        method.step()
        x = x - 0.02 * own.mean(axis=0)
        batches = [part[local_batch(k, len(part), r, 1, 0)] for k, part in enumerate(PARTS)]
        grads = np.array([f.grad(x, batch) for batch in batches])
        averages = (1 - momentum) * averages + momentum * grads
        own = own + np.array([compressed(method, r, k, row) for k, row in enumerate(averages - own)])
    np.testing.assert_allclose(method.x, x, rtol=1e-11)


def test_scaffold_arrives_where_fed_avg_does_not():
    """With different clients and several local steps, FedAvg stays away from x*, whereas SCAFFOLD converges."""
    f = problem()
    x_star = opt.solve(f, UNEQUAL)
    common = {"clients": UNEQUAL, "local_steps": 5, "step": 0.02}
    scaffold, fed_avg = opt.Scaffold(f, **common), opt.FedAvg(f, **common)
    for method in (scaffold, fed_avg):
        method.run(3000)
    assert np.linalg.norm(scaffold.x - x_star) < 1e-11
    assert np.linalg.norm(fed_avg.x - x_star) > 1e-3


def test_the_corrected_point_of_ef14_is_that_of_gradient_descent():
    """Stich and Karimireddy 2020: x - mean e_i moves by step grad f(x), whatever the compressor omits."""
    f = problem()
    method = opt.EF14(f, clients=PARTS, compressor=compress.TopK(1), step=0.05)

    def corrected():
        return method.x - method.state_dict()["arrays"]["e_i"].reshape(CLIENTS, D).mean(axis=0)

    for _ in range(50):
        before, grad = corrected(), f.grad(method.x)
        method.step()
        np.testing.assert_allclose(corrected(), before - 0.05 * grad, atol=1e-14)


def test_ef14_with_one_client_arrives_where_several_do_not():
    f = problem()
    top = compress.TopK(1)
    one = opt.EF14(f, clients=1, compressor=top)
    several = opt.EF14(f, clients=PARTS, compressor=top, step=one.gamma)
    x_star = opt.solve(f)
    for method in (one, several):
        method.run(20_000)
    assert np.linalg.norm(one.x - x_star) < 1e-11
    assert np.linalg.norm(several.x - x_star) > 1e-5


def test_fed_avg_is_that_of_a_plain_reference():
    f = problem()
    method = opt.FedAvg(f, clients=PARTS, local_steps=4, cohort=opt.Nice(2), step=0.05, seed=5)
    x = np.zeros(D)
    for _ in range(50):
        method.step()
        cohort = method.drawn()[0]
        ends = []
        for k in cohort:
            own = x
            for _ in range(4):
                own = own - 0.05 * f.grad(own, PARTS[k])
            ends.append(own)
        x = np.mean(ends, axis=0)
    np.testing.assert_allclose(method.x, x, rtol=1e-12)
    assert method.record().oracle_calls == 50 * 2 * 4 * 6


def tree_sum(rows):
    """The sum of the clients' vectors by halves: 2^k clients, and the rest."""
    if len(rows) == 1:
        return rows[0]
    half = 1 << (len(rows) - 1).bit_length() - 1
    return tree_sum(rows[:half]) + tree_sum(rows[half:])


def gradient_descent(f, parts, gamma, steps):
    """With the mean over clients, summed in the fixed tree."""
    x = np.zeros(f.d)
    for _ in range(steps):
        x = x - gamma * ((1.0 / len(parts)) * tree_sum([f.grad(x, part) for part in parts]))
    return x


def test_reductions_to_gradient_descent():
    f, gamma = problem(), 0.05
    expected = gradient_descent(f, PARTS, gamma, 100)
    identity = {"clients": PARTS, "compressor": compress.Identity(), "step": gamma}
    for same in (opt.DCGD(f, **identity), opt.MARINA(f, **{**identity, "compressor": compress.RandK(1)}, p=1.0)):
        same.run(100)
        assert same.x.tobytes() == expected.tobytes(), same
    for like in (
        opt.MARINA(f, **identity, p=0.3),
        opt.EF21(f, **identity),
        opt.EF21SGDM(f, **identity, momentum=1.0, sampling=opt.Full()),
        opt.EF14(f, **identity),
        opt.DASHA(f, **identity),
        opt.DIANA(f, **identity),
        opt.Scaffnew(f, clients=PARTS, p=1.0, step=gamma),
        opt.Scaffold(f, clients=PARTS, step=gamma),
        opt.FedAvg(f, clients=PARTS, step=gamma),
    ):
        like.run(100)
        np.testing.assert_allclose(like.x, expected, rtol=1e-13, atol=1e-15, err_msg=repr(like))


def test_dyadic_problems_have_no_rounding():
    """Integer quadratics, 4 clients and a step of 1/8: every sum is exact."""
    f = opt.least_squares(np.array([[1.0, 0], [0, 1], [1, 1], [1, -1]]), [1.0, 2.0, -1.0, 4.0])
    parts, gamma = [[k] for k in range(4)], 0.125
    expected = gradient_descent(f, parts, gamma, 8)
    identity = {"clients": parts, "compressor": compress.Identity(), "step": gamma}
    for same in (
        opt.DIANA(f, **identity),
        opt.DASHA(f, **identity),
        opt.EF14(f, **identity),
        opt.EF21(f, **identity),
        opt.Scaffold(f, clients=parts, step=gamma),
        opt.MARINA(f, **identity, p=0.5),
        opt.Scaffnew(f, clients=parts, p=1.0, step=gamma),
        opt.PAGE(f, sampling=opt.Full(), p=0.5, step=gamma),
        opt.LSVRG(f, sampling=opt.Full(), p=0.5, step=gamma),
        opt.GD(f, step=gamma),
    ):
        same.run(8)
        assert same.x.tobytes() == expected.tobytes(), same


@pytest.mark.parametrize("name", METHODS)
def test_threads_change_no_bit(name):
    hashes = set()
    for threads in (1, 2, 8):
        method = METHODS[name](problem(), clients=PARTS, threads=threads, seed=2)
        method.run(40)
        hashes.add(hashlib.sha256(method.x).hexdigest())
    assert len(hashes) == 1


@pytest.mark.parametrize("name", METHODS)
def test_a_method_resumes_bit_for_bit(name, resumed):
    kept, of, _ = resumed(lambda: METHODS[name](problem(), clients=PARTS, seed=3))
    assert (kept.bits_up, kept.wire_bytes, kept.oracle_calls) == (of.bits_up, of.wire_bytes, of.oracle_calls)


def test_with_all_samples_and_no_momentum_it_is_ef21():
    common = {"clients": PARTS, "compressor": compress.TopK(2), "step": 0.02, "seed": 4}
    f = problem()
    same = [
        opt.EF21(f, **common),
        opt.EF21SGDM(f, **common, momentum=1.0, sampling=opt.Full()),
        opt.EF21PP(f, **common, cohort=opt.Full()),
    ]
    for method in same:
        method.run(50)
    assert len({method.x.tobytes() for method in same}) == 1


def test_bits_are_those_of_the_messages():
    f = problem()
    ef21 = opt.EF21(f, clients=PARTS, compressor=compress.TopK(2), start="zero")
    record = ef21.run(10)[-1]
    message = compress.TopK(2).compress(np.arange(1.0, D + 1))
    assert record.bits_up == 10 * CLIENTS * message.bits
    assert record.wire_bytes == 10 * CLIENTS * len(message.to_bytes())
    assert record.bits_down == 10 * CLIENTS * D * 64
    assert (record.rounds, record.oracle_calls) == (10, 10 * N)
    records = ef21.run(bits=5 * CLIENTS * message.bits)
    assert records[-1].step == 15
    dasha = opt.DASHA(f, clients=PARTS, compressor=compress.RandK(2), start="zero")
    assert (dasha.record().bits_up, dasha.record().rounds, dasha.record().oracle_calls) == (0.0, 0, N)
    assert dasha.run(10)[-1].bits_up == 10 * CLIENTS * 2 * 64
    scaffnew = opt.Scaffnew(f, clients=PARTS, start="zero", seed=1)
    coins = [scaffnew.step() and scaffnew.drawn()[1] for _ in range(50)]
    record = scaffnew.record()
    assert record.rounds == sum(coins)
    assert record.bits_up == sum(coins) * CLIENTS * D * 64


def test_the_loss_is_the_mean_over_clients():
    f = problem()
    method = opt.DCGD(f, clients=UNEQUAL, compressor=compress.Identity())
    x = np.linspace(-1, 1, D)
    record = opt.DCGD(f, x, clients=UNEQUAL, compressor=compress.Identity()).record()
    assert record.loss == pytest.approx(np.mean([f.loss(x, part) for part in UNEQUAL]), rel=1e-14)
    x_star = opt.solve(f, UNEQUAL)
    method.run(3000)
    np.testing.assert_allclose(method.x, x_star, atol=1e-12)
    c = opt.smoothness(f, UNEQUAL)
    hessians = np.array([FEATURES[part].T @ FEATURES[part] / len(part) + 0.1 * np.eye(D) for part in UNEQUAL])
    mean = hessians.mean(axis=0)
    assert pytest.approx(np.linalg.eigvalsh(mean)[-1], rel=1e-12) == c.L
    assert c.mu == pytest.approx(np.linalg.eigvalsh(mean)[0], rel=1e-10)
    assert c.L_i == pytest.approx(np.linalg.eigvalsh(hessians)[:, -1], rel=1e-12)
    assert c.L_pm**2 == pytest.approx(np.linalg.eigvalsh((hessians @ hessians).mean(axis=0) - mean @ mean)[-1])
    assert c.mu_min == pytest.approx(np.linalg.eigvalsh(hessians)[:, 0].min(), rel=1e-9)


BAD = {
    "K above d": lambda f: opt.EF21(f, compressor=compress.TopK(7)),
    "a biased compressor": lambda f: opt.DIANA(f, compressor=compress.TopK(1)),
    "an unbiased compressor that does not contract": lambda f: opt.EF21(f, compressor=compress.RandK(1)),
    "PermK for DCGD": lambda f: opt.DCGD(f, clients=4, compressor=compress.PermK()),
    "no clients": lambda f: opt.Scaffnew(f, clients=0),
    "more clients than samples": lambda f: opt.Scaffnew(f, clients=25),
    "a sample of two clients": lambda f: opt.Scaffnew(f, clients=[[0, 1], np.arange(1, N)]),
    "a sample of no client": lambda f: opt.Scaffnew(f, clients=[[0], np.arange(2, N)]),
    "a client without samples": lambda f: opt.Scaffnew(f, clients=[[], np.arange(N)], p=0.5, step=0.1),
    "a sample that does not exist": lambda f: opt.Scaffnew(f, clients=[np.arange(N + 1)], p=0.5, step=0.1),
    "start": lambda f: opt.Scaffnew(f, start="here"),
    "alpha": lambda f: opt.DIANA(f, compressor=compress.RandK(1), alpha=2.0),
    "prox of Scaffnew": lambda f: opt.Scaffnew(f, prox=opt.L1(1.0)),
    "theory of FedAvg": lambda f: opt.FedAvg(f, clients=4, local_steps=2),
    "momentum": lambda f: opt.EF21SGDM(f, compressor=compress.TopK(1), momentum=0.0),
    "a cohort that is no subset": lambda f: opt.EF21PP(f, compressor=compress.TopK(1), cohort=opt.WithReplacement(2)),
    "a biased compressor of DASHA": lambda f: opt.DASHA(f, compressor=compress.TopK(1)),
    "prox of EF14": lambda f: opt.EF14(f, compressor=compress.TopK(1), prox=opt.L1(1.0)),
    "server step": lambda f: opt.Scaffold(f, clients=4, server_step=0.0, step=0.1),
    "a network of others": lambda f: opt.DCGD(
        f, clients=4, compressor=compress.Identity(), network=opt.Network(opt.Delays([1.0, 2.0]))
    ),
    "latency": lambda f: opt.FedAvg(f, clients=1, network=opt.Network(opt.Delays([1.0]), latency=-1.0)),
    "bandwidth": lambda f: opt.FedAvg(f, clients=1, network=opt.Network(opt.Delays([1.0]), bandwidth=0.0)),
    "no local steps": lambda f: opt.FedAvg(f, clients=4, local_steps=0, step=0.1),
    "a cohort above the clients": lambda f: opt.FedAvg(f, clients=4, cohort=opt.Nice(5), step=0.1),
    "a batch above the samples": lambda f: opt.FedAvg(f, clients=4, sampling=opt.Nice(7), step=0.1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_value_error(name):
    with pytest.raises((ValueError, IndexError)) as error:
        BAD[name](problem())
    assert error.type is ValueError or name == "a sample that does not exist"


def test_divergence_changes_nothing():
    method = opt.EF21(problem(), clients=PARTS, compressor=compress.TopK(1), step=1e100)
    with pytest.raises(FloatingPointError, match="diverged"):
        method.run(1000)
    assert np.isfinite(method.x).all()


def test_given_draws_are_checked():
    method = opt.DCGD(problem(), clients=PARTS, compressor=compress.RandK(2))
    for wrong in ([[0.5, 0.5]], [[0.5]] * 4, [[1.0, 0.5]] * 4):
        with pytest.raises(ValueError):
            method.step(compression=wrong)
    assert method.record().step == 0
    assert method.step(compression=[[0.1, 0.1]] * 4).step == 1
