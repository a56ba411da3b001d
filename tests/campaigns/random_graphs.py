#!/usr/bin/env python3
"""Writes random graphs with TensorFlow's answers, for random_graphs_test to compare ours with.

    tfvenv/bin/python tests/campaigns/random_graphs.py --count=2000 --seed=1 --out=DIR
    MONOGRAPH_RANDOM_GRAPHS=DIR build/bin/random_graphs_test

Each graph, one file, grows node by node from tensors that are fed by default: math, shapes, slices, products,
convolutions, variables of both kinds, optimizers, conds, loops (of both versions), arrays, functions, and gradients
through all of it. A node is kept if TensorFlow computes it, and its values are finite and moderate. Then the graph runs
again with inputs changed in their last bits: what TensorFlow's own answer does then is the tolerance (see README.md in
tests/golden). --ops lists how often each op came.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.experimental.output_all_intermediates(True)  # so that a loop that has run can get its gradient
v1.logging.set_verbosity(v1.logging.ERROR)

FLOATS = [tf.float32, tf.float32, tf.float32, tf.float64, tf.float16]
INTEGERS = [tf.int32, tf.int32, tf.int64, tf.uint8, tf.int8, tf.int16]
# Of the last bits: a little more than the type's own rounding.
NUDGE = {tf.float32: 3e-7, tf.float64: 1e-15, tf.float16: 2e-3}
LARGEST, MOST_ELEMENTS = 1e4, 4096


def session_config():
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


class Graph:
    """A random graph while it grows, and what its tensors are."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.values = np.random.RandomState(seed)
        self.tensors = []  # that later nodes may take
        self.known = {}  # tensor name: value
        self.inputs = []  # (name, value) of what is fed by default
        self.floats = []  # inputs that gradients are taken with respect to
        self.variables = []
        self.reads = []  # of variables
        self.updates = []
        self.depth = 0

    # ---- what an op may ask for

    def chance(self, probability):
        return self.random.random() < probability

    def shape(self, rank=None, most=5):
        rank = self.random.choice([0, 1, 1, 2, 2, 2, 3, 4]) if rank is None else rank
        return [self.random.choice([1, 2, 3, 4, most]) for _ in range(rank)]

    def array(self, dtype, shape):
        if dtype.is_floating:
            return np.asarray(self.values.uniform(-2, 2, shape), dtype.as_numpy_dtype)
        if dtype == tf.bool:
            return np.asarray(self.values.rand(*shape) < 0.5)
        low = 0 if dtype == tf.uint8 else -5
        return np.asarray(self.values.randint(low, 6, shape), dtype.as_numpy_dtype)

    def new_input(self, dtype, shape):
        """A tensor that is fed by default; sometimes its shape is told in part or not at all."""
        value = self.array(dtype, shape)
        seen = [None if self.chance(0.2) else size for size in shape]
        if self.chance(0.1):
            seen = None
        name = f"input{len(self.inputs)}"
        tensor = v1.placeholder_with_default(tf.constant(value, name=name + "/value"), seen, name=name)
        self.inputs.append((tensor.name, value))
        if dtype in (tf.float32, tf.float64):
            self.floats.append(tensor)
        return self.keep(tensor, value)

    def keep(self, tensor, value):
        self.tensors.append(tensor)
        self.known[tensor.name] = value
        return tensor

    def value(self, tensor):
        return self.known[tensor.name]

    def pick(self, dtypes=None, rank=None, shape=None):
        """A tensor that fits, of those that are there or a new input."""
        fits = [t for t in self.tensors
                if (dtypes is None or t.dtype in dtypes) and (rank is None or self.value(t).ndim in rank)
                and (shape is None or list(self.value(t).shape) == list(shape))]
        if fits and self.chance(0.85 if self.depth == 0 else 1.0):
            return self.random.choice(fits[-6:] if self.chance(0.5) else fits)
        if self.depth > 0:
            return tf.constant(self.array(self.random.choice(dtypes or FLOATS),
                                          shape if shape is not None else self.shape(self.random.choice(rank or [2]))))
        if shape is None:
            shape = self.shape(self.random.choice(rank) if rank else None)
        return self.new_input(self.random.choice(list(dtypes) if dtypes else FLOATS + INTEGERS), list(shape))

    @contextlib.contextmanager
    def inside(self):
        """While the nodes of a branch are made: nothing new is fed there."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def axes(self, rank):
        return self.random.sample(range(-rank, 0), self.random.randint(0, rank)) if rank else []

    def as_input(self, value, dtype=tf.int32):
        """A small operand, such as axes: a constant, or sometimes a tensor whose value is not known when shapes are."""
        constant = tf.constant(value, dtype=dtype)
        return v1.placeholder_with_default(constant, constant.shape) if self.chance(0.15) else constant


OPS = []


def op(weight=1):
    def add(function):
        OPS.append((weight, function))
        return function
    return add


# ---- element by element

UNARY = [tf.abs, tf.negative, tf.sign, tf.square, tf.zeros_like, tf.ones_like, tf.identity, tf.stop_gradient]
UNARY_FLOAT = [tf.exp, tf.tanh, tf.sigmoid, tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.softplus, tf.nn.leaky_relu,
               tf.floor, tf.math.ceil, tf.round, tf.sin, tf.cos, tf.nn.softmax, tf.nn.log_softmax, tf.math.log1p,
               tf.math.erf, tf.math.expm1, tf.atan, tf.nn.selu, tf.nn.softsign, tf.sinh, tf.math.asinh,
               tf.math.is_finite, tf.math.is_nan]
BINARY = [tf.add, tf.subtract, tf.multiply, tf.maximum, tf.minimum, tf.math.squared_difference]
COMPARISONS = [tf.less, tf.less_equal, tf.greater, tf.greater_equal, tf.equal, tf.not_equal]


@op(4)
def unary(g):
    return g.random.choice(UNARY)(g.pick(FLOATS + INTEGERS))


@op(6)
def unary_float(g):
    return g.random.choice(UNARY_FLOAT)(g.pick(FLOATS))


@op(2)
def unary_of_positive(g):
    x = tf.abs(g.pick(FLOATS))
    x += tf.constant(0.5, x.dtype)
    return g.random.choice([tf.sqrt, tf.math.rsqrt, tf.math.log, tf.math.reciprocal, tf.math.lgamma])(x)


def operands(g, dtypes):
    """Two tensors of one type whose shapes broadcast."""
    x = g.pick(dtypes)
    shape = list(g.value(x).shape) if x.name in g.known else x.shape.as_list()
    fits = [t for t in g.tensors if t.dtype == x.dtype and broadcasts(shape, g.value(t).shape)]
    if fits and g.chance(0.7):
        return x, g.random.choice(fits)
    other = [1 if g.chance(0.3) else size for size in shape[g.random.randint(0, len(shape)):]]
    return (x, g.pick([x.dtype], shape=other)) if g.chance(0.5) else (g.pick([x.dtype], shape=other), x)


def broadcasts(a, b):
    return all(p == q or 1 in (p, q) for p, q in zip(reversed(list(a)), reversed(list(b))))


@op(8)
def binary(g):
    return g.random.choice(BINARY)(*operands(g, FLOATS + INTEGERS))


@op(2)
def division(g):
    x, y = operands(g, FLOATS + [tf.int32, tf.int64])
    divides = [tf.math.floordiv, tf.math.floormod, tf.math.truediv]
    if x.dtype.is_floating:
        divides += [tf.math.divide_no_nan, tf.math.xdivy]
    safe = tf.where(tf.equal(y, tf.zeros_like(y)), tf.ones_like(y), y)
    return g.random.choice(divides)(x, safe)


@op(3)
def comparison(g):
    return g.random.choice(COMPARISONS)(*operands(g, FLOATS + INTEGERS))


@op(2)
def logic(g):
    x, y = operands(g, [tf.bool])
    return g.random.choice([tf.logical_and(x, y), tf.logical_or(x, y), tf.logical_not(x)])


@op(3)
def select(g):
    x, y = operands(g, FLOATS + INTEGERS)
    condition = tf.less(*operands(g, [tf.float32]))
    return tf.where(condition, x, y)


@op(2)
def cast(g):
    return tf.cast(g.pick(FLOATS + INTEGERS + [tf.bool]), g.random.choice(FLOATS + [tf.int32, tf.int64, tf.bool]))


@op(1)
def sum_of_many(g):
    x = g.pick(FLOATS)
    return tf.add_n([x] + [x * tf.cast(i, x.dtype) for i in range(g.random.randint(1, 3))])


@op(2)
def clip(g):
    x = g.pick(FLOATS + [tf.int32])
    return tf.clip_by_value(x, tf.cast(-1, x.dtype), tf.cast(1, x.dtype))


# ---- reductions, shapes, slices

@op(6)
def reduction(g):
    x = g.pick(FLOATS + [tf.int32, tf.int64])
    reduce = g.random.choice([tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod])
    axes = g.axes(x.shape.rank) if x.shape.rank is not None else []
    return reduce(x, axis=None if not axes else g.as_input(axes), keepdims=g.chance(0.4))


@op(2)
def reduction_of_booleans(g):
    x = g.pick([tf.bool])
    return g.random.choice([tf.reduce_all, tf.reduce_any])(x, axis=g.axes(x.shape.rank or 0) or None)


@op(2)
def scan_along(g):
    x = g.pick(FLOATS + [tf.int32], rank=[1, 2, 3])
    return g.random.choice([tf.cumsum, tf.math.cumprod])(x, axis=-1, exclusive=g.chance(0.3), reverse=g.chance(0.3))


@op(2)
def arg(g):
    x = g.pick(FLOATS + [tf.int32], rank=[1, 2, 3])
    return g.random.choice([tf.argmax, tf.argmin])(x, axis=-1, output_type=g.random.choice([tf.int32, tf.int64]))


@op(3)
def reshape(g):
    x = g.pick()
    value = g.value(x)
    parts = [value.size] if g.chance(0.5) else list(reversed(value.shape))
    if parts and value.size and g.chance(0.5):
        parts[g.random.randrange(len(parts))] = -1
    return tf.reshape(x, g.as_input(np.array(parts, np.int32)))


@op(2)
def dims(g):
    x = g.pick()
    if g.chance(0.5):
        return tf.expand_dims(x, g.random.randint(-g.value(x).ndim - 1, g.value(x).ndim))
    return tf.squeeze(x)


@op(2)
def shape_of(g):
    x = g.pick()
    return g.random.choice([tf.shape, tf.rank, tf.size])(x)


@op(3)
def transpose(g):
    x = g.pick(rank=[1, 2, 3, 4])
    rank = g.value(x).ndim
    return tf.transpose(x, g.as_input(g.random.sample(range(rank), rank)))


@op(3)
def strided_slice(g):
    x = g.pick(rank=[1, 2, 3])
    spec = []
    for size in g.value(x).shape:
        way = g.random.randrange(5)
        begin, end = sorted(g.random.sample(range(size + 1), 2)) if size >= 1 else (0, 0)
        spec.append([slice(None), slice(begin, end), slice(None, None, -1), slice(begin, None, 2), begin % size][way])
    if g.chance(0.2):
        spec[0] = Ellipsis
    if g.chance(0.2):
        spec.append(tf.newaxis)
    return x[tuple(spec)]


@op(2)
def slice_of(g):
    x = g.pick(rank=[1, 2, 3])
    begin = [g.random.randint(0, size - 1) for size in g.value(x).shape]
    sizes = [g.random.choice([-1, g.random.randint(1, size - b)]) for b, size in zip(begin, g.value(x).shape)]
    return tf.slice(x, g.as_input(begin), g.as_input(sizes))


@op(3)
def concat(g):
    x = g.pick(rank=[1, 2, 3])
    axis = g.random.randrange(g.value(x).ndim)
    fits = [t for t in g.tensors if t.dtype == x.dtype and g.value(t).ndim == g.value(x).ndim
            and all(i == axis or a == b for i, (a, b) in enumerate(zip(g.value(t).shape, g.value(x).shape)))]
    return tf.concat([x] + g.random.sample(fits, min(len(fits), 2)), axis)


@op(2)
def stack(g):
    x = g.pick()
    parts = [x, x + tf.cast(1, x.dtype)] if x.dtype != tf.bool else [x, x]
    return tf.stack(parts, axis=g.random.choice([0, -1]))


@op(2)
def split(g):
    x = g.pick(rank=[1, 2, 3])
    axis = g.random.randrange(g.value(x).ndim)
    size = g.value(x).shape[axis]
    first = g.random.randint(0, size)
    return tf.split(x, [first, size - first] if g.chance(0.5) else size, axis)


@op(2)
def unstack(g):
    x = g.pick(rank=[1, 2, 3])
    return tf.unstack(x, num=g.value(x).shape[0])[:4]


@op(2)
def tile_or_pad(g):
    x = g.pick(FLOATS + [tf.int32], rank=[1, 2, 3])
    rank = g.value(x).ndim
    if g.chance(0.5):
        return tf.tile(x, g.as_input([g.random.randint(1, 3) for _ in range(rank)]))
    return tf.pad(x, g.as_input([[g.random.randint(0, 2), g.random.randint(0, 2)] for _ in range(rank)]))


@op(3)
def gather(g):
    x = g.pick(rank=[1, 2, 3])
    axis = g.random.randrange(g.value(x).ndim)
    size = g.value(x).shape[axis]
    indices = g.values.randint(0, size, g.shape(g.random.choice([0, 1, 2])))
    return tf.gather(x, g.as_input(indices, g.random.choice([tf.int32, tf.int64])), axis=axis)


@op(1)
def one_hot(g):
    return tf.one_hot(g.pick([tf.int32, tf.int64, tf.uint8]), 4, dtype=g.random.choice(FLOATS))


@op(1)
def segments(g):
    x = g.pick(FLOATS + [tf.int32], rank=[1, 2])
    return tf.math.unsorted_segment_sum(x, g.as_input(g.values.randint(0, 3, g.value(x).shape[0])), 3)


@op(1)
def parts_and_stitch(g):
    x = g.pick(FLOATS, rank=[1, 2])
    which = tf.constant(g.values.randint(0, 2, g.value(x).shape[0]), tf.int32)
    indices = tf.dynamic_partition(tf.range(tf.shape(x)[0]), which, 2)
    return tf.dynamic_stitch(indices, [tf.negative(part) for part in tf.dynamic_partition(x, which, 2)])


@op(1)
def made(g):
    return g.random.choice([
        lambda: tf.range(g.as_input(g.random.randint(0, 3)), g.as_input(g.random.randint(4, 9)), 2),
        lambda: tf.fill(g.as_input(g.shape(2)), g.pick(FLOATS, rank=[0])),
        lambda: tf.reverse(g.pick(FLOATS, rank=[2, 3]), g.as_input([0])),
        lambda: tf.broadcast_to(g.pick(FLOATS, shape=[1, 3]), g.as_input([2, 4, 3]))])()


# ---- products and layers

@op(5)
def product(g):
    x = g.pick([tf.float32, tf.float64], rank=[2])
    rows, columns = g.value(x).shape
    if g.chance(0.5):
        return tf.matmul(x, g.pick([x.dtype], shape=[columns, g.random.randint(1, 5)]))
    return tf.matmul(x, g.pick([x.dtype], shape=[rows, g.random.randint(1, 5)]), transpose_a=True)


@op(2)
def product_of_batches(g):
    x = g.pick([tf.float32, tf.float64], rank=[3, 4])
    *batch, rows, columns = g.value(x).shape
    y = g.pick([x.dtype], shape=[1 if g.chance(0.4) else size for size in batch] + [rows, 3])
    return tf.matmul(x, y, transpose_a=True)


@op(3)
def layer(g):
    x = g.pick([tf.float32, tf.float64], rank=[2])
    units = g.random.randint(1, 5)
    weights = g.pick([x.dtype], shape=[g.value(x).shape[1], units])
    y = tf.nn.bias_add(tf.matmul(x, weights), g.pick([x.dtype], shape=[units]))
    return g.random.choice([tf.nn.relu, tf.tanh, tf.sigmoid, tf.identity])(y)


@op(3)
def convolution(g):
    x = g.pick([tf.float32], shape=[g.random.randint(1, 3), 5, 5, 3])
    w = g.pick([tf.float32], shape=[g.random.choice([1, 2, 3]), g.random.choice([1, 3]), 3, g.random.choice([1, 4])])
    strides = g.random.choice([1, 1, 2])
    return tf.nn.conv2d(x, w, strides=strides, padding=g.random.choice(["SAME", "VALID"]))


@op(3)
def pooling(g):
    x = g.pick([tf.float32], shape=[g.random.randint(1, 3), 5, 5, 3])
    pool = g.random.choice([tf.nn.max_pool2d, tf.nn.avg_pool2d])
    return pool(x, g.random.choice([2, 3]), g.random.choice([1, 2]), g.random.choice(["SAME", "VALID"]))


@op(1)
def batch_norm(g):
    x = g.pick([tf.float32], rank=[4])
    channels = g.value(x).shape[3]
    if g.value(x).size // channels < 2:
        raise ValueError("too few elements for a variance")
    scale, offset = (g.pick([tf.float32], shape=[channels]) for _ in range(2))
    return v1.nn.fused_batch_norm(x, scale, offset, epsilon=0.01)[0]


@op(2)
def loss(g):
    logits = g.pick([tf.float32, tf.float64], rank=[2])
    rows, classes = g.value(logits).shape
    if g.chance(0.5):
        labels = tf.constant(g.values.randint(0, classes, rows))
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    labels = tf.nn.softmax(g.pick([logits.dtype], shape=[rows, classes]))
    return tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(labels), logits=logits)


# ---- state

@op(2)
def variable(g):
    dtype = g.random.choice([tf.float32, tf.float32, tf.float64, tf.int32])
    value = g.array(dtype, g.shape(g.random.choice([0, 1, 2])))
    made = v1.get_variable(f"variable{len(g.variables)}", initializer=tf.constant(value), use_resource=g.chance(0.5))
    g.variables.append(made)
    # What it is before this step's updates, which wait for it. An Identity of a reference would be the variable's own
    # memory, which a fetch shows as it is when the step ends.
    read = made + tf.zeros_like(made) if g.chance(0.5) else tf.maximum(made, made)
    if dtype in (tf.float32, tf.float64):
        g.floats.append(read)
    g.reads.append(read)
    return read


# ---- branches, loops, functions

def inner(g, x, nodes):
    """A few random nodes behind x; of x's type, not of its shape."""
    for _ in range(nodes):
        way = g.random.randrange(6)
        if way == 0:
            x = tf.tanh(x)
        elif way == 1:
            x = x * tf.cast(0.5, x.dtype) + tf.cast(0.25, x.dtype)
        elif way == 2:
            x = tf.maximum(x, tf.cast(-0.5, x.dtype))
        elif way == 3:
            x = x + tf.reduce_mean(x)
        elif way == 4:
            x = tf.sin(x)
        else:
            others = [t for t in g.tensors if t.dtype == x.dtype and g.value(t).ndim == 0]
            x = x + g.random.choice(others) if others else -x
    return x


