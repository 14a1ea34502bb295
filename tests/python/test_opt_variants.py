"""L-Katyusha, VR-MARINA, PP-MARINA and EF21-BC: against plain references and the methods they extend, state,
threads, bits, errors."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from burtorch import compress, opt

N, D, CLIENTS = 24, 6, 4
RNG = np.random.default_rng(8)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
PARTS = [np.arange(0, 3), np.arange(3, 10), np.arange(10, 12), np.arange(12, N)]
RAND, TOP = compress.RandK(2), compress.TopK(2)
LOCAL = opt.Nice(2)


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


METHODS = {
    "L-Katyusha": lambda f, **more: opt.LKatyusha(f, sampling=opt.Nice(2), p=0.2, **more),
    "VR-MARINA": lambda f, **more: opt.VRMARINA(f, clients=PARTS, compressor=RAND, sampling=LOCAL, p=0.3, **more),
    "VR-MARINA replacement": lambda f, **more: opt.VRMARINA(
        f, clients=PARTS, compressor=RAND, sampling=opt.WithReplacement(3), p=0.3, **more
    ),
    "PP-MARINA": lambda f, **more: opt.PPMARINA(f, clients=PARTS, compressor=RAND, cohort=opt.Nice(2), p=0.3, **more),
    "PP-MARINA independent": lambda f, **more: opt.PPMARINA(
        f, clients=PARTS, compressor=RAND, cohort=opt.Independent(0.4), p=0.3, **more
    ),
    "EF21-BC": lambda f, **more: opt.EF21BC(f, clients=PARTS, compressor=TOP, downlink=compress.TopK(1), **more),
    "EF21-BC random": lambda f, **more: opt.EF21BC(
        f, clients=PARTS, compressor=TOP, downlink=compress.Natural(), start="zero", **more
    ),
}


def sent(compressor, round, client, n_clients, x):
    draw = compress.Draw(5, round, client)
    return compressor.compress(x, draw, client=client % n_clients, n_clients=n_clients).decompress()


def l_katyusha(method, f, coins, batches):
    gamma, theta, mu = method.gamma, method.theta, method.mu
    x = z = w = np.zeros(D)
    for coin, batch in zip(coins, batches, strict=True):
        u = theta * z + 0.5 * w + (0.5 - theta) * x
        g = f.grad(u, batch) - f.grad(w, batch) + f.grad(w)
        new = (gamma * mu * u + z - gamma * g) / (1.0 + gamma * mu)
        w, x, z = x if coin else w, u + theta * (new - z), new
    return x


def marina(method, f, coins, cohorts):
    grads = lambda x: np.array([f.grad(x, part) for part in PARTS])  # noqa: E731
    gamma, x, rule = method.gamma, np.zeros(D), getattr(method, "local_sampling", opt.Full())
    g = grads(x).mean(axis=0)
    share = method.sampling.expected_size(CLIENTS)
    for r, (coin, cohort) in enumerate(zip(coins, cohorts, strict=True)):
        old, x = x, x - gamma * g
        if coin:
            g = grads(x).mean(axis=0)
            continue
        for k in cohort:
            own = PARTS[k][rule.batch(len(PARTS[k]), seed=5, round=r, client=k + 1)[0]]
            g = g + sent(method.compressor, r, k, CLIENTS, f.grad(x, own) - f.grad(old, own)) / share
    return x


def ef21_bc(method, f, coins, _):
    grads = lambda x: np.array([f.grad(x, part) for part in PARTS])  # noqa: E731
    x = np.zeros(D)
    own = grads(x) if method.from_gradient else np.zeros((CLIENTS, D))
    g = own.mean(axis=0)
    for r in range(len(coins)):
        x = x - method.gamma * g
        own = own + np.array([sent(TOP, r, k, CLIENTS, row) for k, row in enumerate(grads(x) - own)])
        draw = compress.Draw(5, r, CLIENTS)
        g = g + method.downlink.compress(own.mean(axis=0) - g, draw).decompress()
    return x


@pytest.mark.parametrize("name", METHODS)
def test_a_hundred_steps_are_those_of_a_plain_reference(name):
    f = problem()
    method = METHODS[name](f, seed=5)
    coins, batches = [], []
    for _ in range(100):
        method.step()
        batches.append(method.drawn()[0])
        coins.append(method.drawn()[1])
    plain = l_katyusha if name == "L-Katyusha" else ef21_bc if "EF21" in name else marina
    expected = plain(method, f, coins, batches)
    assert np.linalg.norm(method.x - expected) <= 1e-12 * np.linalg.norm(expected)
    if None not in coins:
        assert 5 < sum(coins) < 95


def test_reductions_to_the_methods_they_extend():
    f, common = problem(), {"clients": PARTS, "compressor": RAND, "seed": 4, "p": 0.3}
    marina = opt.MARINA(f, **common)
    same = [opt.VRMARINA(f, **common, sampling=opt.Full()), opt.PPMARINA(f, **common, cohort=opt.Full())]
    for method in (marina, *same, *[opt.PPMARINA(f, **common, cohort=opt.Nice(CLIENTS))]):
        method.run(100)
        assert method.gamma == pytest.approx(marina.gamma, rel=1e-14)
    for method in same:
        method = type(method)(
            f,
            **common,
            step=marina.gamma,
            **({"sampling": opt.Full()} if method is same[0] else {"cohort": opt.Full()}),
        )
        method.run(100)
        assert method.x.tobytes() == marina.x.tobytes()
    common = {"clients": PARTS, "compressor": TOP, "seed": 4}
    ef21, both = opt.EF21(f, **common), opt.EF21BC(f, **common, downlink=compress.Identity())
    assert both.gamma == pytest.approx(ef21.gamma, rel=1e-14)
    for method in (ef21, both):
        method.run(100)
    np.testing.assert_allclose(both.x, ef21.x, rtol=1e-13, atol=1e-15)
    gd = opt.GD(f, step=0.05)
    identity = {"compressor": compress.Identity(), "clients": 1, "step": 0.05}
    for like in (
        opt.VRMARINA(f, **identity, sampling=opt.Full(), p=0.3),
        opt.PPMARINA(f, **identity, cohort=opt.Full(), p=0.3),
        opt.EF21BC(f, **identity, downlink=compress.Identity()),
    ):
        gd = opt.GD(f, step=0.05)
        gd.run(100)
        like.run(100)
        np.testing.assert_allclose(like.x, gd.x, rtol=1e-13, atol=1e-15, err_msg=repr(like))


def test_l_katyusha_of_full_batches_is_the_accelerated_method_of_one():
    """With all samples in a batch the reference point changes only the point u, regardless of the draws."""
    f = problem()
    full, nice = (opt.LKatyusha(f, sampling=rule, p=0.2, seed=2) for rule in (opt.Full(), opt.Nice(N)))
    for method in (full, nice):
        method.run(100)
    np.testing.assert_allclose(full.x, nice.x, rtol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_threads_change_no_bit(name):
    hashes = set()
    for threads in (1, 2, 8):
        method = METHODS[name](problem(), threads=threads, seed=2)
        method.run(40)
        hashes.add(hashlib.sha256(method.x).hexdigest())
    assert len(hashes) == 1


@pytest.mark.parametrize("name", METHODS)
def test_a_method_resumes_bit_for_bit(name, resumed):
    kept, of, _ = resumed(lambda: METHODS[name](problem(), seed=3))
    assert (kept.bits_up, kept.bits_down, kept.oracle_calls) == (of.bits_up, of.bits_down, of.oracle_calls)


def test_bits_are_those_of_the_messages():
    f, down = problem(), compress.TopK(1)
    method = opt.EF21BC(f, clients=PARTS, compressor=TOP, downlink=down, start="zero")
    record = method.run(10)[-1]
    up, whole = TOP.compress(np.arange(1.0, D + 1)).bits, D * 64
    assert record.bits_up == 10 * CLIENTS * up
    # The first step starts from full numbers.
    assert record.bits_down == CLIENTS * (whole + 9 * down.compress(np.arange(1.0, D + 1)).bits)
    pp = opt.PPMARINA(f, clients=PARTS, compressor=RAND, cohort=opt.Nice(2), p=0.3, seed=1)
    coins = [pp.step() and pp.drawn()[1] for _ in range(50)]
    record, rare = pp.record(), sum(coins)
    message = RAND.compress(np.arange(1.0, D + 1), compress.Draw(0)).bits
    assert record.bits_up == (1 + rare) * CLIENTS * whole + (50 - rare) * 2 * message
    network = opt.Network(opt.Delays([1e-9] * CLIENTS), bandwidth=1.0)
    slow, quick = (
        opt.EF21BC(f, clients=PARTS, compressor=TOP, downlink=d, network=network)
        for d in (compress.Identity(), compress.TopK(1))
    )
    assert slow.run(20)[-1].time > 2 * quick.run(20)[-1].time


def test_l_katyusha_arrives_with_fewer_oracle_calls_than_l_svrg():
    features, targets = opt.make_least_squares(100, 10, condition=1e4, seed=0)
    f = opt.least_squares(features, targets, l2=1e-5)
    x_star = opt.solve(f)
    fast, slow = (make(f, x_star=x_star, seed=1) for make in (opt.LKatyusha, opt.LSVRG))
    gaps = [method.run(epochs=500)[-1].gap for method in (fast, slow)]
    assert gaps[0] < 0.1 * gaps[1]


BAD = {
    "strong convexity of f is unknown": lambda f: opt.LKatyusha(opt.robust_regression(FEATURES, TARGETS)),
    "negative mu": lambda f: opt.LKatyusha(f, mu=-1.0),
    "theta": lambda f: opt.LKatyusha(f, theta=0.75),
    "sampling of L-Katyusha": lambda f: opt.LKatyusha(f, sampling=opt.WithReplacement(2)),
    "prox of L-Katyusha": lambda f: opt.LKatyusha(f, prox=opt.L1(1.0)),
    "batch above the samples of a client": lambda f: opt.VRMARINA(
        f, clients=PARTS, compressor=RAND, sampling=opt.Nice(3)
    ),
    "batches that are biased": lambda f: opt.VRMARINA(f, clients=PARTS, compressor=RAND, sampling=opt.Reshuffle(2)),
    "a biased compressor": lambda f: opt.VRMARINA(f, clients=PARTS, compressor=TOP),
    "PermK": lambda f: opt.PPMARINA(f, clients=PARTS, compressor=compress.PermK(), cohort=opt.Nice(2)),
    "a cohort above the clients": lambda f: opt.PPMARINA(f, clients=PARTS, compressor=RAND, cohort=opt.Nice(5)),
    "K above d": lambda f: opt.EF21BC(f, clients=PARTS, compressor=TOP, downlink=compress.TopK(7)),
    "a downlink that does not contract": lambda f: opt.EF21BC(
        f, clients=PARTS, compressor=TOP, downlink=RAND, step=0.1
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_value_error(name):
    with pytest.raises(ValueError):
        BAD[name](problem())
    with pytest.raises(TypeError, match="downlink must be a Compressor"):
        opt.EF21BC(problem(), clients=PARTS, compressor=TOP, downlink="topk")
