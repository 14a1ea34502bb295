//! Docstrings of `Function`, as Python shows them.

use std::ffi::CStr;

/// See the name.
pub const FUNCTION: &CStr =
    c"Function(body, *, dtype=\"float64\", optimize=\"exact\", max_paths=64, max_variants=16, max_nodes=10000000, audit=True)
--

A traced function: the body runs once, on Values, Vectors or Arrays, and is replayed in Rust from then on. Made by bt.function.

Args:
    body: a Python function of numbers, arrays, and lists, tuples and dicts of them. What it does besides computing
        (printing, counting) happens while it is traced and not again. Keyword arguments are static: each value is
        traced apart.
    dtype: \"float64\" or \"float32\", of everything computed.
    optimize: \"exact\" keeps every bit of values and gradients; \"fast\" computes equal operations once and sums in
        another order, within 2 (n-1) u sum |terms| for a sum of n terms.
    max_paths: ways through the body that are kept, by what its comparisons answered.
    max_variants: shapes of arguments and static arguments that are kept.
    max_nodes: operations that a trace may take.
    audit: whether the body is traced again from time to time, and compared, where it reads what cannot be watched.

Raises:
    TraceError: the body takes a traced Value for a plain number, keeps it, or is too large, with the line; or an
        argument is no number, array, list, tuple or dict of numbers, with its place. It is a TypeError.

The first call costs about a microsecond per operation; later ones about a nanosecond, plus 0.1 us for the call.

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
    argnums: the place of an argument, or several, to return gradients of; all by default. No more is computed than these need.
    wanted: a range, ascending indices or a mask over the numbers of all arguments, one after another, in place of argnums:
        their partials come in a new NumPy array. With arrays what arguments without such a number need is left out.
    out: arrays of floats of the gradients' shapes, in their containers, to write them to; what is returned holds these.
    static: keyword arguments of the function.

Raises:
    TraceError: the function does not return one Value.

One pass forward and one backward: about three to four times the value alone.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x, y: x * y)
    >>> f.value_and_grad(3.0, 4.0), f.value_and_grad(3.0, 4.0, argnums=0)
    ((12.0, (4.0, 3.0)), (12.0, 4.0))
";

/// See the name.
pub const GRAD: &CStr = c"grad($self, /, *args, argnums=None, wanted=None, out=None, **static)
--

The gradient alone; see value_and_grad(), also for out=.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x: x.sin()).grad(0.0)
    1.0
";

/// See the name.
pub const BIND: &CStr = c"bind($self, x, grad=None, /)
--

A call without conversions: it reads its arguments from x, writes the gradient to grad, and returns the value.

Args:
    x: a contiguous array of float64 in one dimension: the one array argument of the function, or one number for each
        of its arguments. It is kept alive, and read at every call.
    grad: likewise, to be written; None for values only.

Returns:
    A BoundFunction; calling it takes no arguments and allocates nothing but the float it returns.

Raises:
    TypeError, ValueError: the arrays are not such.

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

Trace the function at these arguments if that has not been done; returns the function.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x * x).trace(1.0)
    >>> f.stats()[\"traced\"]
    1
";

/// See the name.
pub const STATS: &CStr = c"stats($self, /)
--

Counts, as a dict: traces made, variants and paths kept, paths and variants dropped, replays that a guard stopped,
times that a changed constant made all traces void, bytes in use.

Example:
    >>> import burtorch as bt
    >>> f = bt.function(lambda x: x if x > 0 else -x)
    >>> f(2.0), f(-3.0), f.stats()[\"traced\"], f.stats()[\"paths\"]
    (2.0, 3.0, 2, 2)
";

/// See the name.
pub const FORGET: &CStr = c"forget($self, /)
--

Drop all traces; the next call traces again. For a body that depends on what is not watched, such as attributes that a class
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

Where something is different all traces are replaced, and a StaleFunctionWarning says what has changed.

Returns:
    True if every trace was right.

Raises:
    TraceError: the body was seen to read files, draw random numbers, write, or change what it reads.

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
    args_then_direction: the arguments, then as many of the same shapes: the direction.

About twice to two and a half times the cost of the value.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * y).jvp(3.0, 4.0, 1.0, 10.0)
    (12.0, 34.0)
";

/// See the name.
pub const HVP: &CStr = c"hvp($self, /, *args_then_direction, **static)
--

The Hessian times a direction, shaped like the arguments: f.hvp(x, v), as scipy.optimize takes it for hessp=.

Forward over reverse: about twice the cost of a gradient, whatever the number of arguments.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * x * y).hvp(3.0, 4.0, 1.0, 0.0)
    (8.0, 6.0)
";

