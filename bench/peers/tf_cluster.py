"""TensorFlow in 1.x graph mode for the tf_* peers: loading it, its server processes on loopback, the model. Imported;
run by the peers themselves as `tf_cluster.py CLUSTER_JSON JOB TASK INTRA INTER`, it is one server that serves until
killed."""

import json
import os
import sys

import peer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

def load():
    """tf.compat.v1 without eager execution; ends the program with code 3 where TensorFlow is missing."""
    peer.require("tensorflow", "numpy")
    if (
        "TF_PEER_VERBOSE" not in os.environ
    ):  # its C++ side greets on standard error whatever its log level; Python's errors stay
        sys.stderr = os.fdopen(os.dup(2), "w")
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
    v1 = peer.load("tensorflow", os.path.basename(sys.argv[0])).compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)
    v1.disable_v2_behavior()
    return v1


def config(v1, intra=1, inter=1, optimize=True):
    c = v1.ConfigProto(
        intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter, allow_soft_placement=False
    )
    if not optimize:  # leave the graph alone, so that what is written is what runs
        c.graph_options.rewrite_options.disable_meta_optimizer = True
        c.graph_options.optimizer_options.opt_level = -1
    return c


class Cluster:
    """One server process per task, on the given cores in turn where there are any (None: not pinned), on loopback
    ports free at the time. Who trains in the process of its server starts that itself: tasks of a job in `without`."""

    def __init__(self, jobs, pin=None, intra=1, inter=4, env=None, without=()):
        ports = peer.free_ports(sum(jobs.values()))
        self.spec = {job: ["127.0.0.1:%d" % ports.pop() for _ in range(n)] for job, n in jobs.items()}
        self.servers = []
        for job, n in jobs.items():
            for task in range(0 if job in without else n):
                core = pin[len(self.servers) % len(pin)] if pin else None
                cmd = [
                    sys.executable,
                    os.path.abspath(__file__),
                    json.dumps(self.spec),
                    job,
                    str(task),
                    str(intra),
                    str(inter),
                ]
                self.servers.append(peer.spawn(cmd, core, env))
        for s in self.servers:
            if s.stdout.readline().strip() != "ready":
                raise RuntimeError("a TensorFlow server did not start")

    def target(self, job="worker", task=0):
        return "grpc://" + self.spec[job][task]


# ---- the CNN of the TensorFlow tutorials --------------------------------------------------------------------------


def cnn_variables(v1, fc):
    shapes = [
        ("w1", (5, 5, 1, 32)),
        ("b1", (32,)),
        ("w2", (5, 5, 32, 64)),
        ("b2", (64,)),
        ("w3", (7 * 7 * 64, fc)),
        ("b3", (fc,)),
        ("w4", (fc, 10)),
        ("b4", (10,)),
    ]
    weights = v1.truncated_normal_initializer(stddev=0.1, seed=1)
    return [
        v1.get_variable(n, s, initializer=weights if n[0] == "w" else v1.constant_initializer(0.1)) for n, s in shapes
    ]


def cnn_loss(v1, v, images, labels):
    h = images
    for w, b in ((v[0], v[1]), (v[2], v[3])):
        h = v1.nn.relu(v1.nn.bias_add(v1.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"), b))
        h = v1.nn.max_pool2d(h, 2, 2, "SAME")
    h = v1.nn.relu(v1.nn.bias_add(v1.matmul(v1.reshape(h, [-1, 7 * 7 * 64]), v[4]), v[5]))
    logits = v1.nn.bias_add(v1.matmul(h, v[6]), v[7])
    return v1.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def main():
    peer.die_with_parent()
    v1 = load()
    spec, job, task, intra, inter = (
        json.loads(sys.argv[1]),
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
    server = v1.train.Server(spec, job_name=job, task_index=task, config=config(v1, intra, inter))
    print("ready", flush=True)
    server.join()


if __name__ == "__main__":
    main()
