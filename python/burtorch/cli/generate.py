"""``burtorch generate``: words or text from a model written by ``burtorch train --out`` or ``model.save()``."""

from __future__ import annotations

import argparse

from burtorch.cli import model_file
from burtorch.cli.arguments import count, positive, seed
from burtorch.cli.errors import InputError
from burtorch.cli.kinds import N_CHARACTERS, N_WORDS


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="sample words or text from a trained model",
        description="Sample from a model written by 'burtorch train --out' or model.save(path, vocabulary=...): "
        "words, one per line, or text from a GPT.",
        epilog="examples: burtorch generate runs/names --n 5 --prompt ma; burtorch generate m.safetensors",
    )
    parser.add_argument("model", metavar="DIR_OR_FILE", help="the --out directory of a training, or a file of a model")
    parser.add_argument(
        "--n",
        type=count,
        metavar="N",
        help=f"number of words ({N_WORDS}), or of characters from a GPT ({N_CHARACTERS})",
    )
    parser.add_argument("--prompt", default="", metavar="TEXT", help="the beginning of every word, or of the text")
    parser.add_argument(
        "--temperature",
        type=positive,
        default=1.0,
        metavar="T",
        help="below 1 favours likely words, above 1 varies more (default %(default)s)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="the same seed gives the same words (default %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    kind, model, vocabulary = model_file.load(args.model)
    known = kind.prompt_symbols(vocabulary)
    for symbol in args.prompt:
        if symbol not in known:
            raise InputError(
                f"--prompt contains {symbol!r}, which is not in the model's vocabulary: expected symbols of {known!r}"
            )
    n = args.n or (N_CHARACTERS if kind.name == "gpt" else N_WORDS)
    for text in kind.write(model, vocabulary, n, args.seed, args.temperature, args.prompt):
        print(text)
    return 0
