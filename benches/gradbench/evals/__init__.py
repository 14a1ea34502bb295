"""The evals of GradBench as programs of burtorch, one module each.

A module has `prepare`, which makes the arguments of its functions from the input of a message, `FUNCTIONS` by
name, and where the answer is not the result itself, `answer`.
"""

NAMES = ("ba", "det", "gmm", "hello", "kmeans", "llsq", "lse", "lstm", "ode", "particle", "saddle")
