"""Runs methods in Flower's simulation and in one process, and prints their hashes: ``python flower_hash.py``."""

from __future__ import annotations

import functools
import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
from flwr.simulation import run_simulation

from burtorch import compress, flower, opt

CLIENTS, ROUNDS = 3, 5


def problem():
    rng = np.random.default_rng(1)
    return opt.least_squares(rng.normal(size=(30, 5)), rng.normal(size=30), l2=0.1)


METHODS = {
    "EF21": lambda f, **more: opt.EF21(f, compressor=compress.TopK(2), **more),
    "EF21 float32": lambda f, **more: opt.EF21(f, compressor=compress.TopK(2), client_dtype="float32", **more),
    "FedAvg": lambda f, **more: opt.FedAvg(f, local_steps=3, cohort=opt.Nice(2), sampling=opt.Nice(4), **more),
    "MARINA": lambda f, **more: opt.MARINA(f, compressor=compress.RandK(2), p=0.4, **more),
}


def make(name, engine):
    return METHODS[name](problem(), clients=CLIENTS, step=0.02, seed=3, engine=engine)


def told(method):
    record = method.record()
    return f"{hashlib.sha256(method.x.tobytes()).hexdigest()} {record.oracle_calls} {record.bits_up!r}"


def main(names):
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "told"
            server = flower.server_app(
                functools.partial(make, name),
                CLIENTS,
                ROUNDS,
                done=lambda method, _, path=path: path.write_text(told(method)),
            )
            client = flower.client_app(functools.partial(make, name))
            resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
            run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
            method = make(name, "local")
            method.run(ROUNDS)
            print(name, path.read_text(), told(method), sep="|")


if __name__ == "__main__":
    main(sys.argv[1:] or list(METHODS))
