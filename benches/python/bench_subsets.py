"""Gradients of sets beside whole gradients and losses, and TopK beside NumPy.

    python bench_subsets.py [--rounds 201]

Times are of calls from Python. Each round times the loss, and each set in turn, beside a whole gradient; each of them
the second time in a row, so that caches are in the state that a loop over it leaves. Ratios are medians over rounds, so
that a temporary slowdown of the machine has no effect, and then those of the least times, which a machine that is
always busy hardly changes. The bits of each set are compared with those of the gradient first. In place: `out=` for all
parameters, in the memory of the whole gradient.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import burtorch as bt


def timed(call: Callable[[], Any]) -> float:
    """Microseconds of a call, after one that is not timed."""
    call()
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def models() -> dict[str, tuple[Any, tuple[Any, Any]]]:
    """Each model with a batch."""
    rng = np.random.default_rng(0)
    found: dict[str, tuple[Any, tuple[Any, Any]]] = {}
    for hidden, n in ((64, 1), (64, 16), (64, 64), (256, 1), (1024, 1), (1024, 64)):
        model = bt.nn.CharMLP(bt.Parameters(seed=1), vocab=27, context=16, embedding=64, hidden=hidden)
        batch = rng.integers(0, 27, (n, 16)).astype("int32"), rng.integers(0, 27, n).astype("int32")
        found[f"CharMLP e={hidden} b={n}"] = model, batch
    model = bt.nn.MLP(bt.Parameters(seed=1), [200, 128, 128, 10])
    found["MLP b=1"] = model, (rng.normal(size=(1, 200)).astype("float32"), np.ones((1, 10), "float32"))
    gpt = bt.nn.GPT(bt.Parameters(seed=1))
    found["GPT b=1"] = gpt, (rng.integers(0, 65, (1, 8)).astype("int32"), rng.integers(0, 65, (1, 8)).astype("int32"))
    return found


def sets(model: Any) -> dict[str, Any]:
    """The selections: names and prepared sets."""
    d, rng = model.params.n, np.random.default_rng(3)

    def random(share: float) -> Any:
        mask = np.zeros(d, bool)
        mask[rng.choice(d, max(1, int(share * d)), replace=False)] = True
        return mask

    tensors = [tensor for _, tensor in model.named_tensors()]
    # The first dense layer, and its rows.
    matrix = max(tensors, key=lambda tensor: len(tensor))
    first, last = matrix.span
    width = (last - first) // len(matrix)
    chosen: dict[str, Any] = {
        "last layer": tensors[-2:],
        "first tensor": tensors[0],
        "row": range(first, first + width),
        "column": np.arange(first, last, width),
        "RandSeqK 1 %": range(d // 3, d // 3 + d // 100),
        "range of half": range(d // 4, d // 4 + d // 2),
    }
    for percent in (1, 10, 50):
        chosen[f"RandK {percent} %"] = random(percent / 100)
    chosen["all"] = range(d)
    return {key: model.params.subset(s) for key, s in chosen.items()}


def of_model(name: str, model: Any, batch: tuple[Any, Any], rounds: int) -> None:
    """Prints the ratios of all sets of a model."""
    oracle, d = bt.Oracle(model), model.params.n
    whole = np.empty(d, "float32")
    full = np.array(oracle.grad(*batch, out=whole))
    calls: list[tuple[str, Callable[[], Any]]] = []
    for key, wanted in sets(model).items():
        compact = np.empty(len(wanted), "float32")
        indices = np.asarray(wanted.indices)
        assert np.array_equal(oracle.grad(*batch, wanted=wanted, out=compact), full[indices])
        assert np.array_equal(oracle.grad(*batch, wanted=wanted, out=whole)[indices], full[indices])
        calls.append((key, lambda s=wanted, o=compact: oracle.grad(*batch, wanted=s, out=o)))
        calls.append((f"{key}, in place", lambda s=wanted: oracle.grad(*batch, wanted=s, out=whole)))
    to_full: dict[str, list[float]] = {key: [] for key, _ in calls}
    to_loss: dict[str, list[float]] = {key: [] for key, _ in calls}
    least: dict[str, tuple[float, float]] = {key: (float("inf"), float("inf")) for key, _ in calls}
    gradients, losses = [], []
    for _ in range(rounds):
        loss = timed(lambda: oracle.loss(*batch))
        for key, call in calls:
            # Measured with each call, so that both are of the same moment.
            gradient = timed(lambda: oracle.grad(*batch, out=whole))
            took = timed(call)
            to_full[key].append(took / gradient)
            to_loss[key].append(took / loss)
            least[key] = min(took, least[key][0]), min(gradient, least[key][1])
            gradients.append(gradient)
        losses.append(loss)
    gradient, loss = statistics.median(gradients), statistics.median(losses)
    print(f"{name}: {d} parameters; gradient {gradient:.1f} us, loss {loss:.1f} us")
    for key, _ in calls:
        ratio, of_loss = statistics.median(to_full[key]), statistics.median(to_loss[key])
        took, whole_took = least[key]
        print(
            f"  {key:26} {ratio:7.3f} of the gradient {of_loss:8.3f} of the loss; "
            f"least {took / whole_took:7.3f} {took / min(losses):8.3f}"
        )


def top_k(k: int, rounds: int) -> None:
    """Prints the time of TopK and of two NumPy calls."""
    x = np.random.default_rng(1).normal(size=10**6).astype("float32")
    room, c = np.empty_like(x), bt.compress.TopK(k)
    message = c.compress(x)
    expected = np.sort(np.argsort(-np.abs(x), kind="stable")[:k])
    assert np.array_equal(message.indices, expected)
    times, passes, partitions, each_pass, each_partition = [], [], [], [], []
    for _ in range(rounds):
        times.append(timed(lambda: c.compress(x, out=message)))
        each_pass.append(timed(lambda: np.abs(x, out=room).max()))
        each_partition.append(timed(lambda: np.argpartition(np.abs(x, out=room), len(x) - k)[len(x) - k :]))
        passes.append(times[-1] / each_pass[-1])
        partitions.append(each_partition[-1] / times[-1])
    fastest, least_pass, least_partition = min(times), min(each_pass), min(each_partition)
    print(
        f"TopK({k}) of 10^6 float32: {statistics.median(times):.0f} us, {statistics.median(passes):.2f} times "
        f"abs().max(), {statistics.median(partitions):.1f} times as fast as argpartition; least {fastest:.0f} us, "
        f"{fastest / least_pass:.2f}, {least_partition / fastest:.1f}"
    )


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=201)
    options = parser.parse_args()
    for name, (model, batch) in models().items():
        of_model(name, model, batch, options.rounds if "1024" not in name else options.rounds // 2 + 1)
    for k in (100, 1000, 10_000, 100_000):
        top_k(k, min(options.rounds, 51))


if __name__ == "__main__":
    main()
