#!/usr/bin/env python3
"""Writes graphs/<name>/: GraphDefs that tf.compat.v1 made, scripts that run them, and TensorFlow's numbers (see
README.md).

usage: make_graphs.py [--out DIR] [--ops] [NAME...]

--ops prints the op names that each graph uses, functions included."""

import argparse
import functools
import json
import os
import shutil
import sys
import zlib
from unittest import mock

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import function

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()
v1.disable_control_flow_v2()
v1.logging.set_verbosity(v1.logging.ERROR)

GRAPHS = {}


def graph(fn):
    GRAPHS[fn.__name__] = fn
    return fn


def values(key, shape, lo=-1.0, hi=1.0, dtype=np.float32):
    r = np.random.RandomState(zlib.crc32(repr((key, tuple(shape))).encode()) & 0x7FFFFFFF)
    return r.uniform(lo, hi, size=shape).astype(dtype)


def ints(value, dtype=np.int64):
    return np.array(value, dtype)


def variable(name, value):
    return v1.get_variable(name, initializer=tf.constant(value), use_resource=True)


def import_graph(gd):
    """Also with functions for any type: TensorFlow's graph takes them, Python's objects for functions cannot."""
    with mock.patch.object(function, "from_library", lambda library: []):
        tf.import_graph_def(gd, name="")


def config():
    c = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    return c


class Recorder:
    """Collects the steps of one graph; run() afterwards asks TensorFlow for the numbers and writes the folder."""

    def __init__(self, folder):
        self.folder, self.steps, self.files, self.extra = folder, [], {}, {}
        self.change = lambda graph_def: None

    def step(self, name, fetches=(), targets=(), feeds=None, rtol=1e-5, atol=1e-6, error=None, error_contains=None):
        """error: the canonical code that our run of this step must give. TensorFlow may know more ops than we do: it
        is not asked."""
        feeds = {(k if isinstance(k, str) else k.name): np.asarray(v) for k, v in (feeds or {}).items()}
        self.steps.append(
            dict(
                name=name,
                fetches=[f if isinstance(f, str) else f.name for f in fetches],
                targets=[t if isinstance(t, str) else t.name for t in targets],
                feeds=feeds,
                rtol=rtol,
                atol=atol,
                error=error,
                error_contains=error_contains,
            )
        )

    def file(self, a):
        """Feeds that are equal share a file."""
        for name, b in self.files.items():
            if name.startswith("feeds/") and b.dtype == a.dtype and b.shape == a.shape and np.array_equal(a, b):
                return name
        name = "feeds/%d.npy" % sum(k.startswith("feeds/") for k in self.files)
        self.files[name] = a
        return name

    def run(self, graph_def):
        shutil.rmtree(self.folder, ignore_errors=True)
        for sub in ("feeds", "expect"):
            os.makedirs(os.path.join(self.folder, sub))
        with open(os.path.join(self.folder, "graph.pb"), "wb") as f:
            f.write(graph_def.SerializeToString(deterministic=True))
        plain = tf.compat.v1.GraphDef()
        plain.CopyFrom(graph_def)
        for node in plain.node:  # one process answers for the whole cluster
            node.device = ""
        out = []
        with tf.Graph().as_default():
            import_graph(plain)
            with v1.Session(config=config()) as s:
                for i, st in enumerate(self.steps):
                    d = dict(name=st["name"])
                    if st["targets"]:
                        d["targets"] = st["targets"]
                    if st["feeds"]:
                        d["feeds"] = {k: self.file(v) for k, v in st["feeds"].items()}
                    if st["fetches"]:
                        d["fetches"] = st["fetches"]
                    if st["error"]:
                        d["error"] = st["error"]
                        if st["error_contains"]:
                            d["error_contains"] = st["error_contains"]
                        out.append(d)
                        if st["error"] != "UNIMPLEMENTED":
                            try:
                                s.run((st["fetches"], st["targets"]), st["feeds"])
                            except tf.errors.OpError as e:
                                if e.error_code != getattr(tf.errors, st["error"]):
                                    raise
                            else:
                                raise ValueError("step %s of %s does not fail" % (st["name"], self.folder))
                        continue
                    got = s.run((st["fetches"], st["targets"]), st["feeds"])[0]
                    if got:
                        d["expect"] = []
                        for k, a in enumerate(got):
                            name = "expect/%d_%d.npy" % (i, k)
                            if np.asarray(a).dtype.kind not in "biuf":
                                raise ValueError("fetch %d of step %s is %r" % (k, st["name"], a))
                            self.files[name] = np.asarray(a)
                            d["expect"].append(name)
                        d["rtol"], d["atol"] = st["rtol"], st["atol"]
                    out.append(d)
        for name, a in self.files.items():
            np.save(os.path.join(self.folder, name), a)
        with open(os.path.join(self.folder, "steps.json"), "w") as f:
            json.dump(dict(self.extra, steps=out), f, indent=1)
            f.write("\n")


# ---- small graphs -------------------------------------------------------------------------------------------------


@graph
def scalar_arithmetic(r):
    a = v1.placeholder(tf.float32, [], name="a")
    b = v1.placeholder(tf.float32, [], name="b")
    total = tf.add(a, b, name="total")
    product = tf.multiply(total, 3.0, name="product")
    with tf.control_dependencies([product]):
        half = tf.divide(product, 2.0, name="half")
    beyond = tf.subtract(product, 1.0, name="beyond")
    n = tf.cast(tf.constant(7), tf.float32)
    mixed = tf.identity(half - n**2.0, name="mixed")
    order = tf.less(a, b, name="order")
    count = tf.constant(41, tf.int64, name="count") + 1
    given = v1.placeholder_with_default(tf.constant(5.0), [], name="given")
    nothing = tf.no_op(name="nothing")
    r.step("several fetches", [total, product, mixed, order, count], feeds={a: np.float32(1.5), b: np.float32(-4)})
    r.step("one fetch twice", [total, total], feeds={a: np.float32(2), b: np.float32(3)})
    r.step("a feed in the middle", [beyond], feeds={product: np.float32(10)})
    r.step("a default", [given])
    r.step("a default overridden", [given], feeds={given: np.float32(-1)})
    r.step("a target alone", targets=[nothing])
    r.step("a missing feed", [total], feeds={a: np.float32(1)}, error="INVALID_ARGUMENT", error_contains="b")
    r.step("after the failed step", [total], feeds={a: np.float32(1), b: np.float32(1)})


@graph
def variables(r):
    x = variable("x", np.array([[1, 2], [3, 4]], np.float32))
    n = variable("n", np.array(0, np.int64))
    init = v1.global_variables_initializer()
    ready = tf.stack([v1.is_variable_initialized(x), v1.is_variable_initialized(n)], name="ready")
    seen = tf.identity(x.read_value(), name="seen")
    grow = tf.identity(n.assign_add(5), name="grow")
    add = x.assign_add([[0.5, 0.5], [0.5, -0.5]], read_value=False)
    sub = x.assign_sub([[1.0, 0.0], [0.0, 1.0]], read_value=False)
    put = v1.placeholder(tf.float32, [2, 2], name="put")
    assign = x.assign(put, read_value=False)
    with tf.control_dependencies([x.assign_add(tf.ones([2, 2]), read_value=False)]):
        after = tf.identity(x.read_value(), name="after")
    rows = tf.gather(x, [1, 0, 1], name="rows")
    shape = v1.shape(x, name="shape")
    r.step("nothing is initialised", [ready])
    r.step("reading too early", [seen], error="FAILED_PRECONDITION", error_contains="x")
    r.step("initialise", targets=[init])
    r.step("now it is", [ready, seen])
    r.step("count", [grow])
    r.step("count again", [grow])
    r.step("add", targets=[add])
    r.step("subtract", targets=[sub])
    r.step("see both", [seen, shape])
    r.step("assign", targets=[assign], feeds={put: np.array([[9, 8], [7, 6]], np.float32)})
    r.step("read after an addition", [after])
    r.step("gather rows of the variable", [rows])
    r.step("initialise again", targets=[init])
    r.step("as at first", [seen, "n/Read/ReadVariableOp:0"])


@graph
def linear_regression(r):
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    y = v1.placeholder(tf.float32, [None, 1], name="y")
    w = variable("w", values("w", (3, 1)))
    b = variable("b", np.zeros(1, np.float32))
    step = v1.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y), name="loss")
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step, name="train")
    init = v1.global_variables_initializer()
    r.step("initialise", targets=[init])
    for i in range(6):
        xs = values(("x", i), (5 + i % 2, 3))
        ys = (xs @ np.array([[1.0], [-2.0], [0.5]]) + 0.25).astype(np.float32)
        r.step("train %d" % i, [loss], [train], {x: xs, y: ys})
    r.step("variables", [w.read_value(), b.read_value(), step.read_value()])


@graph
def momentum(r):
    x = tf.constant(values("x", (6, 4)))
    for name, nesterov in (("plain", False), ("nesterov", True)):
        with v1.variable_scope(name):
            w = variable("w", values("w", (4, 3)))
            b = variable("b", values("b", (3,)))
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.nn.bias_add(tf.matmul(x, w), b)) - 0.5), name="loss")
            train = v1.train.MomentumOptimizer(0.2, 0.9, use_nesterov=nesterov).minimize(
                loss, var_list=[w, b], name="train"
            )
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i in range(5):
            r.step("%s train %d" % (name, i), [loss], [train])
        slots = [v.read_value() for v in v1.global_variables(name)]
        r.step(name + " variables and slots", slots)


def adam_steps(r, sparse):
    x = tf.constant(values("x", (6, 4)))
    w = variable("w", values("w", (4, 3)))
    table = variable("table", values("table", (5, 4)))
    rate = v1.placeholder_with_default(tf.constant(0.05), [], name="rate")
    rows = tf.gather(table.read_value(), [0, 2, 2, 4, 1, 0])
    if not sparse:
        rows = tf.matmul(tf.one_hot([0, 2, 2, 4, 1, 0], 5), table)
    loss = tf.reduce_mean(tf.square(tf.matmul(x * rows, w) - 0.5), name="loss")
    opt = v1.train.AdamOptimizer(rate, beta1=0.8, beta2=0.99, epsilon=1e-4)
    train = opt.minimize(loss, name="train")
    init = v1.global_variables_initializer()
    r.step("initialise", targets=[init])
    for i in range(4):
        r.step("train %d" % i, [loss], [train])
    r.step("train with another rate", [loss], [train], {rate: np.float32(0.2)})
    r.step("variables and slots", [v.read_value() for v in v1.global_variables()])


@graph
def adam(r):
    adam_steps(r, sparse=False)


@graph
def adam_sparse(r):
    """The gradient of a gather is a list of rows: TensorFlow's Adam applies it with Unique and ResourceScatterAdd."""
    adam_steps(r, sparse=True)


@graph
def sparse_optimizers(r):
    """The other optimizers on rows, some of them twice in a batch."""
    x = tf.constant(values("x", (6, 4)))
    for name, opt in (
        ("descent", v1.train.GradientDescentOptimizer(0.3)),
        ("momentum", v1.train.MomentumOptimizer(0.2, 0.9)),
        ("nesterov", v1.train.MomentumOptimizer(0.2, 0.9, use_nesterov=True)),
        ("adagrad", v1.train.AdagradOptimizer(0.3, 0.2)),
        ("rmsprop", v1.train.RMSPropOptimizer(0.05, 0.8, 0.5, 1e-3)),
    ):
        with v1.variable_scope(name):
            table = variable("table", values("table", (5, 4)))
            ids = v1.placeholder(tf.int64, [None], name="ids")
            loss = tf.reduce_mean(tf.square(x * tf.nn.embedding_lookup(table, ids) - 0.5), name="loss")
            train = opt.minimize(loss, var_list=[table], name="train")
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i, rows in enumerate(([0, 2, 2, 4, 1, 0], [3, 3, 3, 3, 3, 3], [4, 3, 2, 1, 0, 4])):
            r.step("%s train %d" % (name, i), [loss], [train], {ids: ints(rows)})
        r.step(name + " table and slots", [v.read_value() for v in v1.global_variables(name)])


@graph
def clipped_training(r):
    """Gradients clipped together between computing and applying, at rates that follow schedules."""
    x = tf.constant(values("x", (6, 4)))
    for name, make in (
        ("adagrad", lambda rate: v1.train.AdagradOptimizer(rate)),
        ("rmsprop", lambda rate: v1.train.RMSPropOptimizer(rate, momentum=0.5)),
        ("centered", lambda rate: v1.train.RMSPropOptimizer(rate, epsilon=1e-3, centered=True)),
        ("adam", lambda rate: v1.train.AdamOptimizer(rate)),
    ):
        with v1.variable_scope(name):
            w = variable("w", values("w", (4, 3)))
            table = variable("table", values("table", (6, 3)))
            step = v1.get_variable("step", initializer=tf.constant(0, tf.int64), trainable=False)
            rows = tf.nn.embedding_lookup(table, [5, 0, 2, 2, 1, 5])
            loss = tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, w)) * rows - 0.5), name="loss")
            rate = v1.train.cosine_decay(v1.train.exponential_decay(0.2, step, 2, 0.7, staircase=True), step, 5, 0.1)
            opt = make(rate)
            pairs = opt.compute_gradients(loss + 0.1 * tf.nn.l2_loss(w), [w, table])
            clipped, norm = tf.clip_by_global_norm([g for g, _ in pairs], 1.5)
            train = opt.apply_gradients(zip(clipped, [w, table]), step, name="train")
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i in range(4):
            r.step("%s train %d" % (name, i), [loss, norm, rate], [train])
        r.step(name + " variables and slots", [v.read_value() for v in v1.global_variables(name)])


@graph
def partitioned_embedding(r):
    """A table in three parts of unequal size, looked up by both strategies and trained."""
    x = tf.constant(values("x", (2, 3, 2)))
    for strategy in ("mod", "div"):
        with v1.variable_scope(strategy, use_resource=True, partitioner=v1.fixed_size_partitioner(3)):
            table = v1.get_variable("table", initializer=lambda shape, dtype, partition_info: tf.constant(
                values((strategy, partition_info.var_offset), shape)), shape=(8, 2))
            ids = v1.placeholder(tf.int32, [2, 3], name="ids")
            rows = v1.nn.embedding_lookup(table, ids, partition_strategy=strategy, name="rows")
            loss = tf.reduce_sum(tf.square(x * rows - 0.5), name="loss")
            train = v1.train.AdagradOptimizer(0.3, 0.2).minimize(loss, var_list=list(table), name="train")
            whole = tf.identity(tf.convert_to_tensor(table), name="whole")
            init = v1.variables_initializer(v1.global_variables(strategy), name="init")
        r.step(strategy + " initialise", targets=[init])
        for i, batch in enumerate(([[0, 1, 2], [3, 4, 5]], [[7, 7, 6], [7, 0, 7]])):
            r.step("%s train %d" % (strategy, i), [rows, loss], [train], {ids: ints(batch, np.int32)})
        r.step(strategy + " table", [whole])


# ---- the CNN of the tutorials, in small ---------------------------------------------------------------------------

IMAGE, CLASSES = 12, 10


def cnn_variables():
    shapes = [
        ("w1", (5, 5, 1, 4)),
        ("b1", (4,)),
        ("w2", (5, 5, 4, 6)),
        ("b2", (6,)),
        ("w3", (54, 16)),
        ("b3", (16,)),
        ("w4", (16, CLASSES)),
        ("b4", (CLASSES,)),
    ]
    return [variable(n, values(n, s, -0.3, 0.3) if n[0] == "w" else np.full(s, 0.1, np.float32)) for n, s in shapes]


def cnn_logits(v, x):
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, v[0], [1, 1, 1, 1], "SAME"), v[1]))
    h = tf.nn.max_pool2d(h, 2, 2, "SAME")
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(h, v[2], [1, 1, 1, 1], "SAME"), v[3]))
    h = tf.nn.max_pool2d(h, 2, 2, "SAME")
    h = tf.nn.relu(tf.matmul(tf.reshape(h, [-1, 54]), v[4]) + v[5])
    return tf.matmul(h, v[6]) + v[7]


def cnn_loss(v, x, y):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=cnn_logits(v, x)))


def cnn_batch(i, n):
    y = (np.arange(n) * 3 + i) % CLASSES
    x = values(("image", i), (n, IMAGE, IMAGE, 1), 0.0, 1.0)
    return x, y.astype(np.int32)


def cnn_steps(r, x, y, n, init, loss, train, v, more=()):
    r.step("initialise", targets=[init])
    for i in range(5):
        xs, ys = cnn_batch(i, n)
        r.step("train %d" % i, [loss] + list(more), [train], {x: xs, y: ys}, rtol=2e-5, atol=1e-5)
    r.step("variables", [q.read_value() for q in v], rtol=1e-4, atol=2e-5)


@graph
def mnist_cnn(r):
    x = v1.placeholder(tf.float32, [None, IMAGE, IMAGE, 1], name="x")
    y = v1.placeholder(tf.int32, [None], name="y")
    v = cnn_variables()
    logits = cnn_logits(v, x)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
    hits = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y)
    accuracy = tf.reduce_mean(tf.cast(hits, tf.float32), name="accuracy")
    train = v1.train.AdamOptimizer(0.01, epsilon=1e-3).minimize(loss, name="train")
    cnn_steps(r, x, y, 4, v1.global_variables_initializer(), loss, train, v, [accuracy])


