"""Workers on a virtual clock: against plain simulations with an event queue, times, state, and refusals."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from burtorch import compress, opt

N, D = 20, 4
RNG = np.random.default_rng(3)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N)
SECONDS = np.array([1.0, 1.7, 2.3, 40.0])
PARTS = [np.arange(k, N, 4) for k in range(4)]
DISTRIBUTIONS = [("fixed", 1.0), ("exponential", 1.0), ("log_normal", 0.7), ("pareto", 1.5)]


def problem():
    return opt.least_squares(FEATURES, TARGETS, l2=0.1)


METHODS = {
    "Rennala": lambda f, delays, **more: opt.Rennala(f, delays=delays, gathered=3, **more),
    "Ringmaster": lambda f, delays, **more: opt.Ringmaster(f, delays=delays, max_delay=4, **more),
    "MindFlayer": lambda f, delays, **more: opt.MindFlayer(f, delays=delays, trials=[2, 2, 1, 1], limits=3.0, **more),
    "FedBuff": lambda f, delays, **more: opt.FedBuff(
        f, clients=PARTS, delays=delays, buffer=3, local_steps=2, server_step=0.8, step=0.05, **more
    ),
}


def philox(round, client, purpose=6):
    """NumPy's generator of the sequence (seed 5, round, client, purpose), whose counter starts one lower."""
    place = (purpose << 192 | client << 128 | round << 64) - 1
    counter = np.array([place >> shift & 2**64 - 1 for shift in (0, 64, 128, 192)], np.uint64)
    return np.random.Generator(np.random.Philox(key=5, counter=counter))


def job_time(delays, job, worker):
    return factor(delays, philox(job, worker)) * delays.seconds[worker]


def factor(delays, rng):
    if delays.distribution == "fixed":
        return 1.0
    if delays.distribution == "exponential":
        return -np.log(1.0 - rng.random())
    if delays.distribution == "pareto":
        return (1.0 - rng.random()) ** (-1.0 / delays.constant)
    radius = np.sqrt(-2.0 * np.log(1.0 - rng.random()))
    return np.exp(delays.constant * radius * np.cos(2.0 * np.pi * rng.random()))


def batch(job, worker):
    return opt.Nice(2).batch(N, seed=5, round=job, client=worker + 1)[0]


def simulate(name, method, f, steps):
    """The iterates and times of a plain simulation with a heap of events."""
    delays, gamma, x, now = method.delays, method.gamma, np.zeros(D), 0.0
    found = []
    if name == "MindFlayer":
        for r in range(steps):
            g, longest = np.zeros(D), 0.0
            for worker in range(len(SECONDS)):
                rng, busy = philox(r, worker), 0.0
                for trial in range(method.trials[worker]):
                    time = factor(delays, rng) * SECONDS[worker]
                    busy += min(time, 3.0)
                    if time <= 3.0:
                        g += f.grad(x, batch(r * int(method.trials[worker]) + trial, worker)) / method.expected
                longest = max(longest, busy)
            now, x = now + longest, x - gamma * g
            found.append((x, now))
        return found
    events = [(job_time(delays, 0, worker), worker, 0, 0, x) for worker in range(len(SECONDS))]
    heapq.heapify(events)
    gathered, step = [], 0
    while step < steps:
        now, worker, job, since, point = heapq.heappop(events)
        if name == "Rennala":
            if since == step:
                gathered.append(f.grad(x, batch(job, worker)))
            if len(gathered) == 3:
                x, step, gathered = x - gamma * np.mean(gathered, axis=0), step + 1, []
                found.append((x, now))
            heapq.heappush(events, (now + job_time(delays, job + 1, worker), worker, job + 1, step, x))
            continue
        if name == "FedBuff":
            own = point
            for j in range(2):
                drawn = opt.Nice(2).batch(len(PARTS[worker]), seed=5, round=2 * job + j, client=worker + 1)[0]
                own = own - gamma * f.grad(own, PARTS[worker][drawn])
            gathered.append(own - point)
            if len(gathered) == 3:
                x, step, gathered = x + 0.8 * np.mean(gathered, axis=0), step + 1, []
                found.append((x, now))
            heapq.heappush(events, (now + job_time(delays, job + 1, worker), worker, job + 1, step, x))
            continue
        x, step = x - gamma * f.grad(point, batch(job, worker)), step + 1
        heapq.heappush(events, (now + job_time(delays, job + 1, worker), worker, job + 1, step, x))
        late = [event for event in events if step - event[3] >= 4]
        events = [event for event in events if step - event[3] < 4]
        events += [(now + job_time(delays, j + 1, w), w, j + 1, step, x) for _, w, j, _, _ in late]
        heapq.heapify(events)
        found.append((x, now))
    return found


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=[name for name, _ in DISTRIBUTIONS])
@pytest.mark.parametrize("name", METHODS)
def test_steps_are_those_of_a_plain_simulation(name, distribution):
    f = problem()
    method = METHODS[name](f, opt.Delays(SECONDS, *distribution), sampling=opt.Nice(2), seed=5)
    for x, time in simulate(name, method, f, 80):
        record = method.step()
        np.testing.assert_allclose(method.x, x, rtol=1e-11, atol=1e-13)
        assert record.time == pytest.approx(time, rel=1e-12)


