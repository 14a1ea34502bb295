"""A round of EF21 with TopK(6) for clients of 32 rows of 123 features: one process, NumPy, and Flower's simulation.

    python benches/python/bench_clients.py [--clients 50 200] [--record]

Needs `flwr[simulation]`: requirements-engines.txt. All three must end with the same iterate before a time counts:
burtorch's engines with the same bits, NumPy within 1e-9. The simulation runs the same method, one node for each
client; its time is that of the rounds after the first, without the start of its processes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from bench_opt import ByHand, ef21  # noqa: E402
from record import cpu_name, write_record  # noqa: E402

import burtorch as bt  # noqa: E402

try:
    from flwr.simulation import run_simulation
except ImportError:
    print("needs flwr[simulation]: pip install -r requirements-engines.txt")
    raise SystemExit(0) from None

ROWS, D, K, STEP, L2 = 32, 123, 6, 0.05, 1e-4


def problem(n_clients):
    features, labels = bt.opt.make_logistic(ROWS * n_clients, D, density=14 / D, seed=0)
    return features, labels, bt.opt.logistic_regression(features, labels, l2=L2)


def make(n_clients, engine):
    f = problem(n_clients)[2]
    return bt.opt.EF21(f, clients=n_clients, compressor=bt.compress.TopK(K), step=STEP, engine=engine)


def by_flower(n_clients, rounds):
    """Seconds of a round after the first, and the iterate."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "told"

        def done(method, records):
            seconds = (records[-1].seconds - records[1].seconds) / (rounds - 1)
            path.write_text(json.dumps([seconds, method.x.tolist()]))

        build = functools.partial(make, n_clients)
        server = bt.flower.server_app(build, n_clients, rounds, done=done, record_every=1)
        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, bt.flower.client_app(build), num_supernodes=n_clients, backend_config=resources)
        seconds, x = json.loads(path.read_text())
    return seconds, np.array(x)


def here(n_clients, rounds):
    method = make(n_clients, "local")
    start = time.perf_counter()
    method._runner.steps([STEP], rounds)
    return (time.perf_counter() - start) / rounds, method.x


def by_hand(n_clients, rounds):
    features, labels, _ = problem(n_clients)
    rival = ByHand(features.toarray(), labels)
    cuts = [slice(ROWS * k, ROWS * (k + 1)) for k in range(n_clients)]
    start = time.perf_counter()
    x = ef21(rival, STEP, rounds, D, cuts, K)
    return (time.perf_counter() - start) / rounds, x


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    lines = ["| clients | burtorch, ms | NumPy, ms | Flower's simulation, ms | times Flower |", "|---|---|---|---|---|"]
    for n in options.clients:
        flower, x = by_flower(n, options.rounds)
        ours, own = min((here(n, options.rounds) for _ in range(5)), key=lambda found: found[0])
        numpy, theirs = min((by_hand(n, options.rounds) for _ in range(3)), key=lambda found: found[0])
        if x.tobytes() != own.tobytes() or np.linalg.norm(theirs - own) > 1e-9 * np.linalg.norm(own):
            raise SystemExit(f"{n} clients: iterates differ")
        lines.append(f"| {n} | {1e3 * ours:.2f} | {1e3 * numpy:.2f} | {1e3 * flower:.0f} | {flower / ours:.0f} |")
        print(lines[-1], flush=True)
    if options.record:
        title = f"# A round of clients: one process, NumPy, Flower\n\n{cpu_name()}, {os.cpu_count()} cores, "
        title += f"float64, EF21 with TopK({K}), {ROWS} rows a client; means of {options.rounds} rounds.\n\n"
        write_record("clients", title + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
