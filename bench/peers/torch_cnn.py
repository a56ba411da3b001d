#!/usr/bin/env python3
"""torch training on CPUs, in one process: the CNN of TensorFlow's tutorials (batch 100, fc 1024, fused Adam) and
ResNet-50 (batch 16, fused SGD with momentum), channels last, made images. Images per second, by the clock and (as
`processor`) of processor time.

usage: torch_cnn.py [--threads=1] [--serve] [--case="CNN, autocast"] [--help]

Cases: "float"; "autocast", torch's CPU autocast to bfloat16, with weights of float, as ours; "bfloat16", a model whose
weights are bfloat16, too, and so is what its optimizer keeps; each with ", compiled" behind: torch.compile of the model
and its loss. The process is pinned to as many cores as it has threads."""

import os
import sys
import time

import peer
from torch_models import cnn, resnet50

peer.require("torch")

KINDS = ("float", "autocast", "bfloat16")
BATCHES = 4


def training(torch, build, optimizer_of, shape, classes, kind, compiled):
    torch.manual_seed(1)
    model = build(torch.nn).to(memory_format=torch.channels_last)
    x = [torch.rand(*shape).contiguous(memory_format=torch.channels_last) for _ in range(BATCHES)]
    y = [torch.randint(0, classes, (shape[0],)) for _ in range(BATCHES)]
    if kind == "bfloat16":
        model, x = model.to(torch.bfloat16), [part.to(torch.bfloat16) for part in x]
    optimizer = optimizer_of(model.parameters())
    loss_of = torch.nn.CrossEntropyLoss()

    def loss(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
            logits = model(x)
        return loss_of(logits.float(), y)

    forward = torch.compile(loss) if compiled else loss
    state = dict(next=0)

    def step():
        k = state["next"] % BATCHES
        state["next"] += 1
        value = forward(x[k], y[k])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        return value.item()

    for _ in range(3):
        step()
    return step


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--threads", type=int, default=1, help="of the process, each with a core")
    args = ap.parse_args()
    cores = peer.cores()[: args.threads]
    wanted = dict(peer.MEMORY, OMP_NUM_THREADS=str(args.threads))
    if any(os.environ.get(k) != v for k, v in wanted.items()):  # all of them are read when a process starts
        os.sched_setaffinity(0, cores)
        os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, **wanted))
    torch = peer.load("torch", "torch_cnn.py")
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    models = {
        "CNN": (cnn, lambda p: torch.optim.Adam(p, lr=1e-4, fused=True), (100, 1, 28, 28), 10),
        "ResNet-50": (resnet50, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True), (16, 3, 224, 224), 1000),
    }
    made = {}

    def case(name, model, kind, compiled):
        batch = models[model][2][0]

        def repetition(seconds):
            if name not in made:
                made[name] = training(torch, *models[model], kind, compiled)
            processor, start, images = time.process_time(), time.perf_counter(), 0
            while images == 0 or time.perf_counter() - start < seconds:
                made[name]()
                images += batch
            processor, wall = time.process_time() - processor, time.perf_counter() - start
            return dict(value=images / wall, processor=images / processor)

        return repetition

    cases = {}
    for model in models:
        for kind in KINDS:
            for how in ("", ", compiled"):
                name = "%s, %s%s" % (model, kind, how)
                cases[name] = case(name, model, kind, bool(how))
    peer.main("replica/torch", "images/s", {n: cases[n] for n in peer.choose(args, list(cases))}, args)


if __name__ == "__main__":
    main()
