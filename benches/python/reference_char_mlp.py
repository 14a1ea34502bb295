"""The character MLP in plain PyTorch: the reference that `follow_torch.py` compares burtorch with.

    python reference_char_mlp.py WEIGHTS BATCHES LOSSES [--hidden 64] [--batch 32] [--lr 0.1]

WEIGHTS holds little-endian float32: embedding (27, 64), W1 (hidden, 1024), b1 (hidden), W2 (27, hidden), b2 (27), one
after the other, row-major. BATCHES holds little-endian int32, 17 a sample (16 context symbols, then the target), in
the order of training. Every batch is one step of SGD; the last 30 % of the steps run at a tenth of the rate. LOSSES
receives a line "step loss" for every 100th step: the mean loss of its batch before its update.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

SYMBOLS, CONTEXT, EMBEDDING = 27, 16, 64
REPORT_EVERY = 100


class CharMLP(nn.Module):
    """Embedding, one tanh layer, logits; `parameters()` has the order of the weights file."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, EMBEDDING)
        self.hidden = nn.Linear(CONTEXT * EMBEDDING, hidden)
        self.logits = nn.Linear(hidden, SYMBOLS)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        return self.logits(torch.tanh(self.hidden(self.embedding(contexts).flatten(1))))


def train(weights: np.ndarray, rows: np.ndarray, hidden: int, lr: float) -> list[tuple[int, float]]:
    """Trains on rows (steps, batch, 17) and returns (step, loss) at every 100th step."""
    torch.set_num_threads(1)
    model = CharMLP(hidden)
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for step, batch in enumerate(torch.from_numpy(rows.astype(np.int64)), 1):
        optimizer.param_groups[0]["lr"] = lr if is_early(step, len(rows)) else lr / 10
        loss = nn.functional.cross_entropy(model(batch[:, :CONTEXT]), batch[:, CONTEXT])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % REPORT_EVERY == 0:
            losses.append((step, loss.item()))
    return losses


def is_early(step: int, steps: int) -> bool:
    """Whether a step, counted from 1, belongs to the first 70 %, which runs at the full rate."""
    return 10 * step <= 7 * steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the reference character MLP and write its losses.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("batches", type=Path)
    parser.add_argument("losses", type=Path)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    weights = np.fromfile(args.weights, "<f4").astype(np.float32)
    rows = np.fromfile(args.batches, "<i4").reshape(-1, args.batch, CONTEXT + 1)
    losses = train(weights, rows, args.hidden, args.lr)
    args.losses.write_text("".join(f"{step} {loss:.9g}\n" for step, loss in losses))


if __name__ == "__main__":
    main()