def predicate(g):
    x = g.pick([tf.float32, tf.float64])
    return tf.less(tf.reduce_sum(x), tf.cast(g.random.choice([-1, 0, 1]), x.dtype))


@op(4)
def cond(g):
    x = g.pick([tf.float32, tf.float64])
    way = g.random.randrange(3)

    def deeper():
        if way != 0:
            return inner(g, x, 2)
        with g.inside():
            return tf.cond(predicate(g), lambda: inner(g, x, 1), lambda: inner(g, x, 2))
    if way == 1:
        y = g.pick([x.dtype])
        return tf.cond(predicate(g), lambda: [inner(g, x, 1), y], lambda: [y, x])
    return tf.cond(predicate(g), deeper, lambda: inner(g, x, 3))


@op(4)
def loop(g):
    x = g.pick([tf.float32, tf.float64], rank=[0, 1, 2])
    rounds = g.as_input(g.random.randint(0, 4))
    way = g.random.randrange(3)
    nodes = g.random.randint(1, 3)

    def body(i, y):
        if way == 1:
            _, y = tf.while_loop(lambda j, _: j < i, lambda j, z: (j + 1, keep_shape(inner(g, z, 1), z)), [0, y])
        elif way == 2:
            y = tf.cond(tf.equal(i % 2, 0), lambda: inner(g, y, 1), lambda: keep_shape(-y, y))
        return i + 1, keep_shape(inner(g, y, nodes), x)
    return tf.while_loop(lambda i, _: i < rounds, body, [0, x],
                         parallel_iterations=g.random.choice([1, 2, 10]))[1]


