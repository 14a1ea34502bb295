//! Docstrings of `Function`, as Python shows them.

use std::ffi::CStr;

/// See the name.
pub const FUNCTION: &CStr =
    c"Function(body, *, dtype=\"float64\", optimize=\"exact\", max_paths=64, max_variants=16, max_nodes=10000000, audit=True)
--

A traced function: the body runs once, on Values, Vectors or Arrays, and is then replayed in Rust. Made by bt.function.

Args:
    body: a Python function of numbers, arrays, and lists, tuples and dicts of them. Its side effects
        (printing, counting) happen only during tracing. Keyword arguments are static: each value is
        traced separately.
    dtype: \"float64\" or \"float32\", the dtype of all computations.
    optimize: \"exact\" keeps every bit of values and gradients; \"fast\" computes equal operations once and sums in
        another order, within 2 (n-1) u sum |terms| for a sum of n terms.
    max_paths: the most paths through the body to keep, one per combination of outcomes of its comparisons.
    max_variants: the most combinations of argument shapes and static arguments to keep.
    max_nodes: the most operations of a trace.
    audit: whether the body is traced again from time to time, and compared, if it reads sources that cannot be watched.

Raises:
    TraceError: the body uses a traced Value as a plain number, keeps it, or is too large, with the line; or an
        argument is not a number, array, list, tuple or dict of numbers, with its position. It is a TypeError.

The first call costs about a microsecond per operation; later ones about a nanosecond, plus 0.1 us per call.

Example:
    >>> import burtorch as bt
    >>> @bt.function
    ... def f(a, b):
    ...     return (a * b + b**3) ** 2 / 2
    >>> f(-41.0, 2.0), f.value_and_grad(-41.0, 2.0)
    (2738.0, (2738.0, (-148.0, 2146.0)))
";

/// See the name.
pub const VALUE_AND_GRAD: &CStr = c"value_and_grad($self, /, *args, argnums=None, wanted=None, out=None, **static)
--

The value and its gradient, a new object each time: shaped like the argument, or a tuple of them for several.

Args:
    args: numbers, arrays, and lists, tuples and dicts of them.
    argnums: the position of an argument, or several, to differentiate with respect to; by default all. Only what these
        need is computed.
    wanted: instead of argnums, a range, ascending indices or a mask over the concatenated numbers of all arguments:
        their partials are returned in a new NumPy array. With arrays, gradients of arguments without a wanted number are skipped.
    out: float arrays of the gradients' shapes, in their containers, to write to; they are returned.
    static: keyword arguments of the function.

Raises:
    TraceError: the function does not return one Value.

One forward and one backward pass: about three to four times the cost of the value alone.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x, y: x * y)
    >>> f.value_and_grad(3.0, 4.0), f.value_and_grad(3.0, 4.0, argnums=0)
    ((12.0, (4.0, 3.0)), (12.0, 4.0))
";

/// See the name.
pub const GRAD: &CStr = c"grad($self, /, *args, argnums=None, wanted=None, out=None, **static)
--

The gradient alone; arguments as for value_and_grad().

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x: x.sin()).grad(0.0)
    1.0
";

/// See the name.
pub const BIND: &CStr = c"bind($self, x, grad=None, /)
--

A call without conversions, which reads its arguments from x, writes the gradient to grad, and returns the value.

Args:
    x: a contiguous one-dimensional float64 array: the one array argument of the function, or one number for each
        of its arguments; or a Tensor of one axis, whose values are read in place. It is kept alive, and read at every call.
    grad: an array of the same kind to write to; None for values only.

Returns:
    A BoundFunction; its calls take no arguments and allocate only the returned float.

Raises:
    TypeError, ValueError: unsuitable arrays.

