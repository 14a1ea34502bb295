"""Does burtorch train as PyTorch does? Same initial weights, same batches, losses compared at every 100th step.

    python follow_torch.py --data names.txt [--torch .venv-peers/bin/python] [--steps 10000] [--follower burtorch]

burtorch (or, as a check of this script, the NumPy rival) trains here; PyTorch trains in a second process on the
weights and batches written down here. Prints a table, writes a dated record, and fails where two losses differ by
more than 1e-3.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from record import write_record

from burtorch.cli.reproduce.programs.cells import mlp_cell, mlp_shapes, split
from burtorch.cli.reproduce.programs.numpy_peers import MlpStep

HERE = Path(__file__).resolve().parent
HIDDEN, BATCH, CONTEXT, LR, SEED = 64, 32, 16, 0.1, 0
TOLERANCE, REPORT_EVERY = 1e-3, 100

# The initial flat weights, the batches in training order, and a step that maps a batch and a rate to the loss.
Batch = tuple[np.ndarray, np.ndarray]
Follower = tuple[np.ndarray, Iterator[Batch], Callable[[Batch, float], float]]


def burtorch_follower(words: list[str]) -> Follower:
    """burtorch's own model, data order and optimiser."""
    import burtorch as bt

    params = bt.Parameters(dtype="float32", seed=SEED)
    model = bt.nn.CharMLP(params, vocab=27, context=CONTEXT, embedding=64, hidden=HIDDEN)
    oracle = bt.Oracle(model)
    data = bt.text.WordContexts(words, context=CONTEXT, holdout=0.1, seed=SEED)
    optimizers = {lr: bt.optim.SGD(params, lr=lr) for lr in (LR, LR / 10)}

    def batches() -> Iterator[Batch]:
        while True:
            X, Y = data.batch(BATCH)
            yield np.array(X, np.int32), np.array(Y, np.int32)

    def step(batch: Batch, lr: float) -> float:
        loss, _ = oracle(*batch)
        optimizers[lr].step()
        return float(loss)

    return np.array(params.values, np.float32), batches(), step


def numpy_follower(words: list[str]) -> Follower:
    """The NumPy rival on contexts created here: shows the effect of float32 rounding over the run."""
    cell = mlp_cell(HIDDEN, BATCH, SEED)
    network = MlpStep(cell)
    symbols = {symbol: code for code, symbol in enumerate(["\n", *sorted(set("".join(words)))])}
    codes = np.array([symbols[symbol] for word in words for symbol in "\n" * CONTEXT + word + "\n"], np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    # A window whose target is padding, or whose first token is in the previous word, is not a context of one word.
    starts = np.concatenate([[0], np.cumsum([len(word) + CONTEXT + 1 for word in words])])[:-1]
    rows = windows[np.concatenate([np.arange(start, start + len(word) + 1) for start, word in zip(starts, words)])]

    def batches() -> Iterator[Batch]:
        rng = np.random.default_rng(SEED)
        while True:
            picked = rows[rng.integers(0, len(rows), BATCH)]
            yield picked[:, :CONTEXT], picked[:, CONTEXT]

    def step(batch: Batch, lr: float) -> float:
        return network.run(*batch, split(network.weights, mlp_shapes(HIDDEN)), -lr)

    return cell.weights.copy(), batches(), step


def follow(follower: Follower, steps: int, folder: Path) -> list[float]:
    """Trains, writes the weights and batches for PyTorch, and returns the loss of every 100th step."""
    weights, batches, step = follower
    weights.astype("<f4").tofile(folder / "weights")
    losses = []
    with (folder / "batches").open("wb") as file:
        for number in range(1, steps + 1):
            batch = next(batches)
            np.column_stack(batch).astype("<i4").tofile(file)
            loss = step(batch, LR if 10 * number <= 7 * steps else LR / 10)
            if number % REPORT_EVERY == 0:
                losses.append(loss)
    return losses


def reference(torch_python: str, folder: Path) -> list[float]:
    """PyTorch's losses on the same weights and batches."""
    script = str(HERE / "reference_char_mlp.py")
    files = [str(folder / name) for name in ("weights", "batches", "losses")]
    options = ["--hidden", str(HIDDEN), "--batch", str(BATCH), "--lr", str(LR)]
    subprocess.run([torch_python, script, *files, *options], check=True)
    return [float(line.split()[1]) for line in (folder / "losses").read_text().splitlines()]


def report(name: str, ours: list[float], theirs: list[float]) -> str:
    """The record: every tenth line of the comparison, and the largest difference."""
    every = REPORT_EVERY
    worst = max(range(len(ours)), key=lambda i: abs(ours[i] - theirs[i]))
    lines = [
        f"# {name} follows PyTorch",
        "",
        f"Character MLP, hidden {HIDDEN}, batch {BATCH}, SGD {LR} then {LR / 10:g} for the last 30 %, float32, same",
        f"initial weights and batches. {every * len(ours)} steps compared at every {every}th: largest difference "
        f"{abs(ours[worst] - theirs[worst]):.1e} nats, at step {every * (worst + 1)} (allowed {TOLERANCE:g}).",
        "",
        f"| step | {name} | PyTorch | difference |",
        "|---|---|---|---|",
    ]
    shown = sorted({0, worst, *range(9, len(ours), 10)})
    lines += [f"| {every * (i + 1)} | {ours[i]:.6f} | {theirs[i]:.6f} | {ours[i] - theirs[i]:+.1e} |" for i in shown]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare burtorch's training losses with PyTorch's.")
    parser.add_argument("--data", type=Path, required=True, help="words, one a line, of 26 symbols")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument(
        "--torch", default=str(HERE.parents[1] / ".venv-peers/bin/python"), help="a Python that has torch"
    )
    parser.add_argument("--follower", choices=["burtorch", "numpy"], default="burtorch")
    args = parser.parse_args()
    words = args.data.read_text().split()
    follower = burtorch_follower(words) if args.follower == "burtorch" else numpy_follower(words)
    with tempfile.TemporaryDirectory() as folder:
        ours = follow(follower, args.steps, Path(folder))
        theirs = reference(args.torch, Path(folder))
    text = report(args.follower, ours, theirs)
    print(text)
    if args.follower == "burtorch":
        write_record("follow-torch", text)
    if len(ours) != len(theirs) or not all(abs(a - b) <= TOLERANCE for a, b in zip(ours, theirs)):
        sys.exit(f"losses differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