def keep_shape(y, like):
    y.set_shape(like.shape)
    return y


@op(2)
def loop_over_rows(g):
    x = g.pick([tf.float32, tf.float64], rank=[2, 3])
    way = g.random.randrange(3)
    if way == 0:
        return tf.map_fn(lambda row: inner(g, row, 2), x)
    if way == 1:
        return tf.scan(lambda sum_, row: tf.tanh(sum_ + row), x)
    return tf.foldl(lambda sum_, row: keep_shape(inner(g, sum_ + row, 1), sum_), x)


@op(2)
def function(g):
    x = g.pick([tf.float32, tf.float64])
    return tf.function(lambda y: (inner(g, y, 2), tf.reduce_sum(y)))(x)


# ---- the whole

def try_op(g, session):
    function = g.random.choices([f for _, f in OPS], [w for w, _ in OPS])[0]
    made_before = len(g.variables)
    try:
        made = function(g)
        made = [t for t in (made if isinstance(made, (list, tuple)) else [made]) if t.name not in g.known]
        if len(g.variables) > made_before:
            session.run(g.variables[-1].initializer)
        values = session.run(made)
    except (ValueError, TypeError, tf.errors.OpError, IndexError, ZeroDivisionError):
        v1.get_default_graph()._set_control_flow_context(None)  # TensorFlow leaves it as it was inside
        return False
    for tensor, value in zip(made, values):
        value = np.asarray(value)
        if value.size > MOST_ELEMENTS or value.dtype == object or value.dtype.kind not in "fiub":
            continue
        if not np.isfinite(value).all() or (value.size and np.abs(value.astype(np.float64)).max() > LARGEST):
            continue
        g.keep(tensor, value)
    return True


