"""Clients that send compressed vectors: bits until the gradient is small, for six methods and gradient descent.

python examples/compressed_training.py [--n 400] [--d 30] [--clients 10] [--accuracy 1e-6] [--out PICTURE.png]
"""

import argparse

import numpy as np

import burtorch as bt


def problem(n, d, n_clients, seed=0):
    """Ridge regression with different samples per client, and the division."""
    rng = np.random.default_rng(seed)
    parts = np.array_split(np.arange(n), n_clients)
    features = rng.normal(size=(n, d)) * np.geomspace(1.0, 0.1, d)
    targets = np.empty(n)
    for part in parts:
        targets[part] = features[part] @ rng.normal(size=d) + 0.1 * rng.normal(size=len(part))
    return bt.opt.least_squares(features, targets, l2=0.01), parts


def curves(f, clients, accuracy, max_steps):
    """The records of each method, until the gradient norm has fallen by this factor."""
    constants = bt.opt.smoothness(f, clients)
    x_star = bt.opt.solve(f, clients, tolerance=1e-10)
    k = max(1, f.d // 10)
    common = {"clients": clients, "constants": constants, "x_star": x_star, "seed": 1}
    rand, top = bt.compress.RandK(k), bt.compress.TopK(k)
    methods = {
        "GD": bt.opt.DCGD(f, compressor=bt.compress.Identity(), **common),
        "DCGD RandK": bt.opt.DCGD(f, compressor=rand, **common),
        "DIANA RandK": bt.opt.DIANA(f, compressor=rand, **common),
        "MARINA RandK": bt.opt.MARINA(f, compressor=rand, **common),
        "MARINA PermK": bt.opt.MARINA(f, compressor=bt.compress.PermK(), **common),
        "EF21 TopK": bt.opt.EF21(f, compressor=top, **common),
        "Scaffnew": bt.opt.Scaffnew(f, **common),
    }
    found = {}
    for name, method in methods.items():
        target = accuracy * method.record().grad_norm
        stop = lambda record, target=target: record.grad_norm <= target  # noqa: E731
        found[name] = method.run(max_steps, record_every=10, callback=stop)
    return found


def draw(found, path):
    """Plots the gradient norm against bits."""
    from matplotlib import pyplot as plt

    for name, records in found.items():
        sent = [r for r in records if r.bits_up > 0.0]
        plt.loglog([r.bits_up for r in sent], [r.grad_norm for r in sent], label=name)
    plt.xlabel("bits that clients sent")
    plt.ylabel("|grad f(x)|")
    plt.legend()
    plt.savefig(path, dpi=120, bbox_inches="tight")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--d", type=int, default=30)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--accuracy", type=float, default=1e-6)
    parser.add_argument("--max-steps", type=int, default=20_000)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if not 1 <= options.clients <= options.n:
        parser.error(f"--clients must be from 1 to the {options.n} samples, found {options.clients}")
    f, clients = problem(options.n, options.d, options.clients)
    found = curves(f, clients, options.accuracy, options.max_steps)
    for name, records in found.items():
        last = records[-1]
        print(f"{name:13s} {last.step:6d} steps, {last.bits_up:9.2e} bits: |grad f| = {last.grad_norm:.1e}")
    if options.out:
        draw(found, options.out)
    return found


if __name__ == "__main__":
    main()