Example:
    >>> import array
    >>> import burtorch as bt
    >>> f = bt.function(lambda x, y: x * y)
    >>> x, grad = array.array(\"d\", [3.0, 4.0]), array.array(\"d\", [0.0, 0.0])
    >>> bound = f.bind(x, grad)
    >>> bound(), list(grad)
    (12.0, [4.0, 3.0])
";

/// See the name.
pub const TRACE: &CStr = c"trace($self, /, *args, **static)
--

Trace the function at these arguments, unless a trace exists; returns the function.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x * x).trace(1.0)
    >>> f.stats()[\"traced\"]
    1
";

/// See the name.
pub const COMPILE: &CStr = c"compile($self, /, *args, **static)
--

Trace the function at these arguments and plan its program now, rather than at its second call; returns the function.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x * x).compile(1.0)
    >>> f(3.0), f.stats()[\"traced\"]
    (9.0, 1)
";

/// See the name.
pub const STATS: &CStr = c"stats($self, /)
--

Counts, as a dict: traces made, variants and paths kept, paths and variants dropped, replays stopped by a guard,
invalidations of all traces by a changed constant, bytes in use.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x if x > 0 else -x)
    >>> f(2.0), f(-3.0), f.stats()[\"traced\"], f.stats()[\"paths\"]
    (2.0, 3.0, 2, 2)
";

/// See the name.
pub const FORGET: &CStr = c"forget($self, /)
--

Drop all traces; the next call traces again. For a body that depends on unwatched sources, such as attributes that a class
computes.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x * x).trace(1.0)
    >>> f.forget()
    >>> f.stats()[\"paths\"]
    0
";

/// See the name.
pub const AUDIT: &CStr = c"audit($self, /)
--

Trace the body again at the arguments of each trace, and compare constants and structure.

If there is a difference, all traces are replaced, and a StaleFunctionWarning says what has changed.

Returns:
    True if every trace was right.

Raises:
    TraceError: the body reads files, draws random numbers, writes, or changes its own inputs.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x * x).trace(1.0)
    >>> f.audit()
    True
";

/// See the name.
pub const VJP: &CStr = c"vjp($self, /, *args_then_weights, **static)
--

The result, and the gradient of its numbers' sum weighted by weights of the same shape.

Args:
    args_then_weights: the arguments, then the weights.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x, y: [x * y, x + y])
    >>> f.vjp(3.0, 4.0, [1.0, 10.0])
    ([12.0, 7.0], (14.0, 13.0))
";

/// See the name.
pub const JVP: &CStr = c"jvp($self, /, *args_then_direction, **static)
--

The result, and its derivative along a direction.

Args:
    args_then_direction: the arguments, then the direction, with the same number and shapes.

About twice to two and a half times the cost of the value.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * y).jvp(3.0, 4.0, 1.0, 10.0)
    (12.0, 34.0)
";

/// See the name.
pub const HVP: &CStr = c"hvp($self, /, *args_then_direction, argnums=None, **static)
--

The Hessian times a direction, shaped like the arguments: f.hvp(x, v), as scipy.optimize expects for hessp=. With argnums, the
Hessian is by those arguments, and the arguments are followed by a direction for each of these.

Forward over reverse: about twice the cost of a gradient, whatever the number of arguments.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * x * y).hvp(3.0, 4.0, 1.0, 0.0)
    (8.0, 6.0)
";

/// See the name.
pub const HESSIAN: &CStr = c"hessian($self, /, *args, argnums=None, out=None, **static)
--

The dense Hessian, a NumPy array with one row and column per number in the arguments, in order.

With argnums, the Hessian by those arguments, in the shapes of bt.hessian.

Forward over reverse on eight columns at a time. out: an array, or arrays in the containers of the result, to write to.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * x * y).hessian(3.0, 4.0).tolist()
    [[8.0, 6.0], [6.0, 0.0]]
";

/// See the name.
pub const JACOBIAN: &CStr = c"jacobian($self, /, *args, argnums=None, out=None, **static)
--

The Jacobian, a NumPy array with one row per returned number and one column per number in the arguments, in
order; a single row without that axis for a function that returns one Value. For a function traced with Arrays, an array of the
result's shape followed by the argument's, for each result and each argument, in their containers. With argnums, by those
arguments, in the shapes of `bt.jacobian`.

Eight columns, or eight rows, at a time, whichever is cheaper. out: an array, or arrays in the containers of the result.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: [x * y, x + y]).jacobian(3.0, 4.0).tolist()
    [[4.0, 3.0], [1.0, 1.0]]
";

/// See the name.
pub const HESSIAN_SPARSITY: &CStr = c"hessian_sparsity($self, /, *args, argnums=None, **static)
--

The second derivatives that can differ from zero, as a scipy.sparse matrix of ones, found by propagation. argnums: as
for sparse_hessian().
";

/// See the name.
pub const JACOBIAN_SPARSITY: &CStr = c"jacobian_sparsity($self, /, *args, argnums=None, **static)
--

The dependencies of results on arguments, as a scipy.sparse matrix of ones, found by propagation. argnums: as for
sparse_hessian().
";

/// See the name.
pub const SPARSE_HESSIAN: &CStr = c"sparse_hessian($self, /, *args, argnums=None, out=None, **static)
--