def gradients(g):
    """Of the sum of some tensors with respect to what was fed and to variables. In a session of its own: TensorFlow
    changes calls and loops when it differentiates them, which one that has run them does not see."""
    ends = [t for t in g.tensors if t.dtype in (tf.float32, tf.float64)]
    if not ends or not g.floats:
        return
    chosen = g.random.sample(ends, min(len(ends), 3))
    total = tf.add_n([tf.reduce_sum(tf.cast(t, tf.float32)) for t in chosen])
    try:
        found = tf.gradients(total, g.floats)
        found = [tf.convert_to_tensor(gradient) for gradient in found if gradient is not None]
        with v1.Session(config=session_config()) as session:
            session.run(v1.global_variables_initializer())
            values = session.run(found)
    except (ValueError, TypeError, LookupError, tf.errors.OpError):
        return
    for tensor, value in zip(found, values):
        if np.isfinite(value).all() and np.abs(value).max(initial=0) < LARGEST:
            g.keep(tensor, np.asarray(value))


def updates(g, before):
    """One update of every variable, after all that reads it."""
    with tf.control_dependencies([t.op for t in [*before, *g.reads]]):
        for made in g.variables:
            fits = [t for t in g.tensors if t.dtype.base_dtype == made.dtype.base_dtype
                    and list(g.value(t).shape) == made.shape.as_list()]
            value = g.random.choice(fits) if fits else tf.ones(made.shape, made.dtype.base_dtype)
            way = g.random.randrange(3 if made.dtype.is_floating else 2)
            if way == 0:
                g.updates.append(made.assign_add(value).op)
            elif way == 1:
                g.updates.append(made.assign(value).op)
            else:
                optimizer = g.random.choice([
                    lambda: v1.train.GradientDescentOptimizer(0.1), lambda: v1.train.MomentumOptimizer(0.1, 0.9),
                    lambda: v1.train.AdamOptimizer(0.1), lambda: v1.train.AdagradOptimizer(0.1),
                    lambda: v1.train.RMSPropOptimizer(0.1)])()
                g.updates.append(optimizer.apply_gradients([(value, made)]))