@graph
def mnist_cnn_one_hot(r):
    """Dense labels, flat images, average pooling, weight decay, momentum."""
    flat = v1.placeholder(tf.float32, [None, IMAGE * IMAGE], name="x")
    y = v1.placeholder(tf.int32, [None], name="y")
    x = tf.reshape(flat, [-1, IMAGE, IMAGE, 1])
    v = cnn_variables()
    h = tf.nn.relu(tf.nn.conv2d(x, v[0], [1, 2, 2, 1], "SAME") + v[1])
    h = tf.nn.avg_pool2d(h, 3, 1, "VALID")
    h = tf.nn.relu(tf.nn.conv2d(h, v[2], [1, 1, 1, 1], "SAME") + v[3])
    h = tf.nn.avg_pool2d(h, 2, 2, "VALID")
    h = tf.reshape(h, [tf.shape(h)[0], 24])
    h = tf.sigmoid(tf.nn.bias_add(tf.matmul(h, v[4][:24]), v[5]))
    logits = tf.matmul(h, v[6]) + v[7]
    cost = tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(tf.one_hot(y, CLASSES)), logits=logits)
    decay = 1e-2 * tf.add_n([tf.nn.l2_loss(w) for w in v[::2]])
    loss = tf.add(tf.reduce_mean(cost), decay, name="loss")
    train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    r.step("initialise", targets=[v1.global_variables_initializer()])
    for i in range(5):
        xs, ys = cnn_batch(i, 4)
        r.step("train %d" % i, [loss], [train], {flat: xs.reshape(4, -1), y: ys}, rtol=2e-5, atol=1e-5)
    r.step("variables", [q.read_value() for q in v], rtol=1e-4, atol=1e-5)


@graph
def mnist_cnn_cluster(r):
    """In-graph towers: variables on the ps, half of the batch on each worker, the mean of the gradients applied on
    the ps."""
    r.extra["cluster"] = {"ps": 1, "worker": 2}
    x = v1.placeholder(tf.float32, [None, IMAGE, IMAGE, 1], name="x")
    y = v1.placeholder(tf.int32, [None], name="y")
    with tf.device("/job:ps/task:0"):
        v = cnn_variables()
        opt = v1.train.AdamOptimizer(0.01, epsilon=1e-3)
    xs, ys = tf.split(x, 2), tf.split(y, 2)
    losses, grads = [], []
    for i in range(2):
        with tf.device("/job:worker/task:%d" % i), tf.name_scope("tower_%d" % i):
            losses.append(cnn_loss(v, xs[i], ys[i]))
            grads.append(v1.gradients(losses[-1], v, colocate_gradients_with_ops=True))
    with tf.device("/job:ps/task:0"):
        mean = [tf.add_n(g) / 2.0 for g in zip(*grads)]
        train = opt.apply_gradients(list(zip(mean, v)), name="train")
        loss = tf.divide(tf.add_n(losses), 2.0, name="loss")
        init = v1.global_variables_initializer()
    cnn_steps(r, x, y, 8, init, loss, train, v)


# ---- control flow -------------------------------------------------------------------------------------------------


@graph
def control_flow(r):
    """Conds and loops as TensorFlow 1.x wrote them: Switch, Merge, Enter, Exit, NextIteration, LoopCond."""
    x = v1.placeholder(tf.float32, [], name="x")
    v = v1.placeholder(tf.float32, [None], name="v")
    n = variable("n", np.array(0, np.int32))
    init = v1.global_variables_initializer()

    chosen = v1.cond(x < 1.0, lambda: tf.exp(x) * 3.0, lambda: tf.math.log(x) - tf.reduce_sum(v), name="chosen")
    nested = v1.cond(
        x < 0.0,
        lambda: v1.cond(x < -5.0, lambda: tf.constant(-1.0), lambda: x * x),
        lambda: v1.cond(x > 5.0, lambda: x / 2.0, lambda: tf.constant(7.0)),
        name="nested",
    )
    slope = tf.gradients(chosen + nested, [x, v])
    with tf.control_dependencies([v1.cond(x > 2.0, lambda: n.assign_add(10), lambda: n.assign_sub(1))]):
        counted = tf.identity(n.read_value(), name="counted")

    # Collatz' sequence: how many steps it takes to 1, and the largest number on the way.
    start = v1.placeholder(tf.int64, [], name="start")
    one, two, three = (tf.constant(i, tf.int64) for i in (1, 2, 3))

    def step(k, steps, most):
        even = tf.equal(tf.math.floormod(k, two), 0)
        k = v1.cond(even, lambda: tf.math.floordiv(k, two), lambda: three * k + one)
        return k, steps + 1, tf.maximum(most, k)

    collatz = v1.while_loop(lambda k, steps, most: k > one, step, [start, tf.constant(0), start], name="collatz")

    # Rows of a product, one after the other, in a loop within a loop: the variable counts the inner iterations.
    a = tf.constant(values("a", (3, 4)))

    def outer(i, total):
        def inner(j, row):
            with tf.control_dependencies([n.assign_add(1)]):
                return j + 1, row + a[i, j] * tf.cast(j + 1, tf.float32)

        _, row = v1.while_loop(lambda j, row: j < 4, inner, [tf.constant(0), x], parallel_iterations=2)
        return i + 1, total * 0.5 + row

    _, total = v1.while_loop(lambda i, total: i < 3, outer, [tf.constant(0), tf.constant(0.0)], name="rows")
    grown = v1.while_loop(
        lambda w: tf.size(w) < 20,
        lambda w: tf.concat([w, w * 2.0], 0),
        [v],
        shape_invariants=[tf.TensorShape([None])],
        name="grown",
    )
    picked = v1.case([(x < 0.0, lambda: v * 2.0), (x < 3.0, lambda: v + x)], default=lambda: -v, name="picked")

    f = lambda value: {x: np.float32(value), v: values("v", (3,))}
    r.step("initialise", targets=[init])
    for value in (0.5, 3.0):
        r.step("a cond, x = %g" % value, [chosen], feeds=f(value))
    for value in (-7.0, -2.0, 3.0, 8.0):
        r.step("conds in a cond, x = %g" % value, [nested], feeds=f(value))
    for value in (0.5, 6.0):
        r.step("gradients of conds, x = %g" % value, slope, feeds=f(value))
    for value in (3.0, 1.0, 2.5):
        r.step("a cond with effects, x = %g" % value, [counted], feeds=f(value))
    for value in (1, 6, 27):
        r.step("a loop with a cond, from %d" % value, collatz, feeds={start: np.int64(value)})
    r.step("a loop within a loop", [total], feeds=f(0.25))
    r.step("its effects", ["n/Read/ReadVariableOp:0"])
    r.step("a loop whose variable grows", [grown], feeds=f(0))
    for value in (-1.0, 1.0, 4.0):
        r.step("a case, x = %g" % value, [picked], feeds=f(value))
    for side in ("chosen/Exp:0", "chosen/Log:0"):
        r.step(
            "what is on a branch, " + side,
            [side],
            feeds=f(3.0),
            **(dict(error="INVALID_ARGUMENT", error_contains="chosen/Exp") if "Exp" in side else {}),
        )


def of_the_new_kind(fn):
    """With conds and loops as TensorFlow 2 writes them: nodes that name functions; arrays are lists."""

    @functools.wraps(fn)
    def changed(r):
        v1.enable_control_flow_v2()
        try:
            return fn(r)
        finally:
            v1.disable_control_flow_v2()

    return changed


def gradients_of_loops_and_conds(r):
    x = v1.placeholder(tf.float32, [2], name="x")
    n = v1.placeholder(tf.int32, [], name="n")
    a = tf.constant(values("a", (2, 2)))

    def body(i, y):
        y = tf.tanh(tf.linalg.matvec(a, y)) + v1.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: tf.sin(y))
        return i + 1, y

    _, y = v1.while_loop(lambda i, y: i < n, body, [tf.constant(0), x], name="loop")

    def outer(i, z):
        _, z = v1.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * z * 0.5 + x[0]), [tf.constant(0), z])
        return i + 1, z * x[1]

    _, z = v1.while_loop(lambda i, z: i < n, outer, [tf.constant(0), tf.reduce_sum(x)], name="outer")
    dy = tf.gradients(y, [x, a], name="dy")
    dz = tf.gradients(z, x, name="dz")
    for count in (0, 1, 4):
        f = {x: values("x", (2,)), n: np.int32(count)}
        r.step("a loop and its gradients, %d iterations" % count, [y] + dy, feeds=f, rtol=1e-4, atol=1e-5)
        r.step("a loop in a loop, %d iterations" % count, [z] + dz, feeds=f, rtol=1e-4, atol=1e-5)


@graph
def gradients_of_loops(r):
    """tf.gradients of while_loops keeps the values of all iterations on stacks."""
    gradients_of_loops_and_conds(r)


@graph
@of_the_new_kind
def gradients_of_functional(r):
    """tf.gradients of While keeps the values of all iterations in lists, of If in optional values."""
    gradients_of_loops_and_conds(r)


@graph
def tensor_arrays(r):
    """TensorArrays in and out of loops: who may write and read what, and how often."""
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    n = v1.placeholder(tf.int32, [], name="n")

    def array(size, **options):
        return tf.TensorArray(options.pop("dtype", tf.float32), size, **options)

    # Each element is made of the one before it.
    rows = array(0, dynamic_size=True, clear_after_read=False).unstack(x)

    def fibonacci(i, a):
        return i + 1, a.write(i, a.read(i - 1) + a.read(i - 2) * 0.5)

    _, grown = v1.while_loop(lambda i, a: i < n, fibonacci, [rows.size(), rows], name="grown")
    series, length = grown.stack(name="series"), tf.identity(grown.size(), name="length")
    some = grown.gather([n - 1, 0, 0], name="some")

    parts = array(3, infer_shape=False).split(x, [1, 0, n])
    _, doubled = v1.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, a.write(i, parts.read(i) * tf.cast(i + 1, tf.float32))),
        [tf.constant(0), array(3, infer_shape=False)],
        name="doubled",
    )
    raw = tf.raw_ops
    joined = raw.TensorArrayConcatV3(handle=doubled.handle, flow_in=doubled.flow, dtype=tf.float32, name="joined")

    flags = array(2, dtype=tf.bool).write(1, x[0, 0] > 0.0).write(0, True).stack(name="flags")
    counts = array(2, dtype=tf.int64).unstack(tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64)).read(1, name="counts")
    sparse = array(4, element_shape=[3]).scatter([2, 0], x[:2])
    holes = sparse.gather([0, 1, 2, 3], name="holes")
    nothing = array(0, element_shape=[2, 5]).stack(name="nothing")

    # What tf.gradients makes of reads: an array of gradients, to whose elements several may be added.
    source = array(3, clear_after_read=False).unstack(x)
    first = raw.TensorArrayGradV3(handle=source.handle, flow_in=source.flow, source="gradients")
    flow = first.flow_out
    for index, factor in ((1, 1.0), (2, 2.0), (1, 10.0), (1, 100.0)):
        flow = raw.TensorArrayWriteV3(handle=first.grad_handle, index=index, value=x[0] * factor, flow_in=flow)
    second = raw.TensorArrayGradV3(handle=source.handle, flow_in=flow, source="gradients")
    sums = raw.TensorArrayGatherV3(
        handle=second.grad_handle, indices=[0, 1, 2], flow_in=second.flow_out, dtype=tf.float32, name="sums"
    )
    other = raw.TensorArrayGradV3(handle=source.handle, flow_in=source.flow, source="gradients_1")
    untouched = raw.TensorArrayReadV3(
        handle=other.grad_handle, index=2, flow_in=other.flow_out, dtype=tf.float32, name="untouched"
    )
    wide = raw.TensorArrayGradWithShape(
        handle=source.handle, flow_in=source.flow, shape_to_prepend=[2, n], source="wide"
    )
    prepended = raw.TensorArrayReadV3(
        handle=wide.grad_handle, index=0, flow_in=wide.flow_out, dtype=tf.float32, name="prepended"
    )
    flow = raw.TensorArrayWriteV3(handle=first.grad_handle, index=0, value=x[0, :2], flow_in=first.flow_out)
    unlike = raw.TensorArrayReadV3(handle=first.grad_handle, index=0, flow_in=flow, dtype=tf.float32, name="unlike")
    deeper = raw.TensorArrayGradV3(
        handle=first.grad_handle, flow_in=first.flow_out, source="gradients", name="deeper"
    ).flow_out
    fixed = array(0, dynamic_size=True).unstack(x)
    after = raw.TensorArrayGradV3(handle=fixed.handle, flow_in=fixed.flow, source="gradients")
    flow = raw.TensorArrayWriteV3(handle=fixed.handle, index=3, value=x[0], flow_in=after.flow_out)
    longer = raw.TensorArraySizeV3(handle=fixed.handle, flow_in=flow, name="longer")

    twice = array(1).write(0, 1.0).write(0, 2.0).stack(name="twice")
    beyond = array(2).write(n, 1.0).stack(name="beyond")
    once = array(1).write(0, 1.0)
    first = once.read(0)
    with tf.control_dependencies([first]):
        again = tf.identity(once.read(0), name="again")
    unwritten = array(2).read(n - 1, name="unwritten")
    uneven = array(2, infer_shape=False).write(0, x[0]).write(1, x[1, :2]).stack(name="uneven")
    lines = raw.TensorArrayV3(size=2, dtype=tf.float32, element_shape=[None])
    any_shape = v1.placeholder_with_default(x, None)
    flow = raw.TensorArrayWriteV3(handle=lines.handle, index=0, value=any_shape, flow_in=lines.flow)
    misfit = raw.TensorArrayReadV3(handle=lines.handle, index=0, flow_in=flow, dtype=tf.float32, name="misfit")
    ones = array(2)
    same = raw.TensorArrayV3(size=2, dtype=tf.float32, identical_element_shapes=True)
    flow = raw.TensorArrayWriteV3(handle=same.handle, index=0, value=x, flow_in=same.flow)
    zeros = raw.TensorArrayReadV3(handle=same.handle, index=1, flow_in=flow, dtype=tf.float32, name="zeros")
    flow = raw.TensorArrayWriteV3(handle=same.handle, index=1, value=x[0], flow_in=flow)
    differs = raw.TensorArrayReadV3(handle=same.handle, index=1, flow_in=flow, dtype=tf.float32, name="differs")
    mixed = raw.TensorArrayReadV3(handle=same.handle, index=0, flow_in=same.flow, dtype=tf.int32, name="mixed")
    with tf.control_dependencies([raw.TensorArrayCloseV3(handle=ones.handle)]):
        late = raw.TensorArrayReadV3(handle=ones.handle, index=0, flow_in=ones.flow, dtype=tf.float32, name="late")
    few = array(3).scatter([0, 3], x[:2]).stack(name="few")
    lengths = array(2).split(x, [1, n]).concat(name="lengths")

    f = lambda count: {x: values("x", (3, 3)), n: np.int32(count)}
    for count in (0, 7):
        r.step("a loop that reads what it wrote, %d" % count, [series, length], feeds=f(count))
    r.step("some of its elements", [some], feeds=f(5))
    r.step("split, changed, joined", [joined.value, joined.lengths], feeds=f(2))
    r.step("other types", [flags, counts], feeds=f(0))
    r.step("elements that nobody wrote, of known shape", [holes, zeros], feeds=f(0))
    r.step("no elements", [nothing])
    r.step("gradients", [sums, untouched, prepended], feeds=f(4))
    for name, fetch, count, words in (
        ("written twice", twice, 0, "Could not write to TensorArray index 0 because it has already been written to."),
        ("beyond the end", beyond, 2, "Tried to write to index 2 but array is not resizeable and size is: 2"),
        ("before the beginning", beyond, -1, "Tried to write to index -1 but array is not resizeable and size is: 2"),
        ("read twice", again, 0, "Could not read index 0 twice because it was cleared after a previous read"),
        ("never written, of unknown shape", unwritten, 1, "Could not read from TensorArray index 0.  Furthermore"),
        ("read beyond the end", unwritten, 3, "Tried to read from index 2 but array size is: 2"),
        ("elements of several shapes", uneven, 0, "Index 0 has shape: [3] but index 1 has shape: [2]"),
        ("an element of another rank", misfit, 0, "the value shape is [3,3] which is incompatible with the"),
        ("not the shape of the first", differs, 0, "(consider setting infer_shape=False)"),
        ("another type", mixed, 0, "TensorArray dtype is float but Op requested dtype int32."),
        ("a gradient of another shape", unlike, 0, "incompatible with the TensorArray's inferred element shape: [3]"),
        ("gradients of gradients", deeper, 0, "Wrong input container. "),
        ("longer after its gradients", longer, 0, "Tried to write to index 3 but array is not resizeable and size is: 3"),
        ("closed", late, 0, "has already been closed."),
        ("scattered beyond the end", few, 0, "Max scatter index must be < array size (3 vs. 3)"),
        ("lengths that are too short", lengths, 1, "but sum of lengths is 2 and value's shape is: [3,3]"),
        ("lengths that are too many", lengths, 3, "but sum of lengths is 4 and value's shape is: [3,3]"),
    ):
        r.step(name, [fetch], feeds=f(count), error="INVALID_ARGUMENT", error_contains=words)


