"""Steps of models wider than the paper's, beside the rivals of ``burtorch reproduce``, in float32 and float64.

    python bench_dense.py [--rows mlp,gpt] [--levels avx512,avx2] [--threads 1,2] [--peers torch,jax,numpy] [--record]

``torch-compile`` is a peer too. A step is one of gradient descent for the character model, and loss and gradient for
the GPT. Losses and gradients must agree with burtorch's before anything is timed, weights of the character model after
five steps too. Contenders take turns, in a process for each row, level and number of threads; the least time counts.
For AVX2 rivals are held to it by their own switches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace

from record import write_record

from burtorch.cli import bench_mlp
from burtorch.cli.reproduce import programs as peers

peers.hold_to_one_thread()
import numpy as np  # noqa: E402

import burtorch as bt  # noqa: E402
from burtorch.cli.reproduce.programs.cells import Cell, Sizes, gpt_cell, mlp_cell  # noqa: E402
from burtorch.cli.reproduce.programs.peer import Peer  # noqa: E402

# JAX 0.10 chooses kernels of products by the CPU, whatever `xla_cpu_max_isa` says: with AVX-512 it is not held to AVX2.
HELD_TO_AVX2 = {
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
# Levels with longer names here.
LEVELS = {"avx2": "avx2+fma"}
# In float32 the gradients of wide models differ by some 1e-6 in the norm.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
N_BATCHES = 4


@dataclass(frozen=True)
class Row:
    """A model and a batch; `hidden` units for the character model, none for the GPT; the seed of weights and data."""

    dtype: str
    batch: int
    sizes: Sizes
    hidden: int = 0
    seed: int = 0

    @property
    def model(self) -> str:
        return "mlp" if self.hidden else "gpt"

    def __str__(self) -> str:
        of = self.sizes
        if self.hidden:
            return f"MLP {self.dtype}, context {of.context} embedding {of.width} e={self.hidden} b={self.batch}"
        return f"GPT {self.dtype}, {of.layers} layers, {of.heads} heads, w={of.width} c={of.context} b={self.batch}"

    def cell(self) -> Cell:
        if self.hidden:
            cell = mlp_cell(self.hidden, self.batch, self.seed, self.sizes, self.dtype, N_BATCHES)
            return replace(cell, lr=1e-3)
        return gpt_cell(self.batch, self.seed, self.sizes, self.dtype, N_BATCHES)


ROWS = [
    Row("float64", 256, Sizes(16, 64), 256),
    Row("float64", 64, Sizes(16, 64), 1024),
    Row("float64", 128, Sizes(32, 128), 512),
    Row("float32", 128, Sizes(32, 128), 512),
    Row("float32", 64, Sizes(16, 64), 1024),
    Row("float32", 256, Sizes(16, 64), 1024),
    Row("float32", 64, Sizes(16, 64), 512),
    Row("float32", 16, Sizes(32, 64, 4, 4)),
    # With seed 0 the input of one ReLU unit, number 428 of the second layer, is 0 up to float32 rounding. The loss has
    # two gradients there, 6e-4 apart: burtorch's float32 returns one, PyTorch's float32 and float64 the other. Layers
    # after that unit agree within 4e-7; with seeds 1 to 4 all gradients agree within 5e-7.
    Row("float32", 8, Sizes(64, 128, 4, 4), seed=1),
    Row("float32", 4, Sizes(128, 96, 4, 4)),
    Row("float32", 4, Sizes(64, 256, 6, 8)),
    Row("float64", 64, Sizes(8, 24, 6, 6)),
    Row("float64", 8, Sizes(64, 128, 4, 4)),
]


def of_burtorch(row: Row, cell: Cell) -> Peer:
    params, of = bt.Parameters(dtype=row.dtype), row.sizes
    if row.hidden:
        model = bt.nn.CharMLP(params, 27, of.context, of.width, row.hidden)
    else:
        model = bt.nn.GPT(params, 65, of.context, of.layers, of.heads, of.width)
    params.values[:] = cell.weights
    threads = int(os.environ["OMP_NUM_THREADS"])
    oracle = bt.Oracle(model, threads=threads) if threads > 1 else bt.Oracle(model)
    batches = [(x.astype("int32"), y.astype("int32")) for x, y in zip(cell.X, cell.Y)]
    at = 0

    def step() -> object:
        nonlocal at
        at = (at + 1) % len(batches)
        return oracle.step(*batches[at], cell.lr) if row.hidden else oracle(*batches[at])

    def loss_and_grad() -> tuple[float, np.ndarray]:
        loss, grad = oracle(*batches[0])
        return loss, np.array(grad)

    return Peer("burtorch", step, loss_and_grad, lambda: np.array(params.values))


def measure(row: Row, level: str, names: list[str], rounds: int) -> dict[str, float]:
    """The minimum milliseconds of a step of each contender, after their results were compared."""
    bt.system.force_cpu_level(LEVELS.get(level, level))
    cell = row.cell()
    rivals = [peers.make(name, cell) for name in names]
    present = [of_burtorch(row, cell), *(rival for rival in rivals if rival is not None)]
    peers.check(present, tolerance=TOLERANCE[row.dtype])
    found = bench_mlp.rows([bench_mlp.Contender(peer.name, peer) for peer in present], rounds)
    return {name: times["minimum"] for name, times in found.items()}


def run_held(arguments: list[str], level: str, threads: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process whose rivals are limited to a level and a number of threads, one per core."""
    env = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    if threads != "1":
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=true"
    if level == "avx2":
        flags = env.get("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
        env |= HELD_TO_AVX2 | {"XLA_FLAGS": f"{flags} --xla_cpu_max_isa=AVX2"}
    line = [sys.executable, *arguments]
    if threads == "1" and hasattr(os, "sched_setaffinity"):
        line = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *line]
    return subprocess.run(line, env=env, capture_output=True, text=True)


