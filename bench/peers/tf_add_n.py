#!/usr/bin/env python3
"""Gradients of two TensorFlow workers summed by AddN on a parameter server, and the sum brought back to both.
Milliseconds, median of a repetition.

usage: tf_add_n.py [--bytes=13096744] [--inter=4] [--serve] [--help]

What a step of in-graph or between-graph training does with a model of so many bytes. The servers share two cores."""

import peer
import tf_cluster


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--bytes", type=int, default=13096744)
    ap.add_argument("--inter", type=int, default=4, help="inter-op threads of each server")
    args = ap.parse_args()
    names = peer.choose(args, ["add_n"])
    v1 = tf_cluster.load()
    cluster = tf_cluster.Cluster({"ps": 1, "worker": 2}, inter=args.inter)
    graph = v1.Graph()
    with graph.as_default():
        parts = []
        for k in range(2):
            with v1.device("/job:worker/task:%d/cpu:0" % k):
                held = v1.get_variable("gradient_%d" % k, [args.bytes // 4], initializer=v1.ones_initializer())
                parts.append(v1.identity(held))
        with v1.device("/job:ps/task:0/cpu:0"):
            total = v1.add_n(parts)
        arrived = []
        for k in range(2):
            with v1.device("/job:worker/task:%d/cpu:0" % k):
                arrived.append(v1.slice(v1.identity(total), [0], [1]))  # only a number goes back to the client
        session = v1.Session(cluster.target(), config=tf_cluster.config(v1, optimize=False))
        session.run(v1.global_variables_initializer())
        call = session.make_callable(arrived)
        for _ in range(3):
            call()
    one = lambda seconds: dict(value=peer.median_seconds(call, seconds) * 1e3)
    peer.main("all_reduce/tensorflow", "ms", {n: one for n in names}, args)


if __name__ == "__main__":
    main()
