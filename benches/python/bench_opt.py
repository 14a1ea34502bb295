"""Steps of burtorch.opt beside the same steps by hand in NumPy and SciPy CSR, on the same draws: microseconds a step.

    OPENBLAS_NUM_THREADS=1 python benches/python/bench_opt.py [--quick] [--record]

One core, float64, logistic regression: 32,561 x 123 with 14 entries a row, and dense 49,749 x 300. Batches and coins
are drawn before the rivals are timed, and by burtorch while it is. Iterates must agree before anything is timed; then
all run in turn, briefly, so that a busy machine slows all alike, and the least time of many counts. A round of EF21
with TopK is timed for 20 clients, with batches of their samples and with all, and for 1,000 and 10,000 clients of 32
rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from record import cpu_name, write_record  # noqa: E402
from scipy import sparse  # noqa: E402

import burtorch as bt  # noqa: E402

L2 = 1e-4
TURNS = 25
STEPS = 400


class ByHand:
    """Gradients of logistic regression with NumPy, on dense or SciPy rows."""

    def __init__(self, features, labels):
        self.features, self.labels = features, labels

    def grad(self, x, samples, minus=None):
        a, b = self.features[samples], self.labels[samples]
        slope = -b / (1.0 + np.exp(b * (a @ x)))
        shift = x
        if minus is not None:
            slope = slope + b / (1.0 + np.exp(b * (a @ minus)))
            shift = x - minus
        return a.T @ slope / len(b) + L2 * shift


EVERY = slice(None)


def sgd(rival, gamma, draws, d):
    x = np.zeros(d)
    for batch, _ in draws:
        x = x - gamma * rival.grad(x, batch)
    return x


def l_svrg(rival, gamma, draws, d):
    x = np.zeros(d)
    w, full = x, rival.grad(x, EVERY)
    for batch, coin in draws:
        old, x = x, x - gamma * (rival.grad(x, batch, w) + full)
        if coin:
            w, full = old, rival.grad(old, EVERY)
    return x


def page(rival, gamma, draws, d):
    x = np.zeros(d)
    g = rival.grad(x, EVERY)
    for batch, coin in draws:
        old, x = x, x - gamma * g
        g = rival.grad(x, EVERY) if coin else g + rival.grad(x, batch, old)
    return x


def ef21(rival, gamma, rounds, d, parts, k):
    """`rounds` holds the data of each client."""
    x = np.zeros(d)
    own = np.array([rival.grad(x, part) for part in parts])
    g = own.mean(axis=0)
    for batches in rounds:
        x = x - gamma * g
        for i, batch in enumerate(batches):
            rest = rival.grad(x, batch) - own[i]
            top = np.argpartition(np.abs(rest), d - k)[d - k :]
            own[i, top] += rest[top]
            g[top] += rest[top] / len(parts)
    return x


def least(works, turns=TURNS):
    """Minimum seconds of each, in turns."""
    found = [float("inf")] * len(works)
    for _ in range(turns):
        for k, work in enumerate(works):
            start = time.perf_counter()
            work()
            found[k] = min(found[k], time.perf_counter() - start)
    return found


def check(x, others, what):
    for other in others:
        error = np.linalg.norm(x - other) / np.linalg.norm(other)
        if error > 1e-8:
            raise SystemExit(f"{what}: iterates differ by {error:.1e}")


def stochastic(kind, f, rivals, batch, steps=STEPS):
    """Seconds of a step: burtorch, and each rival, without the first gradient."""
    by_hand, make = {
        "SGD": (sgd, bt.opt.SGD),
        "L-SVRG": (l_svrg, bt.opt.LSVRG),
        "PAGE": (page, bt.opt.PAGE),
    }[kind]
    fresh = lambda: make(f, sampling=bt.opt.Nice(batch), step=0.05, seed=1)  # noqa: E731
    method, draws = fresh(), []
    for _ in range(steps):
        method._runner.step(0.05)
        chosen, coin = method.drawn()
        draws.append((chosen, coin))
    run = lambda rival, draws: lambda: by_hand(rival, 0.05, draws, f.d)  # noqa: E731
    check(method.x, [run(rival, draws)() for rival in rivals], f"{kind} b={batch}")
    timed = [fresh() for _ in range(TURNS)]
    works = [lambda: timed.pop()._runner.steps([0.05], steps)]
    for rival in rivals:
        works += [run(rival, draws), run(rival, [])]
    ours, *theirs = least(works)
    return [seconds / steps for seconds in (ours, *(a - b for a, b in zip(theirs[::2], theirs[1::2], strict=True)))]


def distributed(f, rivals, n_clients, k, batch=None, rounds=1):
    """Seconds of a round of EF21, without the clients' first gradients."""
    parts = np.array_split(np.arange(f.n), n_clients)
    cuts = [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
    common = {"clients": parts, "compressor": bt.compress.TopK(k), "step": 0.05}
    if batch is None:
        method, drawn = bt.opt.EF21(f, **common), [cuts] * rounds
    else:
        sampling = bt.opt.Nice(batch)
        method = bt.opt.EF21SGDM(f, **common, momentum=1.0, sampling=sampling)
        draw = lambda part, r, i: part[sampling.batch(len(part), round=r, client=i + 1)[0]]  # noqa: E731
        drawn = [[draw(part, r, i) for i, part in enumerate(parts)] for r in range(rounds)]
    start = method.state_dict()
    method._runner.steps([0.05], rounds)
    run = lambda rival, rounds: lambda: ef21(rival, 0.05, rounds, f.d, cuts, k)  # noqa: E731
    check(method.x, [run(rival, drawn)() for rival in rivals], f"EF21 of {n_clients}")

    def ours():
        method._runner.steps([0.05], rounds)

    works = [ours]
    for rival in rivals:
        works += [run(rival, drawn), run(rival, [])]
    method.load_state_dict(start)
    first, *theirs = least(works, TURNS if n_clients <= 1000 else 3)
    return [first / rounds, *((a - b) / rounds for a, b in zip(theirs[::2], theirs[1::2], strict=True))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--record", action="store_true", help="write benches/record/")
    options = parser.parse_args()
    small = 10 if options.quick else 1
    lines = [
        "| data | method | batch | burtorch, us | NumPy, us | SciPy CSR, us | times the best rival |",
        "|---|---|---|---|---|---|---|",
    ]
    shapes = [("sparse 32,561 x 123", 32_561, 123, 14 / 123), ("dense 49,749 x 300", 49_749, 300, 1.0)]

    def add(data, method, batch, found):
        ours, *theirs = (1e6 * seconds for seconds in found)
        shown = [f"{us:.1f}" for us in theirs] + ["-"] * (2 - len(theirs))
        lines.append(f"| {data} | {method} | {batch} | {ours:.1f} | {' | '.join(shown)} | {min(theirs) / ours:.2f} |")
        print(lines[-1], flush=True)

    for data, n, d, density in shapes:
        features, labels = bt.opt.make_logistic(n // small, d, density=density, seed=0)
        f = bt.opt.logistic_regression(features, labels, l2=L2)
        rivals = [ByHand(features if density == 1.0 else features.toarray(), labels)]
        if density < 1.0:
            rivals.append(ByHand(sparse.csr_matrix(features.toscipy()), labels))
        for kind in ("SGD", "L-SVRG", "PAGE"):
            for batch in (1, 8, 64):
                add(data, kind, batch, stochastic(kind, f, rivals, batch))
        for batch in (1, 8, 64):
            found = distributed(f, rivals, 20, d // 20, batch, STEPS // 10)
            add(data, "EF21 TopK(5 %), 20 clients", f"{batch} a client", found)
        add(data, "EF21 TopK(5 %), 20 clients", "all", distributed(f, rivals, 20, d // 20))
    for n_clients in (1000, 10_000):
        n_clients //= small
        features, labels = bt.opt.make_logistic(32 * n_clients, 123, density=14 / 123, seed=0)
        f = bt.opt.logistic_regression(features, labels, l2=L2)
        rival = ByHand(sparse.csr_matrix(features.toscipy()), labels)
        rivals = [rival] if n_clients > 1000 else [ByHand(features.toarray(), labels), rival]
        add(f"{n_clients} clients of 32 rows", "EF21 TopK(6)", "all", distributed(f, rivals, n_clients, 6))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines.append(
        f"\nPeak resident memory of this process, rivals included: {peak:.0f} MB. {cpu_name()}, one core, float64."
    )
    print(lines[-1])
    if options.record:
        write_record("opt", "# Steps of burtorch.opt beside NumPy and SciPy\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
