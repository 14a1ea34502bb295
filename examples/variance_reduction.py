"""Gradient descent, SGD, L-SVRG, SAGA and PAGE on one problem, with the steps of their theorems: loss against epochs.

python examples/variance_reduction.py [--n 500] [--d 20] [--epochs 150] [--out PICTURE.png]
"""

import argparse

import numpy as np

import burtorch as bt


def problem(n, d, seed=0):
    """Logistic regression with noisy labels."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d))
    labels = np.where(features @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    return bt.opt.logistic_regression(features, labels, l2=0.003)


def curves(f, epochs):
    """The records of each method."""
    x_star, constants = bt.opt.solve(f), bt.opt.smoothness(f)
    common = {"x_star": x_star, "constants": constants, "seed": 1}
    batch = bt.opt.Nice(max(1, round(f.n**0.5)))
    methods = {
        "GD": bt.opt.GD(f, **common),
        "SGD": bt.opt.SGD(f, sampling=batch, **common),
        "L-SVRG": bt.opt.LSVRG(f, **common),
        "SAGA": bt.opt.SAGA(f, **common),
        "PAGE": bt.opt.PAGE(f, sampling=batch, **common),
    }
    found = {}
    for name, method in methods.items():
        calls = {"GD": f.n, "SGD": batch.expected_size(f.n), "PAGE": 2 * batch.expected_size(f.n), "L-SVRG": 3}
        steps_of_an_epoch = max(1, int(f.n / calls.get(name, 1)))
        found[name] = method.run(epochs=epochs, record_every=steps_of_an_epoch)
    return found


def draw(found, path):
    """Plots the loss above the minimum against epochs."""
    from matplotlib import pyplot as plt

    for name, records in found.items():
        plt.semilogy([r.epochs for r in records], [max(r.gap, 1e-16) for r in records], label=name)
    plt.xlabel("gradients of samples / n")
    plt.ylabel("f(x) - f(x*)")
    plt.legend()
    plt.savefig(path, dpi=120, bbox_inches="tight")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=150)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    found = curves(problem(options.n, options.d), options.epochs)
    for name, records in found.items():
        last = records[-1]
        print(f"{name:8s} {last.step:8d} steps, {last.epochs:6.1f} epochs: f - f* = {max(last.gap, 0.0):.1e}")
    if options.out:
        draw(found, options.out)
    return found


if __name__ == "__main__":
    main()
