#!/usr/bin/env python3
"""TensorFlow training the CNN of its tutorials (oneDNN on, Adam, real or made images). Images per second.

usage: tf_mnist.py [--batch=100] [--fc=1024] [--data_dir=DIR] [--serve] [--case="1 replica"] [--help]

Cases: "1 replica" is a plain session on one core with one thread. "2 replicas" is in-graph replication in its best
layout known to us: a server process on each of two cores with four inter-op threads, variables on the first worker,
each tower fed on its own, so that the client sends each worker its part only; --batch images per replica. "2
replicas, half" has the same global batch as one replica. Each case has a process of its own, with an allocator that
keeps its memory in huge pages."""

import gzip
import itertools
import os

import peer
import tf_cluster

BATCHES = 20


def images(np, folder, n):
    """n images and labels, from IDX files where the folder has them."""
    path = os.path.join(folder, "train-%s-ubyte.gz")
    if folder and os.path.exists(path % "images-idx3"):
        with gzip.open(path % "images-idx3") as f:
            f.read(16)
            x = np.frombuffer(f.read(n * 784), np.uint8)
        with gzip.open(path % "labels-idx1") as f:
            f.read(8)
            y = np.frombuffer(f.read(n), np.uint8)
    else:
        r = np.random.RandomState(0)
        x, y = r.randint(0, 256, n * 784), r.randint(0, 10, n)
    return x.astype(np.float32).reshape(n, 28, 28, 1) / 255.0, y.astype(np.int32)


def build(v1, replicas, batch, fc, place):
    """(placeholders per tower, training op, loss)"""
    with v1.device(place):
        v = tf_cluster.cnn_variables(v1, fc)
        opt = v1.train.AdamOptimizer(1e-4)
    feeds, losses, grads = [], [], []
    for k in range(replicas):
        with v1.device("/job:worker/task:%d" % k if replicas > 1 else None), v1.name_scope("tower_%d" % k):
            x, y = v1.placeholder(v1.float32, [batch, 28, 28, 1]), v1.placeholder(v1.int32, [batch])
            losses.append(tf_cluster.cnn_loss(v1, v, x, y))
            grads.append(v1.gradients(losses[-1], v))
            feeds += [x, y]
    if replicas == 1:
        return feeds, opt.apply_gradients(list(zip(grads[0], v))), losses[0]
    with v1.device(place):
        mean = [v1.add_n(g) / replicas for g in zip(*grads)]
        return feeds, opt.apply_gradients(list(zip(mean, v))), v1.add_n(losses) / replicas


def training(v1, target, place, replicas, batch, fc, x, y):
    """step() trains on the next of these images, which are `batch` for each replica, and returns the loss. One session
    at `target`, variables on `place`."""
    feeds, train, loss = build(v1, replicas, batch, fc, place)
    session = v1.Session(target, config=tf_cluster.config(v1))
    session.run(v1.global_variables_initializer())
    call = session.make_callable([train, loss], feeds)
    parts = [[a[k : k + batch] for a in (x, y)] for k in range(0, len(x), batch)]
    rows = itertools.cycle([sum(parts[i : i + replicas], []) for i in range(0, len(parts), replicas)])
    return lambda: float(call(*next(rows))[1])


def main():
    ap = peer.parser(__doc__)
    ap.add_argument("--batch", type=int, default=100, help="images per replica and step")
    ap.add_argument("--fc", type=int, default=1024, help="width of the fully connected layer")
    ap.add_argument("--data_dir", default="/usr/share/datasets/fashion-mnist")
    args = ap.parse_args()
    table = {"1 replica": (1, args.batch), "2 replicas": (2, args.batch), "2 replicas, half": (2, args.batch // 2)}
    names = peer.choose(args, list(table))
    peer.require("tensorflow", "numpy")
    inner = os.environ.get("TF_MNIST_CASE") == (args.case or [""])[0]
    if not inner:
        rest = [
            "--batch=%d" % args.batch,
            "--fc=%d" % args.fc,
            "--data_dir=" + args.data_dir,
            "--seconds=%g" % args.seconds,
        ]
        first = peer.cores()[0]
        cases = {
            n: peer.Isolated(n, rest, first if table[n][0] == 1 else None, dict(peer.MEMORY, TF_MNIST_CASE=n))
            for n in names
        }
        peer.main("mnist/tensorflow", "images/s", cases, args)
    replicas, batch = table[names[0]]
    v1 = tf_cluster.load()
    import numpy as np

    x, y = images(np, args.data_dir, BATCHES * replicas * batch)
    if replicas == 1:
        target, place = "", None
    else:
        target, place = (
            tf_cluster.Cluster({"worker": replicas}, pin=peer.cores()[:replicas]).target(),
            "/job:worker/task:0",
        )
    step = training(v1, target, place, replicas, batch, args.fc, x, y)
    state = {}
    for _ in range(5):
        step()

    def repetition(seconds):
        def one():
            state["loss"] = step()

        speed = peer.rate(one, seconds, at_least=3)
        return dict(value=speed * batch * replicas, loss=state["loss"])

    peer.main("mnist/tensorflow", "images/s", {names[0]: repetition}, args)


if __name__ == "__main__":
    main()
