"""The evals of GradBench as burtorch programs, one module each.

A module has `prepare`, which creates the arguments of its functions from the input of a message; `FUNCTIONS` by
name; and `answer`, if the answer differs from the result.
"""

NAMES = ("ba", "det", "gmm", "hello", "kmeans", "llsq", "lse", "lstm", "ode", "particle", "saddle")
