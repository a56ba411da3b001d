"""Programs as TensorFlow's users wrote them, by `python -m monograph.tensorflow`."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")


def local_hosts(count):
    hosts = []
    for _ in range(count):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            hosts.append("localhost:%d" % free.getsockname()[1])
    return hosts


def start(program, *arguments, tensorflow=False, environment=None):
    command = [sys.executable, *([] if tensorflow else ["-m", "monograph.tensorflow"]), os.path.join(PROGRAMS, program)]
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


class ProgramsTest(unittest.TestCase):
    def finish(self, process):
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        return out

    def start_server(self, *arguments, **options):
        server = start(*arguments, **options)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)

    def check_same(self, program, *arguments):
        """What it prints here is what it prints by TensorFlow itself."""
        ours, theirs = start(program, *arguments), start(program, *arguments, tensorflow=True)
        expected = self.finish(theirs)
        self.assertEqual(self.finish(ours), expected)
        return expected

    def test_linear_regression(self):
        self.assertIn("W: -1.0000 b: 1.0000", self.check_same("linear_regression.py"))

    def test_mnist_softmax(self):
        self.assertIn("accuracy", self.check_same("mnist_softmax.py", "--steps=50"))

    def test_what_a_program_starts_runs_here_too(self):
        child = "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior(); print(type(tf.Session()._session).__module__)"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n")
            program.flush()
            self.assertEqual(self.finish(start(program.name)), "monograph.session\n")

    def test_a_parameter_server_and_two_workers(self):
        ps, *workers = hosts = local_hosts(3)
        flags = ["--ps_hosts=" + ps, "--worker_hosts=" + ",".join(workers)]
        self.start_server("parameter_server.py", "--job_name=ps", *flags)
        started = [
            start("parameter_server.py", "--job_name=worker", f"--task_index={i}", *flags) for i in range(len(hosts) - 1)
        ]
        for i, worker in enumerate(started):
            self.addCleanup(worker.kill)
            out = self.finish(worker)
            self.assertIn(f"Worker: {i}, Step: ", out)
            self.assertIn("w [1.0, -2.0, 3.0]", out)

    def test_monitored_sessions_between_graphs(self):
        ps, *workers = local_hosts(3)

        def task(job, index):
            cluster = {"ps": [ps], "worker": workers}
            return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}

        self.start_server("monitored.py", environment=task("ps", 0))
        chief = start("monitored.py", environment=task("worker", 0))
        self.addCleanup(chief.kill)
        self.assertIn("Worker: 0, w: [1.0, -2.0, 3.0]", self.finish(chief))
        # It finds the variables as they are.
        other = start("monitored.py", environment=task("worker", 1))
        self.addCleanup(other.kill)
        self.assertIn("Worker: 1, w: [1.0, -2.0, 3.0]", self.finish(other))


if __name__ == "__main__":
    unittest.main()
