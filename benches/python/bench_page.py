"""PAGE with batches of one sample and SGD with the same, on the CharMLP and the GPT, over one grid of steps.

    python benches/python/bench_page.py --names names.txt [--samples 512] [--epochs 20] [--seeds 3] [--record]

Both have the same budget of oracle calls (gradients of single samples; PAGE takes two in a step, and all of them with
probability 1/(n + 1)) and start at the same weights. Before a run counts, its first steps are followed by hand with the
drawn batches and coins. Reported: the mean loss over all samples and the norm of its gradient at the end, the median
over seeds, for each step of the grid.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np
from record import cpu_name, write_record

import burtorch as bt

GRID = [2.0**k for k in range(-12, -2)]
CONTEXT = 8
FOLLOWED = 20


def data(names, samples, is_text):
    """Neighbouring letters of the names, as the first `samples` windows of one text."""
    text = "." + ".".join(names) + "."
    ids = np.array([".abcdefghijklmnopqrstuvwxyz".index(letter) for letter in text[: samples + CONTEXT]], np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(ids, CONTEXT + 1)[:samples]
    x = np.ascontiguousarray(windows[:, :CONTEXT])
    return x, np.ascontiguousarray(windows[:, 1:] if is_text else windows[:, CONTEXT])


def problem(name, names, samples):
    params = bt.Parameters(seed=0)
    if name == "GPT":
        model = bt.nn.GPT(params, vocab=27, context=CONTEXT)
    else:
        model = bt.nn.CharMLP(params, 27, CONTEXT, 64, 64)
    start = np.array(params.values, float)
    return bt.opt.from_oracle(bt.Oracle(model), *data(names, samples, name == "GPT")), start


def follow(method, f, gamma):
    """The same steps by hand; exits if they differ by more than float32 gradients may."""
    x = method.x
    g = None if isinstance(method, bt.opt.SGD) else f.grad(x)
    for _ in range(FOLLOWED):
        before = x
        if g is not None:
            x = before - gamma * g
        method.run(1)
        batch, coin = method.drawn()
        if g is None:
            x = before - gamma * f.grad(before, batch)
        else:
            g = f.grad(x) if coin else g + f.grad(x, batch, minus=before)
        if not np.allclose(method.x, x, rtol=1e-6, atol=1e-7):
            raise SystemExit(f"{method} differs from steps by hand by {abs(method.x - x).max()}")


def run(kind, f, start, gamma, epochs, seed):
    method = (bt.opt.PAGE if kind == "PAGE" else bt.opt.SGD)(f, start, sampling=bt.opt.Nice(1), step=gamma, seed=seed)
    try:
        if gamma <= 0.01:
            follow(method, f, gamma)
        calls = method.record().oracle_calls
        last = method.run(epochs=epochs - calls / f.n)[-1]
    except FloatingPointError:
        return float("inf"), float("inf")
    return (last.loss, last.grad_norm) if np.isfinite(last.loss) else (float("inf"), float("inf"))


def shown(pair):
    return "diverges" if pair[0] == float("inf") else f"{pair[0]:.3f}, {pair[1]:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    names = options.names.read_text().split()
    text = ""
    for name in ("CharMLP", "GPT"):
        f, start = problem(name, names, options.samples)
        text += f"\n## {name}, {f.d:,} parameters, loss at the start {f.loss(start):.3f}\n\n"
        text += "| step | SGD: loss, gradient norm | PAGE: loss, gradient norm |\n|---|---|---|\n"
        for gamma in GRID:
            cells = []
            for kind in ("SGD", "PAGE"):
                ends = [run(kind, f, start, gamma, options.epochs, seed) for seed in range(options.seeds)]
                cells.append(shown(tuple(statistics.median(end[k] for end in ends) for k in range(2))))
            text += f"| 2^{int(np.log2(gamma))} | {cells[0]} | {cells[1]} |\n"
            print(name, gamma, *cells, flush=True)
    print(text)
    if options.record:
        title = f"# PAGE with b = 1 beside SGD with b = 1\n\n{options.samples} windows of 8 letters of the names, "
        title += f"{options.epochs} epochs of oracle calls, float32, median of {options.seeds} seeds, {cpu_name()} "
        title += "(times play no part).\n"
        write_record("page", title + text)


if __name__ == "__main__":
    main()