def maps_and_scans(r):
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    w = tf.constant(values("w", (2, 2)))
    mapped = tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x, name="mapped")
    pairs = tf.map_fn(
        lambda both: (both[0] * both[1], both[0] > 0.0), (x, x * x), dtype=(tf.float32, tf.bool), name="pairs"
    )
    nested = tf.map_fn(lambda row: tf.map_fn(lambda e: e * e, row) + tf.reduce_sum(row), x, name="nested")
    scanned = tf.scan(lambda total, row: tf.sin(total + row) * 2.0, x, initializer=tf.zeros([2]), name="scanned")
    backwards = tf.scan(lambda total, row: total * row, x, reverse=True, name="backwards")
    folded = tf.foldl(lambda total, row: total * 0.5 + row * row, x, initializer=tf.ones([2]), name="folded")
    dy = tf.gradients(mapped * scanned, [x, w], name="gradients_dy")
    dz = tf.gradients([nested, backwards, folded], x, name="gradients_dz")
    for count in (1, 4):
        f = {x: values("x", (count, 2))}
        r.step("maps, %d rows" % count, [mapped, *pairs, nested], feeds=f)
        r.step("scans and folds, %d rows" % count, [scanned, backwards, folded], feeds=f)
        r.step("their gradients, %d rows" % count, [*dy, *dz], feeds=f, rtol=1e-4, atol=1e-5)


@graph
def map_and_scan(r):
    """map_fn, scan and foldl, and the gradients that tf.gradients makes of them."""
    maps_and_scans(r)


@graph
@of_the_new_kind
def map_and_scan_lists(r):
    """The same on lists of tensors."""
    maps_and_scans(r)


def lstm(r):
    from tensorflow.python.ops import rnn

    x = v1.placeholder(tf.float32, [None, None, 3], name="x")
    lengths = v1.placeholder(tf.int32, [None], name="lengths")
    target = v1.placeholder(tf.float32, [None, 1], name="target")
    kernel = variable("kernel", values("kernel", (7, 16), -0.5, 0.5))
    bias = variable("bias", np.zeros(16, np.float32))
    out = variable("out", values("out", (4, 1)))

    class Lstm:
        state_size, output_size = (4, 4), 4

        def zero_state(self, batch_size, dtype):
            return tf.zeros([batch_size, 4], dtype), tf.zeros([batch_size, 4], dtype)

        def __call__(self, inputs, state, scope=None):
            gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, state[1]], 1), kernel), bias)
            i, j, f, o = tf.split(gates, 4, axis=1)
            c = state[0] * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
            return h, (c, h)

    outputs, state = rnn.dynamic_rnn(Lstm(), x, sequence_length=lengths, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(tf.matmul(state[1], out) - target), name="loss")
    slope = tf.gradients(loss, [x, kernel, bias], name="gradients_slope")
    train = v1.train.MomentumOptimizer(0.2, 0.9).minimize(loss, name="train")
    r.step("initialise", targets=[v1.global_variables_initializer()])
    for i, (batch, time) in enumerate([(2, 5), (3, 4), (2, 1), (4, 6)]):
        f = {
            x: values(("x", i), (batch, time, 3)),
            lengths: ints([1 + (k * 3 + i) % time for k in range(batch)], np.int32),
            target: values(("y", i), (batch, 1)),
        }
        r.step("outputs and gradients %d" % i, [outputs, *state, loss, *slope], feeds=f, rtol=1e-4, atol=1e-5)
        r.step("train %d" % i, targets=[train], feeds=f)
    r.step("what it has learnt", ["kernel/Read/ReadVariableOp:0", "bias/Read/ReadVariableOp:0"], rtol=1e-4, atol=1e-5)


@graph
def recurrent_network(r):
    """dynamic_rnn: an LSTM over sequences of several lengths, trained for some steps."""
    lstm(r)


@graph
@of_the_new_kind
def recurrent_network_lists(r):
    """The same on lists of tensors."""
    lstm(r)


@graph
@of_the_new_kind
def tensor_lists(r):
    """Every op on lists of tensors, gradients of theirs, and whatever they refuse."""
    raw, scalar, none = tf.raw_ops, tf.constant([], tf.int32), tf.constant([], tf.int64)
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    n = v1.placeholder(tf.int32, [], name="n")
    f = lambda count: {x: values("x", (4, 3)), n: np.int32(count)}
    any_shape = v1.placeholder_with_default(x, None)

    def get(l, index, shape=-1, dtype=tf.float32, **kwargs):
        return raw.TensorListGetItem(
            input_handle=l, index=index, element_shape=shape, element_dtype=dtype, **kwargs
        )

    def stack(l, shape=-1, dtype=tf.float32, **kwargs):
        return raw.TensorListStack(input_handle=l, element_shape=shape, element_dtype=dtype, **kwargs)

    def reserve(count, shape=-1, dtype=tf.float32):
        return raw.TensorListReserve(element_shape=shape, num_elements=count, element_dtype=dtype)

    def put(l, index, item):
        return raw.TensorListSetItem(input_handle=l, index=index, item=item)

    def push(l, item):
        return raw.TensorListPushBack(input_handle=l, tensor=item)

    def pop(l, shape=-1, dtype=tf.float32):
        return raw.TensorListPopBack(input_handle=l, element_shape=shape, element_dtype=dtype)

    empty = raw.EmptyTensorList(element_shape=[3], max_num_elements=2, element_dtype=tf.float32)
    one = push(empty, x[0])
    two = push(one, x[1])
    # The lists that others were made of stay as they are.
    r.step("push", [stack(empty), stack(one), stack(two)], feeds=f(0))
    popped = pop(two)
    r.step("pop", [popped.tensor, stack(popped.output_handle), stack(two)], feeds=f(0))
    rows = raw.TensorListFromTensor(tensor=x, element_shape=[3])
    changed = put(rows, 1, x[0] * 2.0)
    r.step("from a tensor, with another row", [stack(rows, num_elements=4), stack(changed)], feeds=f(0))
    longer = raw.TensorListResize(input_handle=rows, size=n)
    r.step("longer", [stack(longer), raw.TensorListLength(input_handle=longer)], feeds=f(6))
    r.step("shorter", [stack(longer), raw.TensorListLength(input_handle=longer)], feeds=f(2))
    holes = put(reserve(4), 2, x[0])
    r.step("elements that nobody set", [stack(holes), get(holes, 0), get(holes, 2)], feeds=f(0))
    last = pop(holes, [3])
    r.step("the last of them", [last.tensor], feeds=f(0))
    some = raw.TensorListGather(
        input_handle=holes, indices=[3, 2, 2], element_shape=[-1], element_dtype=tf.float32, name="some"
    )
    r.step("some of them", [some], feeds=f(0))
    for name, shape in (("known", [3]), ("partly", [-1, 7]), ("unknown", -1)):
        l = reserve(0, shape)
        shapes = [raw.TensorListElementShape(input_handle=l, shape_type=t) for t in (tf.int32, tf.int64)]
        r.step("a shape that is " + name, shapes)
    scattered = raw.TensorListScatterV2(tensor=x, indices=[5, 0, 2, 1], element_shape=[3], num_elements=-1)
    sized = raw.TensorListScatterV2(tensor=x, indices=[3, 0, 2, 1], element_shape=-1, num_elements=n)
    old = raw.TensorListScatter(tensor=x, indices=[3, 0, 2, 1], element_shape=-1)
    into = raw.TensorListScatterIntoExistingList(input_handle=rows, tensor=x[:2] * 3.0, indices=[4, 1])
    r.step("scattered", [stack(scattered), stack(sized), stack(old), stack(into), stack(rows)], feeds=f(6))
    parts = raw.TensorListSplit(tensor=x, element_shape=[-1, 3], lengths=[1, 0, 3])
    joined = raw.TensorListConcatV2(input_handle=parts, element_shape=-1, leading_dims=none, element_dtype=tf.float32)
    former = raw.TensorListConcat(input_handle=parts, element_dtype=tf.float32)
    hole = raw.TensorListResize(input_handle=parts, size=5)
    filled = raw.TensorListConcatV2(
        input_handle=hole, element_shape=[-1, 3], leading_dims=[9, 9, 9, 2, 1], element_dtype=tf.float32
    )
    r.step("split and joined", [*joined, *former, *filled, get(parts, 2)], feeds=f(0))
    other_types = [
        stack(raw.TensorListFromTensor(tensor=tf.constant(t), element_shape=-1), dtype=tf.as_dtype(t.dtype))
        for t in (ints([[1, 2], [3, 4]]), ints([5, 6], np.int32), ints([1, 0], bool), values("d", (2, 2), dtype=np.float64))
    ]
    r.step("other types", other_types)
    # Lists of lists.
    outer = push(push(raw.EmptyTensorList(element_shape=scalar, max_num_elements=-1, element_dtype=tf.variant), rows), one)
    both = raw.TensorListStack(input_handle=outer, element_shape=scalar, element_dtype=tf.variant)
    batch = raw.TensorListPushBackBatch(input_handles=both, tensor=x[:2])
    lists = [get(raw.TensorListFromTensor(tensor=b, element_shape=scalar), 1, scalar, tf.variant) for b in (both, batch)]
    r.step("lists in a list", [stack(l) for l in lists] + [stack(get(outer, 0, scalar, tf.variant))], feeds=f(0))
    twice = raw.TensorListConcatLists(input_a=rows, input_b=two, element_dtype=tf.float32)
    r.step("one behind the other", [stack(twice)], feeds=f(0))
    total = raw.AddN(inputs=[rows, changed, put(reserve(4), 3, x[0])])
    r.step("sums and zeros", [stack(total), stack(raw.ZerosLike(x=rows)), stack(raw.ZerosLike(x=holes), [3])], feeds=f(0))

    # Elements of one list, each made of those before it.
    def fibonacci(i, l):
        return i + 1, push(l, get(l, i - 1, [3]) + get(l, i - 2, [3]) * 0.5)

    _, grown = v1.while_loop(lambda i, l: i < n, fibonacci, [4, rows], name="grown")
    for count in (0, 9):
        r.step("a loop that reads what it wrote, %d" % count, [stack(grown)], feeds=f(count))
    within = raw.TensorListScatterIntoExistingList(input_handle=rows, tensor=x[:2] * 3.0, indices=[3, 1])
    y = (
        tf.reduce_sum(stack(changed) * stack(longer)[:4] * stack(within))
        + tf.reduce_sum(some * some)
        + tf.reduce_sum(joined.tensor * filled.tensor[:4])
        + tf.reduce_sum(stack(scattered) * stack(sized))
        + tf.reduce_sum(popped.tensor * stack(popped.output_handle))
    )
    r.step("gradients", [y, *tf.gradients(y, x)], feeds=f(6))

    optional = raw.OptionalFromValue(components=[x, n])
    types = dict(output_types=[tf.float32, tf.int32], output_shapes=[[None, 3], []])
    value = raw.OptionalGetValue(optional=optional, **types)
    nothing = raw.OptionalNone()
    r.step(
        "optional values",
        [*value, raw.OptionalHasValue(optional=optional), raw.OptionalHasValue(optional=nothing)],
        feeds=f(7),
    )

    unlike = raw.OptionalGetValue(optional=optional, output_types=[tf.float32, tf.int32], output_shapes=[[9, 3], []])
    for name, fetch, count, words in (
        ("full", stack(push(two, x[2])), 0, "Tried to push item into a full list"),
        ("an element of another shape", stack(push(one, any_shape)), 0, "Tried to append a tensor with incompatible shape"),
        ("a row of another shape", stack(put(rows, n, any_shape)), 0, "Tried to set a tensor with incompatible shape"),
        ("popped of nothing", pop(empty).tensor, 0, "Trying to pop from an empty list."),
        ("a popped element that nobody set", pop(reserve(1)).tensor, 0, "Trying to read an uninitialized tensor but element_shape is not fully defined"),
        ("an element that nobody set", get(reserve(1), 0), 0, "Trying to read an uninitialized tensor but element_shape is not fully defined"),
        ("beyond the end", get(rows, n), 4, "Trying to access element 4 in a list with 4 elements."),
        ("changed beyond the end", stack(put(rows, n, x[0])), 4, "Trying to modify element 4 in a list with 4 elements."),
        ("a negative length", stack(longer), -1, "TensorListSlice expects size to be non-negative. Got: -1"),
        ("a negative number", stack(reserve(n)), -1, "The num_elements to reserve must be a non negative number, but got -1"),
        ("another number of elements", stack(longer, num_elements=4), 5, "Operation expected a list with 4 elements but got a list with 5 elements."),
        ("rows of an empty list", stack(raw.TensorListResize(input_handle=reserve(1), size=n)), 0, "Tried to stack elements of an empty list"),
        ("rows that nobody set", stack(reserve(2)), 0, "Tried to stack list which only contains uninitialized"),
        ("rows of several shapes", stack(parts), 0, ""),
        ("none of the elements", raw.TensorListGather(input_handle=holes, indices=scalar, element_shape=-1, element_dtype=tf.float32), 0, "Tried to gather 0-elements"),
        ("an element that is not there", raw.TensorListGather(input_handle=rows, indices=tf.reshape(n, [1]), element_shape=-1, element_dtype=tf.float32), 9, "list only has 4 elements."),
        ("joined scalars", raw.TensorListConcatV2(input_handle=raw.TensorListFromTensor(tensor=x[0], element_shape=-1), element_shape=-1, leading_dims=none, element_dtype=tf.float32).tensor, 0, "Concat saw a scalar shape at index 0"),
        ("joined, of unknown length", raw.TensorListConcatV2(input_handle=hole, element_shape=-1, leading_dims=none, element_dtype=tf.float32).tensor, 0, "List contains uninitialized tensor at index 3"),
        ("split too far", stack(raw.TensorListSplit(tensor=x, element_shape=-1, lengths=tf.cast([1, n], tf.int64))), 4, "Attempting to slice [1, 5] from tensor with length 4"),
        ("split, with a rest", stack(raw.TensorListSplit(tensor=x, element_shape=-1, lengths=tf.cast([1, n], tf.int64))), 2, "Unused values in tensor. Length of tensor: 4 Values used: 3"),
        ("scattered too far", stack(sized), 3, "Trying to scatter at index 3 in list with size 3"),
        ("sums of lists of several lengths", stack(raw.AddN(inputs=[rows, longer])), 5, "Trying to add two lists of tensors with different lengths."),
        ("no value", raw.OptionalGetValue(optional=nothing, **types)[0], 0, "The given optional does not have a value."),
        ("a value of another shape", unlike[0], 0, ""),
    ):
        r.step(name, [fetch], feeds=f(count), error="INVALID_ARGUMENT", error_contains=words or None)


@graph
def functional_control_flow(r):
    """Conds and loops as TensorFlow 2 writes them: If, Case, While and their stateless forms."""
    v1.enable_control_flow_v2()
    x = v1.placeholder(tf.float32, [], name="x")
    v = v1.placeholder(tf.float32, [3], name="v")
    n = variable("n", np.array(0, np.int32))

    chosen = v1.cond(x < 1.0, lambda: tf.exp(x) * v, lambda: v - tf.math.log(x), name="chosen")
    changed = v1.cond(x > 2.0, lambda: n.assign_add(10), lambda: n.assign_sub(1), name="changed")
    with tf.control_dependencies([changed]):
        counted = tf.identity(n.read_value(), name="counted")

    def body(i, y):
        with tf.control_dependencies([n.assign_add(1)]):
            y = v1.cond(tf.equal(i % 2, 0), lambda: y * 2.0, lambda: y + v)
        return i + 1, y

    _, looped = v1.while_loop(lambda i, y: tf.reduce_sum(y) < 100.0, body, [tf.constant(0), v], name="looped")
    pure = v1.while_loop(
        lambda i, total: i < 4,
        lambda i, total: (
            i + 1,
            v1.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t * x + 1.0), [tf.constant(0), total])[1],
        ),
        [tf.constant(0), x],
        name="pure",
    )
    index = v1.placeholder(tf.int32, [], name="index")
    picked = tf.switch_case(index, [lambda: v * x, lambda: v + x, lambda: -v], name="picked")
    v1.disable_control_flow_v2()

    f = lambda value: {x: np.float32(value), v: values("v", (3,), 0.5, 2.0)}
    r.step("initialise", targets=[v1.global_variables_initializer()])
    for value in (0.5, 3.0):
        r.step("a cond, x = %g" % value, [chosen], feeds=f(value))
        r.step("a cond with effects, x = %g" % value, [counted], feeds=f(value))
    r.step("a loop with effects and a cond", [looped], feeds=f(0))
    r.step("its effects", ["n/Read/ReadVariableOp:0"])
    r.step("a loop in a loop", [pure[1]], feeds=f(0.75))
    for i in (-1, 0, 1, 2, 3):
        r.step("a case, %d" % i, [picked], feeds={**f(0.25), index: np.int32(i)})


@graph
def for_loops(r):
    """The op For, one in another, and what it refuses."""
    from tensorflow.python.framework.function import Defun
    from tensorflow.python.ops.functional_ops import For

    start, limit, delta = (v1.placeholder(tf.int32, [], name=name) for name in ("start", "limit", "delta"))
    x, y = (v1.placeholder(tf.float32, [2], name=name) for name in "xy")

    @Defun(tf.int32, tf.float32, tf.float32)
    def body(i, a, b):
        return a * 0.5 + b * tf.cast(i, tf.float32), b

    @Defun(tf.int32, tf.float32, tf.float32)
    def outer(i, a, b):
        inner = For(0, i, 1, [a, b], body)
        return inner[0], inner[1] + 1.0

    once = For(start, limit, delta, [x, y], body)
    twice = For(start, limit, delta, [x, y], outer)
    f = {x: values("x", (2,)), y: values("y", (2,))}
    for a, b, c in ((0, 4, 1), (1, 8, 3), (5, 0, -2), (3, 3, 1), (3, 3, 0), (-2, 2, 2)):
        r.step("from %d to %d by %d" % (a, b, c), once, feeds={**f, start: np.int32(a), limit: np.int32(b), delta: np.int32(c)})
    for a, b, c in ((0, 4, -1), (4, 0, 1), (0, 1, 0)):
        r.step("from %d to %d by %d" % (a, b, c), once, feeds={**f, start: np.int32(a), limit: np.int32(b), delta: np.int32(c)},
               error="INVALID_ARGUMENT", error_contains="Invalid start/limit/delta:")
    r.step("a loop in a loop", twice, feeds={**f, start: np.int32(0), limit: np.int32(4), delta: np.int32(1)})