@pytest.mark.parametrize("sampling", [opt.Nice(2), opt.Reshuffle(1)], ids=repr)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_resumes_bit_for_bit(name, sampling):
    """Workers share the memory of draws: the permutation of one must not be used for another."""
    delays = opt.Delays(SECONDS, "exponential")
    whole, first, second = (METHODS[name](problem(), delays, sampling=sampling, seed=3) for _ in range(3))
    whole.run(60)
    first.run(25)
    second.load_state_dict(first.state_dict())
    second.run(35)
    assert second.x.tobytes() == whole.x.tobytes()
    assert second.record().time == whole.record().time


def test_one_worker_or_equal_ones_make_known_methods():
    """Ringmaster with max_delay 1, and Rennala with one worker and one gradient, take the steps of SGD."""
    f = problem()
    one = opt.Delays([2.0])
    common = {"sampling": opt.Full(), "step": 0.05}
    gd = opt.GD(f, step=0.05)
    gd.run(40)
    for method in (
        opt.Ringmaster(f, delays=opt.Delays(SECONDS), max_delay=1, **common),
        opt.Ringmaster(f, delays=one, max_delay=7, **common),
        opt.Rennala(f, delays=one, gathered=1, **common),
        opt.MindFlayer(f, delays=one, trials=1, limits=np.inf, **common),
    ):
        records = method.run(40)
        assert method.x.tobytes() == gd.x.tobytes(), method
        assert records[-1].time == (40.0 if method.delays.n > 1 else 80.0)


def test_fed_buff_of_one_client_is_fed_avg():
    f = problem()
    common = {"clients": 1, "local_steps": 3, "step": 0.05}
    buffered = opt.FedBuff(f, delays=opt.Delays([1.0]), buffer=1, **common)
    averaged = opt.FedAvg(f, **common)
    for _ in range(20):
        one, other = buffered.step(), averaged.step()
        np.testing.assert_allclose(buffered.x, averaged.x, rtol=1e-12)
        assert (one.oracle_calls, one.bits_up, one.time) == (other.oracle_calls, other.bits_up, one.step)


def test_fed_buff_divides_no_samples_twice_and_resumes_among_unequal_clients():
    f, parts = problem(), [np.arange(3), np.arange(3, N)]
    make = lambda: opt.FedBuff(f, clients=parts, delays=opt.Delays([1.0, 2.5]), buffer=2, step=0.1)  # noqa: E731
    method = make()
    record = method.run(7)[-1]
    assert record.loss == pytest.approx(0.5 * (f.loss(method.x, parts[0]) + f.loss(method.x, parts[1])), rel=1e-13)
    again = make()
    again.load_state_dict(method.state_dict())
    method.run(5)
    again.run(5)
    assert again.x.tobytes() == method.x.tobytes()


def test_stragglers_cost_synchronous_methods_more_time():
    """Ringmaster reaches the same accuracy in less time than waiting for all workers, one of which is 40 times
    slower."""
    f = problem()
    ringmaster = opt.Ringmaster(f, delays=opt.Delays(SECONDS), max_delay=4, sampling=opt.Full())
    done = ringmaster.run(5000, callback=lambda record: record.grad_norm < 1e-6, record_every=10)
    waits = opt.MindFlayer(f, delays=opt.Delays(SECONDS), trials=1, limits=np.inf, sampling=opt.Full())
    slow = waits.run(5000, callback=lambda record: record.grad_norm < 1e-6, record_every=10)
    assert done[-1].grad_norm < 1e-6 > slow[-1].grad_norm
    assert done[-1].time < 0.5 * slow[-1].time


@pytest.mark.parametrize(("seconds", "limit", "trials"), [([1.0], 0.02, 1), ([1.0, 3.0], 0.05, 2), ([1.0], 1e-3, 50)])
def test_the_theory_step_of_mind_flayer_is_that_of_the_second_moment(seconds, limit, trials):
    """If few gradients arrive in time, the loss decreases on average over many seeds, as the second moment predicts."""
    f = opt.least_squares([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0])
    delays = opt.Delays(seconds, "exponential")
    common = {"delays": delays, "trials": trials, "limits": limit, "sampling": opt.Full(), "f_star": 0.0}
    p = np.array(delays.probability([limit] * len(seconds)))
    b, v = trials * p.sum(), trials * (p * (1 - p)).sum()
    assert b < 0.25
    smooth = opt.smoothness(f).L
    method = opt.MindFlayer(f, **common)
    assert method.gamma == pytest.approx(1.0 / (smooth * (1.0 + v / b**2)))
    ends = [opt.MindFlayer(f, seed=seed, **common).run(2000)[-1].gap for seed in range(20)]
    assert max(ends) < method.record().gap
    with pytest.raises(FloatingPointError):
        opt.MindFlayer(f, step=0.5 / smooth, **{**common, "limits": 1e-3, "trials": 1}).run(10**6)
    # Half of the smoothness is used if enough of them arrive.
    for many, limits in ((4, 3.0), (1, np.inf), (200, 0.2)):
        assert opt.MindFlayer(f, **{**common, "trials": many, "limits": limits}).gamma == 0.5 / smooth


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=[name for name, _ in DISTRIBUTIONS])
def test_probabilities_are_those_of_the_draws(distribution):
    """The trials of MindFlayer that end in time, counted."""
    delays = opt.Delays([1.0], *distribution)
    f = problem()
    method = opt.MindFlayer(f, delays=delays, trials=20_000, limits=1.8, step=1e-9)
    got = method.step().oracle_calls / 20_000
    (p,) = delays.probability(1.8)
    assert abs(got - p) <= 4.0 * np.sqrt(p * (1.0 - p) / 20_000)
    assert method.expected == pytest.approx(20_000 * p)


