"""Words as training data for character models, and words sampled from such models.

Symbol 0 of every vocabulary is the end mark, written ``"\\n"``.
"""

from burtorch._core import WordContexts, sample

__all__ = ["WordContexts", "sample"]
