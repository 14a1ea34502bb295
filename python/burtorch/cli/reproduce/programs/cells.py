"""The problems that burtorch and its rivals are measured on: weights and batches, made from a seed with NumPy alone.

Promises the same arrays on every machine. Weights are one flat vector in burtorch's parameter order; with
the paper's sizes:

    mlp   embedding (27, 64), W1 (e, 1024), b1 (e), W2 (27, e), b2 (27)
    gpt   token (65, 24), position (8, 24), then for each of the 6 blocks:
              gain1 (24), bias1 (24), Wq, Wk, Wv, Wo (24, 24 each), bo (24),
              gain2 (24), bias2 (24), W1 (96, 24), b1 (96), W2 (24, 96), b2 (24);
          then head (65, 24), head bias (65)

Matrices are (outputs, inputs), row-major.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Ints = NDArray[np.int64]

SYMBOLS, CONTEXT, EMBEDDING = 27, 16, 64
LAYERS, HEADS, WINDOW, WIDTH, GPT_SYMBOLS = 6, 6, 8, 24, 65
N_BATCHES = 64


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model: vocabulary, numbers per token, and for gpt layers and heads. Defaults are the paper's."""

    context: int
    width: int
    layers: int = LAYERS
    heads: int = HEADS


MLP, GPT = Sizes(CONTEXT, EMBEDDING), Sizes(WINDOW, WIDTH)


@dataclass(frozen=True)
class Cell:
    """One measured problem: X is (n_batches, b, inputs), Y is (n_batches, b) or, for gpt, like X. The dtype is that
    of the weights."""

    model: str
    batch: int
    hidden: int
    weights: Floats
    X: Ints
    Y: Ints
    lr: float = 0.01
    sizes: Sizes = field(default=MLP)


def mlp_shapes(hidden: int, sizes: Sizes = MLP) -> list[tuple[int, ...]]:
    """Parameter shapes of the character MLP, in flat order."""
    inputs = sizes.context * sizes.width
    return [(SYMBOLS, sizes.width), (hidden, inputs), (hidden,), (SYMBOLS, hidden), (SYMBOLS,)]


def gpt_shapes(sizes: Sizes = GPT) -> list[tuple[int, ...]]:
    """Parameter shapes of the GPT, in flat order; of the paper's 46,289 numbers in all."""
    d = sizes.width
    block = [(d,), (d,), (d, d), (d, d), (d, d), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(GPT_SYMBOLS, d), (sizes.context, d), *block * sizes.layers, (GPT_SYMBOLS, d), (GPT_SYMBOLS,)]


def split(flat: Floats, shapes: list[tuple[int, ...]]) -> list[Floats]:
    """Views of a flat vector, one per shape."""
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    if flat.size != ends[-1]:
        raise ValueError(f"expected {ends[-1]} weights, found {flat.size}")
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes)]


def _weights(rng: np.random.Generator, shapes: list[tuple[int, ...]], dtype: str) -> Floats:
    """Glorot-uniform matrices, embeddings included; vectors near their usual start, never exactly 0 or 1."""
    parts = []
    for shape in shapes:
        bound = np.sqrt(6 / sum(shape)) if len(shape) == 2 else 0.1
        parts.append(rng.uniform(-bound, bound, shape).ravel())
    return np.concatenate(parts).astype(dtype)


def mlp_cell(
    hidden: int, batch: int, seed: int = 0, sizes: Sizes = MLP, dtype: str = "float32", n_batches: int = N_BATCHES
) -> Cell:
    """A character MLP with random token ids, 64 batches used cyclically."""
    rng = np.random.default_rng(seed)
    weights = _weights(rng, mlp_shapes(hidden, sizes), dtype)
    X = rng.integers(0, SYMBOLS, (n_batches, batch, sizes.context))
    return Cell("mlp", batch, hidden, weights, X, rng.integers(0, SYMBOLS, (n_batches, batch)), sizes=sizes)


def gpt_cell(batch: int, seed: int = 0, sizes: Sizes = GPT, dtype: str = "float32", n_batches: int = N_BATCHES) -> Cell:
    """A GPT with random token ids; layer-norm gains start near 1."""
    rng = np.random.default_rng(seed)
    shapes = gpt_shapes(sizes)
    weights = _weights(rng, shapes, dtype)
    parts = split(weights, shapes)
    for layer in range(sizes.layers):
        for gain in (2 + 13 * layer, 9 + 13 * layer):
            parts[gain] += 1
    X = rng.integers(0, GPT_SYMBOLS, (n_batches, batch, sizes.context))
    return Cell("gpt", batch, 4 * sizes.width, weights, X, rng.integers(0, GPT_SYMBOLS, X.shape), sizes=sizes)


def read_cell(problem: dict[str, Any]) -> Cell:
    """The cell of a problem file: float32 weights, then int32 contexts and targets of all batches."""
    n, b, inputs, targets = (problem[key] for key in ("n_batches", "batch", "inputs", "targets"))
    weights = np.fromfile(problem["file"], np.float32, problem["n_weights"])
    symbols = np.fromfile(problem["file"], np.int32, offset=weights.nbytes).astype(np.int64)
    X, Y = np.split(symbols, [n * b * inputs])
    shape = (n, b) if targets == 1 else (n, b, targets)
    hidden = problem.get("hidden", 4 * WIDTH)
    X, Y, sizes = X.reshape(n, b, inputs), Y.reshape(shape), MLP if problem["model"] == "mlp" else GPT
    return Cell(problem["model"], b, hidden, weights, X, Y, problem["lr"], sizes)
