"""The character MLP written by hand for NumPy and BLAS: forward, backward and SGD update in one function.

Careful code without a framework: buffers instead of temporaries, the update fused into the matrix product of the
gradient (BLAS `ger` and `gemm` through SciPy, if installed), the embedding gradient as a product with a one-hot matrix.
The input gradient is computed before W1 changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import SYMBOLS, Cell, Floats, mlp_shapes, split
from .peer import Peer

try:
    from scipy.linalg import blas  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    blas = None


class MlpStep:
    """One SGD step on the next batch; `loss_and_grad` runs the same code with the update written to a zeroed copy."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.weights = cell.weights.copy()
        self.lr = cell.lr
        self.batches = list(zip(cell.X, cell.Y))
        self.turn = 0
        self.rows = np.arange(cell.batch)
        self.places = np.arange(cell.batch * cell.sizes.context)
        dtype = self.weights.dtype
        self.x = np.empty((cell.batch, cell.sizes.context * cell.sizes.width), dtype)
        self.dx = np.empty_like(self.x)
        self.hidden = np.empty((cell.batch, cell.hidden), dtype)
        self.shapes = mlp_shapes(cell.hidden, cell.sizes)
        self.parts = split(self.weights, self.shapes)

    def __call__(self) -> float:
        self.turn = (self.turn + 1) % len(self.batches)
        x, y = self.batches[self.turn]
        return self.run(x, y, self.parts, -self.lr)

    def run(self, X: np.ndarray, Y: np.ndarray, targets: list[Floats], scale: float) -> float:
        """The mean loss; adds `scale` times each gradient to the targets."""
        embedding, w1, b1, w2, b2 = self.parts
        x, h = self.x, self.hidden
        batch = len(Y)
        np.take(embedding, X.reshape(-1), axis=0, out=x.reshape(-1, self.cell.sizes.width), mode="clip")
        np.matmul(x, w1.T, out=h)
        h += b1
        np.tanh(h, out=h)
        p = h @ w2.T
        p += b2
        p -= p.max(axis=1, keepdims=True)
        picked = p[self.rows, Y]
        np.exp(p, out=p)
        total = p.sum(axis=1)
        loss = float((np.log(total) - picked).sum()) / batch
        p /= total[:, None]
        p[self.rows, Y] -= 1
        p *= scale / batch
        dh = p @ w2
        dh -= dh * h * h
        np.matmul(dh, w1, out=self.dx)
        add_product(targets[3], p, h)
        targets[4] += p.sum(axis=0)
        add_product(targets[1], dh, x)
        targets[2] += dh.sum(axis=0)
        self.add_embedding(targets[0], X)
        return loss

    def add_embedding(self, target: Floats, X: np.ndarray) -> None:
        """Adds the input gradient to the rows used."""
        one_hot = np.zeros((self.places.size, SYMBOLS), self.x.dtype)
        one_hot[self.places, X.reshape(-1)] = 1
        target += one_hot.T @ self.dx.reshape(-1, self.cell.sizes.width)

    def loss_and_grad(self) -> tuple[float, Floats]:
        """Loss and flat gradient at the current weights, on the first batch."""
        grad = np.zeros_like(self.weights)
        loss = self.run(self.cell.X[0], self.cell.Y[0], split(grad, self.shapes), 1.0)
        return loss, grad


def add_product(target: Floats, left: NDArray[Any], right: Floats) -> None:
    """target += left.T @ right, in place; the transposes are BLAS's column-major view of the same memory."""
    if blas is None:
        target += left.T @ right
        return
    ger, gemm = (blas.sger, blas.sgemm) if target.dtype == np.float32 else (blas.dger, blas.dgemm)
    if len(left) == 1:
        ger(1.0, right[0], left[0], a=target.T, overwrite_x=True, overwrite_y=True, overwrite_a=True)
    else:
        gemm(1.0, right.T, left.T, beta=1.0, c=target.T, trans_b=True, overwrite_c=True)


def make(cell: Cell) -> Peer | None:
    """The rival for a cell, or None."""
    if cell.model != "mlp":
        return None
    step = MlpStep(cell)
    return Peer("numpy", step, step.loss_and_grad, lambda: step.weights)