def line_of(k: int, level: str, threads: str, options: argparse.Namespace) -> str | None:
    """A line of the table, measured in a separate process."""
    done = run_held(
        [__file__, "--one", str(k), level, "--peers", options.peers, "--rounds", str(options.rounds)], level, threads
    )
    if done.returncode:
        print(f"{ROWS[k]}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    times, names = json.loads(done.stdout.splitlines()[-1]), options.peers.split(",")
    others = [times[name] for name in names if name in times]
    cells = [f"{times[name]:.3g}" if name in times else "-" for name in ("burtorch", *names)]
    ratio = f"{times['burtorch'] / min(others):.2f}" if others else "-"
    return f"| {ROWS[k]} | {level} | {threads} | {' | '.join(cells)} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="mlp,gpt", help="models, or numbers of rows")
    parser.add_argument("--levels", default="avx512,avx2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default="torch,jax,numpy")
    parser.add_argument("--rounds", type=int, default=60, help="slices of 20 ms or a step")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "LEVEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    names, wanted = options.peers.split(","), options.rows.split(",")
    if options.one:
        print(json.dumps(measure(ROWS[int(options.one[0])], options.one[1], names, options.rounds)))
        return
    head = f"| row | level | threads | burtorch | {' | '.join(names)} | of the best rival |"
    lines = [head, "|---" * (5 + len(names)) + "|"]
    print("\n".join(lines), flush=True)
    for level in options.levels.split(","):
        for threads in options.threads.split(","):
            for k, row in enumerate(ROWS):
                if row.model in wanted or str(k) in wanted:
                    line = line_of(k, level, threads, options)
                    if line is not None:
                        lines.append(line)
                        print(line, flush=True)
    if options.record:
        how = "Milliseconds of a step, the least in turns: `python benches/python/bench_dense.py`."
        write_record("wide", f"# Wide models beside rivals\n\n{how}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