@graph
def control_flow_cluster(r):
    """Conds whose branches run on several tasks, and a loop on one of them between the others."""
    r.extra["cluster"] = {"ps": 1, "worker": 2}
    x = v1.placeholder(tf.float32, [None], name="x")
    with tf.device("/job:ps/task:0"):
        w = variable("w", values("w", (3,)))
        init = v1.global_variables_initializer()
        positive = tf.reduce_sum(x) > 0.0

    def on_worker(task, function):
        def branch():
            with tf.device("/job:worker/task:%d" % task):
                return function()

        return branch

    with tf.device("/job:ps/task:0"):
        chosen = v1.cond(
            positive,
            on_worker(0, lambda: tf.reduce_sum(tf.square(x)) + 1.0),
            on_worker(1, lambda: tf.constant(2.0) - tf.reduce_sum(x * w)),
            name="chosen",
        )
    with tf.device("/job:worker/task:1"):
        halved = v1.while_loop(lambda y: tf.abs(y) > 1.0, lambda y: y * 0.5, [chosen], name="halved")
    with tf.device("/job:ps/task:0"):
        after = tf.identity(halved + w, name="after")
    slope = tf.gradients(chosen, [x], name="slope")
    r.step("initialise", targets=[init])
    for sign in (1.0, -1.0):
        f = {x: sign * values("x", (3,), 0.5, 2.0)}
        r.step("a cond over tasks, %+d" % sign, [chosen], feeds=f)
        r.step("a loop behind it, %+d" % sign, [halved, after], feeds=f)
        r.step("its gradient, %+d" % sign, slope, feeds=f)


# ---- variables by reference ---------------------------------------------------------------------------------------


def by_reference(fn):
    """With variables as TensorFlow 1.x makes them by default."""

    @functools.wraps(fn)
    def run(r):
        v1.disable_resource_variables()
        try:
            fn(r)
        finally:
            v1.enable_resource_variables()

    return run


def ref_variable(name, value):
    return v1.get_variable(name, initializer=tf.constant(value), use_resource=False)


@graph
@by_reference
def ref_variables(r):
    x = ref_variable("x", np.array([[1, 2], [3, 4]], np.float32))
    n = ref_variable("n", np.array(0, np.int64))
    init = v1.global_variables_initializer()
    ready = tf.stack([v1.is_variable_initialized(x), v1.is_variable_initialized(n)], name="ready")
    grow = v1.assign_add(n, 5, name="grow")
    put = v1.placeholder(tf.float32, [None, None], name="put")
    assign = v1.assign(x, put, name="assign")
    reshape = v1.assign(x, put, validate_shape=False, name="reshape")
    add = v1.assign_add(x, [[0.5, 0.5], [0.5, -0.5]], name="add")
    sub = v1.assign_sub(add, [[1.0, 0.0], [0.0, 1.0]], name="sub")
    # What is read directly is read when its reader runs, and its reader waits for an update.
    with tf.control_dependencies([v1.assign_add(x, tf.ones([2, 2]), name="more")]):
        after = tf.add(x._ref(), 0.0, name="after")
        again = tf.identity(x.read_value(), name="again")
    twice = tf.add(v1.assign_add(n, 1), v1.assign_add(n, 1), name="twice")
    copy = v1.assign(ref_variable("y", np.zeros((2, 2), np.float32)), x._ref() * 2.0, name="copy")
    scatter = v1.scatter_add(x, [1, 0, 1], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], name="scatter")
    back = v1.scatter_sub(scatter, [0], [[1.0, 1.0]], name="back")
    count = v1.count_up_to(n, 24, name="count")
    rows = tf.gather(x, [1, 0, 1], name="rows")
    shape = v1.shape(x._ref(), name="shape")
    old = v1.get_default_graph().create_op(
        "Variable", [], [tf.dtypes.as_dtype("float32_ref")], attrs=dict(
            shape=attr_value_pb2.AttrValue(shape=tf.TensorShape([]).as_proto()),
            dtype=attr_value_pb2.AttrValue(type=tf.float32.as_datatype_enum)), name="old").outputs[0]
    fill = v1.assign(old, [1.0, 2.0, 3.0], validate_shape=False, name="fill")

    r.step("nothing is initialised", [ready])
    early = dict(error="FAILED_PRECONDITION", error_contains="Attempting to use uninitialized value x")
    r.step("reading too early", ["x/read:0"], **early)
    r.step("fetching too early", ["x:0"], **early)
    r.step("changing too early", [add], **early)
    r.step("initialise", targets=[init])
    r.step("now it is", [ready, "x/read:0", "x:0", "n:0"])
    r.step("count", [grow])
    r.step("count again", [grow])
    r.step("add", [add])
    r.step("add and subtract", [sub])
    r.step("see both", ["x:0", shape])
    r.step("feed what is read", [rows], feeds={"x/read:0": np.array([[5, 6], [7, 8]], np.float32)})
    r.step("assign", [assign], feeds={put: np.array([[9, 8], [7, 6]], np.float32)})
    wrong = np.ones((3, 2), np.float32)
    r.step("assign another shape", [assign], feeds={put: wrong}, error="INVALID_ARGUMENT",
           error_contains="Assign requires shapes of both tensors to match")
    r.step("assign another shape without a check", targets=[reshape.op], feeds={put: wrong})
    r.step("it has that shape", [shape])
    r.step("assign the first shape", [assign], feeds={put: np.eye(2, dtype=np.float32)}, error="INVALID_ARGUMENT",
           error_contains="lhs shape= [3,2] rhs shape= [2,2]")
    r.step("without a check", targets=[reshape.op], feeds={put: np.array([[9, 8], [7, 6]], np.float32)})
    r.step("read after an addition", [after])
    r.step("and by read_value", [again])
    r.step("two additions in one step", [twice])
    r.step("fetched beside an addition", ["n:0", "n/read:0"], [grow.op])
    r.step("assign what is read", [copy])
    r.step("scatter", [scatter])
    r.step("scatter there and back", [back])
    r.step("gather rows", [rows])
    for _ in range(4):
        r.step("up to a limit", [count])
    r.step("an old variable", [fill])
    r.step("initialise again", targets=[init])
    r.step("as at first", ["x:0", "n/read:0"])


@graph
@by_reference
def ref_training(r):
    """The optimizers of TensorFlow 1.x on variables by reference, dense and by rows."""
    x = tf.constant(values("x", (6, 4)))
    for name, opt in (
        ("descent", v1.train.GradientDescentOptimizer(0.3)),
        ("momentum", v1.train.MomentumOptimizer(0.2, 0.9)),
        ("nesterov", v1.train.MomentumOptimizer(0.2, 0.9, use_nesterov=True)),
        ("adagrad", v1.train.AdagradOptimizer(0.3, 0.2)),
        ("rmsprop", v1.train.RMSPropOptimizer(0.05, 0.8, 0.5, 1e-3)),
        ("centered", v1.train.RMSPropOptimizer(0.05, 0.8, 0.5, 1e-2, centered=True)),
        ("adam", v1.train.AdamOptimizer(0.05, beta1=0.8, beta2=0.99, epsilon=1e-4)),
    ):
        with v1.variable_scope(name):
            table = ref_variable("table", values("table", (5, 4)))
            w = ref_variable("w", values("w", (4, 3)))
            ids = v1.placeholder(tf.int64, [None], name="ids")
            product = tf.matmul(x * tf.nn.embedding_lookup(table, ids), w)
            loss = tf.reduce_mean(tf.square(product - 0.5), name="loss")
            step = ref_variable("step", np.array(0, np.int64))
            train = opt.minimize(loss, global_step=step, var_list=[table, w], name="train")
            # Behind the update, by way of the read that was there before it: TensorFlow's averages see new values.
            average = v1.train.ExponentialMovingAverage(0.5, step)
            with tf.control_dependencies([train]):
                both = average.apply([w])
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i, rows in enumerate(([0, 2, 2, 4, 1, 0], [3, 3, 3, 3, 3, 3], [4, 3, 2, 1, 0, 4])):
            r.step("%s train %d" % (name, i), [loss], [both], {ids: ints(rows)})
        r.step(name + " table and slots", [v.read_value() for v in v1.global_variables(name)])


@graph
@by_reference
def ref_control_flow(r):
    """Variables by reference that are changed in branches and loops."""
    x = v1.placeholder(tf.float32, [], name="x")
    n = ref_variable("n", np.array(0, np.float32))
    m = ref_variable("m", np.array(100, np.float32))
    init = v1.global_variables_initializer()
    changed = v1.cond(x > 2.0, lambda: v1.assign_add(n, 10.0), lambda: v1.assign_sub(n, x), name="changed")
    seen = v1.cond(x > 2.0, lambda: n.read_value(), lambda: n * x, name="seen")
    either = v1.cond(x > 2.0, lambda: n._ref(), lambda: m._ref(), name="either")

    def body(i):
        with tf.control_dependencies([v1.assign_add(n, 1.0)]):
            return i + n.read_value()

    looped = v1.while_loop(lambda i: i < 20.0, body, [tf.constant(0.0)], name="looped")
    number = v1.placeholder(tf.int32, [], name="number")
    chosen = tf.raw_ops.RefSelect(index=number, inputs=[n._ref(), m._ref()])
    selected = tf.add(chosen, 0.5, name="selected")
    added = tf.raw_ops.AssignAdd(ref=chosen, value=1000.0, name="added")
    r.step("initialise", targets=[init])
    for value in (3.0, 1.0, 2.5):
        r.step("a cond that changes it, x = %g" % value, [changed], feeds={x: np.float32(value)})
        r.step("its effect, x = %g" % value, [seen, "n:0"], feeds={x: np.float32(value)})
        r.step("one of two, x = %g" % value, [either], feeds={x: np.float32(value)})
    r.step("a loop that changes it", [looped])
    r.step("the loop's effect", ["n:0"])
    for i in (1, 0, 1):
        r.step("number %d is changed" % i, [added], feeds={number: np.int32(i)})
        r.step("and read", [selected, "n:0", "m:0"], feeds={number: np.int32(i)})
    for i in (2, -1):
        r.step("there is no number %d" % i, [selected], feeds={number: np.int32(i)}, error="INVALID_ARGUMENT", error_contains="must be in the range")


@graph
@by_reference
def ref_cluster(r):
    """The softmax of the first tutorial, its variables by reference on a ps, between two workers."""
    r.extra["cluster"] = {"ps": 1, "worker": 2}
    with v1.device(v1.train.replica_device_setter(1, worker_device="/job:worker/task:1")):
        x = v1.placeholder(tf.float32, [None, 12], name="x")
        y = v1.placeholder(tf.float32, [None, 4], name="y")
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=tf.constant(values("w", (12, 4))))
        b = v1.get_variable("b", initializer=tf.constant(np.zeros(4, np.float32)))
        p = tf.nn.softmax(tf.matmul(x, w) + b)
        loss = tf.reduce_mean(-tf.reduce_sum(y * tf.math.log(p), axis=1), name="loss")
        train = v1.train.MomentumOptimizer(0.5, 0.5).minimize(loss, global_step=step, name="train")
        init = v1.global_variables_initializer()
        with tf.control_dependencies([train]):
            after = tf.add(w._ref(), 0.0, name="after")
    with tf.device("/job:worker/task:0"):
        elsewhere = tf.identity(w.read_value() * 2.0, name="elsewhere")
    r.step("initialise", targets=[init])
    for i in range(4):
        xs = values(("x", i), (5, 12))
        ys = np.eye(4, dtype=np.float32)[np.argmax(xs[:, :4], 1)]
        r.step("train %d" % i, [loss], [train], {x: xs, y: ys})
    r.step("train and read", [after], feeds={x: xs, y: ys})
    r.step("variables", ["w:0", "b/read:0", step.read_value(), elsewhere])


OTHER_OPTIMIZERS = (
    ("adadelta", lambda: v1.train.AdadeltaOptimizer(0.5, 0.8, 1e-2)),
    ("ftrl", lambda: v1.train.FtrlOptimizer(0.3, -0.5, 0.2, 0.01, 0.02)),
    ("ftrl_power", lambda: v1.train.FtrlOptimizer(0.3, -0.3, 0.2, 0.01, 0.02)),
    ("ftrl_shrinks", lambda: v1.train.FtrlOptimizer(0.3, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1)),
    ("proximal_descent", lambda: v1.train.ProximalGradientDescentOptimizer(0.3, 0.05, 0.1)),
    ("proximal_descent_l2", lambda: v1.train.ProximalGradientDescentOptimizer(0.3, 0.0, 0.1)),
    ("proximal_adagrad", lambda: v1.train.ProximalAdagradOptimizer(0.3, 0.2, 0.05, 0.1)),
    ("adagrad_da", lambda: None),
)


def other_optimizers(r, use_resource):
    """Optimizers that only CPUs have kernels for, dense and by rows."""
    x = tf.constant(values("x", (6, 4)))
    for name, make in OTHER_OPTIMIZERS:
        with v1.variable_scope(name, use_resource=use_resource):
            table = v1.get_variable("table", initializer=tf.constant(values("table", (5, 4))))
            w = v1.get_variable("w", initializer=tf.constant(values("w", (4, 3))))
            step = v1.get_variable("step", initializer=tf.constant(0, tf.int64))
            opt = make() or v1.train.AdagradDAOptimizer(0.3, step, 0.2, 0.01, 0.02)
            ids = v1.placeholder(tf.int64, [None], name="ids")
            product = tf.matmul(x * tf.nn.embedding_lookup(table, ids), w)
            loss = tf.reduce_mean(tf.square(product - 0.5), name="loss")
            train = opt.minimize(loss, global_step=step, var_list=[table, w], name="train")
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i, rows in enumerate(([0, 2, 2, 4, 1, 0], [3, 3, 3, 3, 3, 3], [4, 3, 2, 1, 0, 4])):
            r.step("%s train %d" % (name, i), [loss], [train], {ids: ints(rows)}, rtol=1e-4)
        r.step(name + " table and slots", [v.read_value() for v in v1.global_variables(name)], rtol=1e-4, atol=1e-5)
    raw = tf.raw_ops
    for name, slots, apply in (
        ("AddSign", 1, lambda op, v, g: op(var=v[0], m=v[1], lr=0.1, alpha=1.5, sign_decay=0.7, beta=0.8, grad=g)),
        ("PowerSign", 1, lambda op, v, g: op(var=v[0], m=v[1], lr=0.1, logbase=0.9, sign_decay=0.7, beta=0.8, grad=g)),
        ("AdaMax", 2, lambda op, v, g: op(
            var=v[0], m=v[1], v=v[2], beta1_power=0.8, lr=0.1, beta1=0.8, beta2=0.9, epsilon=1e-3, grad=g)),
    ):
        with v1.variable_scope(name, use_resource=use_resource):
            all = [v1.get_variable("v%d" % i, initializer=tf.constant(values((name, i), (3, 4)))) for i in range(slots + 1)]
            op = getattr(raw, ("ResourceApply" if use_resource else "Apply") + name)
            gradient = v1.placeholder(tf.float32, [3, 4], name="gradient")
            update = apply(op, [v.handle if use_resource else v._ref() for v in all], gradient)
            init = v1.variables_initializer(all, name="init")
        r.step(name + " initialise", targets=[init])
        for i in range(3):
            r.step("%s %d" % (name, i), targets=[update.op if not use_resource else update],
                   feeds={gradient: values((name, "g", i), (3, 4))})
        r.step(name + " variables", [v.read_value() for v in all])


@graph
def resource_optimizers(r):
    other_optimizers(r, True)


@graph
@by_reference
def ref_optimizers(r):
    other_optimizers(r, False)


@graph
def keras_optimizers(r):
    """The updates of Keras' optimizers, dense and by rows, for variables and slots of two types."""
    raw = tf.raw_ops
    for dtype in (tf.float32, tf.float64):
        cast = lambda a: tf.constant(a.astype(dtype.as_numpy_dtype))
        for name, slots, of_rows, apply in (
            ("momentum", 1, False, lambda h, g, ids: raw.ResourceApplyKerasMomentum(
                var=h[0], accum=h[1], lr=cast(np.float32(0.3)), grad=g, momentum=cast(np.float32(0.8)))),
            ("nesterov", 1, False, lambda h, g, ids: raw.ResourceApplyKerasMomentum(
                var=h[0], accum=h[1], lr=cast(np.float32(0.3)), grad=g, momentum=cast(np.float32(0.8)), use_nesterov=True)),
            ("momentum_rows", 1, True, lambda h, g, ids: raw.ResourceSparseApplyKerasMomentum(
                var=h[0], accum=h[1], lr=cast(np.float32(0.3)), grad=g, indices=ids, momentum=cast(np.float32(0.8)))),
            ("nesterov_rows", 1, True, lambda h, g, ids: raw.ResourceSparseApplyKerasMomentum(
                var=h[0], accum=h[1], lr=cast(np.float32(0.3)), grad=g, indices=ids, momentum=cast(np.float32(0.8)),
                use_nesterov=True)),
            ("amsgrad", 3, False, lambda h, g, ids: raw.ResourceApplyAdamWithAmsgrad(
                var=h[0], m=h[1], v=h[2], vhat=h[3], beta1_power=cast(np.float32(0.8)), beta2_power=cast(np.float32(0.9)),
                lr=cast(np.float32(0.1)), beta1=cast(np.float32(0.8)), beta2=cast(np.float32(0.9)),
                epsilon=cast(np.float32(1e-3)), grad=g)),
        ):
            with v1.variable_scope("%s_%s" % (name, dtype.name), use_resource=True):
                all = [v1.get_variable("v%d" % i, initializer=cast(values((name, i), (5, 4), 0.1 if i else -1.0)))
                       for i in range(slots + 1)]
                ids = v1.placeholder(tf.int32, [None], name="ids")
                gradient = v1.placeholder(dtype, [None, 4] if of_rows else [5, 4], name="gradient")
                update = apply([v.handle for v in all], gradient, ids)
                init = v1.variables_initializer(all, name="init")
            r.step(init.name + " initialise", targets=[init])
            for i, rows in enumerate(([2, 0, 2], [4, 4, 4], [1, 3, 0])):
                g = values((name, "g", i), (3 if of_rows else 5, 4)).astype(dtype.as_numpy_dtype)
                r.step("%s %d" % (update.name, i), targets=[update], feeds={ids: ints(rows, np.int32), gradient: g})
            r.step(update.name + " variables", [v.read_value() for v in all])
            if of_rows:
                r.step(update.name + " beyond", targets=[update], feeds={ids: ints([1, 2, 5], np.int32), gradient: g},
                       error="INVALID_ARGUMENT")


