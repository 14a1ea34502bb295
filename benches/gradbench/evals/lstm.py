"""The loss of a recurrent network with diagonal weights that predicts the next character, and its gradient."""

import numpy as np

import burtorch as bt


def loss(weights, extra, state, sequence):
    layers = weights.shape[0] // 2
    size = weights.shape[1] // 4
    gates = np.reshape(weights, (layers, 2, 4, size))
    hidden = [state[2 * i] for i in range(layers)]
    cell = [state[2 * i + 1] for i in range(layers)]
    outputs = []
    for x in sequence[:-1] * extra[0]:
        y = x
        for i in range(layers):
            (forget, ingate, outgate, change), bias = gates[i, 0], gates[i, 1]
            kept = bt.sigmoid(y * forget + bias[0])
            taken = bt.sigmoid(hidden[i] * ingate + bias[1])
            shown = bt.sigmoid(y * outgate + bias[2])
            cell[i] = cell[i] * kept + taken * np.tanh(hidden[i] * change + bias[3])
            hidden[i] = y = shown * np.tanh(cell[i])
        outputs.append(y)
    predicted = np.stack(outputs) * extra[1] + extra[2]
    # The suite adds 2 to the sum of exponentials and does not shift by the maximum.
    logits = predicted - np.log(np.sum(np.exp(predicted), axis=1, keepdims=True) + 2.0)
    return -np.mean(sequence[1:] * logits)


gradient = bt.grad(loss, argnums=(0, 1))

FUNCTIONS = {"objective": bt.function(loss), "jacobian": gradient}


def prepare(given):
    return tuple(np.array(given[name]) for name in ("main_params", "extra_params", "state", "sequence"))


def answer(result):
    return np.concatenate([np.ravel(part) for part in result]).tolist() if isinstance(result, tuple) else float(result)
