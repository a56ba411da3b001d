#!/usr/bin/env python3
"""Writes checks/<name>.pb: GraphDefs of tf.compat.v1 programs that do not run here as they are (see README.md).

usage: make_checks.py [--out DIR]"""

import argparse
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_control_flow_v2()
v1.logging.set_verbosity(v1.logging.ERROR)


def regression():
    x = v1.placeholder(tf.float32, [None, 2], "x")
    y = v1.placeholder(tf.float32, [None, 1], "y")
    w = v1.get_variable("w", initializer=tf.constant([[1.0], [2.0]]))
    b = v1.get_variable("b", initializer=tf.constant([0.0]))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y), name="loss")
    step = v1.train.get_or_create_global_step()
    v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step, name="train")
    v1.global_variables_initializer()


def ref_variables():
    v1.disable_resource_variables()
    regression()


def resource_variables():
    v1.enable_resource_variables()
    regression()


def control_flow():
    x = v1.placeholder(tf.float32, [], "x")
    branch = tf.cond(x > 0, lambda: x * 2, lambda: -x)
    v1.while_loop(lambda i, y: i < 10, lambda i, y: [i + 1, y + branch], [0, x], name="loop")


def ops_in_a_function():
    @tf.function
    def f(a):
        return tf.linalg.cholesky(tf.matmul(a, a)) + tf.linalg.cholesky(a)

    x = v1.placeholder(tf.float32, [2, 2], "x")
    tf.identity(f(x), "y")
    tf.linalg.cholesky(x, name="outside")
    tf.matmul(v1.placeholder(tf.complex64, [2, 2]), tf.zeros([2, 2], tf.complex64), name="complex")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "checks"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    for make in (ref_variables, resource_variables, control_flow, ops_in_a_function):
        graph = tf.Graph()
        with graph.as_default():
            make()
        with open(os.path.join(out, make.__name__ + ".pb"), "wb") as file:
            file.write(graph.as_graph_def().SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
