#!/usr/bin/env python3
"""torch training the CNN of TensorFlow's tutorials on two processes with DistributedDataParallel over gloo (Adam, made
images), as fast as torch's own settings make it. Images per second.

usage: torch_ddp.py [--images=4000] [--fc=1024] [--layout=nchw|nhwc] [--serve] [--case="between-graph, all-reduced, batch 200"] [--help]

The two processes are on loopback, with a thread and a core each. Cases are named by the global batch.
"bfloat16" is torch's autocast, with gradients that are narrowed to be sent; in a "bfloat16 model" weights and gradients
are of that type. A repetition trains on --images images, however many --seconds say.

Settings, by torch 2.15 on two cores with AVX-512, batch 200, relative to those in use: NCHW instead of channels last
0.88, Adam with foreach instead of fused 0.91, ReLU not in place 0.95; torch.compile of the model inside
DistributedDataParallel 0.69, outside 0.97; processes not pinned 0.82. Within the noise: static_graph, buckets of 1, 5
and 100 MB, gradients that are no views of buckets, one inter-op thread, denormals flushed."""

import os
import sys

import peer
from torch_models import cnn

PROCESSES = 2
BATCHES = 20
CASE = "between-graph, all-reduced%s, batch %d"


def member(rank, port, batch, fc, layout, kind):
    peer.die_with_parent()
    torch = peer.load("torch", "torch_ddp.py")
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=PROCESSES)
    model = cnn(nn, fc)
    x, y = torch.rand(BATCHES, batch, 1, 28, 28), torch.randint(0, 10, (BATCHES, batch))
    x = list(x)
    if kind == "model":
        model, x = model.to(torch.bfloat16), [part.to(torch.bfloat16) for part in x]
    if layout == "nhwc":
        model = model.to(memory_format=torch.channels_last)
        x = [part.contiguous(memory_format=torch.channels_last) for part in x]
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "autocast":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    loss_of = nn.CrossEntropyLoss()
    state = dict(next=0)

    def step():
        k = state["next"] % BATCHES
        state["next"] += 1
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
            logits = model(x[k])
        loss = loss_of(logits.float(), y[k])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    peer.serve_steps(step, batch)


def start(batch, kind, args):
    """The processes of a case, warm: a function that runs a repetition."""
    port, cores = peer.free_ports(1)[0], peer.cores()
    command = [sys.executable, os.path.abspath(__file__), "--member"]
    rest = [str(a) for a in (port, batch // PROCESSES, args.fc, args.layout, kind)]
    group = peer.Group(
        [(command + [str(rank)] + rest, cores[rank % len(cores)]) for rank in range(PROCESSES)],
        dict(peer.MEMORY, GLOO_SOCKET_IFNAME="lo"),
    )
    group(5)
    return lambda seconds: dict(value=group(args.images // batch))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--member":
        member(*map(int, sys.argv[2:6]), *sys.argv[6:8])
        return
    ap = peer.parser(__doc__)
    ap.add_argument("--images", type=int, default=4000, help="of a repetition")
    ap.add_argument("--fc", type=int, default=1024, help="width of the fully connected layer")
    ap.add_argument("--layout", choices=["nchw", "nhwc"], default="nhwc", help="of images and filters in memory")
    args = ap.parse_args()
    cases = {
        CASE % (of, batch): (batch, kind)
        for of, kind in (("", "float"), (", bfloat16", "autocast"), (", bfloat16 model", "model"))
        for batch in (200, 100)
    }
    names = peer.choose(args, list(cases))
    peer.require("torch")
    peer.main("training/torch DDP", "images/s", {n: start(*cases[n], args) for n in names}, args)


if __name__ == "__main__":
    main()