@graph
def gather_nd(r):
    """tf.gather_nd of variables, and its gradients: by rows and dense."""
    w = variable("w", values("w", (4, 3, 2)))
    s = v1.get_variable("s", initializer=tf.constant([["a", "bb"], ["ccc", "dddd"]]), use_resource=True)
    rows = v1.placeholder(tf.int64, [None, 1], name="rows")
    at = v1.placeholder(tf.int32, [None, None, None], name="at")
    picked, elements = tf.gather_nd(w, rows, name="picked"), tf.gather_nd(w, at, name="elements")
    texts = tf.strings.length(tf.gather_nd(s, [[1, 0], [0, 1]]), name="texts")
    loss = tf.reduce_sum(tf.square(picked)) + tf.reduce_sum(tf.square(elements) * 0.5, name="loss")
    dense = tf.gradients(tf.reduce_sum(tf.square(elements)), w)[0]
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[w], name="train")
    r.step("initialise", targets=[v1.global_variables_initializer()])
    some = {rows: ints([[3], [0], [3]]), at: ints([[[1, 2, 0], [1, 2, 0]], [[0, 0, 1], [3, 1, 1]]], np.int32)}
    r.step("rows, elements, texts", [picked, elements, texts], feeds=some)
    r.step("slices", [elements], feeds={at: ints([[[1, 2]], [[0, 0]]], np.int32)})
    r.step("all of it", [elements], feeds={at: np.zeros((2, 1, 0), np.int32)})
    r.step("the gradient", [dense], feeds=some)
    r.step("train", [loss], [train], feeds=some)
    r.step("after that", [w.read_value()])
    r.step("there is no row 4", [picked], feeds={rows: ints([[4]])}, error="INVALID_ARGUMENT")
    r.step("more dimensions than there are", [elements], feeds={at: np.zeros((1, 1, 4), np.int32)}, error="INVALID_ARGUMENT")


def scatters(r, use_resource):
    """Changes of rows and slices."""
    raw = tf.raw_ops
    start = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    rows, row_updates = [2, 0, 2], values("rows", (3, 3), 0.5, 2.0)
    at, at_updates = [[1, 2], [3, 0], [1, 2]], values("at", (3,), 0.5, 2.0)
    slices, slice_updates = [[3], [1]], values("slices", (2, 3), 0.5, 2.0)
    for dtype in (tf.float32, tf.int64):
        cast = lambda a: tf.constant(np.ceil(a).astype(dtype.as_numpy_dtype))
        with v1.variable_scope(dtype.name, use_resource=use_resource):
            v = v1.get_variable("v", initializer=cast(start))
            r.step(dtype.name + " initialise", targets=[v.initializer])
            index = v1.placeholder(tf.int32, [None], name="index")
            for kind in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
                if use_resource:
                    op = getattr(raw, "ResourceScatter" + kind)
                    change = op(resource=v.handle, indices=rows, updates=cast(row_updates))
                    single = op(resource=v.handle, indices=index, updates=cast(np.float32(3)))
                else:
                    op = getattr(raw, "Scatter" + kind)
                    change = op(ref=v._ref(), indices=rows, updates=cast(row_updates)).op
                    single = op(ref=v._ref(), indices=index, updates=cast(np.float32(3))).op
                r.step("%s %s rows" % (dtype.name, kind), targets=[change])
                r.step("%s %s by one number" % (dtype.name, kind), targets=[single], feeds={index: ints([1, 3], np.int32)})
                r.step("%s beyond, %s" % (dtype.name, kind), targets=[single], feeds={index: ints([4, 1], np.int32)},
                       error="INVALID_ARGUMENT", error_contains="= 4 is not in [0, 4)")
                r.step("%s after %s" % (dtype.name, kind), [v.read_value()])
            for kind in ("Update", "Add", "Sub", "Min", "Max"):
                op = getattr(raw, ("ResourceScatterNd" if use_resource else "ScatterNd") + kind)
                ref = v.handle if use_resource else v._ref()
                elements = op(ref=ref, indices=at, updates=cast(at_updates))
                parts = op(ref=ref, indices=slices, updates=cast(slice_updates))
                r.step("%s Nd %s elements" % (dtype.name, kind), targets=[elements if use_resource else elements.op])
                r.step("%s Nd %s slices" % (dtype.name, kind), targets=[parts if use_resource else parts.op])
                r.step("%s after Nd %s" % (dtype.name, kind), [v.read_value()])
            bounds = dict(begin=[2, 0], end=[0, 3], strides=[-1, 2], value=cast(values("part", (2, 2), 0.5, 2.0)))
            if use_resource:
                assign = raw.ResourceStridedSliceAssign(ref=v.handle, **bounds)
            else:
                assign = raw.StridedSliceAssign(ref=v._ref(), **bounds).op
            r.step(dtype.name + " assign a strided slice", targets=[assign])
            r.step(dtype.name + " after that", [v.read_value()])


@graph
def resource_scatters(r):
    scatters(r, True)


@graph
@by_reference
def ref_scatters(r):
    scatters(r, False)
    with tf.name_scope("temporary"):
        sum = tf.raw_ops.TemporaryVariable(shape=[3], dtype=tf.float32, var_name="sum")
        filled = v1.assign(sum, tf.zeros([3]))
        added = v1.assign_add(filled, [1.0, 2.0, 3.0])
        with tf.control_dependencies([added]):
            twice = v1.assign_add(filled, added * 2.0)
        with tf.control_dependencies([twice]):
            last = tf.raw_ops.DestroyTemporaryVariable(ref=sum, var_name="sum", name="last")
    r.step("a temporary variable", [last])
    r.step("and once more", [last])


# ---- resources by reference ------------------------------------------------------------------------------------------


@graph
def ref_barriers(r):
    """Barriers: elements whose components come one by one, by key. TensorFlow's process ends at a component_index or a num_elements below 0."""
    ops = tf.raw_ops
    n = v1.placeholder(tf.int32, [], name="n")
    keys = v1.placeholder(tf.string, [None], name="keys")
    numbers = v1.placeholder(tf.float32, [None], name="numbers")
    pairs = v1.placeholder(tf.int64, [None, None], name="pairs")
    types = [tf.float32, tf.int64]

    def barrier(name, **more):
        b = ops.Barrier(component_types=types, shapes=[[], [2]], name=name, **more)
        take = lambda suffix, **k: ops.BarrierTakeMany(handle=b, num_elements=n, component_types=types, name=name + suffix, **k)
        return dict(
            number=ops.BarrierInsertMany(handle=b, keys=keys, values=numbers, component_index=0, name=name + "_number"),
            pair=ops.BarrierInsertMany(handle=b, keys=keys, values=pairs, component_index=1, name=name + "_pair"),
            take=take("_take"),
            some=take("_some", allow_small_batch=True),
            close=ops.BarrierClose(handle=b, name=name + "_close"),
            cancel=ops.BarrierClose(handle=b, cancel_pending_enqueues=True, name=name + "_cancel"),
            sizes=[ops.BarrierReadySize(handle=b, name=name + "_ready"), ops.BarrierIncompleteSize(handle=b, name=name + "_incomplete")],
            handle=b,
        )

    # No string is compared: a key is fetched as its codes.
    codes = lambda texts: tf.cast(tf.io.decode_raw(texts, tf.uint8), tf.int32)
    taken = lambda t: [t.indices, codes(t.keys), *t.values]

    def give(b, k, values, name, **expect):
        one = np.ndim(values) == 1
        feeds = {keys: np.array(k), (numbers if one else pairs): np.array(values, np.float32 if one else np.int64)}
        r.step(name, targets=[b["number" if one else "pair"]], feeds=feeds, **expect)

    a = barrier("a", shared_name="first")
    r.step("empty", a["sizes"])
    give(a, [b"x", b"y"], [1.5, 2.5], "two keys")
    give(a, [b"z", b"x", b"q"], [3.5, 4.5, 5.5], "one of which is there: what stands before it goes in", error="INVALID_ARGUMENT",
         error_contains="Key x already has a value for component 0")
    r.step("three incomplete ones", a["sizes"])
    give(a, [b"y", b"w", b"x"], [[1, 2], [3, 4], [5, 6]], "two complete, and a new one")
    r.step("of each kind two", a["sizes"])
    take_one, take_some = taken(a["take"]), taken(a["some"])
    r.step("take one", take_one, feeds={n: np.int32(1)})
    r.step("take none", take_one, feeds={n: np.int32(0)})
    give(a, [b"w"], [9.5], "complete one that came as the second")
    give(a, [b"w"], [[7, 7, 7]], "the same key anew, of a wrong shape")
    give(a, [b"w"], [6.5], "is seen when it is complete", error="INVALID_ARGUMENT", error_contains="Shape mismatch in tuple component 3. Expected [2], got [3]")
    r.step("and the key is lost", a["sizes"])
    again = ops.Barrier(component_types=types, shapes=[[], [2]], shared_name="first", name="again")
    r.step("another node of the barrier", [ops.BarrierReadySize(handle=again)])
    wrong = ops.BarrierTakeMany(handle=a["handle"], num_elements=n, component_types=[tf.float32])
    r.step("take other types", [wrong.indices], feeds={n: np.int32(1)}, error="INVALID_ARGUMENT")
    late = ops.BarrierTakeMany(handle=a["handle"], num_elements=n, component_types=types, timeout_ms=5)
    r.step("a time", [late.indices], feeds={n: np.int32(1)}, error="INVALID_ARGUMENT", error_contains="Timeout not supported yet.")
    far = ops.BarrierInsertMany(handle=a["handle"], keys=keys, values=numbers, component_index=2)
    r.step("a component too many", targets=[far], feeds={keys: np.array([b"x"]), numbers: np.float32([1])}, error="INVALID_ARGUMENT",
           error_contains="The component ID is out of range 2 > num_components (= 2)")
    odd = ops.BarrierInsertMany(handle=a["handle"], keys=keys, values=pairs, component_index=0)
    r.step("a component of another type", targets=[odd], feeds={keys: np.array([b"x"]), pairs: ints([[1]])}, error="INVALID_ARGUMENT")
    give(a, [b"p"], np.zeros([1, 0]), "nothing in it", error="INVALID_ARGUMENT", error_contains="Tensors with no elements are not supported")
    r.step("close", targets=[a["close"]])
    r.step("close again", targets=[a["close"]], error="CANCELLED", error_contains="is already closed.")
    give(a, [b"new"], [1.5], "a new key", error="CANCELLED", error_contains="is closed, but attempted to insert a brand new key: new")
    r.step("more than can come", take_one, feeds={n: np.int32(9)}, error="OUT_OF_RANGE", error_contains="is closed and has insufficient elements (requested 9, total size 3)")
    r.step("all that is there", take_some, feeds={n: np.int32(9)})
    r.step("nothing is there, though it could come", take_some, feeds={n: np.int32(9)}, error="OUT_OF_RANGE", error_contains="(requested 0, total size 0)")
    give(a, [b"z"], [[1, 2]], "a key from before")
    r.step("none is left incomplete", a["sizes"])
    give(a, [b"z"], [[1, 2]], "and so nothing can come", error="CANCELLED", error_contains="is closed.")
    give(a, np.zeros([0], "S1"), np.zeros([0]), "but nothing at all may")
    r.step("the last", take_one, feeds={n: np.int32(1)})
    r.step("none of none", take_one, feeds={n: np.int32(0)}, error="OUT_OF_RANGE")

    b = barrier("b")
    give(b, [b"x", b"y"], [1.5, 2.5], "b: two keys")
    give(b, [b"x"], [[1, 2]], "b: one complete")
    r.step("b: close", targets=[b["close"]])
    r.step("b: cancel, too", targets=[b["cancel"]])
    r.step("b: nothing is incomplete", b["sizes"])
    r.step("b: cancel again", targets=[b["cancel"]], error="CANCELLED", error_contains="is already closed.")
    give(b, [b"y"], [[1, 2]], "b: a key from before", error="CANCELLED", error_contains="is closed.")
    give(b, np.zeros([0], "S1"), np.zeros([0]), "b: nothing at all", error="CANCELLED", error_contains="is closed.")
    r.step("b: what was complete", taken(b["take"]), feeds={n: np.int32(1)})

    one = ops.Barrier(component_types=[tf.string], shapes=[[]], name="one")
    words = v1.placeholder(tf.string, [None], name="words")
    put = ops.BarrierInsertMany(handle=one, keys=keys, values=words, component_index=0)
    got = ops.BarrierTakeMany(handle=one, num_elements=n, component_types=[tf.string])
    letters = lambda k: np.array([c.encode() for c in k])
    r.step("one component: complete at once, also twice", targets=[put], feeds={keys: letters("aac"), words: letters("123")})
    r.step("once more", targets=[put], feeds={keys: letters("ad"), words: letters("45")})
    # TensorFlow has an order of its own among elements of one index.
    in_order = [got.indices, tf.sort(tf.reshape(codes(got.keys), [-1])), tf.reduce_sum(v1.string_to_number(got.values[0]))]
    r.step("in order", in_order, feeds={n: np.int32(5)})
    for name, more, words in [
        ("a capacity", dict(shapes=[[]], capacity=5), "Barrier only accepts capacity=-1"),
        ("no shapes", dict(shapes=[]), "All of the component shapes must be specified"),
        ("an unknown shape", dict(shapes=[[None]]), "is not fully defined"),
    ]:
        bad = ops.BarrierReadySize(handle=ops.Barrier(component_types=[tf.float32], **more))
        r.step(name, [bad], error="INVALID_ARGUMENT", error_contains=words)


