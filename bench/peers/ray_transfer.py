#!/usr/bin/env python3
"""A tensor through Ray's Compiled Graph, from actor to actor. GB/s of the whole call, median of a repetition.

usage: ray_transfer.py [--sizes=4,64] [--serve] [--case="4 MiB"] [--help]

"4 MiB" lands the tensor in memory of the reader's own, as a receive does; "4 MiB view" reads the shared memory in
place."""

import peer
import ray_graph

MIB = 1 << 20


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--sizes", default="4,64", help="MiB")
    args = ap.parse_args()
    sizes = args.sizes.split(",")
    names = peer.choose(args, [s + " MiB" for s in sizes] + [s + " MiB view" for s in sizes])
    ray, Actor = ray_graph.start(2 << 30)
    from ray.dag import InputNode

    cases = {}
    for name in names:
        n = int(name.split()[0]) * MIB
        a, b = Actor.remote(), Actor.remote()
        pids = ray.get([a.pid.remote(), b.pid.remote()])
        with InputNode() as given:
            made = a.make.bind(given)
            dag = b.view.bind(made) if name.endswith("view") else b.copy.bind(made)
        compiled = dag.experimental_compile(_buffer_size_bytes=n + MIB, _max_inflight_executions=1)

        def call(compiled=compiled, n=n):
            ray.get(compiled.execute(n))

        for _ in range(5):
            call()
        cases[name] = ray_graph.Awake(pids, lambda s, c=call, n=n, keep=(a, b): n / peer.median_seconds(c, s) / 1e9)
    peer.main("transfer/ray", "GB/s", cases, args)


if __name__ == "__main__":
    main()
