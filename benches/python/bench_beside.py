"""Times burtorch beside the rivals that are installed, on the cells of ``burtorch bench mlp`` and ``bench gpt``.

    python bench_beside.py [--what mlp,gpt] [--peers numpy,torch,jax] [--hidden 4,64] [--batch 1,64] [--rounds 25]

Every contender starts from the same weights. Losses and gradients must agree to 1e-5, and weights of the character
model after a few steps, before anything is timed. Contenders take turns, one short slice each, so that a busy machine
slows them all alike.
"""

from __future__ import annotations

import argparse
from typing import Any

from burtorch.cli import bench, bench_gpt, bench_mlp
from burtorch.cli.arguments import count
from burtorch.cli.reproduce import programs as peers

peers.hold_to_one_thread()
import numpy as np  # noqa: E402

from burtorch.cli.reproduce.programs.cells import gpt_cell, mlp_cell  # noqa: E402

# The rivals for each name in --peers.
PEERS = {"numpy": ("numpy",), "torch": ("torch", "torch-compile"), "jax": ("jax",)}


class Burtorch(bench_mlp.Burtorch):
    """Like the rivals: with its first result and its weights as arrays."""

    def loss_and_grad(self) -> tuple[float, Any]:
        loss, grad = self.oracle(*self.batches[0])
        return loss, np.array(grad)

    def weights(self) -> Any:
        return np.array(self.params.values)


def mlp(hidden: int, n: int, names: list[str], rounds: int) -> dict[str, Any]:
    """Rows of one cell of the character model."""
    cell = mlp_cell(hidden, n)
    batches = [(x.astype("int32"), y.astype("int32")) for x, y in zip(cell.X, cell.Y)]
    rivals = [peers.make(name, cell) for name in names]
    present = [Burtorch(hidden, batches, cell.weights), *(rival for rival in rivals if rival is not None)]
    peers.check(present)
    return bench_mlp.rows([bench_mlp.Contender(peer.name, peer, peer.compile_seconds) for peer in present], rounds)


def gpt(sizes: list[int], names: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Rows by batch size of the GPT."""
    contenders: list[bench_gpt.Contender] = []
    for batch in sizes:
        of_peers = gpt_cell(batch)
        cell = bench_gpt.Cell(batch)
        cell.weights, cell.X, cell.Y = of_peers.weights, of_peers.X.astype("int32"), of_peers.Y.astype("int32")
        label, answer = f"b={batch}", bench_gpt.checked(cell)
        contenders.append((label, "burtorch", 0.0, cell.step()))
        for name in names:
            rival = peers.make(name, of_peers)
            if rival is not None:
                loss, gradient = rival.loss_and_grad()
                bench_gpt.agree(name, answer, (loss, list(map(float, gradient))))
                contenders.append((label, name, rival.compile_seconds, rival.step))
    return bench_gpt.rows(contenders, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default="mlp,gpt", help="between commas (default %(default)s)")
    parser.add_argument("--peers", default="numpy,torch,jax", help="between commas (default %(default)s)")
    parser.add_argument("--hidden", type=bench.counts, default=list(bench_mlp.HIDDEN))
    parser.add_argument("--batch", type=bench.counts)
    parser.add_argument("--rounds", type=count, default=25)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = [full for short in args.peers.split(",") for full in PEERS[short]]
    if "mlp" in args.what.split(","):
        record = bench.header("mlp", "ms per SGD step", args.rounds)
        for hidden in args.hidden:
            for batch in args.batch or bench_mlp.BATCHES:
                record["cells"][f"e={hidden}, b={batch}"] = mlp(hidden, batch, names, args.rounds)
        bench.show(record, args.json, ("median", "minimum", "compile_seconds"))
    if "gpt" in args.what.split(","):
        record = bench.header("gpt", "ms per loss and gradient", args.rounds)
        record["cells"] = gpt(args.batch or list(bench_gpt.BATCHES), names, args.rounds)
        bench.show(record, args.json, ("median", "minimum", "quartile", "compile_seconds"))


if __name__ == "__main__":
    main()
