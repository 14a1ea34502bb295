"""Times loops of networks and a filter beside PyTorch, whose step torch.compile compiles, on one core.

    python bench_loops_torch.py [--rounds 7] [--record]

torch.compile unrolls a Python loop, and takes minutes for some hundred steps, so its best is a compiled step that
Python calls, and autograd over the steps. Values and gradients must agree to 1e-9 of their largest number before
anything is timed. Both run in float64 and in turns; minima in microseconds, and milliseconds of the first call.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from record import least, timed, write_record  # noqa: E402

import burtorch as bt  # noqa: E402

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

# What makes a step of (parameters, state, slice), the first state, the slices, and the parameters.
Loop = tuple[Callable[..., Any], tuple[np.ndarray, ...], np.ndarray, np.ndarray]


def recurrent(m: Any) -> Loop:
    n, rng = 50, np.random.default_rng(0)

    def step(p: Any, h: Any, x: Any) -> Any:
        h = m.tanh(p.reshape(n, n) @ h + x)
        return (h,), h.sum()

    return step, (np.zeros(n),), rng.standard_normal((500, n)), 0.1 * rng.standard_normal(n * n)


def lstm(m: Any) -> Loop:
    n, rng = 16, np.random.default_rng(0)

    def step(p: Any, h: Any, c: Any, x: Any) -> Any:
        gates = p[: 4 * n * n].reshape(4 * n, n) @ h + p[4 * n * n : 8 * n * n].reshape(4 * n, n) @ x + p[8 * n * n :]
        keep, new, out = (1.0 / (1.0 + m.exp(-gates[k * n : (k + 1) * n])) for k in range(3))
        c = keep * c + new * m.tanh(gates[3 * n :])
        h = out * m.tanh(c)
        return (h, c), (h * h).sum()

    p = 0.1 * rng.standard_normal(8 * n * n + 4 * n)
    return step, (np.zeros(n), np.zeros(n)), rng.standard_normal((1024, n)), p


def kalman(m: Any) -> Loop:
    n, rng = 4, np.random.default_rng(0)
    array = torch.as_tensor if m is torch else np.asarray
    F, H, eye = (array(x) for x in (np.eye(n) + 0.1 * np.eye(n, k=1), np.eye(1, n), np.eye(n)))

    def step(p: Any, x: Any, P: Any, y: Any) -> Any:
        x, P = F @ x, F @ P @ F.T + p[0] * eye
        S = (H @ P @ H.T)[0, 0] + p[1]
        K, e = (P @ H.T)[:, 0] / S, y - x[0]
        return (x + K * e, P - m.outer(K, (H @ P)[0])), 0.5 * (m.log(S) + e * e / S)

    return step, (np.zeros(n), np.eye(n)), rng.standard_normal(1000), np.array([0.1, 0.5])


LOOPS = {
    "recurrent network of 50 units, 500 steps": recurrent,
    "LSTM of 16 units, 1,024 steps": lstm,
    "Kalman filter of 4 states, 1,000 steps": kalman,
}


def ours(make: Callable[[Any], Loop]) -> Callable[[], Any]:
    step, start, xs, p = make(np)
    f = bt.function(lambda p: bt.scan(lambda state, x: step(p, *state, x), start, xs)[1].mean())
    return lambda: f.value_and_grad(p)


def theirs(make: Callable[[Any], Loop]) -> Callable[[], Any]:
    step, start, xs, p = make(torch)
    compiled, xs, p = torch.compile(step), torch.as_tensor(xs), torch.as_tensor(p).requires_grad_()

    def call() -> Any:
        state, total = [torch.as_tensor(x) for x in start], 0.0
        for x in xs:
            state, y = compiled(p, *state, x)
            total = total + y
        loss = total / len(xs)
        (gradient,) = torch.autograd.grad(loss, p)
        return loss.item(), gradient.numpy()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    lines = ["| loop | burtorch, us | torch.compile, us | ratio | first call, ms |", "|---|---|---|---|---|"]
    print("\n".join(lines))
    for title, make in LOOPS.items():
        calls = [ours(make), theirs(make)]
        first = [timed(call) for call in calls]
        for found, expected in zip(first[0][1], first[1][1], strict=True):
            found, expected = np.asarray(found), np.asarray(expected)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        mine, other = least(calls, options.rounds)
        figures = f"{mine * 1e6:,.0f} | {other * 1e6:,.0f} | {mine / other:.3f}"
        lines.append(f"| {title} | {figures} | {first[0][0] * 1e3:.1f}; {first[1][0] * 1e3:.0f} |")
        print(lines[-1], flush=True)
    if options.record:
        heading = f"# Loops beside torch.compile: value and gradient, float64, one core\n\nPyTorch {torch.__version__}"
        write_record("loops-torch", f"{heading}; minima of {options.rounds} calls.\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
