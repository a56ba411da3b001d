#!/usr/bin/env python3
"""A sum over two processes by torch.distributed's gloo, in place, in float. Milliseconds, median of a repetition.

usage: torch_all_reduce.py [--bytes=13096744] [--seconds=0.15] [--serve] [--help]

The two processes are on loopback, a core each; both run the same number of sums."""

import os
import statistics
import sys
import time

import peer


def member(rank, port, size):
    """One of the two: a line on standard input is a number of sums to run; it answers with their median time."""
    peer.die_with_parent()
    torch = peer.load("torch", "torch_all_reduce.py")
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)
    values = torch.ones(size // 4)
    dist.all_reduce(values)
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            values.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(values)
            times.append(time.perf_counter() - start)
        print(statistics.median(times), flush=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--member":
        member(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    ap = peer.parser(__doc__)
    ap.add_argument("--bytes", type=int, default=13096744)
    args = ap.parse_args()
    peer.require("torch")
    port, cores = peer.free_ports(1)[0], peer.cores()
    members = []
    for rank in range(2):
        command = [sys.executable, os.path.abspath(__file__), "--member", str(rank), str(port), str(args.bytes)]
        members.append(peer.spawn(command, cores[rank % len(cores)], {"GLOO_SOCKET_IFNAME": "lo"}))
    for m in members:
        if m.stdout.readline().strip() != "ready":
            raise RuntimeError("a member of the gloo group did not start")

    def one(seconds):
        for m in members:
            m.stdin.write("10\n")
            m.stdin.flush()
        return dict(value=max(float(m.stdout.readline()) for m in members) * 1e3)

    names = peer.choose(args, ["all_reduce"])
    peer.main("all_reduce/gloo", "ms", {n: one for n in names}, args)


if __name__ == "__main__":
    main()