@graph
def tables(r):
    """Tables whose values are vectors, and dense tables: what they hold, how they grow and what they export, by handle and by reference."""
    ops = tf.raw_ops
    k = v1.placeholder(tf.int64, None, name="k")
    v = v1.placeholder(tf.float32, None, name="v")
    words = v1.placeholder(tf.string, None, name="words")

    def on(table, keys, values, by_reference=False):
        kinds = dict(Tkeys=keys.dtype, Tvalues=values.dtype)
        op = lambda name, **k: getattr(ops, name + ("" if by_reference else "V2"))(table_handle=table, **k)
        exported = op("LookupTableExport", **kinds)
        return dict(
            insert=op("LookupTableInsert", keys=keys, values=values),
            find=op("LookupTableFind", keys=keys, default_value=values),
            load=op("LookupTableImport", keys=keys, values=values),
            size=op("LookupTableSize"),
            keys=exported.keys,
            values=exported.values,
            remove=None if by_reference else op("LookupTableRemove", keys=keys),
        )

    def feeds(keys, values=None):
        fed = {words if np.asarray(keys).dtype.kind == "S" else k: np.asarray(keys) if np.asarray(keys).dtype.kind == "S" else ints(keys)}
        if values is not None:
            fed[v] = np.float32(values)
        return fed

    def dense(keys=(0, -1), **more):
        empty, deleted = (tf.constant(key, tf.string if isinstance(key, str) else tf.int64) for key in keys)
        return ops.MutableDenseHashTableV2(empty_key=empty, deleted_key=deleted, value_dtype=tf.float32, **more)

    # By keys of one number and values of one or two.
    a = on(dense(initial_num_buckets=4, max_load_factor=0.5, shared_name="a"), k, v)
    for i, step in enumerate([[3], [6, 9], [12, 15], [3, 6, 18]]):
        r.step("grow %d" % i, targets=[a["insert"]], feeds=feeds(step, [float(x) + i for x in step]))
        r.step("all buckets %d" % i, [a["keys"], a["values"], a["size"]])
    r.step("find", [a["find"]], feeds=feeds([9, 4, 3], -1))
    r.step("find a scalar", [a["find"]], feeds=feeds(9, -1))
    r.step("of many defaults the first", [a["find"]], feeds=feeds([4, 3, 5], [7, 8, 9]))
    r.step("remove", targets=[a["remove"]], feeds=feeds([9, 77]))
    r.step("one is gone", [a["find"], a["size"]], feeds=feeds([9, 3, 77], -1))
    for name, key in [("empty", 0), ("deleted", -1)]:
        refused = dict(error="INVALID_ARGUMENT", error_contains="Using the %s_key as a table key is not allowed" % name)
        r.step("find the %s key" % name, [a["find"]], feeds=feeds([3, key], -1), **refused)
        r.step("insert the %s key" % name, targets=[a["insert"]], feeds=feeds([100 + key, key, 50], [1, 2, 3]), **refused)
        r.step("remove the %s key" % name, targets=[a["remove"]], feeds=feeds([key]), **refused)
    r.step("what stood before them went in", [a["find"], a["size"]], feeds=feeds([100, 99, 50], -1))
    r.step("a row for each key", [a["find"]], feeds=feeds([[3], [4]], -1))
    r.step("more than one in a row", [a["find"]], feeds=feeds([[3, 6], [6, 3]], -1), error="INVALID_ARGUMENT",
           error_contains="Expected key shape [2] got [2,2]")
    r.step("a default of another shape", [a["find"]], feeds=feeds([3, 6], [1]), error="INVALID_ARGUMENT",
           error_contains="Expected shape [] or [2] for default value, got [1]")
    r.step("values of another shape", targets=[a["insert"]], feeds=feeds([3, 6], [1]), error="INVALID_ARGUMENT",
           error_contains="Expected shape [2] for value, got [1]")
    r.step("import", targets=[a["load"]], feeds=feeds([[0], [5], [-1], [7]], [[1], [2], [3], [4]]))
    r.step("imported", [a["find"], a["size"]], feeds=feeds([5, 7, 3], -1))
    r.step("not as exported", targets=[a["load"]], feeds=feeds([[5], [6]], [1, 2]), error="INVALID_ARGUMENT",
           error_contains="Expected shape [2,1] for value, got [2]")
    b = on(dense(initial_num_buckets=8, value_shape=[2], shared_name="b"), k, v)
    r.step("b: insert", targets=[b["insert"]], feeds=feeds([1, 2, 3], [[1, 2], [3, 4], [5, 6]]))
    r.step("b: insert one", targets=[b["insert"]], feeds=feeds(7, [7, 8]))
    r.step("b: find", [b["find"]], feeds=feeds([3, 5, 1], [-1, -2]))
    r.step("b: many defaults", [b["find"]], feeds=feeds([3, 5], [[-1, -2], [-3, -4]]))
    r.step("b: all buckets", [b["keys"], b["values"], b["size"]])
    # Keys that are vectors, and texts.
    c = on(dense(keys=([0, 0], [-1, -1]), initial_num_buckets=8, shared_name="c"), k, v)
    r.step("c: insert", targets=[c["insert"]], feeds=feeds([[1, 2], [3, 4], [5, 6]], [1, 2, 3]))
    r.step("c: find", [c["find"]], feeds=feeds([[3, 4], [0, 1], [1, 2]], -1))
    r.step("c: all buckets", [c["keys"], c["values"]])
    r.step("c: a flat key", [c["find"]], feeds=feeds([1, 2], -1), error="INVALID_ARGUMENT", error_contains="Expected key shape [2,2] got [2]")
    r.step("c: remove", targets=[c["remove"]], feeds=feeds([[1, 2]]))
    r.step("c: one is gone", [c["find"], c["size"]], feeds=feeds([[3, 4], [1, 2]], -1))
    d = on(dense(keys=("", "x"), initial_num_buckets=16, shared_name="d"), words, v)
    r.step("d: texts", targets=[d["insert"]], feeds=feeds([b"a", b"b", b"hello", b"a rather long text"], [1, 2, 3, 4]))
    r.step("d: find", [d["find"]], feeds=feeds([b"hello", b"c"], -1))
    r.step("d: the buckets of TensorFlow's hash", [d["values"]])
    for name, more, text in [
        ("keys of other shapes", dict(keys=(0, [1])), "Empty and deleted keys must have same shape"),
        ("one key", dict(keys=(5, 5)), "Empty and deleted keys cannot be equal"),
        ("a matrix of values", dict(value_shape=[2, 2]), "Empty value must be a scalar or a vector"),
        ("a load above 1", dict(max_load_factor=1.5), "max_load_factor must be between 0 and 1"),
        ("a load of 0", dict(max_load_factor=0.0), "max_load_factor must be between 0 and 1"),
        ("three buckets", dict(initial_num_buckets=3), "Number of buckets must be at least 4 and a power of 2"),
    ]:
        r.step(name, [ops.LookupTableSizeV2(table_handle=dense(**more))], error="INVALID_ARGUMENT", error_contains=text)

    # Tables of vectors; which keys an export has where is their own matter.
    for by_reference in (False, True):
        e = "by reference: " if by_reference else "by handle: "
        kind = ops.MutableHashTableOfTensors if by_reference else ops.MutableHashTableOfTensorsV2
        f = on(kind(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2], shared_name=e[:5]), k, v, by_reference)
        r.step(e + "insert", targets=[f["insert"]], feeds=feeds([[1, 2]], [[[1, 2], [3, 4]]]))
        r.step(e + "find", [f["find"]], feeds=feeds([[2], [9]], [0, -1]))
        r.step(e + "many defaults", [f["find"]], feeds=feeds([2, 8, 9], [[5, 6], [7, 8], [9, 10]]))
        r.step(e + "export", [tf.sort(f["keys"]), tf.reduce_sum(f["values"], 0), tf.shape(f["values"]), f["size"]])
        r.step(e + "one number for two", [f["find"]], feeds=feeds([2, 9], 5), error="INVALID_ARGUMENT",
               error_contains="Expected shape [2] or [2,2] for default value, got []")
        r.step(e + "values of another shape", targets=[f["insert"]], feeds=feeds([2, 9], [1, 2]), error="INVALID_ARGUMENT",
               error_contains="Expected shape [2,2] for value, got [2]")
        r.step(e + "import", targets=[f["load"]], feeds=feeds([7], [[7, 8]]))
        if not by_reference:
            r.step(e + "remove", targets=[f["remove"]], feeds=feeds([7, 8]))
        r.step(e + "what is left", [f["find"], f["size"]], feeds=feeds([7, 1], [-1, -1]))
    texts = ops.MutableHashTableOfTensorsV2(key_dtype=tf.int64, value_dtype=tf.string, value_shape=[2], shared_name="texts")
    put = ops.LookupTableInsertV2(table_handle=texts, keys=k, values=tf.constant([["1", "20"], ["333", "4"]]))
    get = ops.LookupTableFindV2(table_handle=texts, keys=k, default_value=tf.constant(["5", "66"]))
    r.step("texts", targets=[put], feeds=feeds([1, 2]))
    r.step("find texts", [v1.string_to_number(get)], feeds=feeds([2, 3, 1]))
    for shape, text in [([], "Default value must be a vector"), ([2, 2], "Default value must be a vector"), ([None], "is not fully defined")]:
        bad = ops.MutableHashTableOfTensorsV2(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=shape)
        r.step("values of shape %s" % shape, [ops.LookupTableSizeV2(table_handle=bad)], error="INVALID_ARGUMENT", error_contains=text)
    # Tables of numbers that are not dense: a default for each key, or not.
    m = on(ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="m"), k, v)
    r.step("m: insert", targets=[m["insert"]], feeds=feeds([1, 2], [1, 2]))
    r.step("m: a default for each", [m["find"]], feeds=feeds([5, 1, 6], [7, 8, 9]))
    once = ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="once")
    r.step("once: fill", targets=[ops.InitializeTableV2(table_handle=once, keys=ints([1]), values=np.float32([1]))])
    r.step("once: the first default", [ops.LookupTableFindV2(table_handle=once, keys=k, default_value=v)], feeds=feeds([1, 6, 5], [7, 8, 9]))
    # Those without a name end with their step.
    nameless = [
        ops.AnonymousMutableHashTable(key_dtype=tf.int64, value_dtype=tf.float32),
        ops.AnonymousMutableDenseHashTable(empty_key=ints(0), deleted_key=ints(-1), value_dtype=tf.float32),
        ops.AnonymousMutableHashTableOfTensors(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[1]),
    ]
    for i, table in enumerate(nameless):
        here = tf.cast(ints([1, 2]), tf.float32)
        with tf.control_dependencies([ops.LookupTableInsertV2(table_handle=table, keys=ints([1, 2]), values=here[:, None] if i == 2 else here)]):
            r.step("nameless %d" % i, [ops.LookupTableSizeV2(table_handle=table)])
    lone = ops.AnonymousHashTable(key_dtype=tf.int64, value_dtype=tf.float32)
    with tf.control_dependencies([ops.InitializeTableV2(table_handle=lone, keys=ints([3]), values=np.float32([4]))]):
        r.step("nameless, filled once", [ops.LookupTableFindV2(table_handle=lone, keys=ints([3, 4]), default_value=np.float32(-1))])


@graph
def ref_resources(r):
    """Queues, readers, tables, stacks and accumulators of TensorFlow's first kind: their handles are references to strings."""
    ops = tf.raw_ops

    # Today's TensorFlow no longer writes this op, but runs it in graphs of its time.
    def with_old_reader(graph_def):
        graph_def.versions.producer = 25
        next(n for n in graph_def.node if n.name == "reader").op = "IdentityReader"

    r.change = with_old_reader
    some = v1.placeholder(tf.float32, [None], name="some")
    pairs = dict(component_types=[tf.float32, tf.int64])
    queues = dict(
        fifo=ops.FIFOQueue(shapes=[[], []], capacity=10, shared_name="first", **pairs, name="fifo"),
        padding=ops.PaddingFIFOQueue(component_types=[tf.float32], shapes=[[None]], capacity=10, name="padding"),
        priority=ops.PriorityQueue(component_types=[tf.float32], shapes=[[]], capacity=10, name="priority"),
        shuffle=ops.RandomShuffleQueue(component_types=[tf.int64], shapes=[[]], capacity=10, seed=3, name="shuffle"),
    )
    number = tf.cast(some, tf.int64)
    put = ops.QueueEnqueueMany(handle=queues["fifo"], components=[some, number], name="put")
    one = ops.QueueEnqueue(handle=queues["fifo"], components=[some[0], number[0]], name="one")
    size = ops.QueueSize(handle=queues["fifo"], name="size")
    closed = ops.QueueIsClosed(handle=queues["fifo"], name="closed")
    get = ops.QueueDequeue(handle=queues["fifo"], **pairs, name="get")
    many = ops.QueueDequeueMany(handle=queues["fifo"], n=2, **pairs, name="many")
    up_to = ops.QueueDequeueUpTo(handle=queues["fifo"], n=5, **pairs, name="up_to")
    close = ops.QueueClose(handle=queues["fifo"], name="close")
    again = ops.FIFOQueue(shapes=[[], []], capacity=10, shared_name="first", **pairs, name="again")
    other = ops.QueueSize(handle=again, name="other")
    back = ops.QueueEnqueue(handle=again, components=[get[0] * 2.0, get[1]], name="back")
    r.step("empty", [size, closed])
    r.step("put", targets=[put], feeds={some: values("put", (4,), 1, 9)})
    r.step("one more", targets=[one], feeds={some: values("one", (1,), 1, 9)})
    r.step("two nodes of one queue", [size, other])
    r.step("take one", [get[0], get[1]])
    r.step("take one and put it back", [get[1]], [back])
    r.step("a component that is fed", ["get:0"], [back], feeds={"get:1": ints(7)})
    r.step("all of it is fed", targets=[back], feeds={"get:0": np.float32(5), "get:1": ints(6)})
    r.step("a fed handle", targets=[put], feeds={"fifo:0": np.array([b"a", b"b"]), some: values("put", (4,))},
           error="INVALID_ARGUMENT", error_contains="Input 0 was passed string from fifo:0 incompatible with expected string_ref")
    r.step("take two", [many[0], many[1]])
    r.step("close", targets=[close])
    r.step("it is", [closed, size])
    r.step("what is left", [up_to[0], up_to[1]])
    r.step("nothing is", [up_to[0]], error="OUT_OF_RANGE")
    pad = ops.QueueEnqueue(handle=queues["padding"], components=[some], name="pad")
    padded = ops.QueueDequeueMany(handle=queues["padding"], n=2, component_types=[tf.float32], name="padded")
    r.step("a short row", targets=[pad], feeds={some: values("short", (2,))})
    r.step("a longer row", targets=[pad], feeds={some: values("longer", (3,))})
    r.step("padded", [padded[0]])
    urgent = ops.QueueEnqueueMany(handle=queues["priority"], components=[ints([5, 1, 3]), tf.constant([5.5, 1.5, 3.5])])
    first = ops.QueueDequeue(handle=queues["priority"], component_types=[tf.int64, tf.float32], name="first")
    r.step("by priority", targets=[urgent])
    r.step("the first of them", [first[0], first[1]])
    mix = ops.QueueEnqueueMany(handle=queues["shuffle"], components=[ints([1, 2, 4, 8])])
    mixed = ops.QueueDequeueMany(handle=queues["shuffle"], n=4, component_types=[tf.int64], name="mixed")
    r.step("to be mixed", targets=[mix])
    r.step("mixed", [tf.reduce_sum(mixed[0])])

    # A handle that enters branches and loops.
    yes = v1.placeholder(tf.bool, [], name="yes")
    sides = [ops.FIFOQueue(component_types=[tf.float32], shapes=[[]], name="side%d" % i) for i in range(2)]
    puts = [lambda q=q: tf.group(ops.QueueEnqueue(handle=q, components=[some[0]])) for q in sides]
    on_a_side = tf.group(v1.cond(yes, puts[1], puts[0]), name="on_a_side")
    sizes = tf.stack([ops.QueueSize(handle=q) for q in sides], name="sizes")
    r.step("on one side", targets=[on_a_side], feeds={yes: True, some: np.float32([1.5])})
    r.step("on the other", targets=[on_a_side], feeds={yes: False, some: np.float32([1.5])})
    r.step("on one side again", targets=[on_a_side], feeds={yes: True, some: np.float32([1.5])})
    r.step("how many", [sizes])

    work = ops.FIFOQueue(component_types=[tf.string], shapes=[[]], name="work")
    reader = ops.WholeFileReader(name="reader")  # becomes an IdentityReader, which needs no files
    units = ops.QueueEnqueueMany(handle=work, components=[tf.constant(["11", "22", "33", "44"])])
    read = ops.ReaderRead(reader_handle=reader, queue_handle=work, name="read")
    some_more = ops.ReaderReadUpTo(reader_handle=reader, queue_handle=work, num_records=2, name="some_more")
    counts = [ops.ReaderNumRecordsProduced(reader_handle=reader), ops.ReaderNumWorkUnitsCompleted(reader_handle=reader)]
    reset = ops.ReaderReset(reader_handle=reader, name="reset")
    r.step("work", targets=[units])
    r.step("read", [v1.string_to_number(read.key), v1.string_to_number(read.value)])
    r.step("read more", [v1.string_to_number(some_more.keys), v1.string_to_number(some_more.values)])
    r.step("what was read", counts)
    state = tf.cast(tf.io.decode_raw(ops.ReaderSerializeState(reader_handle=reader), tf.uint8), tf.int32)
    given = v1.placeholder(tf.string, [], name="given")
    restore = ops.ReaderRestoreState(reader_handle=reader, state=given)
    r.step("its state", [state])
    r.step("another state", targets=[restore], feeds={given: np.array(b"\x08\x05\x10\x06\x18\x07\x22\x01w")})
    r.step("is there", [state, *counts])
    r.step("no state", targets=[restore], feeds={given: np.array(b"junk")}, error="INVALID_ARGUMENT", error_contains="Could not parse state for")
    r.step("resets it", [state, *counts])
    r.step("one more", [v1.string_to_number(read.key)])
    r.step("and its state", [state, *counts])
    r.step("reset", targets=[reset])
    r.step("nothing was read", counts)

    table = ops.HashTable(key_dtype=tf.string, value_dtype=tf.int64, name="table")
    fill = ops.InitializeTable(table_handle=table, keys=tf.constant(["a", "b", "c"]), values=ints([10, 20, 30]))
    found = ops.LookupTableFind(table_handle=table, keys=tf.constant([["b", "x"], ["a", "c"]]), default_value=ints(-1))
    mutable = ops.MutableHashTable(key_dtype=tf.int64, value_dtype=tf.float32, name="mutable")
    insert = ops.LookupTableInsert(table_handle=mutable, keys=number, values=some)
    replace = ops.LookupTableImport(table_handle=mutable, keys=number, values=some)
    values_of = ops.LookupTableFind(table_handle=mutable, keys=number, default_value=np.float32(0.5))
    export = ops.LookupTableExport(table_handle=mutable, Tkeys=tf.int64, Tvalues=tf.float32)
    r.step("too early", [found], error="FAILED_PRECONDITION", error_contains="Table not initialized")
    r.step("fill", targets=[fill])
    r.step("find", [found, ops.LookupTableSize(table_handle=table)])
    r.step("insert", targets=[insert], feeds={some: np.float32([1.5, 2.5, 3.5])})
    r.step("find them", [values_of, ops.LookupTableSize(table_handle=mutable)], feeds={some: np.float32([3.0, 4.0, 1.0])})
    r.step("replace all", targets=[replace], feeds={some: np.float32([7.25])})
    r.step("export", [export.keys, export.values])
    r.step("another table's type", [ops.LookupTableFind(table_handle=mutable, keys=tf.constant(["a"]), default_value=ints(0))],
           error="INVALID_ARGUMENT")

    stack = ops.Stack(elem_type=tf.float32, name="stack")
    with tf.control_dependencies([ops.StackPush(handle=stack, elem=some * 2.0)]):
        with tf.control_dependencies([ops.StackPush(handle=stack, elem=some * 3.0)]):
            top = ops.StackPop(handle=stack, elem_type=tf.float32, name="top")
    with tf.control_dependencies([top]):
        below = ops.StackPop(handle=stack, elem_type=tf.float32, name="below")
    with tf.control_dependencies([ops.StackClose(handle=stack)]):
        no_more = ops.StackPush(handle=stack, elem=some, name="no_more")
    r.step("push and pop", [top, below], feeds={some: np.float32([1.0, 2.0])})
    r.step("closed", [no_more], feeds={some: np.float32([1.0])}, error="INVALID_ARGUMENT", error_contains="has already been closed")
    kept = ops.Stack(elem_type=tf.float32, name="kept")
    pushed = v1.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, ops.StackPush(handle=kept, elem=x * 2.0)), [0, some[0]])
    with tf.control_dependencies(pushed):
        def pop(i, s):
            with tf.control_dependencies([s]):  # what the iteration before has popped is gone
                return i + 1, s * 10.0 + tf.reshape(ops.StackPop(handle=kept, elem_type=tf.float32), [])

        popped = v1.while_loop(lambda i, s: i < 4, pop, [0, 0.0])
    r.step("in loops", [pushed[1], popped[1]], feeds={some: np.float32([1.0])})

    for mean in ("MEAN", "SUM"):
        sum_of = ops.ConditionalAccumulator(dtype=tf.float32, shape=[None], reduction_type=mean, name="sum_" + mean)
        step = v1.placeholder(tf.int64, [], name="step")
        apply = ops.AccumulatorApplyGradient(handle=sum_of, local_step=step, gradient=some)
        count = ops.AccumulatorNumAccumulated(handle=sum_of)
        with tf.control_dependencies([count]):
            take = ops.AccumulatorTakeGradient(handle=sum_of, num_required=2, dtype=tf.float32)
        move = ops.AccumulatorSetGlobalStep(handle=sum_of, new_global_step=step)
        for i in range(2):
            r.step("%s: gradient %d" % (mean, i), targets=[apply], feeds={step: np.int64(0), some: values(mean + str(i), (3,))})
        r.step(mean + ": another shape", targets=[apply], feeds={step: np.int64(0), some: np.float32([1.0])}, error="INVALID_ARGUMENT",
               error_contains="Shape mismatch")
        r.step(mean + ": take", [count, take])
        r.step(mean + ": too old", targets=[apply], feeds={step: np.int64(0), some: values("old", (3,))})
        r.step(mean + ": the step", targets=[move], feeds={step: 5})
        r.step(mean + ": still too old", targets=[apply], feeds={step: 4, some: values("old", (3,))})
        r.step(mean + ": none", [count])


