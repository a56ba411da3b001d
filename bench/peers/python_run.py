#!/usr/bin/env python3
"""`session.run` of a no-op from Python, in one process: monograph.Session, tf.Session by monograph.tensorflow, and
TensorFlow's own. Microseconds, median of a repetition; each case is a process of its own, all in turn.

usage: PYTHONPATH=build/python python_run.py [--serve] [--case=TensorFlow] [--help]"""

import sys

import peer


def session(case):
    """The session, and its no-op as a user names it."""
    if case == "monograph.tensorflow":
        peer.load("monograph.tensorflow", sys.argv[0])
    tf = peer.load("tensorflow", sys.argv[0])
    with tf.Graph().as_default() as graph:
        nothing = tf.no_op()
        if case != "monograph.Session":
            return tf.compat.v1.Session(), nothing
        return peer.load("monograph", sys.argv[0]).Session(graph.as_graph_def()), nothing.name


def main():
    args = peer.parser(__doc__).parse_args()
    peer.require("tensorflow", "monograph")
    names = peer.choose(args, ["monograph.Session", "monograph.tensorflow", "TensorFlow"])
    if args.serve and len(names) == 1:
        opened, nothing = session(names[0])
        peer.main(
            "run from Python",
            "us",
            {names[0]: lambda s: peer.median_seconds(lambda: opened.run(nothing), s) * 1e6},
            args,
        )
    cases = {n: peer.Isolated(n, ["--seconds=%g" % args.seconds]) for n in names}
    peer.main("run from Python", "us", cases, args)


if __name__ == "__main__":
    main()