def answers(session, steps, feeds):
    """What every step fetches, from variables as they begin."""
    session.run(v1.global_variables_initializer(), feeds)
    return [session.run([tensors, targets], feeds)[0] for tensors, targets in steps]


def nudged(g):
    """The inputs with other last bits."""
    feeds = {}
    for name, value in g.inputs:
        nudge = NUDGE.get(tf.as_dtype(value.dtype))
        if nudge:
            feeds[name] = np.asarray(value * (1 + nudge * g.values.uniform(-1, 1, value.shape)), value.dtype)
    return feeds


def tolerance(value, others):
    """None if the value hangs on the last bits."""
    if value.dtype.kind != "f":
        return 0.0 if all(np.array_equal(value, other) for other in others) else None
    scale = np.abs(value).max(initial=0)
    moved = max((np.abs(value.astype(np.float64) - other).max(initial=0) for other in others), default=0)
    rounding = {2: 4e-3, 4: 4e-6, 8: 1e-12}[value.dtype.itemsize]
    allowed = 20 * moved + rounding * (scale + 1)
    return float(allowed) if allowed <= 0.02 * (scale + 1) else None


def make(seed, nodes):
    """A GraphDef with TensorFlow's answers, or None if nothing came of the seed."""
    g = Graph(seed)
    (v1.enable_control_flow_v2 if g.chance(0.3) else v1.disable_control_flow_v2)()
    with tf.Graph().as_default() as graph:
        with v1.Session(config=session_config()) as session:
            for _ in range(g.random.randint(1, 3)):
                g.new_input(g.random.choice(FLOATS), g.shape())
            wanted = g.random.randint(3, nodes)
            tries = 0
            while wanted > 0 and tries < 4 * nodes:
                wanted -= try_op(g, session)
                tries += 1
        if g.chance(0.6):
            gradients(g)
        fetched = [t for t in g.tensors if t.op.type != "PlaceholderWithDefault"]
        fetched = g.random.sample(fetched, min(len(fetched), 6)) + fetched[-2:]
        fetched = list({t.name: tf.identity(t) for t in fetched}.values())
        updates(g, fetched)
        after = [tf.identity(made) for made in g.variables]
        train = tf.group(*g.updates)
        initialize = v1.global_variables_initializer()
        steps = [(fetched, train), (after, tf.no_op()), (fetched, tf.no_op())] if g.variables else [(fetched, tf.no_op())]
        with v1.Session(config=session_config()) as session:
            expected = answers(session, steps, {})
            moved = [answers(session, steps, nudged(g)) for _ in range(3)]
        names = [initialize.name]
        for i, (tensors, target) in enumerate(steps):
            told = 0
            for k, tensor in enumerate(tensors):
                value = np.asarray(expected[i][k])
                allowed = tolerance(value, [np.asarray(run[i][k]) for run in moved])
                if allowed is None or value.nbytes > 40000:
                    continue
                there = f"step{i}/{told}"
                names += [tf.identity(tensor, name=f"{there}/fetch").op.name,
                          tf.constant(value, name=f"{there}/expect").op.name,
                          tf.constant(allowed, tf.float64, name=f"{there}/tolerance").op.name]
                told += 1
            with tf.control_dependencies([target]):
                names.append(tf.no_op(name=f"step{i}/run").name)
        with tf.control_dependencies([initialize]):
            names.append(tf.no_op(name="initialize").name)
        if not any("/expect" in name for name in names):
            return None
        return v1.graph_util.extract_sub_graph(graph.as_graph_def(add_shapes=False), names)


