#!/usr/bin/env python3
"""TensorFlow's null step: one no-op on each of K server processes, run by a prepared call. Microseconds, median of a
repetition.

usage: tf_null_step.py [--tasks=1,2,8] [--inter=4] [--serve] [--case="K=2"] [--help]

The case "local" is a session in this process, where no message is sent."""

import peer
import tf_cluster


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--tasks", default="1,2,8")
    ap.add_argument("--inter", type=int, default=4, help="inter-op threads of each server")
    args = ap.parse_args()
    counts = [int(k) for k in args.tasks.split(",")]
    names = peer.choose(args, ["K=%d" % k for k in counts] + ["local"])
    v1 = tf_cluster.load()
    calls = {}
    if "local" in names:
        with v1.Graph().as_default():
            calls["local"] = v1.Session(config=tf_cluster.config(v1)).make_callable([v1.no_op()])
    wanted = [k for k in counts if "K=%d" % k in names]
    if wanted:
        cluster = tf_cluster.Cluster({"worker": max(wanted)}, inter=args.inter)
        with v1.Graph().as_default():
            ops = []
            for k in range(max(wanted)):
                with v1.device("/job:worker/task:%d/cpu:0" % k):
                    ops.append(v1.no_op())
            session = v1.Session(cluster.target(), config=tf_cluster.config(v1))
            for k in wanted:
                calls["K=%d" % k] = session.make_callable(ops[:k])
    for call in calls.values():
        for _ in range(20):
            call()
    peer.main(
        "null_step/tensorflow", "us", {n: lambda s, c=calls[n]: peer.median_seconds(c, s) * 1e6 for n in names}, args
    )


if __name__ == "__main__":
    main()
