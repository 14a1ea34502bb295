"""The problem files of the models: weights and batches for every contender, and the answers in float64.

A file contains the float32 weights in burtorch's parameter order, then the int32 contexts of 64 batches, then their
targets. Another file contains the loss and gradient of the first batch, computed by burtorch in float64.
"""

from __future__ import annotations

import random
from array import array
from typing import Any

import burtorch
from burtorch.cli.errors import InputError
from burtorch.cli.reproduce.programs.burtorch_programs import GPT, Model
from burtorch.cli.reproduce.settings import Settings

N_BATCHES = 64
MLP_SYMBOLS, CONTEXT = 27, 16
LR = 0.01


def mlp(settings: Settings, folder: str, hidden: int, batch: int, n: int = N_BATCHES) -> dict[str, Any]:
    """The character model on the words of the settings."""
    data = burtorch.text.WordContexts(settings.words, context=CONTEXT, seed=0)
    if len(data.vocabulary) > MLP_SYMBOLS:
        raise InputError(
            f"the words have {len(data.vocabulary)} symbols: expected at most {MLP_SYMBOLS}, such as names"
        )
    params = burtorch.Parameters(seed=0)
    burtorch.nn.CharMLP(params, MLP_SYMBOLS, CONTEXT, 64, hidden)
    problem = {"model": "mlp", "hidden": hidden, "symbols": MLP_SYMBOLS, "inputs": CONTEXT, "targets": 1}
    return _written(problem, folder, batch, params, [data.batch(batch) for _ in range(n)])


def gpt(settings: Settings, folder: str, batch: int, n: int = N_BATCHES) -> dict[str, Any]:
    """The GPT on windows of the text of the settings, or on random symbols."""
    vocab, context = GPT["vocab"], GPT["context"]
    draw = random.Random(0)
    text = settings.text or "".join(chr(65 + draw.randrange(vocab)) for _ in range(200_000))
    data = burtorch.text.TextWindows(text, context=context, seed=0)
    if len(data.vocabulary) > vocab:
        raise InputError(
            f"the text has {len(data.vocabulary)} symbols: expected at most {vocab}, such as Shakespeare's"
        )
    params = burtorch.Parameters(seed=0)
    burtorch.nn.GPT(params, vocab, context, GPT["layers"], GPT["heads"], GPT["width"])
    problem = {"model": "gpt", "symbols": vocab, "inputs": context, "targets": context}
    return _written(problem, folder, batch, params, [data.batch(batch) for _ in range(n)])


def _written(
    problem: dict[str, Any], folder: str, batch: int, params: burtorch.Parameters, batches: list[Any]
) -> dict[str, Any]:
    name = f"{folder}/{problem['model']}-{problem.get('hidden', 0)}-{batch}"
    problem.update(file=name, answers=f"{name}.answers", batch=batch, n_batches=len(batches), lr=LR)
    problem["n_weights"] = len(params)
    with open(name, "wb") as file:
        file.write(memoryview(params.values).tobytes())
        for part in zip(*batches):
            for symbols in part:
                file.write(array("i", memoryview(symbols).cast("B").cast("I")).tobytes())
    loss, grad = Model(problem, dtype="float64").loss_and_grad()
    with open(problem["answers"], "wb") as file:
        array("d", [loss, *grad]).tofile(file)
    return problem
