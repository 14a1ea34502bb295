"""Rounds of clients on 1 and 2 ranks of MPI, for the GPT and the CharMLP with e = 1024, and a model of more ranks.

    python benches/python/bench_mpi.py [--record] [--alpha 50e-6] [--beta 0.8e-9]

16 clients of 8 samples each take gradient descent steps (all numbers are exchanged, by the fixed tree or by MPI_SUM)
and steps of EF21 with TopK(1 %). Runs with 1 and 2 ranks take turns; a time counts only if the iterates of both
agree bit for bit, and with MPI_SUM within 1e-9. Work is the CPU time of the busier rank outside of exchanges, which
other processes of the machine affect least; an exchange is the minimum wall time of the last rank to arrive. The
efficiency on two free cores follows from both. alpha and beta are those of a network, for `bt.mpi.predict`, which
receives the seconds of the oracle alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from record import cpu_name, write_record

import burtorch as bt

CLIENTS, EACH, TURNS = 16, 8, 2
ROUNDS = {"GPT of 46,289": 40, "CharMLP e = 1024": 5}
MODELS = {
    "GPT of 46,289": lambda params: (bt.nn.GPT(params), 65, 8, True),
    "CharMLP e = 1024": lambda params: (bt.nn.CharMLP(params, 27, 16, 64, 1024), 27, 16, False),
}
WAYS = ("all numbers", "all numbers, MPI_SUM", "EF21 TopK(1 %)")


class Timed(bt.mpi.Engine):
    """Adds up the wall and CPU seconds of its exchanges."""

    wall = cpu = 0.0

    def gather(self, own):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return super().gather(own)
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.process_time() - cpu


def problem(name):
    rng = np.random.default_rng(0)
    params = bt.Parameters(seed=0)
    model, vocab, context, is_text = MODELS[name](params)
    n = CLIENTS * EACH
    x = rng.integers(vocab, size=(n, context), dtype=np.int32)
    y = rng.integers(vocab, size=(n, context) if is_text else n, dtype=np.int32)
    start, oracle = np.array(params.values, float), bt.Oracle(model)
    return bt.opt.from_oracle(oracle, x, y), start, least_cpu(lambda: oracle(x[:EACH], y[:EACH]), 10)


def least_cpu(call, n):
    found = []
    for _ in range(n):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def method_of(way, f, x0, engine):
    common = {"clients": CLIENTS, "engine": engine, "step": 1e-3}
    if way.startswith("EF21"):
        return bt.opt.EF21(f, x0, compressor=bt.compress.TopK(f.d // 100), start="zero", **common)
    return bt.opt.FedAvg(f, x0, **common)


def work():
    """One rank: rank 0 prints a line of JSON for each model and method."""
    for name in MODELS:
        f, x0, oracle = problem(name)
        for way in WAYS:
            engine = Timed(deterministic="MPI_SUM" not in way)
            method = method_of(way, f, x0, engine)
            method._runner.step(1e-3)
            rounds, before = [], engine.sent_bytes
            for _ in range(ROUNDS[name]):
                engine.wall = engine.cpu = 0.0
                start = time.process_time()
                method._runner.step(1e-3)
                own = np.array([time.process_time() - start - engine.cpu, -engine.wall])
                most = np.empty(2)
                engine.comm.Allreduce(own, most, op=engine._mpi.MAX)
                rounds.append((most[0], -most[1]))  # the last rank to arrive does not wait
            work, exchange = (float(min(found)) for found in zip(*rounds))
            row = {"model": name, "way": way, "d": f.d, "oracle": oracle, "work": work, "exchange": exchange}
            row["sent"] = (engine.sent_bytes - before) // ROUNDS[name]
            row["norm"] = float(abs(method.x).sum())
            row["sha256"] = hashlib.sha256(method.x.tobytes()).hexdigest()
            if engine.rank == 0:
                print(json.dumps(row), flush=True)


def overlap():
    """One of two ranks: rank 0 prints a line of JSON for each model."""
    engine = bt.mpi.Engine()
    for name in MODELS:
        row = overlapped(engine, name)
        if engine.rank == 0:
            print(json.dumps({"model": name, "way": "overlap", **row}), flush=True)


def overlapped(engine, name):
    rng = np.random.default_rng(engine.rank)
    model, vocab, context, is_text = MODELS[name](bt.Parameters(seed=0))
    oracle = bt.Oracle(model)
    x = rng.integers(vocab, size=(32, context), dtype=np.int32)
    y = rng.integers(vocab, size=(32, context) if is_text else 32, dtype=np.int32)
    grads = np.array(oracle(x, y)[1])
    ways = {
        "backward": lambda: oracle(x, y),
        "exchange": lambda: engine._mean(grads),
        "after": lambda: engine.gradient(oracle, x, y, overlap=False),
        "overlapped": lambda: engine.gradient(oracle, x, y, overlap=True),
    }
    times = {way: [] for way in ways}
    for _ in range(40):
        for way, call in ways.items():
            engine.comm.Barrier()
            start = time.perf_counter()
            call()
            times[way].append(engine.comm.allreduce(time.perf_counter() - start, op=engine._mpi.MAX))
    return {way: float(np.median(found)) for way, found in times.items()}


def ranks(n, part="--work"):
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    allowed = {f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
    command = [mpiexec, "-n", str(n), sys.executable, "-m", "mpi4py", __file__, part]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **allowed})
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {(row["model"], row["way"]): row for row in map(json.loads, done.stdout.splitlines())}


def check(one, two):
    for key, row in one.items():
        other = two[key]
        if "MPI_SUM" not in key[1] and row["sha256"] != other["sha256"]:
            sys.exit(f"{key}: 1 and 2 ranks differ")
        if abs(row["norm"] - other["norm"]) > 1e-9 * row["norm"]:
            sys.exit(f"{key}: 1 and 2 ranks differ by more than rounding")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alpha", type=float, default=50e-6)
    parser.add_argument("--beta", type=float, default=0.8e-9)
    parser.add_argument("--overlap", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work()
    if options.overlap:
        return overlap()
    found = {1: [], 2: []}
    for _ in range(TURNS):
        for n in found:
            found[n].append(ranks(n))
        check(found[1][-1], found[2][-1])
    lines = ["| model | exchanged | work, 1 rank, ms | 2 ranks | exchange, ms | KB of a rank | efficiency |"]
    lines.append("|---|---|---|---|---|---|---|")
    more = (2, 4, 8, 16)
    model = ["| model | exchanged | " + " | ".join(f"{p} ranks" for p in more) + " |", "|---|---|---|---|---|---|"]
    for key, row in found[1][0].items():
        least = {
            (n, what): min(turn[key][what] for turn in found[n])
            for n in found
            for what in ("work", "exchange", "oracle")
        }
        one, two, exchange = least[1, "work"], least[2, "work"], least[2, "exchange"]
        lines.append(
            f"| {key[0]} | {key[1]} | {1e3 * one:.2f} | {1e3 * two:.2f} | {1e3 * exchange:.2f} "
            f"| {found[2][0][key]['sent'] / 1e3:.0f} | {one / (2 * (two + exchange)):.2f} |"
        )
        predicted = bt.mpi.predict(
            more,
            clients=CLIENTS,
            seconds=least[1, "oracle"],
            numbers=row["d"],
            alpha=options.alpha,
            beta=options.beta,
            sent=row["d"] // 100 if key[1].startswith("EF21") else None,
            deterministic="MPI_SUM" not in key[1],
        )
        model.append(f"| {key[0]} | {key[1]} | " + " | ".join(f"{p.efficiency:.2f}" for p in predicted) + " |")
    oracles = ", ".join(
        f"{name} {1e3 * row['oracle']:.2f} ms" for (name, way), row in found[1][0].items() if way == WAYS[0]
    )
    text = "\n".join(lines) + f"\n\nThe oracle alone, for the {EACH} samples of a client: {oracles}.\n\n"
    text += "Efficiency by the model of `bt.mpi.predict` with the oracle alone as work, **no measurement**: "
    text += f"alpha {options.alpha:g} s, beta {options.beta:g} s a byte.\n\n" + "\n".join(model)
    text += "\n\nA batch of 64 divided between two ranks, ms, medians of 40 in turns:\n\n"
    text += "| model | backward | exchange | sum | larger | one after the other | overlapped |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for (name, _), row in ranks(2, "--overlap").items():
        b, e = row["backward"], row["exchange"]
        cells = (b, e, b + e, max(b, e), row["after"], row["overlapped"])
        text += f"| {name} | " + " | ".join(f"{1e3 * cell:.2f}" for cell in cells) + " |\n"
    print(text)
    if options.record:
        title = f"# Rounds of {CLIENTS} clients of {EACH} samples on 1 and 2 ranks\n\n"
        rounds = " and ".join(f"{n} rounds of the {name}" for name, n in ROUNDS.items())
        title += f"{cpu_name()}, {os.cpu_count()} cores; the least of {TURNS} turns of {rounds}.\n\n"
        write_record("mpi", title + text + "\n")


if __name__ == "__main__":
    main()
