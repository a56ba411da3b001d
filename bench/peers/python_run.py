#!/usr/bin/env python3
"""`session.run` from Python of a no-op, of y = 2 x for 100 floats that are fed, and of 64 MiB that are fed and fetched:
monograph.Session, tf.Session by monograph.tensorflow, and TensorFlow's own, in one process and, the last two, with a
server in another. Microseconds, median of a repetition; each case is a process of its own, all in turn.

usage: PYTHONPATH=build/python python_run.py [--serve] [--case="TensorFlow, no-op"] [--help]"""

import sys

import peer
import tf_cluster

SESSIONS = ["monograph.Session", "monograph.tensorflow", "TensorFlow"]
STEPS = ["no-op", "y = 2 x", "64 MiB"]
CASES = [f"{session}, {step}" for step in STEPS for session in SESSIONS] + [
    f"{session}, with a server, {step}" for step in STEPS for session in SESSIONS[1:]]


def call(case):
    """The step of a case, as a user writes it."""
    kind, *server, step = case.split(", ")
    tf = tf_cluster.load()
    np = peer.load("numpy", sys.argv[0])
    # By monograph.tensorflow it is ours, as this process is.
    target = tf_cluster.Cluster({"worker": 1}).target() if server else ""
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0/cpu:0" if server else None):
        x = tf.placeholder(tf.float32, [None])
        fetch = {"no-op": tf.no_op, "y = 2 x": lambda: x * 2, "64 MiB": lambda: tf.identity(x)}[step]()
        if kind == "monograph.Session":
            session = peer.load("monograph", sys.argv[0]).Session(graph.as_graph_def())
            x, fetch = x.name, fetch.name
        else:
            session = tf.Session(target)
    if step == "no-op":
        return lambda: session.run(fetch)
    feed = np.ones(100 if step == "y = 2 x" else 1 << 24, np.float32)
    return lambda: session.run(fetch, {x: feed})


def main():
    args = peer.parser(__doc__).parse_args()
    peer.require("tensorflow", "monograph")
    names = peer.choose(args, CASES)
    if args.serve and len(names) == 1:
        step = call(names[0])
        peer.main("run from Python", "us", {names[0]: lambda s: peer.median_seconds(step, s) * 1e6}, args)
    cases = {
        n: peer.Isolated(
            n, ["--seconds=%g" % args.seconds], module="monograph.tensorflow" if n.startswith("monograph.t") else None
        )
        for n in names
    }
    peer.main("run from Python", "us", cases, args)


if __name__ == "__main__":
    main()
