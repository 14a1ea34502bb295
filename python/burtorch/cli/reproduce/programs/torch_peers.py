"""PyTorch on one thread: eager, tuned (foreach SGD, fused attention), TorchScript, and torch.compile of the whole step.

Compiled steps hold forward, backward and update in one graph (`torch.func.grad_and_value`), with C++ wrappers to reduce
the cost of a call. Compile time is that of the first two calls and is reported separately.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch._inductor.config as inductor
import torch.nn.functional as F

from .cells import GPT_SYMBOLS, Cell, Floats, Sizes, gpt_shapes, mlp_shapes, split
from .peer import Peer

Tensors = list[torch.Tensor]
Loss = Callable[..., torch.Tensor]
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(THREADS)
inductor.cpp_wrapper = True
inductor.cpp.threads = THREADS


def mlp_loss(w: Tensors, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the character MLP."""
    h = torch.tanh(F.linear(F.embedding(X, w[0]).flatten(1), w[1], w[2]))
    return F.cross_entropy(F.linear(h, w[3], w[4]), Y)


def mlp_loss_weights_first(w: Tensors, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """The same with the weights as the left operand: 1 to 5 % faster compiled, slower eager."""
    h = torch.tanh((w[1] @ F.embedding(X, w[0]).flatten(1).t()).t() + w[2])
    return F.cross_entropy((w[3] @ h.t()).t() + w[4], Y)


def fused_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The fastest eager attention: one call."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def unrolled_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The fastest compiled attention: sums of products that the compiler fuses, without small matrix products."""
    scores = (q.unsqueeze(3) * k.unsqueeze(2)).sum(-1) * q.shape[-1] ** -0.5
    past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    weights = torch.softmax(scores.masked_fill(~past, -torch.inf), -1)
    return (weights.unsqueeze(-1) * v.unsqueeze(2)).sum(3)


def gpt_loss(
    attention: Callable[..., torch.Tensor], sizes: Sizes, w: Tensors, X: torch.Tensor, Y: torch.Tensor
) -> torch.Tensor:
    """Mean cross-entropy of the GPT over all positions; Wq, Wk and Wv are one matrix."""
    x, d = F.embedding(X, w[0]) + w[1], sizes.width
    shape = (len(X), sizes.context, 3, sizes.heads, d // sizes.heads)
    for layer in range(sizes.layers):
        g1, c1, wqkv, wo, bo, g2, c2, w1, b1, w2, b2 = w[2 + 11 * layer : 13 + 11 * layer]
        q, k, v = F.linear(F.layer_norm(x, (d,), g1, c1), wqkv).view(shape).permute(2, 0, 3, 1, 4)
        x = x + F.linear(attention(q, k, v).transpose(1, 2).flatten(2), wo, bo)
        x = x + F.linear(F.relu(F.linear(F.layer_norm(x, (d,), g2, c2), w1, b1)), w2, b2)
    return F.cross_entropy(F.linear(x, w[-2], w[-1]).view(-1, GPT_SYMBOLS), Y.reshape(-1))


def loss_of(cell: Cell, *, compiled: bool) -> Loss:
    """The fastest form of the model's loss."""
    if cell.model == "mlp":
        return mlp_loss_weights_first if compiled else mlp_loss
    # Unrolled, a long context would need tensors of size context x context x numbers per head.
    unrolled = compiled and cell.sizes.context <= 16
    return partial(gpt_loss, unrolled_attention if unrolled else fused_attention, cell.sizes)


def parameters(cell: Cell) -> Tensors:
    """The cell's weights as tensors that need gradients; joining Wq, Wk and Wv of gpt keeps the flat order."""
    if cell.model == "mlp":
        parts = split(cell.weights, mlp_shapes(cell.hidden, cell.sizes))
    else:
        d, shapes = cell.sizes.width, gpt_shapes(cell.sizes)
        for layer in range(cell.sizes.layers):
            shapes[4 + 11 * layer : 7 + 11 * layer] = [(3 * d, d)]
        parts = split(cell.weights, shapes)
    return [torch.tensor(part).requires_grad_() for part in parts]


def flat(tensors: Any) -> Floats:
    """One NumPy vector of several tensors."""
    return torch.cat([t.detach().reshape(-1) for t in tensors]).numpy()


def make(cell: Cell, name: str) -> Peer:
    """The rival for a cell: "torch", "torchscript" or "torch-compile"."""
    compiled = name == "torch-compile"
    loss = loss_of(cell, compiled=compiled)
    w = parameters(cell)
    batches = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(cell.X, cell.Y)]
    turn = cycle(batches)
    if not compiled:
        if name == "torchscript":
            loss = scripted(loss, w, batches[0])
        step = eager_step(loss, w, cell, turn)
        return Peer(name, step, lambda: eager_grad(loss, w, batches[0]), lambda: flat(w))
    w = [t.detach() for t in w]
    started = time.perf_counter()
    step, oracle = compiled_step(loss, w, cell, turn)
    before = [t.clone() for t in w]
    step(), step()
    seconds = time.perf_counter() - started
    torch._foreach_copy_(w, before)
    turn(reset=True)
    return Peer(name, step, lambda: compiled_grad(oracle, w, batches[0]), lambda: flat(w), seconds)


def scripted(loss: Loss, w: Tensors, batch: Any) -> Loss:
    """The loss as a TorchScript graph; its gradient is autograd's, as eager."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends torch.compile, which is a separate rival
        graph = torch.jit.trace(lambda *inputs: loss(list(inputs[:-2]), *inputs[-2:]), (*w, *batch))
    return lambda w, X, Y: graph(*w, X, Y)


def cycle(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Cycles through the batches, starting with the second."""
    place = 0

    def turn(reset: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal place
        place = 0 if reset else (place + 1) % len(batches)
        return batches[place]

    return turn


def eager_step(loss: Loss, w: Tensors, cell: Cell, turn: Callable[..., Any]) -> Callable[[], object]:
    """Autograd, then one foreach update for mlp."""

    def train() -> float:
        X, Y = turn()
        value = loss(w, X, Y)
        grads = torch.autograd.grad(value, w)
        with torch.no_grad():
            torch._foreach_add_(w, grads, alpha=-cell.lr)
        return value.item()

    def oracle() -> object:
        X, Y = turn()
        value = loss(w, X, Y)
        return value.item(), torch.autograd.grad(value, w)

    return train if cell.model == "mlp" else oracle


def eager_grad(loss: Loss, w: Tensors, batch: Any) -> tuple[float, Floats]:
    value = loss(w, *batch)
    return value.item(), flat(torch.autograd.grad(value, w))


def compiled_step(loss: Loss, w: Tensors, cell: Cell, turn: Callable[..., Any]) -> tuple[Any, Any]:
    """The step and the gradient, each as one compiled graph."""
    grad_and_value = torch.func.grad_and_value(loss)

    @compile_apart
    def oracle(w: Tensors, X: torch.Tensor, Y: torch.Tensor) -> Any:
        return grad_and_value(w, X, Y)

    @compile_apart
    def train(w: Tensors, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        grads, value = grad_and_value(w, X, Y)
        for t, g in zip(w, grads):
            t.sub_(g * cell.lr)  # `add_(g, alpha=-lr)` loses its alpha in torch 2.13 when g is a matrix product
        return value

    def run() -> object:
        with torch.no_grad():
            if cell.model == "mlp":
                return train(w, *turn()).item()
            grads, value = oracle(w, *turn())
            return value.item(), grads

    return run, oracle


def compile_apart(function: Callable[..., Any]) -> Any:
    """Compiles a copy with its own code object: cells that share one check each other's guards at every call."""
    assert isinstance(function, FunctionType)
    apart = FunctionType(function.__code__.replace(), function.__globals__, closure=function.__closure__)
    return torch.compile(apart, fullgraph=True, dynamic=False)


def compiled_grad(oracle: Any, w: Tensors, batch: Any) -> tuple[float, Floats]:
    with torch.no_grad():
        grads, value = oracle(w, *batch)
    return value.item(), flat(grads)