def test_a_round_takes_as_long_as_its_slowest_client():
    f = problem()
    delays = opt.Delays(SECONDS, "pareto", 2.0)
    network = opt.Network(delays, latency=0.25, bandwidth=1000.0)
    method = opt.EF21PP(
        f, clients=4, compressor=compress.TopK(1), cohort=opt.Nice(2), start="zero", network=network, seed=5
    )
    bits = compress.TopK(1).compress(np.arange(1.0, D + 1)).bits + 64 * D
    expected = 0.0
    for r in range(30):
        record = method.step()
        cohort = method.drawn()[0]
        expected += max(job_time(delays, r, k) * (N / 4) + 0.5 + bits / 1000.0 for k in cohort.tolist())
        assert record.time == pytest.approx(expected, rel=1e-12)


def test_lost_work_takes_time_and_changes_no_iterate():
    """A client repeats its work in a round until a draw of purpose 7 says that it is not lost."""
    f, dropout = problem(), 0.6
    delays = opt.Delays(SECONDS, "exponential")
    bits = 2 * 64 * D
    common = {"clients": 4, "step": 0.05, "seed": 5}
    safe = opt.FedAvg(f, **common)
    method = opt.FedAvg(f, **common, network=opt.Network(delays, 0.25, 1000.0, dropout))
    expected, attempts = 0.0, 0
    for r in range(40):
        times = []
        for k in range(4):
            rng, lost, time = philox(r, k), philox(r, k, purpose=7), 0.0
            while True:
                attempts += 1
                time += factor(delays, rng) * SECONDS[k] * (N / 4) + 0.5 + bits / 1000.0
                if not lost.random() < dropout:
                    break
            times.append(time)
        expected += max(times)
        assert method.step().time == pytest.approx(expected, rel=1e-12)
        safe.step()
    assert method.x.tobytes() == safe.x.tobytes()
    assert abs(attempts / 160 - 1.0 / (1.0 - dropout)) < 4.0 * np.sqrt(dropout / (1.0 - dropout) ** 2 / 160)


BAD = {
    "dropout": lambda f: opt.FedAvg(f, clients=1, step=0.1, network=opt.Network(opt.Delays([1.0]), dropout=1.0)),
    "dropout nan": lambda f: opt.FedAvg(f, clients=1, step=0.1, network=opt.Network(opt.Delays([1.0]), dropout=np.nan)),
    "buffer": lambda f: opt.FedBuff(f, clients=1, delays=opt.Delays([1.0]), buffer=0, step=0.1),
    "local_steps": lambda f: opt.FedBuff(f, clients=1, delays=opt.Delays([1.0]), buffer=1, local_steps=0, step=0.1),
    "server_step": lambda f: opt.FedBuff(f, clients=1, delays=opt.Delays([1.0]), buffer=1, server_step=0.0, step=0.1),
    "delays": lambda f: opt.FedBuff(f, clients=2, delays=opt.Delays([1.0]), buffer=1, step=0.1),
    "prox": lambda f: opt.FedBuff(f, clients=1, delays=opt.Delays([1.0]), buffer=1, step=0.1, prox=opt.L1(1.0)),
    "theory": lambda f: opt.FedBuff(f, clients=1, delays=opt.Delays([1.0]), buffer=1),
    "seconds": lambda f: opt.Delays([1.0, 0.0]),
    "distribution": lambda f: opt.Delays([1.0], "uniform"),
    "constant": lambda f: opt.Delays([1.0], "pareto", 0.0),
    "gathered": lambda f: opt.Rennala(f, delays=opt.Delays([1.0]), gathered=0),
    "max_delay": lambda f: opt.Ringmaster(f, delays=opt.Delays([1.0]), max_delay=0, step=0.1),
    "trials": lambda f: opt.MindFlayer(f, delays=opt.Delays([1.0]), trials=1.5, limits=2.0),
    "limits": lambda f: opt.MindFlayer(f, delays=opt.Delays([1.0]), trials=1, limits=0.5),
    "no workers": lambda f: opt.Rennala(f, delays=opt.Delays([]), gathered=1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_value_error(name):
    with pytest.raises(ValueError):
        BAD[name](problem())
