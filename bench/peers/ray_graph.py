"""Ray's Compiled Graph for the ray_* peers: a local Ray on loopback, its actors. Imported, not run.

The actors of a compiled graph spin on a core for ever, also between calls. So that they do not disturb what is
measured next to them, they are stopped between repetitions. Compiled graphs are not torn down: ending the processes
is quicker and never hangs."""

import os
import signal
import sys

import peer

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def start(store_bytes):
    """(ray, its actor class); ends the program with code 3 where Ray or its Compiled Graph is missing."""
    peer.require("ray", "numpy")
    me = os.path.basename(sys.argv[0])
    ray = peer.load("ray", me)
    peer.load("ray.dag", me)
    services = peer.load("ray._private.services", me)
    services.resolve_ip_for_localhost = lambda host: host  # else Ray leaves loopback for the outward address
    services.get_node_ip_address = lambda *a, **k: "127.0.0.1"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=store_bytes,
        _node_ip_address="127.0.0.1",
    )
    import numpy as np

    @ray.remote(num_cpus=0)
    class Actor:
        def __init__(self):
            self.made, self.own = {}, {}

        def pid(self):
            return os.getpid()

        def same(self, x):
            return x

        def make(self, n):
            if n not in self.made:
                self.made[n] = np.ones(n // 4, np.float32)
            return self.made[n]

        def view(self, x):
            """Reads the shared memory in place."""
            return float(x[0]) + float(x[-1])

        def copy(self, x):
            """Lands the tensor in memory of its own."""
            d = self.own.setdefault(x.size, np.zeros(x.size, np.float32))
            np.copyto(d, x)
            return float(d[0])

    return ray, Actor


class Awake:
    """Wraps a repetition: its actors run only meanwhile."""

    def __init__(self, pids, repetition):
        self.pids, self.repetition = pids, repetition
        self.signal(signal.SIGSTOP)

    def signal(self, s):
        for p in self.pids:
            os.kill(p, s)

    def __call__(self, seconds):
        self.signal(signal.SIGCONT)
        try:
            self.repetition(min(seconds, 0.1))  # the first calls after a stop are slow
            return self.repetition(seconds)
        finally:
            self.signal(signal.SIGSTOP)
