#!/usr/bin/env python3
"""`session.run` from Python, in one process, of a no-op and of y = 2 x for 100 floats that are fed: monograph.Session,
tf.Session by monograph.tensorflow, and TensorFlow's own. Microseconds, median of a repetition; each case is a process
of its own, all in turn.

usage: PYTHONPATH=build/python python_run.py [--serve] [--case="TensorFlow, no-op"] [--help]"""

import sys

import peer

SESSIONS = ["monograph.Session", "monograph.tensorflow", "TensorFlow"]
STEPS = ["no-op", "y = 2 x"]


def call(case):
    """The step of a case, as a user writes it."""
    kind, step = case.split(", ")
    if kind == "monograph.tensorflow":
        peer.load("monograph.tensorflow", sys.argv[0])
    tf = peer.load("tensorflow", sys.argv[0])
    np = peer.load("numpy", sys.argv[0])
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None])
        fetch = tf.no_op() if step == "no-op" else x * 2
        if kind == "monograph.Session":
            session = peer.load("monograph", sys.argv[0]).Session(graph.as_graph_def())
            x, fetch = x.name, fetch.name
        else:
            session = tf.compat.v1.Session()
    if step == "no-op":
        return lambda: session.run(fetch)
    feed = np.ones(100, np.float32)
    return lambda: session.run(fetch, {x: feed})


def main():
    args = peer.parser(__doc__).parse_args()
    peer.require("tensorflow", "monograph")
    names = peer.choose(args, [f"{session}, {step}" for step in STEPS for session in SESSIONS])
    if args.serve and len(names) == 1:
        step = call(names[0])
        peer.main("run from Python", "us", {names[0]: lambda s: peer.median_seconds(step, s) * 1e6}, args)
    cases = {n: peer.Isolated(n, ["--seconds=%g" % args.seconds]) for n in names}
    peer.main("run from Python", "us", cases, args)


if __name__ == "__main__":
    main()
