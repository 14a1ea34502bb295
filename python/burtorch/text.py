"""Words and running text as training data, and text generation by trained models.

Symbol 0 of a vocabulary of words is the end mark, written ``"\\n"``; a text's vocabulary is its characters.
"""

from burtorch._core import TextWindows, WordContexts, continue_text, sample

__all__ = ["TextWindows", "WordContexts", "continue_text", "sample"]
