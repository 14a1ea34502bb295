"""The square of a number and its derivative."""

import burtorch as bt


@bt.function
def square(x):
    return x * x


FUNCTIONS = {"square": square, "double": square.grad}


def prepare(number):
    return (float(number),)
