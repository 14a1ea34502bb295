"""A round of EF21 with TopK(6) for clients of 32 rows of 123 features: one process, NumPy, and Flower's simulation.

    python benches/python/bench_clients.py [--clients 50 200] [--many 1000 10000 100000] [--record]

For `--clients` all three are timed, which needs `flwr[simulation]` (requirements-engines.txt); for `--many` one process
with clients' vectors in float64 and float32, and NumPy, each in a separate process, whose peak memory is reported. A
time counts only if the final iterates agree: burtorch's engines bit for bit, NumPy within 1e-9, float32 within 1e-5.
The simulation runs the same method, one node per client; its time is that of the rounds after the first, without the
start of its processes. Above 20,000 clients client k has the rows of client k modulo 1,000, which
are in memory once.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from bench_opt import ByHand, ef21  # noqa: E402
from record import cpu_name, write_record  # noqa: E402

import burtorch as bt  # noqa: E402

ROWS, D, K, STEP, L2 = 32, 123, 6, 0.05, 1e-4
SHARED, MOST = 1000, 20_000


def problem(n_clients):
    features, labels = bt.opt.make_logistic(ROWS * n_clients, D, density=14 / D, seed=0)
    return features, labels, bt.opt.logistic_regression(features, labels, l2=L2)


def make(n_clients, engine):
    f = problem(n_clients)[2]
    return bt.opt.EF21(f, clients=n_clients, compressor=bt.compress.TopK(K), step=STEP, engine=engine)


def by_flower(n_clients, rounds):
    """Seconds of a round after the first, and the iterate."""
    from flwr.simulation import run_simulation

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


def megabytes(of):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(of)) / 1024


def one(n_clients, how, rounds):
    """Prints seconds of a round, the iterate, the memory of the data, and the peak memory of the process."""
    distinct = n_clients if n_clients <= MOST else SHARED
    features, labels = bt.opt.make_logistic(ROWS * distinct, D, density=14 / D, seed=0)
    if how == "numpy":
        rival = ByHand(features.toarray(), labels)
        cuts = [slice(ROWS * k, ROWS * (k + 1)) for k in range(distinct)] * (n_clients // distinct)
        before = megabytes("VmRSS")
        starts = [time.perf_counter()]
        ef21(rival, STEP, 0, D, cuts, K)  # the gradients at the first point
        starts.append(time.perf_counter())
        x = ef21(rival, STEP, rounds, D, cuts, K)
        seconds = (time.perf_counter() - 2 * starts[1] + starts[0]) / rounds
    else:
        if distinct == n_clients:
            f, clients = bt.opt.logistic_regression(features, labels, l2=L2), n_clients
        else:
            rows = (np.array(features.starts), np.array(features.columns), np.array(features.values))
            own = [sliced(rows, labels, ROWS * k, ROWS * (k + 1)) for k in range(distinct)]
            f, clients = own * (n_clients // distinct), None
        before = megabytes("VmRSS")
        compressor = bt.compress.TopK(K)
        method = bt.opt.EF21(f, clients=clients, compressor=compressor, step=STEP, client_dtype=how)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            method._runner.steps([STEP], 1)
            times.append(time.perf_counter() - start)
        seconds, x = min(times), method.x
    print(json.dumps([seconds, x.tolist(), before, megabytes("VmHWM")]))


def sliced(rows, labels, start, end):
    """A client with some of the rows."""
    starts, columns, values = rows
    first, last = starts[start], starts[end]
    part = (starts[start : end + 1] - first, columns[first:last], values[first:last], (end - start, D))
    return bt.opt.Client(bt.opt.logistic_regression(part, labels[start:end], l2=L2))


def many(counts, rounds):
    """The lines of a table."""
    head = "| clients | vectors | ms a round | NumPy, ms | data, MB | peak of the process, MB | NumPy's |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for n in counts:
        found = {}
        for how in ("float64", "float32", "numpy"):
            command = [sys.executable, __file__, "--one", str(n), how, "--rounds", str(rounds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found[how] = json.loads(done.stdout)
        x = np.array(found["float64"][1])
        for how, most in (("float32", 1e-5), ("numpy", 1e-9)):
            if np.linalg.norm(np.array(found[how][1]) - x) > most * np.linalg.norm(x):
                raise SystemExit(f"{n} clients: iterates of {how} differ")
        for how in ("float64", "float32"):
            seconds, _, before, peak = found[how]
            rival = f"{1e3 * found['numpy'][0]:.1f}"
            lines.append(
                f"| {n} | {how} | {1e3 * seconds:.2f} | {rival} | {before:.0f} | {peak:.0f} | {found['numpy'][3]:.0f} |"
            )
            print(lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="*", default=[50, 200])
    parser.add_argument("--many", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.one is not None:
        one(int(options.one[0]), options.one[1], options.rounds)
        return
    if options.clients and importlib.util.find_spec("flwr") is None:
        print("Flower is left out: pip install -r requirements-engines.txt")
        options.clients = []
    lines = ["| clients | burtorch, ms | NumPy, ms | Flower's simulation, ms | times Flower |", "|---|---|---|---|---|"]
    for n in options.clients:
        flower, x = by_flower(n, options.rounds)
        ours, own = min((here(n, options.rounds) for _ in range(5)), key=lambda found: found[0])
        numpy, theirs = min((by_hand(n, options.rounds) for _ in range(3)), key=lambda found: found[0])
        if x.tobytes() != own.tobytes() or np.linalg.norm(theirs - own) > 1e-9 * np.linalg.norm(own):
            raise SystemExit(f"{n} clients: iterates differ")
        lines.append(f"| {n} | {1e3 * ours:.2f} | {1e3 * numpy:.2f} | {1e3 * flower:.0f} | {flower / ours:.0f} |")
        print(lines[-1], flush=True)
    table = [*lines, "", *many(options.many, options.rounds)]
    if options.record:
        title = f"# A round of clients: one process, NumPy, Flower\n\n{cpu_name()}, {os.cpu_count()} cores, "
        title += f"float64, EF21 with TopK({K}), {ROWS} rows a client; means of {options.rounds} rounds.\n\n"
        title += (
            "Of many clients the fastest round; rows have 14 numbers of 123, sparse in burtorch and dense in NumPy.\n\n"
        )
        write_record("clients", title + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
