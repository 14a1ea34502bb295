"""The GPT of the paper's Tables 12-14 in plain PyTorch and plain JAX: the references for burtorch's gradients.

    loss, grad = torch_loss_and_grad(weights, X, Y)       # likewise jax_loss_and_grad
    python reference_gpt.py                               # compares the two, prints the parameter count

weights is a flat vector of 46,289 numbers, X and Y are integer arrays (samples, 8), loss is the mean cross-entropy
over all positions in nats, grad is flat in the order of the weights. The computation runs in the dtype of the
weights, float32 or float64.

Configuration: 6 blocks, 6 heads of size 4, context 8, width 24, 65 symbols, feed-forward 4 x 24 with ReLU, layer norm
(epsilon 1e-5, biased variance) before attention and before feed-forward, none at the end, scores times 1/sqrt(4), no
dropout, head not tied.

    parameter          shape      bias   numbers
    token embedding    65 x 24             1,560
    position embedding  8 x 24               192
    each of 6 blocks                       7,152
      layer norm 1     24          24         48
      Wq, Wk, Wv       24 x 24     none    1,728
      Wo               24 x 24     24        600
      layer norm 2     24          24         48
      W1               96 x 24     96      2,400
      W2               24 x 96     24      2,328
    head               65 x 24     65      1,625
    in all                                46,289

The flat order is the order of this table, each weight before its bias, matrices (outputs, inputs) row-major.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax
    import torch

LAYERS, HEADS, CONTEXT, WIDTH, SYMBOLS = 6, 6, 8, 24, 65
HEAD_SIZE = WIDTH // HEADS
EPSILON = 1e-5
N_PARAMETERS = 46_289


def shapes() -> list[tuple[int, ...]]:
    """The shapes of the parameters in flat order."""
    d = WIDTH
    attention = [(d,), (d,), (d, d), (d, d), (d, d), (d, d), (d,)]
    feed_forward = [(d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(SYMBOLS, d), (CONTEXT, d), *(attention + feed_forward) * LAYERS, (SYMBOLS, d), (SYMBOLS,)]


def parts(weights: Any) -> list[Any]:
    """The parameters as slices of a flat NumPy, torch or JAX vector."""
    if weights.shape != (N_PARAMETERS,):
        raise ValueError(f"expected {N_PARAMETERS} weights, found shape {tuple(weights.shape)}")
    result, start = [], 0
    for shape in shapes():
        size = int(np.prod(shape))
        result.append(weights[start : start + size].reshape(shape))
        start += size
    return result


def torch_loss(weights: torch.Tensor, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """The mean loss, computed head by head."""
    import torch
    import torch.nn.functional as F

    token, position, *blocks, head, head_bias = parts(weights)
    future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
    x = token[X] + position
    for layer in range(LAYERS):
        g1, c1, wq, wk, wv, wo, bo, g2, c2, w1, b1, w2, b2 = blocks[13 * layer : 13 * (layer + 1)]
        y = F.layer_norm(x, (WIDTH,), g1, c1, EPSILON)
        heads = []
        for rows in (slice(h * HEAD_SIZE, (h + 1) * HEAD_SIZE) for h in range(HEADS)):
            q, k, v = y @ wq[rows].T, y @ wk[rows].T, y @ wv[rows].T
            scores = (q @ k.transpose(1, 2) / HEAD_SIZE**0.5).masked_fill(future, -torch.inf)
            heads.append(scores.softmax(-1) @ v)
        x = x + torch.cat(heads, -1) @ wo.T + bo
        y = F.layer_norm(x, (WIDTH,), g2, c2, EPSILON)
        x = x + torch.relu(y @ w1.T + b1) @ w2.T + b2
    logits = x @ head.T + head_bias
    return F.cross_entropy(logits.reshape(-1, SYMBOLS), Y.reshape(-1))


def torch_loss_and_grad(weights: np.ndarray, X: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and flat gradient by PyTorch."""
    import torch

    w = torch.tensor(weights, requires_grad=True)
    loss = torch_loss(w, torch.tensor(X, dtype=torch.int64), torch.tensor(Y, dtype=torch.int64))
    (grad,) = torch.autograd.grad(loss, w)
    return loss.item(), grad.numpy()


def jax_loss(weights: jax.Array, X: jax.Array, Y: jax.Array) -> jax.Array:
    """The mean loss, all heads at once."""
    import jax
    import jax.numpy as jnp

    def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + EPSILON) * gain + bias

    def split_heads(x: jax.Array) -> jax.Array:
        return x.reshape(len(x), CONTEXT, HEADS, HEAD_SIZE).transpose(0, 2, 1, 3)

    token, position, *blocks, head, head_bias = parts(weights)
    past = jnp.tril(jnp.ones((CONTEXT, CONTEXT), bool))
    x = token[X] + position
    for layer in range(LAYERS):
        g1, c1, wq, wk, wv, wo, bo, g2, c2, w1, b1, w2, b2 = blocks[13 * layer : 13 * (layer + 1)]
        y = layer_norm(x, g1, c1)
        q, k, v = (split_heads(y @ w.T) for w in (wq, wk, wv))
        scores = jnp.where(past, q @ k.swapaxes(2, 3) / HEAD_SIZE**0.5, -jnp.inf)
        x = x + (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ wo.T + bo
        x = x + jax.nn.relu(layer_norm(x, g2, c2) @ w1.T + b1) @ w2.T + b2
    log_p = jax.nn.log_softmax(x @ head.T + head_bias)
    return -jnp.take_along_axis(log_p, Y[..., None], -1).mean()


def jax_loss_and_grad(weights: np.ndarray, X: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and flat gradient by JAX; float64 weights need jax_enable_x64."""
    import jax
    import jax.numpy as jnp

    w = jnp.array(weights)
    if w.dtype != weights.dtype:
        raise TypeError(f"JAX took {weights.dtype} weights as {w.dtype}: enable jax_enable_x64")
    loss, grad = jax.value_and_grad(jax_loss)(w, jnp.array(X), jnp.array(Y))
    return float(loss), np.asarray(grad)


def main() -> None:
    """Compares the two references with each other in both precisions."""
    import jax

    from burtorch.cli.reproduce.programs.cells import gpt_cell

    jax.config.update("jax_enable_x64", True)
    cell = gpt_cell(batch=4)
    exact: np.ndarray | None = None
    for dtype in (np.float64, np.float32):
        weights = cell.weights.astype(dtype)
        for name, oracle in (("torch", torch_loss_and_grad), ("jax", jax_loss_and_grad)):
            loss, grad = oracle(weights, cell.X[0], cell.Y[0])
            exact = grad if exact is None else exact
            error = np.linalg.norm(grad - exact) / np.linalg.norm(exact)
            print(f"{name:6}{dtype.__name__:8} loss {loss:.9f}  gradient, relative to torch float64: {error:.1e}")
            assert error < (1e-12 if dtype is np.float64 else 1e-5)
    print(f"{sum(int(np.prod(shape)) for shape in shapes()):,} parameters")


if __name__ == "__main__":
    main()
