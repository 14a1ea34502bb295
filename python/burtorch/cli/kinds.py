"""The kinds of models that the command line trains.

A kind has its defaults, reads its data, builds its model from sizes,
and generates text from a trained model. It knows nothing of training or of model files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import burtorch

if TYPE_CHECKING:
    import argparse

    from burtorch.nn import GPT, CharMLP
    from burtorch.text import TextWindows, WordContexts

    AnyModel = CharMLP | GPT
    AnyData = WordContexts | TextWindows

N_WORDS = 20
N_CHARACTERS = 200


class CharMlpKind:
    """Words, one symbol at a time."""

    name = "char-mlp"
    sizes = ("context", "embedding", "hidden")
    options: ClassVar[dict[str, int | float | str]] = {
        "context": 16,
        "embedding": 64,
        "hidden": 64,
        "batch": 32,
        "steps": 10_000,
        "lr": 0.1,
        "optimizer": "sgd",
    }
    places = "contexts"

    def read(self, args: argparse.Namespace) -> tuple[AnyData, dict[str, Any]]:
        words = burtorch.data.read_words(args.data) if args.data else burtorch.data.default_words()
        data = burtorch.text.WordContexts(words, context=args.context, holdout=0.1, seed=args.seed)
        return data, {"words": len(words)}

    def build(self, parameters: burtorch.Parameters, vocab: int, sizes: dict[str, int]) -> AnyModel:
        context, embedding, hidden = (sizes[name] for name in self.sizes)
        return burtorch.nn.CharMLP(parameters, vocab, context, embedding, hidden)

    def is_vocabulary(self, symbols: str) -> bool:
        return symbols.startswith("\n")

    def prompt_symbols(self, vocabulary: str) -> str:
        return vocabulary[1:]

    def write(
        self, model: AnyModel, vocabulary: str, n: int, seed: int, temperature: float = 1.0, prompt: str = ""
    ) -> list[str]:
        """``n`` words."""
        assert isinstance(model, burtorch.nn.CharMLP)
        return burtorch.text.sample(model, vocabulary, n, seed, temperature, prompt)

    def samples(self, model: AnyModel, vocabulary: str, seed: int) -> list[str]:
        return self.write(model, vocabulary, N_WORDS, seed)


class GptKind:
    """Running text, a window of symbols at a time."""

    name = "gpt"
    sizes = ("context", "layers", "heads", "width")
    options: ClassVar[dict[str, int | float | str]] = {
        "context": 8,
        "layers": 6,
        "heads": 6,
        "width": 24,
        "batch": 64,
        "steps": 3_000,
        "lr": 3e-3,
        "optimizer": "adamw",
    }
    places = "windows"

    def read(self, args: argparse.Namespace) -> tuple[AnyData, dict[str, Any]]:
        text = burtorch.data.read_text(args.data) if args.data else "\n".join(burtorch.data.default_words())
        data = burtorch.text.TextWindows(text, context=args.context, holdout=0.1, seed=args.seed)
        return data, {"characters": len(text)}

    def build(self, parameters: burtorch.Parameters, vocab: int, sizes: dict[str, int]) -> AnyModel:
        context, layers, heads, width = (sizes[name] for name in self.sizes)
        return burtorch.nn.GPT(parameters, vocab, context, layers, heads, width)

    def is_vocabulary(self, symbols: str) -> bool:
        return list(symbols) == sorted(symbols) and bool(symbols)

    def prompt_symbols(self, vocabulary: str) -> str:
        return vocabulary

    def write(
        self, model: AnyModel, vocabulary: str, n: int, seed: int, temperature: float = 1.0, prompt: str = ""
    ) -> list[str]:
        """One text of ``n`` characters after the prompt."""
        assert isinstance(model, burtorch.nn.GPT)
        start = prompt or ("\n" if "\n" in vocabulary else vocabulary[0])
        return [burtorch.text.continue_text(model, vocabulary, n, start, seed, temperature)]

    def samples(self, model: AnyModel, vocabulary: str, seed: int) -> list[str]:
        return self.write(model, vocabulary, N_CHARACTERS, seed)


KINDS: dict[str, CharMlpKind | GptKind] = {kind.name: kind for kind in (CharMlpKind(), GptKind())}