def ops_of(graph):
    bodies = [one.node_def for one in graph.library.function]
    return [node.op for nodes in [graph.node, *bodies] for node in nodes]


def choose(folder, count):
    graphs = {}
    for path in folder.glob("*.pb"):
        graph = v1.GraphDef.FromString(path.read_bytes())
        graphs[path] = (set(ops_of(graph)), graph.ByteSize())
    kept, seen = [], collections.Counter()
    while graphs and len(kept) < count:
        # What is rare counts most.
        best = max(graphs, key=lambda path: sum(4.0 ** -seen[op] for op in graphs[path][0]) / graphs[path][1])
        seen.update(graphs.pop(best)[0])
        kept.append(best)
    for path in graphs:
        path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=16, help="at most so many random nodes in a graph")
    parser.add_argument("--out", required=True, help="the folder of the files")
    parser.add_argument("--ops", action="store_true", help="list the ops of all graphs")
    parser.add_argument("--choose", type=int, help="of the graphs that are in the folder keep so many, small ones that "
                        "have all ops between them")
    options = parser.parse_args()
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    if options.choose:
        choose(folder, options.choose)
        return 0
    ops = collections.Counter()
    for seed in range(options.seed, options.seed + options.count):
        graph = make(seed, options.nodes)
        if graph is None:
            continue
        (folder / f"{seed:05d}.pb").write_bytes(graph.SerializeToString(deterministic=True))
        ops.update(ops_of(graph))
        v1.reset_default_graph()
    if options.ops:
        for name, count in sorted(ops.items()):
            print(f"{count:6d} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
