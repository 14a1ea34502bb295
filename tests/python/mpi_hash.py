"""Prints a hash of each method after 50 rounds: ``python mpi_hash.py THREADS``, or without the argument under
mpiexec; with "own" each client has its own problem instead of a split."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from burtorch import compress, opt

N, D, CLIENTS = 130, 7, 13


def methods(engine, threads, own=False):
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(N, D)), rng.normal(size=N)
    f, parts = opt.least_squares(features, targets, l2=0.1), opt.split(N, CLIENTS, seed=2)
    constants = opt.smoothness(f, parts)
    if own:
        f = [opt.Client(opt.least_squares(features[part], targets[part], l2=0.1)) for part in parts]
        parts = None
    common = {"clients": parts, "engine": engine, "threads": threads, "seed": 3, "constants": constants}
    top, rand = {"compressor": compress.TopK(2)}, {"compressor": compress.RandK(2)}
    yield opt.DCGD(f, **common, **rand)
    yield opt.DIANA(f, **common, **rand)
    yield opt.MARINA(f, **common, **rand)
    yield opt.MARINA(f, **common, compressor=compress.PermK())
    yield opt.VRMARINA(f, **common, **rand, sampling=opt.Nice(3))
    yield opt.PPMARINA(f, **common, **rand, cohort=opt.Nice(4))
    yield opt.DASHA(f, **common, **rand)
    yield opt.EF14(f, **common, **top)
    yield opt.EF21(f, **common, **top)
    yield opt.EF21SGDM(f, **common, **top, sampling=opt.Nice(3))
    yield opt.EF21PP(f, **common, **top, cohort=opt.Nice(4))
    yield opt.EF21BC(f, **common, **top, downlink=compress.TopK(1))
    yield opt.Scaffnew(f, **common)
    yield opt.FedAvg(f, **common, local_steps=3, cohort=opt.Nice(5), step=0.01)
    scaffold = {"local_steps": 3, "cohort": opt.Nice(5), "sampling": opt.Nice(2), "step": 0.01}
    yield opt.Scaffold(f, **common, **scaffold)
    single = {**common, "client_dtype": "float32", "start": "zero"}
    yield opt.EF21SGDM(f, **single, **top, sampling=opt.Nice(3))
    yield opt.EF21PP(f, **single, **top, cohort=opt.Nice(4))
    yield opt.Scaffold(f, **single, **scaffold)


def main(engine="local", threads=1, own=False):
    for method in methods(engine, threads, own):
        record = method.run(50)[-1]
        costs = f"{record.oracle_calls} {record.bits_up!r} {record.wire_bytes}"
        state = method.state_dict()["arrays"]
        digest = hashlib.sha256(method.x.tobytes())
        for name in sorted(state):
            digest.update(state[name].tobytes())
        yield f"{type(method).__name__} {digest.hexdigest()} {costs}"


if __name__ == "__main__":
    own = "own" in sys.argv[1:]
    threads = [int(given) for given in sys.argv[1:] if given != "own"]
    engine = "local" if threads else "mpi"
    lines = list(main(engine, *threads, own=own))
    if engine == "local":
        print("\n".join(lines))
    else:
        from mpi4py import MPI

        if MPI.COMM_WORLD.Get_rank() == 0:
            print("\n".join(lines))
