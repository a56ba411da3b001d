"""Sessions on clusters: servers of this process, and those of `monograph launch`."""

import os
import signal
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import monograph
import numpy as np
from monograph import errors
from monograph._arrays import convert

from test_session import FAR, GRAPH, send_signal


def graph():
    made = monograph.Graph(GRAPH)
    made.extend(FAR)
    return made


class ClusterSpecTest(unittest.TestCase):
    def test_is_tensorflows(self):
        spec = monograph.ClusterSpec({"ps": ["a:1"], "worker": {1: "c:1", 0: "b:1"}})
        self.assertEqual(spec.jobs, ["ps", "worker"])
        self.assertEqual(spec.job_tasks("worker"), ["b:1", "c:1"])
        self.assertEqual(spec.as_dict(), {"ps": ["a:1"], "worker": ["b:1", "c:1"]})
        self.assertEqual(spec.task_address("worker", 1), "c:1")
        self.assertEqual(spec.num_tasks("worker"), 2)
        self.assertEqual(monograph.ClusterSpec({"w": {2: "x:1"}}).task_indices("w"), [2])
        self.assertEqual(monograph.ClusterSpec(spec.to_json()), spec)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(spec.to_json())
            file.flush()
            self.assertEqual(monograph.ClusterSpec(file.name), spec)
        with self.assertRaises(TypeError):
            monograph.ClusterSpec(3)


class ServerTest(unittest.TestCase):
    def setUp(self):
        local = monograph.Server.create_local_server()
        local.stop()  # its port is free
        address = local.target[len("grpc://"):]
        self.cluster = {"worker": [address]}
        self.server = monograph.Server(self.cluster, "worker", 0)
        self.addCleanup(self.server.stop)

    def test_a_session_finds_the_cluster_by_one_task(self):
        with monograph.Session(graph(), self.server.target) as session:
            np.testing.assert_array_equal(session.run("far:0", {"x": [1, 2]}), [2, 4])
            names = [name for name, _, _ in session.devices()]
            self.assertIn("/job:worker/replica:0/task:0/device:CPU:0", names)

    def test_what_comes_back_owns_its_memory(self):
        big = np.ones(1 << 24, np.float32)  # 64 MiB
        with monograph.Session(graph(), cluster=self.cluster) as session:
            tensor = session._native.make_callable(["x"], ["far:0"], []).run([big], -1, convert)[0]
            self.assertTrue(tensor.exclusive)
            self.assertEqual(np.asarray(tensor)[-1], 2)

    def test_a_step_runs_in_parts(self):
        with monograph.Session(graph(), self.server.target) as session:
            handle = session.partial_run_setup(["y:0", "far:0", "same_text:0"], ["x", "text"])
            # Longer than tasks wait for a tensor without asking for it.
            time.sleep(2.5)
            np.testing.assert_array_equal(session.partial_run(handle, "far:0", {"x": [1, 2]}), [2, 4])
            time.sleep(2.5)
            got = session.partial_run(handle, ["same_text:0", "y:0"], {"text": "ab"})
            self.assertEqual((got[0], list(got[1])), (b"ab", [2, 4]))
            handle = session.partial_run_setup(["y:0", "far:0"], ["x"])
            self.server.stop()
            with self.assertRaises(errors.UnavailableError) as caught:
                session.partial_run(handle, "far:0", {"x": [1]})
            self.assertEqual(caught.exception.lost_task, "/job:worker/replica:0/task:0")

    def test_a_lost_task_is_named(self):
        with monograph.Session(graph(), self.server.target) as session:
            session.run("far:0", {"x": [1]})
            self.server.stop()
            with self.assertRaises(errors.UnavailableError) as caught:
                session.run("far:0", {"x": [1]})
            self.assertEqual(caught.exception.lost_task, "/job:worker/replica:0/task:0")

    def test_variables_stay_with_their_task(self):
        with monograph.Session(graph(), self.server.target) as session:
            session.run("keep", {"x": [4]})
        with monograph.Session(graph(), self.server.target) as session:
            np.testing.assert_array_equal(session.run("kept:0"), [4])
            session.reset()
            with self.assertRaises(errors.FailedPreconditionError):
                session.run("kept:0")

    def test_join_ends_with_stop(self):
        thread = threading.Thread(target=self.server.join)
        thread.start()
        self.server.stop()
        thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_ctrl_c_ends_the_wait_for_daemons(self):
        self.server.stop()
        send_signal(self, signal.SIGINT, 0.3)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            monograph.Session(graph(), cluster=self.cluster, start_timeout=5)
        self.assertLess(time.monotonic() - begin, 4)

    def test_missing_daemons_are_named(self):
        self.server.stop()
        with self.assertRaisesRegex(errors.UnavailableError, "/job:worker/replica:0/task:0"):
            monograph.Session(graph(), cluster=self.cluster, start_timeout=0.5)


class LaunchTest(unittest.TestCase):
    def test_a_program_runs_against_a_cluster_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(f"""
                    import sys
                    import monograph
                    cluster = monograph.ClusterSpec.from_environment()
                    assert cluster.num_tasks("worker") == 1, cluster
                    graph = monograph.Graph({GRAPH!r})
                    graph.extend({FAR!r})
                    with monograph.Session(graph, cluster=cluster) as session:
                        sys.exit(int(session.run("far:0", {{"x": [21]}})[0]))
                    """))
            self.assertEqual(monograph.launch([sys.executable, path], workers=1, ps=0), 42)

    def test_arrays_lie_in_memory_that_is_shared_with_daemons(self):
        program = """
            import sys, numpy as np, monograph
            def shared(array):
                place = array.__array_interface__["data"][0]
                for line in open("/proc/self/maps"):
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    if begin <= place < end:
                        return "memfd:" in line
            made = monograph.Graph(sys.argv[1])
            made.extend(sys.argv[2])
            cluster = monograph.ClusterSpec.from_environment()
            with monograph.Session(made, cluster=cluster, lanes="posix,cma,reference") as session:
                session.run("far:0", {"x": np.ones(1 << 20, np.float32)})
                x = monograph.empty((1 << 22,), np.float32)
                x[:] = 3
                first = session.run("far:0", {"x": x})
                if first.flags.writeable:
                    sys.exit(43)  # the system gives shared memory no huge pages
                assert shared(x) and shared(first)
                x[:] = 5
                second = session.run("far:0", {"x": x})
                assert (first == 6).all() and (second == 10).all()
                try:
                    first[0] = 1
                    assert False
                except ValueError:
                    pass
                small = session.run("far:0", {"x": x[:4]})
                small += first[:4]
                assert small[0] == 16
            assert (first == 6).all()  # the session is over
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(program))
            code = monograph.launch([sys.executable, path, GRAPH, FAR], workers=1, ps=0)
            if code == 43:
                self.skipTest("this system gives shared memory no huge pages")
            self.assertEqual(code, 0)


if __name__ == "__main__":
    unittest.main()