The Hessian as a scipy.sparse matrix, computed from the directions of a column colouring. After some calls, separate operations
compute the entries where these take less time, with the same bits. argnums: by those arguments, in their order. out: a matrix with
this pattern from an earlier call, whose entries are replaced.

Raises:
    ImportError: SciPy is not installed.
";

/// See the name.
pub const SPARSE_JACOBIAN: &CStr = c"sparse_jacobian($self, /, *args, argnums=None, out=None, **static)
--

The Jacobian as a scipy.sparse matrix, computed from the directions of a column colouring. argnums, out: as for sparse_hessian().

Raises:
    ImportError: SciPy is not installed.
";

/// See the name.
pub const MAP: &CStr = c"map($self, /, *arrays, threads=1, out=None, stop=None, deadline=None, **static)
--

The value on every row, in vector lanes, without the GIL.

Args:
    arrays: one array per argument, whose first axis counts rows; or one array of two dimensions whose rows are the
        arguments. Any float or integer type, any strides.
    threads: the number of threads that share the rows; results do not depend on it.
    out: an array of floats for the results.
    stop, deadline: a Stop, and seconds from now: when it is set or they have passed, the call ends with a StoppedError. Some rows
        of out may have been written.

Returns:
    One number per row (a row of numbers if the function returns several), of the arguments' float type.

A few nanoseconds per row for ten to thirty operations.

Example:
    >>> import numpy as np
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * y).map(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [2.0, 12.0]
";

/// See the name.
pub const MAP_VALUE_AND_GRAD: &CStr =
    c"map_value_and_grad($self, /, *arrays, threads=1, out=None, stop=None, deadline=None, **static)
--

The value and the gradient on every row: an array of values, and an array of gradients shaped like the arguments (a
tuple of them for several).

As map(); out is a pair of an array and an array, or a tuple of them.

Example:
    >>> import numpy as np
    >>> import burtorch as bt
    >>> f = bt.function(lambda x, y: x * y)
    >>> values, grads = f.map_value_and_grad(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> values.tolist(), grads.tolist()
    ([2.0, 12.0], [[2.0, 1.0], [4.0, 3.0]])
";

/// See the name.
pub const REDUCE: &CStr = c"__reduce__($self, /)
--

Functions are pickled as their traces; an unpickled function has no body.
";

/// See the name.
pub const COPY: &CStr = c"__copy__($self, /)
--

The Function itself.
";

/// See the name.
pub const DEEPCOPY: &CStr = c"__deepcopy__($self, memo, /)
--

A Function of the copied body: of the method of a copied object, or the Function itself.
";

/// See the name.
pub const SAVE: &CStr = c"save($self, path, /)
--

Write the traces for the last shape of arguments to a file, completely or not at all; bt.load_function() reads it.

Args:
    path: the file to create or replace.

Raises:
    TraceError: nothing has been traced.
    TypeError: an argument or a result is a named tuple, whose class cannot be saved.
    OSError: the file cannot be written.

The file contains programs and shapes, the Parameters that they read and a checksum, but no code.
";

/// See the name.
pub const PROGRAM: &CStr = c"The Program of the path used last.";

/// See the name.
pub const BOUND: &CStr = c"A function bound to arrays; made by Function.bind().";

/// See the name.
pub const VALUE_AND_PARAM_GRAD: &CStr = c"value_and_param_grad($self, /, *args, **static)
--

The value, and its gradient with respect to all Parameters that the function reads: a FlatArray over `params.grads`, which
the next call overwrites, as with an Oracle; a tuple of them if the function reads several Parameters.

The function is traced with arrays. It reads Parameters and their tensors by reference: their numbers are read at each
call. Gradients of frozen numbers do not change.

Args:
    args: numbers, arrays, tensors, and lists, tuples and dicts of them.
    static: keyword arguments of the function.

Raises:
    TraceError: the function does not return one float, or reads no Parameters.

Inside another function traced with arrays the gradients are Arrays, and `params.grads` does not change.

Example:
    >>> import burtorch as bt
    >>> params = bt.Parameters(dtype=\"float64\")
    >>> w = params.tensor(2, init=3.0)
    >>> f = bt.function(lambda x: (x * w).sum())
    >>> import numpy as np
    >>> value, grad = f.value_and_param_grad(np.array([1.0, 2.0]))
    >>> value, list(grad)
    (9.0, [1.0, 2.0])
";
