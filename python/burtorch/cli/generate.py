"""``burtorch generate``: words sampled from a model that ``burtorch train --out`` wrote."""

from __future__ import annotations

import argparse

import burtorch
from burtorch.cli import model_file
from burtorch.cli.arguments import count, positive, seed
from burtorch.cli.errors import InputError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="sample words from a trained model",
        description="Sample words from a model that 'burtorch train --out' wrote, and print them one a line.",
        epilog="example: burtorch generate runs/names --n 5 --prompt ma",
    )
    parser.add_argument("model", metavar="DIR_OR_FILE", help="the --out directory of a training, or the file in it")
    parser.add_argument("--n", type=count, default=20, metavar="N", help="how many words (default %(default)s)")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what every word begins with (default nothing)")
    parser.add_argument(
        "--temperature",
        type=positive,
        default=1.0,
        metavar="T",
        help="below 1 keeps to likely words, above 1 varies more (default %(default)s)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="the same seed gives the same words (default %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    model, vocabulary = model_file.load(args.model)
    for symbol in args.prompt:
        if symbol not in vocabulary[1:]:
            raise InputError(
                f"--prompt holds {symbol!r}, which the model never saw in training: "
                f"expected symbols of {vocabulary[1:]!r}"
            )
    for word in burtorch.text.sample(model, vocabulary, args.n, args.seed, args.temperature, prompt=args.prompt):
        print(word)
    return 0