@graph
def ref_row_accumulators(r):
    """Accumulators of rows: each row's mean is of the gradients that have it."""
    ops = tf.raw_ops
    step = v1.placeholder(tf.int64, [], name="step")
    rows = v1.placeholder(tf.int64, [None], name="rows")
    some = v1.placeholder(tf.float32, [None, 2], name="some")
    shape = v1.placeholder(tf.int64, [None], name="shape")
    gradients = [[0, 3], [3], [0, 1, 3], []], [[1, 1], [1, 4]], [[4, 0, 2], [2, 0, 4], [3, 0]], [[], [2]]
    for mean in ("MEAN", "SUM"):
        sum_of = ops.SparseConditionalAccumulator(dtype=tf.float32, shape=[5, 2], reduction_type=mean, name="of_" + mean)
        more = dict(handle=sum_of, local_step=step, gradient_indices=rows, gradient_values=some)
        apply = ops.SparseAccumulatorApplyGradient(gradient_shape=tf.constant([], tf.int64), has_known_shape=False, **more)
        apply_known = ops.SparseAccumulatorApplyGradient(gradient_shape=shape, has_known_shape=True, **more)
        count = ops.AccumulatorNumAccumulated(handle=sum_of)
        required = v1.placeholder(tf.int32, [], name="required")
        with tf.control_dependencies([count]):
            take = ops.SparseAccumulatorTakeGradient(handle=sum_of, num_required=required, dtype=tf.float32)
        move = ops.AccumulatorSetGlobalStep(handle=sum_of, new_global_step=step)

        def feeds(i, *k):
            return {step: i, rows: ints(k), some: values("rows%d" % i, (len(k), 2)).reshape(-1, 2)}

        for i, wave in enumerate(gradients):
            for k in wave:
                r.step("%s %d: rows %s" % (mean, i, k), targets=[apply], feeds=feeds(i, *k))
            r.step("%s %d: take" % (mean, i), [count, take.indices, take.values, take.shape], feeds={required: np.int32(len(wave))})
        r.step(mean + ": too old", targets=[apply], feeds=feeds(3, 0))
        r.step(mean + ": a shape", targets=[apply_known], feeds={**feeds(4, 0, 2), shape: ints([5, 2])})
        wrong = dict(error="INVALID_ARGUMENT", error_contains="Shape mismatch")
        r.step(mean + ": another shape", targets=[apply_known], feeds={**feeds(4, 0, 2), shape: ints([5, 3])}, **wrong)
        r.step(mean + ": no shape", targets=[apply_known], feeds={**feeds(4, 0, 2), shape: ints([5])}, **wrong)
        r.step(mean + ": a row too many", targets=[apply], feeds=feeds(4, 0, 5), error="INVALID_ARGUMENT")
        r.step(mean + ": nothing", [take.values], feeds={required: np.int32(0)}, error="INVALID_ARGUMENT")
        r.step(mean + ": the step", targets=[move], feeds={step: 7})
        r.step(mean + ": the step before", targets=[apply], feeds=feeds(6, 1))
        r.step(mean + ": one", [count])


# ---- functions ----------------------------------------------------------------------------------------------------


@graph
def functions(r):
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    w = variable("w", values("w", (3, 2)))

    @tf.function(autograph=False)
    def norm(a):
        return a / tf.sqrt(tf.reduce_sum(tf.square(a), axis=1, keepdims=True) + 1.0)

    @tf.function(autograph=False)
    def two(a, b):
        return norm(a) * b, tf.reduce_sum(a + b, axis=0)

    @tf.function(autograph=False)
    def layer(a):
        return tf.tanh(norm(tf.matmul(a, w)))

    @tf.function(autograph=False)
    def bump(by):
        w.assign_add(by * tf.ones([3, 2]))
        return tf.reduce_sum(w)

    pure = norm(x)
    p, q = two(x, 2.0 * x)
    h = layer(x)
    bumped = tf.identity(bump(tf.constant(0.5)), name="bumped")
    (dx,) = tf.gradients(pure, x)
    dw, dx2 = tf.gradients(h, [w, x])
    f = {x: values("x", (4, 3))}
    r.step("initialise", targets=[v1.global_variables_initializer()])
    r.step("a pure function", [pure], feeds=f)
    r.step("a function that calls another", [p, q], feeds=f)
    r.step("one output only", [q], feeds=f)
    r.step("a function that reads a variable", [h], feeds=f)
    r.step("a function that changes a variable", [bumped])
    r.step("and again", [bumped])
    r.step("gradient of a function", [dx], feeds=f)
    r.step("gradient of a function and its variable", [dw, dx2], feeds=f)


# Functions for any type and number, which Python's library does not write.
GENERIC_FUNCTIONS = """
versions { producer: 1395 min_consumer: 12 }
library {
  function {
    signature {
      name: "scaled"
      input_arg { name: "x" type_attr: "T" }
      output_arg { name: "y" type_attr: "T" }
      attr { name: "T" type: "type" allowed_values { list { type: [DT_FLOAT, DT_DOUBLE, DT_INT32] } } }
      attr { name: "by" type: "int" default_value { i: 3 } has_minimum: true minimum: 2 }
    }
    node_def { name: "negative" op: "Neg" input: "x" attr { key: "T" value { placeholder: "T" } } }
    node_def { name: "sum" op: "total" input: "negative:y:0" input: "x" input: "x"
      attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "by" } } }
    ret { key: "y" value: "sum:all:0" }
  }
  function {
    signature {
      name: "total"
      input_arg { name: "parts" type_attr: "T" number_attr: "N" }
      output_arg { name: "all" type_attr: "T" }
      attr { name: "T" type: "type" }
      attr { name: "N" type: "int" has_minimum: true minimum: 1 }
    }
    node_def { name: "sum" op: "AddN" input: "parts"
      attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "N" } } }
    ret { key: "all" value: "sum:sum:0" }
  }
  function {
    signature {
      name: "both"
      input_arg { name: "values" type_list_attr: "Ts" }
      output_arg { name: "same" type_list_attr: "Ts" }
      attr { name: "Ts" type: "list(type)" has_minimum: true minimum: 1 }
    }
    node_def { name: "n" op: "IdentityN" input: "values" attr { key: "T" value { placeholder: "Ts" } } }
    ret { key: "same" value: "n:output" }
  }
  function {
    signature {
      name: "applied"
      input_arg { name: "x" type_attr: "T" }
      output_arg { name: "y" type_attr: "T" }
      attr { name: "T" type: "type" }
      attr { name: "f" type: "func" }
    }
    node_def { name: "call" op: "PartitionedCall" input: "x"
      attr { key: "f" value { placeholder: "f" } }
      attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } }
    ret { key: "y" value: "call:output:0" }
  }
  function {
    signature { name: "first" input_arg { name: "a" type: DT_FLOAT } input_arg { name: "b" type: DT_FLOAT }
      input_arg { name: "c" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    ret { key: "y" value: "a" }
  }
}
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 3 } } } } }
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "shape" value { shape { } } } }
node { name: "floats" op: "scaled" input: "x" attr { key: "T" value { type: DT_FLOAT } } attr { key: "by" value { i: 3 } } }
node { name: "ints" op: "PartitionedCall" input: "n"
  attr { key: "f" value { func { name: "scaled" attr { key: "T" value { type: DT_INT32 } } attr { key: "by" value { i: 3 } } } } }
  attr { key: "Tin" value { list { type: DT_INT32 } } } attr { key: "Tout" value { list { type: DT_INT32 } } } }
node { name: "two" op: "both" input: "x" input: "n"
  attr { key: "Ts" value { list { type: [DT_FLOAT, DT_INT32] } } } }
node { name: "called" op: "applied" input: "x" attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "f" value { func { name: "scaled" attr { key: "T" value { type: DT_FLOAT } } attr { key: "by" value { i: 3 } } } } } }
node { name: "chosen" op: "If" input: "p" input: "x" input: "x" input: "x"
  attr { key: "Tcond" value { type: DT_BOOL } }
  attr { key: "Tin" value { list { type: [DT_FLOAT, DT_FLOAT, DT_FLOAT] } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
  attr { key: "output_shapes" value { list { } } }
  attr { key: "then_branch" value { func { name: "total" attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 3 } } } } }
  attr { key: "else_branch" value { func { name: "first" } } } }
"""


@graph
def function_attributes(r):
    """Functions for any type and number: called by their name, by a call node and as a branch, and from each other."""
    import_graph(text_format.Parse(GENERIC_FUNCTIONS, v1.GraphDef()))
    x, n = {"x:0": values("x", (3,))}, {"n:0": ints([4, -5], np.int32)}
    r.step("a function of floats", ["floats:0"], feeds=x)
    r.step("the same of integers", ["ints:0"], feeds=n)
    r.step("a list of types", ["two:0", "two:1"], feeds={**x, **n})
    r.step("a function as an attribute", ["called:0"], feeds=x)
    for p in (True, False):
        r.step("a branch, %s" % p, ["chosen:0"], feeds={**x, "p:0": np.array(p)})


def recursive(name, args, base, step, condition):
    """A function of numbers that is `step`, whose nodes may call it, where `condition` holds, and else `base`."""
    signature = "".join('input_arg { name: "%s" type: DT_INT32 } ' % a for a in args) + 'output_arg { name: "y" type: DT_INT32 }'
    types = "type: DT_INT32 " * len(args)
    number = 'attr { key: "T" value { type: DT_INT32 } }'
    function = "function { signature { name: '%s' " + signature + " } %s ret { key: 'y' value: '%s' } }"
    branch = "attr { key: '%s' value { func { name: '%s' } } }"
    choice = "node_def { name: 'choice' op: 'StatelessIf' input: 'c:z:0' %s %s %s %s %s %s }" % (
        " ".join("input: '%s'" % a for a in args),
        "attr { key: 'Tcond' value { type: DT_BOOL } }",
        "attr { key: 'Tin' value { list { %s } } }" % types,
        "attr { key: 'Tout' value { list { type: DT_INT32 } } } attr { key: 'output_shapes' value { list { } } }",
        branch % ("then_branch", name + "_step"),
        branch % ("else_branch", name + "_base"),
    )
    constants = "".join(
        "node_def { name: '%s' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } "
        "attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape { } int_val: %d } } } }" % (w, i)
        for i, w in enumerate(("zero", "one", "two"))
    )

    def nodes(text):  # lines of "NAME OP INPUT..."
        made = ""
        for line in filter(None, map(str.strip, text.split(";"))):
            node, op, *inputs = line.split()
            made += "node_def { name: '%s' op: '%s' %s %s }" % (
                node, op, " ".join("input: '%s'" % i for i in inputs), "" if op in (name, "even", "odd") else number)
        return constants + made

    return "".join((
        function % (name, nodes(condition) + choice, "choice:output:0"),
        function % (name + "_step", nodes(step), "y:z:0"),
        function % (name + "_base", nodes(base), "y:z:0"),
    ))


@graph
def recursion(r):
    """Functions that call themselves, and each other, from a branch."""
    one, two = "one:output:0", "two:output:0"
    text = "versions { producer: 1395 min_consumer: 12 } library {"
    text += recursive("factorial", ["n"], "y Maximum n " + one,
                      "m Sub n %s; f factorial m:z:0; y Mul n f:y:0" % one, "c Greater n " + one)
    text += recursive("fibonacci", ["n"], "y Maximum n zero:output:0",
                      "m Sub n %s; l Sub n %s; f fibonacci m:z:0; g fibonacci l:z:0; y AddV2 f:y:0 g:y:0" % (one, two),
                      "c Greater n " + one)
    text += recursive("even", ["n"], "y Sub %s n" % one, "m Sub n %s; f odd m:z:0; y AddV2 f:y:0 zero:output:0" % one,
                      "c Greater n zero:output:0")
    text += recursive("odd", ["n"], "y AddV2 n zero:output:0", "m Sub n %s; f even m:z:0; y AddV2 f:y:0 zero:output:0" % one,
                      "c Greater n zero:output:0")
    text += "} node { name: 'n' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT32 } } "
    text += "attr { key: 'shape' value { shape { } } } }"
    for name in ("factorial", "fibonacci", "even"):
        text += " node { name: '%s_of' op: '%s' input: 'n' }" % (name, name)
    import_graph(text_format.Parse(text, v1.GraphDef()))
    for n in (0, 1, 5, 11):
        r.step("of %d" % n, ["factorial_of:0", "fibonacci_of:0", "even_of:0"], feeds={"n:0": ints(n, np.int32)})
    r.step("factorial of 36", ["factorial_of:0"], feeds={"n:0": ints(36, np.int32)})


@graph
def candidate_samplers(r):
    """Classes drawn step by step, each step's behind those before; a table of a sampled softmax and one of NCE, trained."""
    true = v1.placeholder(tf.int64, [None, 2], name="true")
    attrs = dict(true_classes=true, num_true=2, num_sampled=6, unique=True, range_max=20, seed=5, seed2=6)
    drawn = []
    for name in ("Uniform", "LogUniform", "LearnedUnigram", "ThreadUnsafeUnigram"):
        drawn += getattr(tf.raw_ops, name + "CandidateSampler")(**attrs)
    drawn += tf.raw_ops.FixedUnigramCandidateSampler(unigrams=[1.0 + i % 7 for i in range(20)], distortion=0.75, **attrs)
    for i, rows in enumerate(([[3, 4], [3, 3]], [[3, 19]], [[3, 3], [7, 3], [3, 0]], [[3, 3]])):
        r.step("draw %d" % i, drawn, feeds={true: ints(rows)})
    out_of_range = tf.raw_ops.UniformCandidateSampler(**dict(attrs, range_max=5))
    r.step("more than there are", out_of_range, feeds={true: ints([[3, 4]])}, error="INVALID_ARGUMENT")
    for name, loss_of in (("softmax", v1.nn.sampled_softmax_loss), ("nce", v1.nn.nce_loss)):
        with v1.variable_scope(name):
            w, b = variable("w", values("w", (20, 4))), variable("b", values("b", (20,)))
            labels = v1.placeholder(tf.int64, [None, 1], name="labels")
            x = tf.constant(values("x", (3, 4)))
            more = dict(seed=7) if name == "softmax" else {}
            candidates = v1.nn.log_uniform_candidate_sampler(labels, 1, 5, True, 20, seed=8)
            loss = tf.reduce_mean(loss_of(w, b, labels, x, 5, 20, sampled_values=candidates, remove_accidental_hits=True, **more))
            train = v1.train.GradientDescentOptimizer(0.3).minimize(loss, var_list=[w, b], name="train")
            init = v1.variables_initializer(v1.global_variables(name), name="init")
        r.step(name + " initialise", targets=[init])
        for i in range(3):
            r.step("%s train %d" % (name, i), [loss], [train], {labels: ints([[i], [3], [19 - i]])})
        r.step(name + " variables", [w.read_value(), b.read_value()])


@graph
def unknown_op(r):
    a = v1.placeholder(tf.float32, [2, 2], name="a")
    usable = tf.matmul(a, a, transpose_b=True, name="usable")
    lacking = tf.identity(
        tf.linalg.cholesky(usable + tf.constant([[1.0, 0.0], [0.0, 1.0]]), name="factor"), name="lacking"
    )
    beyond = tf.add(tf.reduce_sum(lacking), 1.0, name="beyond")
    f = {a: values("a", (2, 2))}
    r.step("the usable part", [usable], feeds=f)
    r.step("the part that needs it", [beyond], feeds=f, error="UNIMPLEMENTED", error_contains="Cholesky")
    r.step("the usable part again", [usable], feeds=f)
    r.step("it is fed", [beyond], feeds={lacking: np.eye(2, dtype=np.float32)})


