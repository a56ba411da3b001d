#!/usr/bin/env python3
"""TensorFlow's loops and branches: microseconds of an iteration and of a cond in a session of this process, median of
a repetition.

usage: tf_control_flow.py [--graphs=DIR] [--serve] [--case="while_loop, nested, 1 thread"] [--help]

"while_loop" and "cond" are TensorFlow 1.x's Enter, Merge, Switch, NextIteration and Exit; "While" and "If" are the
functional ops. --graphs writes the graph of each into DIR before the first repetition, as "while_loop, nested.pb", so
that another system runs the same: it feeds "limit:0" and fetches "result:0"."""

import peer
import tf_cluster

# Iterations of a loop, of each of two nested ones, conds one behind the other. bench/control_flow_bench.cc knows them.
ITERATIONS, NESTED, CONDS = 1000, 32, 200


def chain(tf, x, limit):
    return tf.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, x + 1.0), [0, x])[1]


def nested(tf, x, limit):
    return tf.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, chain(tf, x, limit)), [0, x])[1]


def conds(tf, x, limit):
    # Every second one takes the other branch.
    threshold = tf.cast(limit, tf.float32)
    for _ in range(CONDS):
        x = tf.cond(x < threshold, lambda x=x: x + 1.0, lambda x=x: x - 1.0)
    return x


# By name: whether it has functional ops, what builds it, the limit that is fed, and what the time is divided by.
GRAPHS = {
    "while_loop, chain": (False, chain, ITERATIONS, ITERATIONS),
    "while_loop, nested": (False, nested, NESTED, NESTED * NESTED + NESTED),
    "cond": (False, conds, 1, CONDS),
    "While, chain": (True, chain, ITERATIONS, ITERATIONS),
    "While, nested": (True, nested, NESTED, NESTED * NESTED + NESTED),
    "If": (True, conds, 1, CONDS),
}
THREADS = {"1 thread": 1, "2 threads": 2}


def build(tf, functional, body):
    with tf.Graph().as_default() as graph:
        (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
        limit = tf.placeholder(tf.int32, [], name="limit")
        x = tf.placeholder_with_default(tf.constant(0.0), [], name="x")
        result = tf.identity(body(tf, x, limit), name="result")
    return graph, limit, result


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--graphs", default="", help="a folder for the graphs")
    args = ap.parse_args()
    names = peer.choose(args, ["%s, %s" % (graph, threads) for graph in GRAPHS for threads in THREADS])
    tf = tf_cluster.load()
    cases = {}
    for name, (functional, body, fed, count) in GRAPHS.items():
        graph, limit, result = build(tf, functional, body)
        if args.graphs:
            tf.io.write_graph(graph, args.graphs, name + ".pb", as_text=False)
        for threads, number in THREADS.items():
            case = "%s, %s" % (name, threads)
            if case not in names:
                continue
            session = tf.Session(graph=graph, config=tf_cluster.config(tf, inter=number))
            call = session.make_callable(result, [limit])
            for _ in range(5):
                call(fed)
            cases[case] = lambda s, call=call, fed=fed, count=count: (
                peer.median_seconds(lambda: call(fed), s) / count * 1e6
            )
    peer.main("control_flow/tensorflow", "us", {n: cases[n] for n in names}, args)


if __name__ == "__main__":
    main()
