"""Random states of small ridge problems, and the expectation of a theorem's quantity over all outcomes of a step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from burtorch import opt

N, D = 4, 3
STATES = 1000
SLACK = 1e-12


def ridge(seed, nonconvex=0.0):
    """A problem with distinct eigenvalues, and numbers for states."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N, D)) * rng.choice([0.3, 1.0, 3.0], size=(N, 1))
    return opt.least_squares(features, rng.normal(size=N), l2=0.1, nonconvex=nonconvex), rng


class Aligned:
    """Generates states whose vectors are multiples of (1, 1, 1), which TopK changes most."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.uniform = rng.uniform
        self.normal = lambda size: rng.normal(size=(*np.atleast_1d(size)[:-1], 1)) * np.ones(np.atleast_1d(size)[-1])


def aligned(curvatures, l2, d=D):
    """A problem with its minimum at 0, these curvatures of its terms along (1, 1, 1), and l2 in all directions."""
    features = np.sqrt(np.array(curvatures) / d)[:, None] * np.ones(d)
    return opt.least_squares(features, np.zeros(N), l2=l2), Aligned()


class Steps:
    """All outcomes of a method's step from a state: each has a probability, values that replace draws and, if
    batches of clients are drawn, the round of these draws."""

    def __init__(self, method):
        self.method = method
        self.runner = method._runner
        self.cost = self.runner.cost

    def put(self, round=0, **arrays):
        self.arrays = arrays
        self.runner.load(arrays, round, self.cost)

    def phi(self):
        loss, grad = self.runner.evaluate()
        return self.method.lyapunov(loss, grad)

    def expected(self, outcomes):
        """The expectation of the Lyapunov quantity after a step."""
        total = 0.0
        for probability, choices, *round in outcomes:
            self.put(*round, **self.arrays)
            self.runner.step(self.method.gamma, *choices)
            total += probability * self.phi()
        return total


def subsets(tau):
    """Every batch of `Nice(tau)`."""
    batches = list(itertools.combinations(range(N), tau))
    return [(1.0 / len(batches), list(batch)) for batch in batches]


def with_coin(batches, p):
    return [(q * w, (batch, coin)) for w, batch in batches for coin, q in ((True, p), (False, 1.0 - p)) if q > 0.0]


THIRDS = [1 / 6, 3 / 6, 5 / 6]


def rand_k(n_clients):
    draws = list(itertools.product(THIRDS, repeat=n_clients))
    return [(1 / len(draws), (None, None, [[u] for u in us])) for us in draws]


def excesses(case, step, problems=None):
    """The relative excess over the bound, in units of Phi, at each state.

    A case is a function, the factor of the non-convex term, and arguments; the function returns a method, states,
    outcomes, and a bound on the expectation given (Phi, |grad f|^2).
    """
    make, nonconvex, arguments = case
    problems = [ridge(seed, nonconvex) for seed in range(4)] if problems is None else problems
    for problem, rng in problems:
        method, state, outcomes, bound = make(problem, rng, step, *arguments)
        assert sum(outcome[0] for outcome in outcomes) == pytest.approx(1.0, abs=1e-14)
        steps = Steps(method)
        for _ in range(STATES // len(problems)):
            steps.put(**state())
            phi, grad = steps.phi(), steps.runner.evaluate()[1]
            yield (steps.expected(outcomes) - bound(phi, float(grad @ grad))) / phi
