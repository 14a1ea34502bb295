"""Do burtorch's character MLP and GPT follow PyTorch step by step? Same initial weights and batches, 100 steps each.

    python follow_torch_100.py [--data shakespeare.txt] [--record]      # where burtorch and torch are installed

The MLP takes steps of SGD (0.1) on random symbols, the GPT steps of SGD (0.003) in float32 and of AdamW (0.003) in
float64 on text. Every loss must agree within 1e-4 nats, and the first gradient within 1e-5 relative; else it fails.

AdamW in float32 is shown beside, without a bar, as PyTorch does not follow itself there: two of its runs in float32
that start one unit in the last place of one of 46,289 numbers apart differ as much, as do its float32 and float64.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import reference_gpt
import torch
from record import write_record

import burtorch as bt
from burtorch.cli.reproduce.programs import distance
from burtorch.cli.reproduce.programs.torch_peers import mlp_loss

STEPS, BATCH, LOSS_TOLERANCE, GRADIENT_TOLERANCE = 100, 64, 1e-4, 1e-5
Batch = tuple[np.ndarray, np.ndarray]


def mlp_batches() -> Iterator[Batch]:
    rng = np.random.default_rng(0)
    while True:
        x = rng.integers(0, 27, (BATCH, 16)).astype(np.int32)
        yield x, ((x[:, -1] * 7 + x[:, -2]) % 27).astype(np.int32)


def text_batches(path: Path) -> Iterator[Batch]:
    data = bt.text.TextWindows(path.read_text(encoding="utf-8"), context=8, seed=0)
    while True:
        x, y = data.batch(BATCH)
        yield np.array(x, np.int32), np.array(y, np.int32)


def their_optimizer(mine: bt.optim.SGD | bt.optim.AdamW, flat: torch.Tensor) -> torch.optim.Optimizer:
    if isinstance(mine, bt.optim.AdamW):
        return torch.optim.AdamW([flat], lr=mine.lr, weight_decay=mine.weight_decay)
    return torch.optim.SGD([flat], lr=mine.lr)


def torch_apart(batches: Iterator[Batch], starts: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest difference of PyTorch's losses from two starts, each in its own precision, for the GPT with AdamW."""
    flats = [torch.tensor(start, requires_grad=True) for start in starts]
    optimizers = [torch.optim.AdamW([flat], lr=3e-3, weight_decay=0.01) for flat in flats]
    worst = 0.0
    for _ in range(STEPS):
        x, y = (torch.from_numpy(part).long() for part in next(batches))
        losses = []
        for flat, optimizer in zip(flats, optimizers):
            optimizer.zero_grad()
            value = reference_gpt.torch_loss(flat, x, y)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        worst = max(worst, abs(losses[0] - losses[1]))
    return worst


def one_place_off(values: np.ndarray) -> np.ndarray:
    """The same numbers, one of them replaced by the next float32."""
    moved = values.copy()
    moved[5000] = np.nextafter(values[5000], np.float32(np.inf))
    return moved


def follow(
    model: bt.nn.CharMLP | bt.nn.GPT, mine: bt.optim.SGD | bt.optim.AdamW, batches: Iterator[Batch]
) -> tuple[float, float]:
    """The largest difference of losses over the steps, and the relative difference of the first gradients."""
    oracle, params = bt.Oracle(model), model.params
    flat = torch.tensor(np.array(params.values), requires_grad=True)
    theirs = their_optimizer(mine, flat)
    if isinstance(model, bt.nn.GPT):
        loss_of = reference_gpt.torch_loss
    else:
        shapes = [(27, 64), (64, 1024), (64,), (27, 64), (27,)]

        def loss_of(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            sizes = [int(np.prod(shape)) for shape in shapes]
            return mlp_loss([part.view(shape) for part, shape in zip(w.split(sizes), shapes)], x, y)

    worst, off = 0.0, 0.0
    for step in range(STEPS):
        x, y = next(batches)
        loss, grad = oracle(x, y)
        theirs.zero_grad()
        value = loss_of(flat, torch.from_numpy(x).long(), torch.from_numpy(y).long())
        value.backward()
        if step == 0:
            off = distance(np.array(grad), flat.grad.numpy())
        worst = max(worst, abs(loss - value.item()))
        mine.step()
        theirs.step()
    return worst, off


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare burtorch's losses with PyTorch's, step by step.")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/shakespeare.txt"))
    parser.add_argument("--record", action="store_true", help="write benches/record/<date>-<cpu>-follow-torch-100.md")
    args = parser.parse_args()
    chars = bt.nn.CharMLP(bt.Parameters(seed=0))
    gpt = bt.nn.GPT(bt.Parameters(seed=0))
    wide = bt.nn.GPT(bt.Parameters(dtype="float64", seed=0))
    adam = bt.nn.GPT(bt.Parameters(seed=0))
    found = {
        "character MLP, hidden 64, float32, SGD 0.1": follow(chars, bt.optim.SGD(chars, lr=0.1), mlp_batches()),
        "GPT of 46,289, float32, SGD 0.003": follow(gpt, bt.optim.SGD(gpt, lr=0.003), text_batches(args.data)),
        "GPT of 46,289, float64, AdamW 3e-3": follow(wide, bt.optim.AdamW(wide, lr=3e-3), text_batches(args.data)),
    }
    values = np.array(bt.nn.GPT(bt.Parameters(seed=0)).params.values)
    rounding = torch_apart(text_batches(args.data), (values, values.astype(np.float64)))
    place = torch_apart(text_batches(args.data), (values, one_place_off(values)))
    beside, _ = follow(adam, bt.optim.AdamW(adam, lr=3e-3), text_batches(args.data))
    text = (
        f"# {STEPS} steps beside PyTorch {torch.__version__}\n\n"
        f"Batch {BATCH}, same initial weights and batches. "
        f"Allowed: {LOSS_TOLERANCE:g} nats, {GRADIENT_TOLERANCE:g} relative.\n\n"
        "| model | largest difference of a loss, nats | first gradient, relative |\n|---|---|---|\n"
    )
    text += "".join(f"| {name} | {worst:.1e} | {off:.1e} |\n" for name, (worst, off) in found.items())
    text += (
        f"\nGPT, float32, AdamW 3e-3: burtorch and PyTorch part by {beside:.1e} nats; PyTorch's float32 and float64 by "
        f"{rounding:.1e}; two runs of PyTorch in float32 that start one unit in the last place of one number apart by "
        f"{place:.1e}.\n"
    )
    print(text)
    if args.record:
        write_record("follow-torch-100", text)
    if any(worst > LOSS_TOLERANCE or off > GRADIENT_TOLERANCE for worst, off in found.values()):
        sys.exit("burtorch and PyTorch part")


if __name__ == "__main__":
    main()
