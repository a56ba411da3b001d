#!/usr/bin/env python3
"""Ray's null step: a Compiled Graph that calls one empty method on each of K actors. Microseconds, median of a
repetition.

usage: ray_null_step.py [--tasks=1,2,8] [--serve] [--case="K=2"] [--help]"""

import peer
import ray_graph


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--tasks", default="1,2,8")
    args = ap.parse_args()
    names = peer.choose(args, ["K=" + k for k in args.tasks.split(",")])
    ray, Actor = ray_graph.start(1 << 30)
    from ray.dag import InputNode, MultiOutputNode

    cases = {}
    for name in names:
        k = int(name[2:])
        actors = [Actor.remote() for _ in range(k)]
        pids = ray.get([a.pid.remote() for a in actors])
        with InputNode() as given:
            calls = [a.same.bind(given) for a in actors]
            dag = MultiOutputNode(calls) if k > 1 else calls[0]
        compiled = dag.experimental_compile()

        def call(compiled=compiled):
            ray.get(compiled.execute(1))

        for _ in range(20):
            call()
        cases[name] = ray_graph.Awake(pids, lambda s, c=call, a=actors: peer.median_seconds(c, s) * 1e6)
    peer.main("null_step/ray", "us", cases, args)


if __name__ == "__main__":
    main()
