#!/usr/bin/env python3
"""TensorFlow training the CNN of its tutorials on two workers with a core each, in four modes (oneDNN on, Adam, NHWC,
made images). Images per second.

usage: tf_training.py [--images=4000] [--fc=1024] [--serve] [--case="in-graph, ps, batch 200"] [--help]

Cases are a mode and a global batch of 200 or 100. In one graph the client feeds each tower on its own. Between graphs
each worker trains in the process of its server, as TensorFlow's programs do; async applies each worker's gradients of
half a batch, sync is SyncReplicasOptimizer. Worker k is pinned to core k, a ps and the one client of a graph are not.
A repetition trains on --images images, however many --seconds say. A case holds three or four processes of TensorFlow
all the time: name those that memory is there for."""

import json
import os
import sys
import time

import peer
import tf_cluster
import tf_mnist

WORKERS = 2
BATCHES = 20
MODES = {  # place of the variables, sync
    "in-graph, variables on a worker": ("/job:worker/task:0", True),
    "in-graph, ps": ("/job:ps/task:0", True),
    "between-graph async, ps": (None, False),
    "between-graph sync, ps": (None, True),
}


def worker(v1, spec, task, sync, batch, fc, x, y):
    """step() of a worker with a graph of its own, on `batch` images; returns once the model has its first values."""
    server = v1.train.Server(spec, job_name="worker", task_index=task, config=tf_cluster.config(v1, inter=4))
    place = "/job:worker/task:%d" % task
    with v1.device(v1.train.replica_device_setter(cluster=v1.train.ClusterSpec(spec), worker_device=place)):
        v = tf_cluster.cnn_variables(v1, fc)
        global_step = v1.train.get_or_create_global_step()
        feeds = [v1.placeholder(v1.float32, [batch, 28, 28, 1]), v1.placeholder(v1.int32, [batch])]
        loss = tf_cluster.cnn_loss(v1, v, *feeds)
        opt = v1.train.AdamOptimizer(1e-4)
        if sync:
            opt = v1.train.SyncReplicasOptimizer(opt, replicas_to_aggregate=WORKERS, total_num_replicas=WORKERS)
        train = opt.minimize(loss, global_step=global_step)
        init, missing = v1.global_variables_initializer(), v1.report_uninitialized_variables(v1.global_variables())
    if sync:
        # Without tokens to begin with the workers are in step. With TensorFlow's default of one each, a worker that
        # starts first takes both, the other's gradient is dropped as stale, and that one waits at its last step.
        tokens, runner = opt.get_init_tokens_op(num_tokens=0), opt.get_chief_queue_runner()
    config = tf_cluster.config(v1, inter=4)
    config.device_filters.extend(["/job:ps", place])
    session = v1.Session(server.target, config=config)
    if task == 0:
        session.run(init)
        if sync:
            session.run(opt.chief_init_op)
            runner.create_threads(session, daemon=True, start=True)
            session.run(tokens)
    else:
        while len(session.run(missing)) > 0:
            time.sleep(0.1)  # nothing tells of another client's assignment
        if sync:
            session.run(opt.local_step_init_op)
    call = session.make_callable([train, loss], feeds, accept_options=True)
    options = v1.RunOptions(timeout_in_ms=30000)  # a step that never ends is an error of this peer
    state = dict(next=0)

    def step():
        k = state["next"] % (len(x) // batch) * batch
        state["next"] += 1
        return float(call(x[k : k + batch], y[k : k + batch], options=options)[1])

    return step


def client(case, fc, spec, task):
    """One process that trains: the client of a graph for all, or worker `task` with its own."""
    peer.die_with_parent()
    v1 = tf_cluster.load()
    import numpy as np

    mode, batch = case.rsplit(", batch ", 1)
    place, sync = MODES[mode]
    each = int(batch) // WORKERS
    if place:
        x, y = tf_mnist.images(np, "", BATCHES * int(batch))
        step = tf_mnist.training(v1, "grpc://" + spec["worker"][0], place, WORKERS, each, fc, x, y)
        peer.serve_steps(step, int(batch))
    else:
        x, y = tf_mnist.images(np, "", BATCHES * each)
        peer.serve_steps(worker(v1, spec, task, sync, each, fc, x, y), each)


def start(case, args):
    """The processes of a case, warm: a function that runs a repetition."""
    mode, batch = case.rsplit(", batch ", 1)
    in_graph = MODES[mode][0] is not None
    jobs = {"worker": WORKERS} if mode == "in-graph, variables on a worker" else {"worker": WORKERS, "ps": 1}
    cores = [peer.cores()[k % len(peer.cores())] for k in range(WORKERS)]
    cluster = tf_cluster.Cluster(
        jobs, pin=cores + [None] if in_graph else None, env=peer.MEMORY, without=() if in_graph else ("worker",)
    )
    command = [sys.executable, os.path.abspath(__file__), "--client", case, str(args.fc), json.dumps(cluster.spec)]
    group = peer.Group(
        [(command + [str(k)], None if in_graph else cores[k]) for k in range(1 if in_graph else WORKERS)], peer.MEMORY
    )
    group(5)
    return lambda seconds: dict(value=group(args.images // int(batch)))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--client":
        client(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]), int(sys.argv[5]))
        return
    ap = peer.parser(__doc__)
    ap.add_argument("--images", type=int, default=4000, help="of a repetition")
    ap.add_argument("--fc", type=int, default=1024, help="width of the fully connected layer")
    args = ap.parse_args()
    names = peer.choose(args, ["%s, batch %d" % (mode, batch) for mode in MODES for batch in (200, 100)])
    peer.require("tensorflow", "numpy")
    peer.main("training/tensorflow", "images/s", {n: start(n, args) for n in names}, args)


if __name__ == "__main__":
    main()