# ---- gradients that TensorFlow makes ------------------------------------------------------------------------------


def fragments():
    """name, function, shapes of its inputs, lowest value, whether its second derivative is wanted too."""
    F = []

    def add(name, fn, *shapes, lo=-1.0, second=False):
        F.append((name, fn, shapes, lo, second))

    add("add", lambda a, b: a + b, (2, 3), (3,), second=False)
    add("subtract", lambda a, b: a - b, (3,), (2, 1))
    add("multiply", lambda a, b: a * b, (2, 1, 3), (4, 1), second=True)
    add("multiply_same", lambda a, b: a * b, (2, 3), (2, 3))
    add("divide", lambda a, b: a / b, (2, 3), (3,), lo=0.5, second=True)
    add("maximum", tf.maximum, (2, 3), (3,))
    add("minimum", tf.minimum, (2, 3), (2, 3))
    add("squared_difference", tf.math.squared_difference, (2, 3), (3,), second=True)
    add("pow", tf.pow, (2, 3), (3,), lo=0.5)
    add("pow_scalar", lambda a: a**3.0, (2, 3), second=True)
    add("divide_no_nan", tf.math.divide_no_nan, (2, 3), (2, 3), lo=0.5)
    for name, fn, lo in (
        ("negative", tf.negative, -1),
        ("exp", tf.exp, -1),
        ("log", tf.math.log, 0.2),
        ("sqrt", tf.sqrt, 0.2),
        ("rsqrt", tf.math.rsqrt, 0.2),
        ("square", tf.square, -1),
        ("abs", tf.abs, -1),
        ("reciprocal", tf.math.reciprocal, 0.3),
        ("sigmoid", tf.sigmoid, -1),
        ("tanh", tf.tanh, -1),
        ("relu", tf.nn.relu, -1),
    ):
        add(name, fn, (2, 5), lo=lo, second=True)
    add("identity_and_stop", lambda a: tf.identity(a) * tf.stop_gradient(a), (2, 3))
    add("cast", lambda a: tf.cast(tf.cast(a, tf.float64) * 2, tf.float32), (2, 3))
    add("add_n", lambda a, b: tf.add_n([a, b, a]), (2, 3), (2, 3))
    add("used_three_times", lambda a: a * a + tf.exp(a) * a, (2, 3), second=True)
    add("transpose", lambda a: tf.transpose(a, [2, 0, 1]), (2, 3, 4), second=True)
    add("transpose_reversed", lambda a: tf.transpose(a), (2, 3))
    add("reshape", lambda a: tf.reshape(a, [-1, 2]), (2, 3, 2))
    add("expand_dims", lambda a: tf.expand_dims(a, 1), (2, 3))
    add("squeeze", lambda a: tf.squeeze(a, [1]), (2, 1, 3))
    add("concat", lambda a, b, c: tf.concat([a, b, c], 1), (2, 3), (2, 1), (2, 2), second=True)
    add("concat_negative_axis", lambda a, b: tf.concat([a, b], -2), (2, 3), (1, 3))
    add("split", lambda a: tf.split(a, 3, axis=1)[0] * tf.split(a, 3, axis=1)[2], (2, 6))
    add("split_v", lambda a: tf.split(a, [1, 2, 3], axis=1)[2], (2, 6))
    add("stack", lambda a, b: tf.stack([a, b], axis=1), (2, 3), (2, 3))
    add("unstack", lambda a: tf.unstack(a, num=3, axis=1)[1] * 2.0, (2, 3))
    add("slice", lambda a: tf.slice(a, [0, 1], [2, 2]), (3, 4))
    add("strided_slice", lambda a: a[1:, ::2], (3, 5), second=True)
    add("strided_slice_shrink", lambda a: a[..., 1], (2, 3, 4))
    add("strided_slice_new_axis", lambda a: a[:, tf.newaxis, 1:3], (2, 4))
    add("strided_slice_backwards", lambda a: a[::-1, 3:0:-2], (3, 5))
    add("gather", lambda a: tf.gather(a, [2, 0, 2]), (4, 3))
    add("gather_axis_1", lambda a: tf.gather(a, [[2, 0], [2, 1]], axis=1), (2, 4))
    add("gather_batch", lambda a: tf.gather(a, [[2, 0], [1, 1]], batch_dims=1), (2, 4))
    add("tile", lambda a: tf.tile(a, [2, 3]), (2, 3))
    add("pad", lambda a: tf.pad(a, [[1, 0], [2, 1]]), (2, 3), second=True)
    add("pad_with_value", lambda a: tf.pad(a, [[1, 0], [0, 1]], constant_values=3.0), (2, 3))
    add("fill", lambda a: tf.fill([2, 3], a), ())
    add("broadcast_to", lambda a: tf.broadcast_to(a, [2, 3, 2]), (3, 1))
    add("where", lambda a, b: tf.where(a > b, a * 2.0, b), (2, 3), (3,))
    add("select", lambda a, b: v1.where(a > b, a * 2.0, b), (2, 3), (2, 3))
    for name, fn, lo in (
        ("sum", tf.reduce_sum, -1),
        ("mean", tf.reduce_mean, -1),
        ("max", tf.reduce_max, -1),
        ("min", tf.reduce_min, -1),
        ("prod", tf.reduce_prod, 0.5),
    ):
        add(name + "_all", lambda a, fn=fn: fn(a), (2, 3), lo=lo)
        add(name + "_axis", lambda a, fn=fn: fn(a, axis=[0, 2]), (2, 3, 2), lo=lo)
        add(
            name + "_keep",
            lambda a, fn=fn: fn(a, axis=-1, keepdims=True),
            (2, 3),
            lo=lo,
            second=name in ("sum", "mean"),
        )
    add("max_with_ties", lambda a: tf.reduce_max(a * 0.0, axis=1), (2, 3))
    for ta, tb, sa, sb in (
        (False, False, (2, 3), (3, 4)),
        (True, False, (3, 2), (3, 4)),
        (False, True, (2, 3), (4, 3)),
        (True, True, (3, 2), (4, 3)),
    ):
        add(
            "matmul_%d%d" % (ta, tb),
            lambda a, b, ta=ta, tb=tb: tf.matmul(a, b, transpose_a=ta, transpose_b=tb),
            sa,
            sb,
            second=True,
        )
    add("bias_add", tf.nn.bias_add, (2, 3), (3,), second=True)
    add("bias_add_rank4", tf.nn.bias_add, (1, 2, 2, 3), (3,))
    add("softmax", tf.nn.softmax, (2, 4), second=True)
    add("log_softmax", tf.nn.log_softmax, (2, 4), second=True)
    add("softmax_axis_0", lambda a: tf.nn.softmax(a, axis=0), (3, 2))
    add(
        "sparse_cross_entropy",
        lambda a: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant([2, 0]), logits=a),
        (2, 4),
    )
    add(
        "cross_entropy",
        lambda a, b: tf.nn.softmax_cross_entropy_with_logits(labels=b, logits=a),
        (2, 4),
        (2, 4),
        lo=0.1,
    )
    add(
        "cross_entropy_one_hot",
        lambda a: tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(tf.one_hot([1, 3], 4)), logits=a),
        (2, 4),
    )
    add("l2_loss", tf.nn.l2_loss, (2, 3), second=True)
    for p in ("SAME", "VALID"):
        add("conv2d_" + p.lower(), lambda a, b, p=p: tf.nn.conv2d(a, b, 1, p), (1, 5, 5, 2), (3, 3, 2, 2), second=True)
        add(
            "conv2d_strided_" + p.lower(),
            lambda a, b, p=p: tf.nn.conv2d(a, b, [1, 2, 2, 1], p),
            (2, 6, 5, 1),
            (3, 2, 1, 2),
        )
        add("max_pool_" + p.lower(), lambda a, p=p: tf.nn.max_pool2d(a, 2, 2, p), (1, 5, 6, 2))
        add("avg_pool_" + p.lower(), lambda a, p=p: tf.nn.avg_pool2d(a, 3, 2, p), (1, 5, 6, 2), second=True)
    add("moments", lambda a: sum(tf.nn.moments(a, [0])), (4, 3))
    add(
        "batch_normalization",
        lambda a, s, b: tf.nn.batch_normalization(a, tf.nn.moments(a, [0])[0], tf.nn.moments(a, [0])[1], b, s, 1e-3),
        (5, 3),
        (3,),
        (3,),
    )
    add("clip_by_value", lambda a: tf.clip_by_value(a, -0.5, 0.5), (2, 4))
    add("l2_normalize", lambda a: tf.nn.l2_normalize(a, axis=1), (2, 3), lo=0.2)
    add("losses_mean_squared", lambda a, b: v1.losses.mean_squared_error(b, a), (4, 2), (4, 2))
    add(
        "sigmoid_cross_entropy",
        lambda a: tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.constant([[1.0, 0.0, 1.0]]), logits=a),
        (1, 3),
    )
    return F


def dense(g):
    return None if g is None else tf.convert_to_tensor(g)


def gradients(r, dynamic, second):
    """One step per fragment. Where shapes are known, TensorFlow leaves out or precomputes parts of the backward
    graph."""
    for name, fn, shapes, lo, twice in fragments():
        if second and not twice:
            continue
        with tf.name_scope(name):
            xs = [
                v1.placeholder(tf.float32, [None] * len(s) if dynamic else s, name="x%d" % i)
                for i, s in enumerate(shapes)
            ]
            y = fn(*xs)
            feeds = {x: values(i, s, lo, 1.5) for i, (x, s) in enumerate(zip(xs, shapes))}
            with v1.Session(config=config()) as s:
                shape = s.run(y, feeds).shape
            dy = v1.placeholder(tf.float32, [None] * len(shape) if dynamic else shape, name="dy")
            feeds[dy] = values("dy", shape, -1, 1)
            grads = [dense(g) for g in tf.gradients(y, xs, grad_ys=[dy])]
            fetches = [g for g in grads if g is not None]
            if not dynamic:
                fetches.insert(0, y)
            if second:
                grads = [g * float(i + 1) for i, g in enumerate(grads) if g is not None]
                fetches = [dense(g) for g in tf.gradients(grads, xs + [dy]) if g is not None]
        r.step(name, fetches, feeds=feeds, rtol=2e-5, atol=2e-6 if not second else 1e-5)


@graph
def gradients_static(r):
    gradients(r, dynamic=False, second=False)


@graph
def gradients_dynamic(r):
    gradients(r, dynamic=True, second=False)


@graph
def gradients_second_order(r):
    gradients(r, dynamic=False, second=True)


@graph
def random_streams(r):
    """Stateful random ops under --tensorflow_random_streams: what nodes with seeds draw, run after run."""
    r.extra["tensorflow_random_streams"] = True

    def bits(x):
        """A checksum of all bits."""
        prime = 2**31 - 1
        widths = {1: tf.uint8, 2: tf.int16, 4: tf.int32, 8: tf.int64}
        whole = tf.cast(tf.bitcast(x, widths[x.dtype.size]), tf.int64) % prime
        return tf.reduce_sum(whole * tf.range(1, tf.size(x, tf.int64) + 1) % prime)

    def moments(x):
        x = tf.cast(x, tf.float64)
        place = tf.cast(tf.range(tf.size(x)), tf.float64) / tf.cast(tf.size(x), tf.float64)
        return tf.stack([tf.reduce_sum(x * place), tf.reduce_sum(x * x * place)])

    raw = tf.raw_ops
    floats = (tf.float32, tf.float64, tf.half, tf.bfloat16)
    sizes = (1, 4, 255, 256, 257)
    uniform, sums, normal, normal_sums = [], [], [], []
    for i, dtype in enumerate(floats):
        for n in sizes + (1000000,):
            x = raw.RandomUniform(shape=[n], dtype=dtype, seed=11 + i, seed2=n)
            sums.append(bits(x))
            if n <= 4:
                uniform.append(tf.cast(x, tf.float64))
            for k, op in enumerate((raw.RandomStandardNormal, raw.TruncatedNormal)):
                # A last digit may be another, which is much in the small types: sums are compared.
                x = op(shape=[n], dtype=dtype, seed=21 + i, seed2=n + k)
                if n > 257:
                    normal_sums.append(moments(x))
                elif dtype.size >= 4:
                    normal.append(tf.cast(x, tf.float64))
                elif n <= 4:
                    normal_sums.append(moments(x))
    integers = []
    for n in sizes + (1000000,):
        for dtype, low, high in (
            (tf.int32, -7, 12),
            (tf.int32, -(2**31), 2**31 - 1),
            (tf.int64, 5, 2**33),
            (tf.int64, -(2**63), 2**63 - 1),
        ):
            limits = dict(minval=tf.constant(low, dtype), maxval=tf.constant(high, dtype))
            integers.append(bits(raw.RandomUniformInt(shape=[n], seed=31, seed2=n, **limits)))

    shuffled = [
        v1.random_shuffle(tf.constant(values(("shuffled", shape), shape)), seed=3)
        for shape in ((2,), (3, 2), (257,), (1000, 1, 2), (1, 3), (4, 0))
    ]
    logits = tf.constant(values("logits", (3, 5), -3, 3))
    drawn = [
        raw.Multinomial(logits=tf.cast(logits, dtype), num_samples=n, seed=0, seed2=9, output_dtype=index)
        for dtype in floats
        for index, n in ((tf.int32, 1), (tf.int64, 6), (tf.int64, 21))
    ]

    one = v1.random_uniform([3], seed=5, name="one")
    other = v1.random_uniform([3], seed=5, name="other")
    large = [raw.RandomUniform(shape=[5], dtype=tf.float32, seed=s, seed2=t) for s, t in ((-3, 0), (2**40, -(2**63)))]
    kept = v1.nn.dropout(tf.ones([8, 8]), rate=0.4, seed=77, name="kept")

    shape = v1.placeholder(tf.int32, [None], name="shape")
    low = v1.placeholder(tf.int32, [], name="low")
    fed = raw.RandomUniform(shape=shape, dtype=tf.float32, seed=1, seed2=2, name="fed")
    below = raw.RandomUniformInt(shape=shape, minval=low, maxval=10, seed=1, seed2=2, name="below")

    def looped(name):
        def body(i, x):
            return i + 1, x * 0.5 + v1.random_uniform([2, 3], seed=41)

        return v1.while_loop(lambda i, x: i < 5, body, [0, tf.zeros([2, 3])], parallel_iterations=1, name=name)[1]

    old_loop = looped("old_loop")
    new_loop = of_the_new_kind(looped)("new_loop")

    @tf.function(autograph=False)
    def noisy(x):
        return x + v1.random_uniform([4], seed=6)

    called = noisy(tf.zeros([4]))

    uniform, sums, normal = tf.concat(uniform, 0), tf.stack(sums), tf.concat(normal, 0)
    normal_sums, integers = tf.stack(normal_sums), tf.stack(integers)
    for when in ("first", "second"):
        r.step(when + " uniform values", [uniform, sums], rtol=0, atol=0)
        r.step(when + " normal values", [normal], rtol=1e-6, atol=1e-6)
        r.step(when + " sums of normal values", [normal_sums], rtol=1e-5, atol=0.01)
        r.step(when + " integers", [integers])
        r.step(when + " rows", shuffled, rtol=0, atol=0)
        r.step(when + " classes", drawn)
        r.step(when + " large seeds", large, rtol=0, atol=0)
        r.step(when + " dropout", [kept])
        r.step(when + " loops", [old_loop, new_loop])
        r.step(when + " call", [called])
    r.step("two nodes with the same seeds", [one, other], rtol=0, atol=0)
    r.step("one goes on alone", [one], rtol=0, atol=0)
    r.step("each where it was", [one, other], rtol=0, atol=0)
    r.step("as a part of a larger step", [one, kept, old_loop, new_loop])
    for i, n in enumerate(([3], [], [2, 0], [-1], [2**31 - 1] * 3, [2])):
        refused = dict(error="INVALID_ARGUMENT") if max(n + [0]) > 3 or min(n + [0]) < 0 else {}
        r.step("shape %d" % i, [fed], feeds={shape: ints(n, np.int32)}, rtol=0, atol=0, **refused)
    for i, least in enumerate((0, 10, 9, -5)):
        refused = dict(error="INVALID_ARGUMENT", error_contains="minval < maxval") if least == 10 else {}
        r.step("from %d" % least, [below], feeds={shape: ints([4], np.int32), low: ints(least, np.int32)}, **refused)


def ops_of(gd):
    names = {n.op for n in gd.node}
    for f in gd.library.function:
        names |= {n.op for n in f.node_def}
    return sorted(names - {f.signature.name for f in gd.library.function})


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("name", nargs="*")
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphs"))
    ap.add_argument("--ops", action="store_true")
    args = ap.parse_args()
    for name in args.name or GRAPHS:
        r = Recorder(os.path.join(args.out, name))
        with tf.Graph().as_default() as g:
            GRAPHS[name](r)
            gd = g.as_graph_def(add_shapes=False)
        r.change(gd)
        r.run(gd)
        if args.ops:
            print("| %s | %s |" % (name, ", ".join(ops_of(gd))), flush=True)
        else:
            print(
                "%-24s %5d nodes %3d steps %7d bytes"
                % (
                    name,
                    len(gd.node),
                    len(r.steps),
                    sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(r.folder) for f in fs),
                ),
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
