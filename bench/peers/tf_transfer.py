#!/usr/bin/env python3
"""A tensor through TensorFlow: from server process to server process, and as a feed and a fetch. GB/s, median of a
repetition.

usage: tf_transfer.py [--sizes=4,64] [--inter=4] [--serve] [--case="4 MiB"] [--help]

The value counts the whole step. `beyond_scalar` is the rate without the time of the same step with 8 bytes. The two
servers have a core each."""

import peer
import tf_cluster

MIB = 1 << 20


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--sizes", default="4,64", help="MiB")
    ap.add_argument("--inter", type=int, default=4, help="inter-op threads of each server")
    args = ap.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    names = peer.choose(args, [p + "%d MiB" % s for p in ("", "feed ", "fetch ") for s in sizes])
    v1 = tf_cluster.load()
    import numpy as np

    cluster = tf_cluster.Cluster({"worker": 2}, pin=peer.cores()[:2], inter=args.inter)
    source, target = "/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"
    graph = v1.Graph()
    with graph.as_default():
        held = {}
        for n in [8] + [s * MIB for s in sizes]:
            with v1.device(source):
                a = v1.get_variable("source_%d" % n, [n // 4], initializer=v1.ones_initializer())
            with v1.device(target):
                b = v1.get_variable("target_%d" % n, [n // 4], initializer=v1.ones_initializer())
                arrived = v1.slice(v1.identity(a), [0], [1])  # only a number goes back to the client
                p = v1.placeholder(v1.float32, [n // 4])
                fed = v1.slice(v1.identity(p), [0], [1])
            held[n] = (arrived, p, fed, b)
        session = v1.Session(cluster.target(), config=tf_cluster.config(v1, optimize=False))
        session.run(v1.global_variables_initializer())

        def prepare(way, n):
            arrived, p, fed, b = held[n]
            if way == "feed":
                call, array = session.make_callable(fed, [p]), np.ones(n // 4, np.float32)
                return lambda: call(array)
            return session.make_callable(b if way == "fetch" else arrived)

        cases = {}
        for name in names:
            *way, size, _ = name.split()
            n = int(size) * MIB
            big, small = prepare(way[0] if way else "", n), prepare(way[0] if way else "", 8)
            for _ in range(3):
                big(), small()

            def one(seconds, big=big, small=small, n=n):
                scalar = peer.median_seconds(small, seconds / 5)
                whole = peer.median_seconds(big, seconds)
                return dict(value=n / whole / 1e9, beyond_scalar=n / max(whole - scalar, 1e-9) / 1e9)

            cases[name] = one
    peer.main("transfer/tensorflow", "GB/s", cases, args)


if __name__ == "__main__":
    main()
