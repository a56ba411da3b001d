"""Programs as TensorFlow's users wrote them, by `python -m monograph.tensorflow`."""

import importlib.util
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


def start(program, *arguments, plain=False, environment=None):
    """Starts a program; `plain`: without -m monograph.tensorflow. The interpreter is the one whose TensorFlow lends ops."""
    command = [sys.executable, *([] if plain else ["-m", "monograph.tensorflow"]), os.path.join(PROGRAMS, program)]
    inherited = {name: value for name, value in os.environ.items() if name != "MONOGRAPH_TENSORFLOW"}
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **(environment or {})},
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
        ours, theirs = start(program, *arguments), start(program, *arguments, plain=True)
        expected = self.finish(theirs)
        self.assertEqual(self.finish(ours), expected)
        return expected

    def test_linear_regression(self):
        self.assertIn("W: -1.0000 b: 1.0000", self.check_same("linear_regression.py"))

    def test_a_gan_whose_clipping_runs_beside_its_training(self):
        self.assertIn("traced: True", self.check_same("wgan.py"))

    def test_every_optimizer(self):
        self.assertIn("adam_resource", self.check_same("optimizers.py"))

    def test_mnist_softmax(self):
        self.assertIn("accuracy", self.check_same("mnist_softmax.py", "--steps=50"))

    def run_importing(self, program):
        """What a program prints whose first line is the import."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import monograph.tensorflow\n" + program)
            file.flush()
            return self.finish(start(file.name, plain=True))

    def test_what_a_program_starts_runs_here_too(self):
        # Some programs ask whether TensorFlow is there before they import it.
        child = ("import importlib.util; importlib.util.find_spec('tensorflow'); import tensorflow.compat.v1 as tf; "
                 "tf.disable_v2_behavior(); print(type(tf.Session()._session).__module__)")
        parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(parent)
            program.flush()
            self.assertEqual(self.finish(start(program.name)), "monograph.session\n")
        self.assertEqual(self.run_importing(parent), "monograph.session\n")

    def test_a_program_that_imports_it_borrows_ops(self):
        with open(os.path.join(PROGRAMS, "tf_records.py")) as program:
            self.assertEqual(self.run_importing(program.read()), "100 steps, small loss: True\n")

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

    def start_job(self, program, num_ps, num_workers, *arguments):
        """Starts the ps; returns what starts a worker."""
        hosts = local_hosts(num_ps + num_workers)
        flags = ["--ps_hosts=" + ",".join(hosts[:num_ps]), "--worker_hosts=" + ",".join(hosts[num_ps:]), *arguments]
        for i in range(num_ps):
            self.start_server(program, "--job_name=ps", f"--task_index={i}", *flags)

        def worker(index):
            started = start(program, "--job_name=worker", f"--task_index={index}", *flags)
            self.addCleanup(started.communicate)
            self.addCleanup(started.kill)
            return started

        return worker

    def run_job(self, program, num_ps, num_workers, *arguments):
        """What the workers print."""
        worker = self.start_job(program, num_ps, num_workers, *arguments)
        started = [worker(i) for i in range(num_workers)]
        return [self.finish(process) for process in started]

    def test_the_mnist_tutorial_with_a_supervisor(self):
        with tempfile.TemporaryDirectory() as folder:
            outs = self.run_job("mnist_supervisor.py", 1, 3, "--logdir=" + folder)
            self.assertTrue(any("Accuracy(batch)" in out for out in outs), outs)
            for out in outs:
                self.assertRegex(out, r"Test-Accuracy: (1\.00|0\.[5-9])")
            self.assertIn("saved final", outs[0])
            files = os.listdir(folder)
            self.assertTrue(any(name.startswith("final-") and name.endswith(".index") for name in files), files)
            self.assertTrue(any("tfevents" in name for name in files), files)

    def test_towers_in_one_graph(self):
        expected = self.check_same("towers.py")
        self.assertIn("step 20, loss", expected)
        # The same numbers on a cluster.
        ps, *workers = local_hosts(3)
        hosts = ["--ps_hosts=" + ps, "--worker_hosts=" + ",".join(workers)]
        self.start_server("server.py", "--job_name=ps", *hosts)
        for i in range(2):
            self.start_server("server.py", "--job_name=worker", f"--task_index={i}", *hosts)
        self.assertEqual(self.finish(start("towers.py", "--target=grpc://" + ps)), expected)

    def test_synchronous_replicas_with_a_backup_worker(self):
        outs = self.run_job("sync_replicas.py", 1, 3)
        self.assertIn("Worker: 0, w: [1.0, -2.0, 3.0]", outs[0])

    def test_an_embedding_by_synchronous_replicas(self):
        self.assertIn("30 updates", self.check_same("sync_embedding.py"))

    def test_a_chief_that_is_killed_and_started_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = self.start_job("recovering.py", 1, 2, "--train_dir=" + folder, "--last_step=1500")
            chief, other = worker(0), worker(1)
            step = 0
            while step < 100:
                step = int(chief.stdout.readline().split()[1])
            chief.kill()
            chief.communicate()
            self.assertIsNone(other.poll())
            again = worker(0)
            first = int(again.stdout.readline().split()[1])
            self.assertGreater(first, 50)  # it goes on from the latest checkpoint
            for process in (again, other):
                self.assertIn("done", self.finish(process))
            files = os.listdir(folder)
            # The last save is that of the one step or the other in which training ended.
            self.assertTrue({f"model.ckpt-150{i}.index" for i in range(3)} & set(files), files)
            self.assertTrue(any("tfevents" in name for name in files), files)

    def test_a_calculation_server(self):
        outs = self.run_job("calculation_server.py", 1, 3)
        self.assertIn("w: [1.0, -2.0, 3.0]", outs[0])
        for i in (1, 2):
            self.assertIn(f"Worker: {i}, enough: True", outs[i])

    def test_an_lstm_over_sequences_of_several_lengths(self):
        self.assertIn("accuracy > 0.9: True", self.check_same("lstm.py"))

    def test_training_from_tfrecords_by_tf_data(self):
        self.assertEqual(self.check_same("tf_records.py"), "100 steps, small loss: True\n")

    def test_input_by_queues_and_readers(self):
        expected = self.check_same("input_queues.py")
        self.assertEqual(expected.count("Done training for 3 epochs, 180 examples."), 2)
        self.assertEqual(expected.count("each as often: True, shuffled: True"), 2)

    def test_hooks_of_the_programs_own(self):
        expected = self.check_same("hooks.py")
        self.assertRegex(expected, r"^init_fn\nbegins at step 0\n(.*\n)+ends at step 40\nbegins at step 40\n")

    def test_training_data_from_a_generator(self):
        self.assertEqual(self.check_same("generator.py").count("[12] [[3.0, 3.0, 3.0, 3.0, 3.0, 3.0]]"), 2)

    def test_cifar10_from_files(self):
        self.assertEqual(self.finish(start("cifar10.py")), "it learns: True\n")

    def test_an_embedding_on_two_ps(self):
        for i, out in enumerate(self.run_job("embedding.py", 2, 2)):
            self.assertIn(f"Worker: {i}, small loss: True", out)

    @unittest.skipUnless(importlib.util.find_spec("tf_keras"), "needs Keras 2, the package tf_keras")
    def test_keras_fits_in_graph_mode(self):
        learned = "momentum learns: True\nnesterov learns: True\namsgrad learns: True"
        self.assertIn("accuracy > 0.8: True\nthe same: True\n" + learned, self.finish(start("keras_fit.py")))

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
