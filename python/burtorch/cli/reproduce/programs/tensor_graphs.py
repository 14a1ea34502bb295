"""Tensor frameworks on one scalar expression: value and both partials at one point, float64 unless said.

    torch              eager, backward()
    torchscript        the expression traced, then backward()
    torch-compile      value and gradient compiled as one
    jax                jit of value_and_grad, called with two Python floats
    jax-eager          value_and_grad without jit
    tensorflow         eager, GradientTape
    tensorflow-graph   tf.function of the same
    tflite             the same converted, float32, called through its interpreter
    mlx                value_and_grad on the CPU

The jax programs switch float64 on for the whole process: measure other models in another one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .graphs import EXPRESSIONS, POINTS

Answer = tuple[float, float, float]
Made = tuple[Callable[[], Any], Callable[[], Answer]]


def _torch(graph: str, script: bool = False) -> Made:
    import torch

    torch.set_num_threads(1)
    expression = EXPRESSIONS[graph]
    a, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in POINTS[graph])
    function = lambda a, b: expression(a, b, torch.relu)  # noqa: E731
    if script:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch recommends torch.compile, which is a separate rival
            function = torch.jit.trace(function, (a, b))

    def step() -> Any:
        a.grad = b.grad = None
        g = function(a, b)
        g.backward()
        return g

    def read() -> Answer:
        return step().item(), a.grad.item(), b.grad.item()

    return step, read


def _torchscript(graph: str) -> Made:
    return _torch(graph, script=True)


def _torch_compile(graph: str) -> Made:
    import torch

    torch.set_num_threads(1)
    expression = EXPRESSIONS[graph]
    point = [torch.tensor(x, dtype=torch.float64) for x in POINTS[graph]]
    function = torch.compile(
        torch.func.grad_and_value(lambda a, b: expression(a, b, torch.relu), argnums=(0, 1)), fullgraph=True
    )

    def read() -> Answer:
        (da, db), value = function(*point)
        return value.item(), da.item(), db.item()

    return lambda: function(*point), read


def _jax_function(graph: str) -> Any:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_x64", True)
    expression = EXPRESSIONS[graph]
    return jax, jax.value_and_grad(lambda a, b: expression(a, b, jax.nn.relu), argnums=(0, 1))


def _called(function: Callable[..., Any], *point: Any) -> Made:
    def read() -> Answer:
        value, (da, db) = function(*point)
        return float(value), float(da), float(db)

    return lambda: function(*point), read


def _jax(graph: str) -> Made:
    jax, function = _jax_function(graph)
    return _called(jax.jit(function), *POINTS[graph])


def _jax_eager(graph: str) -> Made:
    return _called(_jax_function(graph)[1], *POINTS[graph])


def _tensorflow_function(graph: str, dtype: str) -> Any:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    expression, kind = EXPRESSIONS[graph], tf.as_dtype(dtype)

    def function(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            value = expression(a, b, lambda x: tf.maximum(x, 0))  # TFLite has no gradient of relu
        return value, tape.gradient(value, (a, b))

    return tf, function, [tf.constant(x, kind) for x in POINTS[graph]]


def _tensorflow(graph: str) -> Made:
    _, function, point = _tensorflow_function(graph, "float64")
    return _called(function, *point)


def _tensorflow_graph(graph: str) -> Made:
    tf, function, point = _tensorflow_function(graph, "float64")
    return _called(tf.function(function), *point)


def _tflite(graph: str) -> Made:
    import numpy as np

    tf, function, _ = _tensorflow_function(graph, "float32")
    module = tf.Module()  # signatures have names only in a module
    module.function = tf.function(lambda a, b: dict(zip("vxy", tf.nest.flatten(function(a, b)))))
    concrete = module.function.get_concrete_function(*(tf.TensorSpec([], tf.float32, name) for name in "ab"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow recommends a successor of its interpreter
        model = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()
        interpreter = tf.lite.Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    run = interpreter.get_signature_runner()
    a, b = (np.float32(x) for x in POINTS[graph])

    def read() -> Answer:
        found = run(a=a, b=b)
        return float(found["v"]), float(found["x"]), float(found["y"])

    return lambda: run(a=a, b=b), read


def _mlx(graph: str) -> Made:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    expression = EXPRESSIONS[graph]
    point = [mx.array(x, dtype=mx.float64) for x in POINTS[graph]]
    differentiated = mx.value_and_grad(lambda a, b: expression(a, b, lambda x: mx.maximum(x, 0)), argnums=(0, 1))

    def function(a: Any, b: Any) -> Any:
        found = differentiated(a, b)
        mx.eval(found)  # evaluation is lazy
        return found

    return _called(function, *point)


MAKERS: dict[str, Callable[[str], Made]] = {
    "torch": _torch,
    "torchscript": _torchscript,
    "torch-compile": _torch_compile,
    "jax": _jax,
    "jax-eager": _jax_eager,
    "tensorflow": _tensorflow,
    "tensorflow-graph": _tensorflow_graph,
    "tflite": _tflite,
    "mlx": _mlx,
}
