#!/usr/bin/env python3
"""Runs TensorFlow programs on daemons whose GPUs are emulated, and compares what they print with TensorFlow's.

    programs_on_gpus.py --tensorflow=tfvenv/bin/python [--build=build] [--runs=3] [--nocuda_graphs] [PROGRAM...]

Of the programs that the tests run (tests/python/with_tensorflow/programs), those of one process; or
the named ones. Each is run `--runs` times by `python -m monograph.tensorflow`, with two daemons of
its own: sessions without a target go there, what has a kernel for GPUs is placed on the first
daemon's GPU. Words must be the same, numbers within one in a thousand, since a GPU adds up in
another order. The daemons borrow no ops: TensorFlow ends the process where it finds the emulated
driver. The exit status says whether all agreed; what differs is printed.
"""

import argparse
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/python/with_tensorflow/programs"
DEFAULT = ["linear_regression.py", "lstm.py", "mnist_softmax.py", "optimizers.py", "towers.py"]
LIMIT = 300  # seconds, of one run
# What python runs: sessions without a target are opened at the daemons.
ON_DAEMONS = """
import runpy, sys
import monograph.tensorflow
import tensorflow.compat.v1 as tf
target, program = sys.argv[1:3]
for kind in (tf.Session, tf.InteractiveSession):
    def at(self, given="", *arguments, begin=kind.__init__, **named):
        begin(self, given or target, *arguments, **named)
    kind.__init__ = at
creator = tf.train.ChiefSessionCreator.__init__
def create(self, scaffold=None, master="", *arguments, **named):
    creator(self, scaffold, master or target, *arguments, **named)
tf.train.ChiefSessionCreator.__init__ = create
sys.argv = sys.argv[2:]
runpy.run_path(program, run_name="__main__")
"""
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)\b")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(command, folder, environment):
    """Returns the exit status and what was printed: to the standard output, and to the other one."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}, capture_output=True, text=True,
                          errors="replace", timeout=LIMIT, check=False)
    return done.returncode, done.stdout, done.stderr


def run_on_gpus(program, options, folder):
    """As `run`, of a program on two daemons with a GPU each."""
    build = options.build.resolve()
    library = build / "lib/emulated_gpu"
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with_gpus = {**os.environ, "MONOGRAPH_CUDA_PLUGIN": str(library / "libmonograph_cuda.so"), "LD_LIBRARY_PATH": str(library)}
    with_gpus.pop("MONOGRAPH_TENSORFLOW", None)
    daemons = []
    try:
        for task in range(2):
            command = [str(build / "bin/monograph-executor"), "--worker_hosts=" + hosts, "--job=worker", f"--task={task}"]
            command += ["--nocuda_graphs"] if options.nocuda_graphs else []
            with open(folder / f"daemon{task}.log", "w", encoding="utf-8") as log:
                daemons.append(subprocess.Popen(command, env=with_gpus, stdout=log, stderr=log))
        return run([options.tensorflow, "-c", ON_DAEMONS, "grpc://" + hosts.split(",", maxsplit=1)[0], str(program)], folder,
                   {"PYTHONPATH": str(build / "python"), "MONOGRAPH_TENSORFLOW_RANDOM_STREAMS": "true"})
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()


def difference(expected, got):
    """The first line that differs, or None."""
    ours, theirs = got.splitlines(), expected.splitlines()
    if len(ours) != len(theirs):
        return f"{len(ours)} lines, not {len(theirs)}"
    for a, b in zip(ours, theirs):
        numbers = zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b)))
        if NUMBER.sub("#", a) != NUMBER.sub("#", b) or not all(math.isclose(x, y, rel_tol=1e-3, abs_tol=2e-3) for x, y in numbers):
            return f"{a}\n    not\n{b}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow", required=True, help="a Python interpreter that has it, and NumPy as the package was built for")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nocuda_graphs", action="store_true")
    parser.add_argument("programs", nargs="*", type=pathlib.Path, default=[PROGRAMS / name for name in DEFAULT])
    options = parser.parse_args()
    options.tensorflow = os.path.abspath(options.tensorflow)
    bad = 0
    for program in options.programs:
        program = program.resolve()
        with tempfile.TemporaryDirectory() as place:
            status, expected, error = run([options.tensorflow, str(program)], place, {})
        if status != 0:
            print(f"{program.name}: TensorFlow itself ends with {status}\n{error[-2000:]}")
            return 2
        agreed = 0
        for number in range(options.runs):
            with tempfile.TemporaryDirectory() as place:
                folder = pathlib.Path(place)
                status, got, error = run_on_gpus(program, options, folder)
                what = f"exit status {status}\n{error[-2000:]}" if status != 0 else difference(expected, got)
                if what is None:
                    agreed += 1
                    continue
                print(f"{program.name}, run {number + 1}: {what}")
                for log in sorted(folder.glob("daemon*.log")):
                    print(f"  {log.name}: {log.read_text(encoding='utf-8', errors='replace')[-600:]}")
        print(f"{program.name}: {agreed} of {options.runs} runs agree with TensorFlow", flush=True)
        bad += options.runs - agreed
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
