"""Steps of models wider than the paper's, beside PyTorch, jax.jit and NumPy, in float32 and float64.

    python bench_dense.py [--rows mlp,gpt] [--levels avx512,avx2] [--threads 1,2] [--peers torch,jax,numpy] [--record]

``torch-compile`` is a peer too. Loss and gradient must agree with burtorch's before anything is timed. Contenders take
turns, in a process for each row, level and number of threads; the least time of a step of gradient descent counts. For
AVX2 rivals are held to it by their own switches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from record import write_record

LR = 1e-3
HELD_TO_AVX2 = {
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}


@dataclass(frozen=True)
class Row:
    """A model and a batch: for ``mlp`` hidden units, for ``gpt`` layers, heads and width."""

    model: str
    dtype: str
    batch: int
    context: int
    width: int
    hidden: int = 0
    layers: int = 0
    heads: int = 0

    def __str__(self) -> str:
        if self.model == "mlp":
            return f"MLP {self.dtype}, context {self.context} embedding {self.width} e={self.hidden} b={self.batch}"
        sizes = f"{self.layers} layers, {self.heads} heads, w={self.width} c={self.context} b={self.batch}"
        return f"GPT {self.dtype}, {sizes}"

    @property
    def symbols(self) -> int:
        return 27 if self.model == "mlp" else 65

    def shapes(self) -> list[tuple[int, ...]]:
        """Of the parameters, in burtorch's order."""
        s, d, e, i = self.symbols, self.width, self.hidden, self.context * self.width
        if self.model == "mlp":
            return [(s, d), (e, i), (e,), (s, e), (s,)]
        block = [(d,), (d,), (d, d), (d, d), (d, d), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
        return [(s, d), (self.context, d), *block * self.layers, (s, d), (s,)]


ROWS = [
    Row("mlp", "float64", 256, 16, 64, 256),
    Row("mlp", "float64", 64, 16, 64, 1024),
    Row("mlp", "float64", 128, 32, 128, 512),
    Row("mlp", "float32", 128, 32, 128, 512),
    Row("mlp", "float32", 64, 16, 64, 1024),
    Row("mlp", "float32", 256, 16, 64, 1024),
    Row("mlp", "float32", 64, 16, 64, 512),
    Row("gpt", "float32", 16, 32, 64, layers=4, heads=4),
    Row("gpt", "float32", 8, 64, 128, layers=4, heads=4),
    Row("gpt", "float32", 4, 128, 96, layers=4, heads=4),
    Row("gpt", "float32", 4, 64, 256, layers=6, heads=8),
    Row("gpt", "float64", 64, 8, 24, layers=6, heads=6),
    Row("gpt", "float64", 8, 64, 128, layers=4, heads=4),
]


@dataclass
class Contender:
    """``gradient()`` gives loss and flat gradient at the start; ``step()`` trains."""

    name: str
    gradient: Callable[[], tuple[float, Any]]
    step: Callable[[], object]


def of_burtorch(row: Row, weights: Any, x: Any, y: Any) -> Contender:
    import burtorch as bt

    params = bt.Parameters(dtype=row.dtype)
    if row.model == "mlp":
        model: Any = bt.nn.CharMLP(params, row.symbols, row.context, row.width, row.hidden)
    else:
        model = bt.nn.GPT(params, row.symbols, row.context, row.layers, row.heads, row.width)
    params.values[:] = weights
    threads = int(os.environ["OMP_NUM_THREADS"])
    oracle = bt.Oracle(model, threads=threads) if threads > 1 else bt.Oracle(model)

    def gradient() -> tuple[float, Any]:
        loss, grad = oracle(x, y)
        return loss, np.array(grad)

    return Contender("burtorch", gradient, lambda: oracle.step(x, y, LR))


def gpt_loss(F: Any, row: Row, w: list[Any], x: Any, y: Any, attend: Callable[..., Any]) -> Any:
    """The GPT for PyTorch; F is its functional module."""
    d, h = row.width, row.heads
    z = F.embedding(x, w[0]) + w[1]
    for k in range(row.layers):
        g1, c1, wqkv, wo, bo, g2, c2, w1, b1, w2, b2 = w[2 + 11 * k : 13 + 11 * k]
        parts = F.linear(F.layer_norm(z, (d,), g1, c1), wqkv).view(len(x), row.context, 3, h, d // h)
        z = z + F.linear(attend(*parts.permute(2, 0, 3, 1, 4)).transpose(1, 2).flatten(2), wo, bo)
        z = z + F.linear(F.relu(F.linear(F.layer_norm(z, (d,), g2, c2), w1, b1)), w2, b2)
    return F.cross_entropy(F.linear(z, w[-2], w[-1]).view(-1, row.symbols), y.reshape(-1))


def of_torch(row: Row, weights: Any, x: Any, y: Any, compiled: bool) -> Contender:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    shapes = row.shapes()
    if row.model == "gpt":  # one matrix of Wq, Wk and Wv
        for k in range(row.layers):
            shapes[4 + 11 * k : 7 + 11 * k] = [(3 * row.width, row.width)]
    ends = np.cumsum([np.prod(shape) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(np.split(weights, ends[:-1]), shapes)]
    w = [torch.tensor(part).requires_grad_() for part in parts]
    tx, ty = torch.tensor(x, dtype=torch.long), torch.tensor(y, dtype=torch.long)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def loss(*w: Any) -> Any:
        if row.model == "gpt":
            return gpt_loss(F, row, list(w), tx, ty, attend)
        h = torch.tanh(F.linear(F.embedding(tx, w[0]).flatten(1), w[1], w[2]))
        return F.cross_entropy(F.linear(h, w[3], w[4]), ty)

    of = torch.compile(loss, fullgraph=True, dynamic=False) if compiled else loss

    def grads() -> tuple[float, Any]:
        value = of(*w)
        return value.item(), torch.autograd.grad(value, w)

    def gradient() -> tuple[float, Any]:
        value, found = grads()
        return value, torch.cat([g.reshape(-1) for g in found]).numpy()

    def step() -> float:
        value, found = grads()
        with torch.no_grad():
            torch._foreach_add_(w, found, alpha=-LR)
        return value

    return Contender("torch-compile" if compiled else "torch", gradient, step)


def of_jax(row: Row, weights: Any, x: Any, y: Any) -> Contender:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    ends = np.cumsum([np.prod(shape) for shape in row.shapes()])

    def norm(z: Any, gain: Any, bias: Any) -> Any:
        z = z - z.mean(-1, keepdims=True)
        return z / jnp.sqrt((z * z).mean(-1, keepdims=True) + 1e-5) * gain + bias

    def loss(w: list[Any]) -> Any:
        if row.model == "mlp":
            h = jnp.tanh(w[0][x].reshape(len(x), -1) @ w[1].T + w[2])
            logits = h @ w[3].T + w[4]
        else:
            z = w[0][x] + w[1]
            shape = (len(x), row.context, row.heads, row.width // row.heads)
            past = np.tril(np.ones((row.context, row.context), bool))
            for k in range(row.layers):
                g1, c1, wq, wk, wv, wo, bo, g2, c2, w1, b1, w2, b2 = w[2 + 13 * k : 15 + 13 * k]
                n = norm(z, g1, c1)
                q, key, v = ((n @ m.T).reshape(shape).transpose(0, 2, 1, 3) for m in (wq, wk, wv))
                scores = q @ key.transpose(0, 1, 3, 2) * (shape[-1] ** -0.5)
                mixed = jax.nn.softmax(jnp.where(past, scores, -jnp.inf)) @ v
                z = z + mixed.transpose(0, 2, 1, 3).reshape(z.shape) @ wo.T + bo
                z = z + jax.nn.relu(norm(z, g2, c2) @ w1.T + b1) @ w2.T + b2
            logits = z @ w[-2].T + w[-1]
        flat = logits.reshape(-1, row.symbols)
        return -jax.nn.log_softmax(flat)[np.arange(len(flat)), y.reshape(-1)].mean()

    both = jax.value_and_grad(loss)
    gradient_of = jax.jit(both)

    def update(w: list[Any]) -> Any:
        value, found = both(w)
        return value, [a - LR * g for a, g in zip(w, found)]

    train = jax.jit(update, donate_argnums=0)
    parts = [jnp.array(part.reshape(shape)) for part, shape in zip(np.split(weights, ends[:-1]), row.shapes())]
    w = [[jnp.array(part) for part in parts]]

    def gradient() -> tuple[float, Any]:
        value, found = gradient_of(parts)
        return float(value), np.concatenate([np.asarray(g).reshape(-1) for g in found])

    def step() -> float:
        value, w[0] = train(w[0])
        return float(value)

    return Contender("jax", gradient, step)


def of_numpy(row: Row, weights: Any, x: Any, y: Any) -> Contender:
    ends = np.cumsum([np.prod(shape) for shape in row.shapes()])
    w = [part.reshape(shape).copy() for part, shape in zip(np.split(weights, ends[:-1]), row.shapes())]
    b, places = len(x), np.arange(len(x))

    def grads() -> tuple[float, list[Any]]:
        inputs = w[0][x].reshape(b, -1)
        h = np.tanh(inputs @ w[1].T + w[2])
        logits = h @ w[3].T + w[4]
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        value = float((np.log(total[:, 0]) - logits[places, y]).mean())
        p /= total
        p[places, y] -= 1
        p /= b
        dh = (p @ w[3]) * (1 - h * h)
        table = np.zeros_like(w[0])
        np.add.at(table, x, (dh @ w[1]).reshape(*x.shape, -1))
        return value, [table, dh.T @ inputs, dh.sum(0), p.T @ h, p.sum(0)]

    def gradient() -> tuple[float, Any]:
        value, found = grads()
        return value, np.concatenate([g.reshape(-1) for g in found])

    def step() -> float:
        value, found = grads()
        for a, g in zip(w, found):
            a -= LR * g
        return value

    return Contender("numpy", gradient, step)


def rivals(row: Row, names: list[str], weights: Any, x: Any, y: Any) -> Iterator[Contender]:
    for name in names:
        try:
            if name == "jax":
                yield of_jax(row, weights, x, y)
            elif name == "numpy" and row.model == "mlp":
                yield of_numpy(row, weights, x, y)
            elif name.startswith("torch"):
                yield of_torch(row, weights, x, y, name == "torch-compile")
        except ImportError as missing:
            print(f"{name} is not here: {missing}", file=sys.stderr)


def measure(row: Row, level: str, names: list[str], seconds: float) -> dict[str, float]:
    """The least milliseconds of a step of each contender, after their answers were found equal."""
    import burtorch as bt

    bt.system.force_cpu_level(level)
    rng = np.random.default_rng(0)
    parts = [
        rng.uniform(-1, 1, s) * (6 / sum(s)) ** 0.5 if len(s) == 2 else rng.uniform(0.9, 1.1, s) for s in row.shapes()
    ]
    weights = np.concatenate([part.ravel() for part in parts]).astype(row.dtype)
    x = rng.integers(0, row.symbols, (row.batch, row.context)).astype("int32")
    y = rng.integers(0, row.symbols, row.batch if row.model == "mlp" else x.shape).astype("int32")
    contenders = [of_burtorch(row, weights, x, y), *rivals(row, names, weights, x, y)]
    mine = contenders[0].gradient()
    for other in contenders[1:]:
        loss, grad = other.gradient()
        apart = np.linalg.norm(grad - mine[1]) / np.linalg.norm(mine[1])
        bound = 1e-4 if row.dtype == "float32" else 1e-9
        if not (abs(loss - mine[0]) < bound and apart < bound):
            raise ValueError(
                f"{row}: {other.name} disagrees: loss {loss} and {mine[0]}, gradients apart by {apart:.1e}"
            )
    best = {c.name: float("inf") for c in contenders}
    for contender in contenders:
        contender.step()
    end = time.perf_counter() + seconds * len(contenders)
    while time.perf_counter() < end:
        for contender in contenders:
            contender.step()
            started = time.perf_counter()
            contender.step()
            best[contender.name] = min(best[contender.name], time.perf_counter() - started)
    return {name: 1e3 * t for name, t in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="mlp,gpt", help="models, or numbers of rows")
    parser.add_argument("--levels", default="avx512,avx2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default="torch,jax,numpy")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "LEVEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.peers.split(",")
    if options.one:
        print(json.dumps(measure(ROWS[int(options.one[0])], options.one[1], names, options.seconds)))
        return
    wanted = options.rows.split(",")
    lines = [
        f"| row | level | threads | burtorch | {' | '.join(names)} | of the best rival |",
        "|---" * (5 + len(names)) + "|",
    ]
    print("\n".join(lines), flush=True)
    for level in options.levels.split(","):
        for threads in options.threads.split(","):
            for k, row in enumerate(ROWS):
                if row.model not in wanted and str(k) not in wanted:
                    continue
                env = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
                env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=" + ("false" if threads == "1" else "true")
                if level == "avx2":
                    env |= HELD_TO_AVX2 | {"XLA_FLAGS": f"{env['XLA_FLAGS']} {HELD_TO_AVX2['XLA_FLAGS']}"}
                line = [sys.executable, __file__, "--one", str(k), level, "--peers", options.peers]
                if threads == "1" and hasattr(os, "sched_setaffinity"):
                    line = ["taskset", "-c", "1", *line]
                done = subprocess.run(
                    [*line, "--seconds", str(options.seconds)], env=env, capture_output=True, text=True
                )
                if done.returncode:
                    print(f"{row}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                    continue
                times = json.loads(done.stdout.splitlines()[-1])
                others = [times[name] for name in names if name in times]
                cells = [f"{times[name]:.3g}" if name in times else "-" for name in ("burtorch", *names)]
                ratio = f"{times['burtorch'] / min(others):.2f}" if others else "-"
                lines.append(f"| {row} | {level} | {threads} | {' | '.join(cells)} | {ratio} |")
                print(lines[-1], flush=True)
    if options.record:
        how = "Milliseconds for a step of gradient descent, the least in turns: `python benches/python/bench_dense.py`."
        write_record("dense", f"# Wide models beside rivals\n\n{how}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
