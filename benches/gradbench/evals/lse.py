"""The logarithm of a sum of exponentials, with the maximum taken out, and its gradient."""

import numpy as np

import burtorch as bt


def log_sum_exp(x):
    largest = np.max(x)
    return largest + np.log(np.sum(np.exp(x - largest)))


FUNCTIONS = {"primal": bt.function(log_sum_exp), "gradient": bt.grad(log_sum_exp)}


def prepare(given):
    return (np.array(given["x"]),)