/// See the name.
pub const HESSIAN: &CStr = c"hessian($self, /, *args, argnums=None, out=None, **static)
--

The dense Hessian, a NumPy array with a row and a column for each number in the arguments, in order.

With argnums, the Hessian by those arguments, in the shapes that bt.hessian gives.

Forward over reverse on eight columns at a time. out: an array, or arrays in the containers of the result, to write to.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: x * x * y).hessian(3.0, 4.0).tolist()
    [[8.0, 6.0], [6.0, 0.0]]
";

/// See the name.
pub const JACOBIAN: &CStr = c"jacobian($self, /, *args, argnums=None, out=None, **static)
--

The Jacobian, a NumPy array with a row for each number returned and a column for each number in the arguments, in
order; one row without an axis for a function that returns one Value. Of a function that is traced with Arrays: an array of the
result's shape and then the argument's, for each result and each argument, in their containers. With argnums, by those arguments, in the
shapes that `bt.jacobian` gives.

Eight columns, or eight rows, at a time: whichever costs less. out: an array, or arrays in the containers of the result.

Example:
    >>> import burtorch as bt
    >>> bt.function(lambda x, y: [x * y, x + y]).jacobian(3.0, 4.0).tolist()
    [[4.0, 3.0], [1.0, 1.0]]
";

/// See the name.
pub const HESSIAN_SPARSITY: &CStr = c"hessian_sparsity($self, /, *args, **static)
--

Which second derivatives can differ from zero, as a scipy.sparse matrix of ones; found by propagation, not by values.
";

/// See the name.
pub const JACOBIAN_SPARSITY: &CStr = c"jacobian_sparsity($self, /, *args, **static)
--

Which results depend on which arguments, as a scipy.sparse matrix of ones; found by propagation, not by values.
";

/// See the name.
pub const SPARSE_HESSIAN: &CStr = c"sparse_hessian($self, /, *args, out=None, **static)
--

The Hessian as a scipy.sparse matrix, from as many directions as colouring its columns needs. After some calls the entries are
computed by operations of their own where these take less time, with the same bits. out: a matrix with this pattern, as an earlier call
gave it, whose entries are replaced.

Raises:
    ImportError: SciPy is not installed.
";

/// See the name.
pub const SPARSE_JACOBIAN: &CStr = c"sparse_jacobian($self, /, *args, out=None, **static)
--

The Jacobian as a scipy.sparse matrix, from as many directions as colouring its columns needs. out: as of sparse_hessian().

Raises:
    ImportError: SciPy is not installed.
";

/// See the name.
pub const MAP: &CStr = c"map($self, /, *arrays, threads=1, out=None, stop=None, deadline=None, **static)
--

The value on every row, in vector lanes, without the interpreter lock.

Args:
    arrays: one array per argument, whose first axis counts rows; or one array of two dimensions whose rows are the
        arguments. Any float or integer type, any strides.
    threads: how many threads share the rows; results do not depend on it.
    out: an array of floats for the results.
    stop, deadline: a Stop, and seconds from now: once it is set or they have passed the call ends with a StoppedError. Rows of
        out may be written then.

Returns:
    One number per row (a row of numbers where the function returns several), of the arguments' float type.

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

Functions are pickled as their traces: what is unpickled has no body.
";

/// See the name.
pub const SAVE: &CStr = c"save($self, path, /)
--

Write the traces for the shape of arguments used last to a file, whole or not at all; bt.load_function() reads it.

Args:
    path: the file, made or replaced.

Raises:
    TraceError: nothing has been traced.
    TypeError: an argument or a result is a named tuple, whose class a file does not hold.
    OSError: the file cannot be written.

The file holds programs and shapes, the Parameters that they read, no code, and a checksum.
";

/// See the name.
pub const PROGRAM: &CStr = c"The Program of the path used last.";

/// See the name.
pub const BOUND: &CStr = c"A function on arrays that it was bound to; made by Function.bind().";

/// See the name.
pub const VALUE_AND_PARAM_GRAD: &CStr = c"value_and_param_grad($self, /, *args, **static)
--

The value, and its gradient by all Parameters that the function reads: a FlatArray over `params.grads`, which the next call
overwrites, as that of an Oracle; a tuple of them where the function reads several Parameters.

The function is traced with arrays. It reads Parameters and tensors of them by reference: their numbers are read at each
call. Gradients of frozen numbers are left as they are.

Args:
    args: numbers, arrays, tensors, and lists, tuples and dicts of them.
    static: keyword arguments of the function.

Raises:
    TraceError: the function does not return one float, or reads no Parameters.

Inside of another function that is traced with arrays the gradients are Arrays, and `params.grads` stays as it is.

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
