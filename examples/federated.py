"""A thousand heterogeneous clients: FedAvg, SCAFFOLD, EF21 and DIANA, by bits and by the seconds of a virtual clock.

python examples/federated.py [--clients 1000] [--d 60] [--rounds 300] [--engine local]
mpiexec -n 4 python -m mpi4py examples/federated.py --engine mpi
"""

import argparse
import hashlib

import numpy as np

import burtorch as bt


def problem(n_clients, d, seed=0):
    """Logistic regression with 32 samples per client, divided so that clients have different labels."""
    features, labels = bt.opt.make_logistic(32 * n_clients, d, density=0.3, condition=30.0, seed=seed)
    parts = bt.opt.split(labels, n_clients, "dirichlet", concentration=0.3, seed=seed)
    return bt.opt.logistic_regression(features, labels, l2=0.01), parts


def methods(f, parts, engine, threads):
    """Each with the step of its theorem, except the local steps of FedAvg, which has none."""
    rng = np.random.default_rng(1)
    speeds = bt.opt.Delays(1e-3 * rng.lognormal(sigma=0.5, size=len(parts)), "exponential")
    network = bt.opt.Network(speeds, latency=0.05, bandwidth=1e6)
    common = {"clients": parts, "engine": engine, "threads": threads, "network": network, "seed": 2}
    constants = bt.opt.smoothness(f, parts)
    common["constants"] = constants
    k = max(1, f.d // 20)
    cohort = bt.opt.Nice(max(1, len(parts) // 10))
    local = {"local_steps": 5, "cohort": cohort, "step": 0.2 / constants.L_max}
    top = bt.compress.TopK(k)
    return {
        "FedAvg": bt.opt.FedAvg(f, **common, **local),
        "SCAFFOLD": bt.opt.Scaffold(f, **common, **local),
        "DIANA RandK": bt.opt.DIANA(f, **common, compressor=bt.compress.RandK(k)),
        "EF21 TopK": bt.opt.EF21(f, **common, compressor=top),
        "EF21-PP TopK": bt.opt.EF21PP(f, **common, compressor=top, cohort=cohort),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--d", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--engine", default="local", choices=("local", "mpi"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    engine = options.engine if options.engine == "local" else bt.mpi.Engine()
    is_first = options.engine == "local" or engine.rank == 0
    f, parts = problem(options.clients, options.d)
    found = {}
    for name, method in methods(f, parts, engine, options.threads).items():
        first, last = method.run(options.rounds)
        digest = hashlib.sha256(method.x.tobytes()).hexdigest()[:12]
        found[name] = digest
        if is_first:
            print(
                f"{name:13s} loss {first.loss:.4f} -> {last.loss:.4f}, {last.bits_up:8.2e} bits, "
                f"virtual {last.time:7.1f} s, {1e3 * last.seconds / options.rounds:6.2f} ms a round, {digest}"
            )
        assert last.loss < first.loss
    return found


if __name__ == "__main__":
    main()
