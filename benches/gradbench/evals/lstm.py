"""The loss of a recurrent network with diagonal weights that predicts the next character, and its gradient."""

import numpy as np

import burtorch as bt


def loss(weights, extra, state, sequence):
    layers = weights.shape[0] // 2
    size = weights.shape[1] // 4
    gates = np.reshape(weights, (layers, 2, 4, size))

    def step(carry, x):
        hidden, cell, y = [], [], x
        for i, (before, kept_before) in enumerate(zip(*carry)):
            (forget, ingate, outgate, change), bias = gates[i, 0], gates[i, 1]
            kept = bt.sigmoid(y * forget + bias[0])
            taken = bt.sigmoid(before * ingate + bias[1])
            shown = bt.sigmoid(y * outgate + bias[2])
            cell.append(kept_before * kept + taken * np.tanh(before * change + bias[3]))
            hidden.append(y := shown * np.tanh(cell[i]))
        return (hidden, cell), y

    start = ([state[2 * i] for i in range(layers)], [state[2 * i + 1] for i in range(layers)])
    outputs = bt.scan(step, start, sequence[:-1] * extra[0])[1]
    predicted = outputs * extra[1] + extra[2]
    # The suite adds 2 to the sum of exponentials and does not shift by the maximum.
    logits = predicted - np.log(np.sum(np.exp(predicted), axis=1, keepdims=True) + 2.0)
    return -np.mean(sequence[1:] * logits)


gradient = bt.grad(loss, argnums=(0, 1))

FUNCTIONS = {"objective": bt.function(loss), "jacobian": gradient}


def prepare(given):
    return tuple(np.array(given[name]) for name in ("main_params", "extra_params", "state", "sequence"))


def answer(result):
    return np.concatenate([np.ravel(part) for part in result]).tolist() if isinstance(result, tuple) else float(result)
