"""Products of two matrices, square and skinny, beside NumPy, PyTorch and JAX, in float32 and float64.

    python bench_products.py [--levels avx512,avx2] [--sizes 4,8,...] [--rounds 60] [--record]

A product is a traced function of two arrays that returns a new array, as with the rivals, on one core. Its answer
must agree with NumPy's before anything is timed. Contenders take turns, in a process for each level, and the least time
counts. For AVX2 rivals are held to it by their own switches.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from bench_dense import LEVELS, run_held
from record import write_record

from burtorch.cli import bench_mlp
from burtorch.cli.reproduce import programs as peers

peers.hold_to_one_thread()
import numpy as np  # noqa: E402

import burtorch as bt  # noqa: E402

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SKINNY = ((1024, 1024, 8), (8, 1024, 1024), (1024, 8, 1024), (64, 1024, 1024), (1, 1024, 1024))
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}


def contenders(dtype: str, m: int, k: int, n: int) -> dict[str, Callable[[], object]]:
    """The products of an m x k and a k x n matrix, after the results were compared."""
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(m * k + n)
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    of_torch, of_jax = (torch.from_numpy(a), torch.from_numpy(b)), (jax.device_put(a), jax.device_put(b))
    mine, jitted = bt.function(lambda a, b: a @ b, dtype=dtype), jax.jit(lambda a, b: a @ b)
    every: dict[str, Callable[[], object]] = {
        "burtorch": lambda: mine(a, b),
        "numpy": lambda: a @ b,
        "torch": lambda: of_torch[0] @ of_torch[1],
        "jax": lambda: jitted(*of_jax).block_until_ready(),
    }
    for name, product in every.items():
        off = np.linalg.norm(np.asarray(product()) - a @ b) / np.linalg.norm(a @ b)
        if not off <= TOLERANCE[dtype]:
            raise ValueError(f"{name}: {m} x {k} x {n} off by {off:.1e}")
    return every


def table(level: str, sizes: list[int], rounds: int) -> None:
    bt.system.force_cpu_level(LEVELS.get(level, level))
    for dtype in ("float32", "float64"):
        for m, k, n in [*((size, size, size) for size in sizes), *SKINNY]:
            every = [bench_mlp.Contender(name, step) for name, step in contenders(dtype, m, k, n).items()]
            times = {name: times["minimum"] for name, times in bench_mlp.rows(every, rounds).items()}
            mine = times.pop("burtorch")
            cells = [f"{1e3 * time:.3g}" for time in (mine, *times.values())]
            speed = 2e-6 * m * k * n / mine
            ratio = mine / min(times.values())
            print(
                f"| {m} x {k} x {n} {dtype} | {level} | {' | '.join(cells)} | {speed:.3g} | {ratio:.2f} |", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--levels", default="avx512,avx2")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=60, help="slices of 20 ms or a product")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--one", metavar="LEVEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return table(options.one, [int(size) for size in options.sizes.split(",")], options.rounds)
    head = "| product | level | burtorch | numpy | torch | jax | GFLOP/s | of the best rival |"
    lines = [head, "|---" * 8 + "|"]
    for level in options.levels.split(","):
        script = [os.path.abspath(__file__), "--one", level, "--sizes", options.sizes, "--rounds", str(options.rounds)]
        done = run_held(script, level, "1")
        if done.returncode:
            sys.exit(done.stderr)
        lines += done.stdout.splitlines()
    print("\n".join(lines))
    if options.record:
        how = "Microseconds of a product, the least in turns: `python benches/python/bench_products.py`."
        write_record("products", f"# Products of matrices beside rivals\n\n{how}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
