"""Sessions in this process: feeds, fetches, errors, Ctrl-C."""

import collections
import gc
import json
import os
import signal
import threading
import time
import unittest
import weakref

import monograph
import numpy as np
from monograph import errors
from monograph._arrays import convert

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../c_api")
GRAPH = os.path.join(_FOLDER, "graph.pbtxt")
FAR = os.path.join(_FOLDER, "far.pbtxt")  # a node of a cluster, for the same graph
# A GraphDef with the node z = -y.
NEGATIVE = b"\n\x14\n\x01z\x12\x03Neg\x1a\x01y*\x07\n\x01T\x12\x020\x01\"\x02\x08\x1b"


def send_signal(test, number, delay):
    """Sends this process a signal after `delay` seconds, unless the test is over by then."""
    timer = threading.Timer(delay, os.kill, (os.getpid(), number))
    test.addCleanup(timer.join)
    test.addCleanup(timer.cancel)
    timer.start()


def address(array):
    return array.__array_interface__["data"][0]


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.session = monograph.Session(GRAPH, cpu_devices=2)
        self.addCleanup(self.session.close)

    def test_fetches_keep_their_structure(self):
        run = self.session.run
        x = np.array([1, 2], np.float32)
        np.testing.assert_array_equal(run("y:0", {"x": x}), [2, 4])
        self.assertIsNone(run("nothing"))
        self.assertEqual(run(["two:0", "nothing"]), [2.0, None])
        self.assertIsInstance(run("two:0"), np.float32)
        Pair = collections.namedtuple("Pair", "a b")
        got = run({"p": Pair("two:0", ("nothing",))})
        self.assertEqual(got, {"p": Pair(2.0, (None,))})
        self.assertIsInstance(got["p"], Pair)
        self.assertEqual(type(run(("two:0", ("nothing",)))), tuple)
        with self.assertRaisesRegex(TypeError, "a fetch is the name of a tensor"):
            run(3)

    def test_integers_of_64_bits_are_numpys_own(self):
        for wanted in (np.int64, np.uint64):
            array = np.asarray(monograph.empty(2, wanted))
            self.assertEqual(array.dtype.char, np.dtype(wanted).char)  # else its repr names the type

    def test_a_step_is_recorded(self):
        metadata = monograph.RunMetadata()
        self.assertEqual((metadata.trace_json, metadata.trace_error), ("", ""))
        for run in (self.session.run, lambda *_, **kw: self.session.make_callable("y:0", ["x"])([1], **kw)):
            run("y:0", {"x": [1]}, run_metadata=metadata)
            names = [event["name"] for event in json.loads(metadata.trace_json)["traceEvents"]]
            self.assertIn("y", names)

    def test_a_step_runs_in_parts(self):
        session = self.session
        handle = session.partial_run_setup(["y:0", "same_text:0", "nothing"], ["x", "text"])
        with self.assertRaisesRegex(errors.InvalidArgumentError, "'text:0', which has not been fed"):
            session.partial_run(handle, "same_text:0")
        fed = np.array([1, 2], np.float32)
        np.testing.assert_array_equal(session.partial_run(handle, ["y:0"], {"x": fed}), [[2, 4]])
        with self.assertRaisesRegex(errors.NotFoundError, "'two:0' cannot be fetched"):
            session.partial_run(handle, "two:0")
        with self.assertRaisesRegex(ValueError, "runs by itself"):
            session.partial_run(handle, "nothing")
        self.assertEqual(session.partial_run(handle, {"t": "same_text:0"}, {"text": "ab"}), {"t": b"ab"})
        with self.assertRaisesRegex(errors.InvalidArgumentError, "has ended"):
            session.partial_run(handle, [])
        # Its deadline, and Ctrl-C, end it.
        handle = session.partial_run_setup(["take:0", "y:0"], ["x"])
        with self.assertRaises(errors.DeadlineExceededError):
            session.partial_run(handle, "take:0", timeout=0.05)
        with self.assertRaises(errors.InvalidArgumentError):
            session.partial_run(handle, "y:0", {"x": fed})
        handle = session.partial_run_setup(["take:0", "y:0"], ["x"])
        send_signal(self, signal.SIGINT, 0.2)
        with self.assertRaises(KeyboardInterrupt):
            session.partial_run(handle, "take:0")
        handles = [session.partial_run_setup(["y:0"], ["x"]) for _ in range(16)]
        with self.assertRaisesRegex(errors.ResourceExhaustedError, "16 partial runs"):
            session.partial_run_setup(["y:0"], ["x"])
        del handles
        np.testing.assert_array_equal(session.run("y:0", {"x": fed}), [2, 4])

    def test_a_feed_is_read_where_it_lies(self):
        x = np.arange(1 << 20, dtype=np.float32)
        # What is fetched as it was fed shows the memory that the step was given.
        tensor = self.session._native.make_callable(["x"], ["x:0"], []).run([x], -1, convert)[0]
        self.assertEqual(address(np.asarray(tensor)), address(x))
        self.assertFalse(tensor.exclusive)

    def test_a_fetch_owns_its_memory(self):
        big = np.ones(1 << 24, np.float32)  # 64 MiB
        callable = self.session._native.make_callable(["x"], ["y:0"], [])
        tensor = callable.run([big], -1, convert)[0]
        array = np.asarray(tensor)
        self.assertTrue(array.flags.writeable)
        self.assertEqual(address(array), address(np.asarray(tensor)))
        array[0] = 7
        del tensor, callable
        self.session.close()
        gc.collect()
        self.assertEqual(array[0], 7)
        self.assertEqual(array[-1], 2)

    def test_a_fed_array_lives_as_long_as_it_is_needed_and_no_longer(self):
        class Array(np.ndarray):
            pass

        x = np.ones(100, np.float32).view(Array)
        seen = weakref.ref(x)
        self.session.run("y:0", {"x": x})
        self.session.run("keep", {"x": x})
        del x
        gc.collect()
        self.assertIsNone(seen())

    def test_what_a_step_keeps_is_not_the_array(self):
        x = np.array([1, 2, 3], np.float32)
        self.session.run("keep", {"x": x})
        self.session.run("put", {"x": x})
        x[:] = 100
        np.testing.assert_array_equal(self.session.run("kept:0"), [1, 2, 3])
        np.testing.assert_array_equal(self.session.run("take:0"), [1, 2, 3])

    def test_a_fetched_variable_may_be_written_to(self):
        self.session.run("keep", {"x": [1, 2]})
        value = self.session.run("kept:0")
        value[0] = 9
        np.testing.assert_array_equal(self.session.run("kept:0"), [1, 2])

    def test_feeds_are_converted_like_tensorflows(self):
        run = self.session.run
        expected = np.array([2, 4], np.float32)
        strided = np.array([1, 0, 2, 0], np.float32)[::2]
        unaligned = np.frombuffer(b"\0" + np.array([1, 2], np.float32).tobytes(), np.float32, offset=1)
        frozen = np.array([1, 2], np.float32)
        frozen.flags.writeable = False
        for value in [[1, 2], (1.0, 2.0), np.array([1, 2]), strided, unaligned, frozen, np.array([1, 2], ">f4")]:
            np.testing.assert_array_equal(run("y:0", {"x:0": value}), expected)
        np.testing.assert_array_equal(run("y:0", {"x:0": []}), [])
        with self.assertRaisesRegex(TypeError, "complex128 cannot be fed"):
            run("y:0", {"x": [1j]})
        with self.assertRaisesRegex(errors.InvalidArgumentError, r"cannot feed float\[1,1\] for tensor 'x'"):
            run("y:0", {"x": [[1]]})

    def test_tensors_of_other_libraries_come_and_go_by_dlpack(self):
        class Other:  # a library's tensor: no buffer, no __array__
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **arguments):
                return self.array.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        fetched = self.session.run("y:0", {"x": Other(np.array([3], np.float32))})
        np.testing.assert_array_equal(np.from_dlpack(fetched), [6])

    def test_strings(self):
        self.assertEqual(self.session.run("same_text:0", {"text": "löwe"}), "löwe".encode())
        got = self.session.run("same_text:0", {"text": [["a", b"b\0"]]})
        self.assertEqual(got.tolist(), [[b"a", b"b\0"]])
        with self.assertRaisesRegex(TypeError, "takes str and bytes, not 3"):
            self.session.run("same_text:0", {"text": 3})

    def test_the_graph_grows(self):
        self.session.graph.extend(NEGATIVE)
        np.testing.assert_array_equal(self.session.run("z:0", {"x": [1]}), [-2])
        self.assertEqual(self.session.graph.nodes()[-1], ("z", "Neg", ""))
        self.assertEqual(self.session.graph.tensor("x:0"), (1, (-1,)))
        with self.assertRaisesRegex(errors.InvalidArgumentError, "'z'"):
            self.session.graph.extend(NEGATIVE)
        self.assertEqual(len(self.session.graph.nodes()), 13)

    def test_callables(self):
        twice = self.session.make_callable(["y:0"], ["x"])
        np.testing.assert_array_equal(twice([4])[0], [8])
        with self.assertRaisesRegex(ValueError, "another number"):
            twice()

    def test_errors_have_code_node_and_class(self):
        with self.assertRaises(errors.FailedPreconditionError) as caught:
            self.session.run("kept:0")
        self.assertEqual(caught.exception.code, 9)
        self.assertEqual(caught.exception.node, "kept")
        self.assertIsNone(caught.exception.lost_task)
        self.assertIsInstance(caught.exception, monograph.Error)
        with self.assertRaises(errors.NotFoundError):
            self.session.run("no_such_node")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "there is no option 'cpus'"):
            monograph.Session(GRAPH, cpus=2)
        with self.assertRaises(errors.NotFoundError):
            monograph.Session("/nowhere.pb")
        codes = {cls.code for cls in monograph.Error.__subclasses__()}
        self.assertEqual(codes, set(range(1, 17)))

    def test_a_closed_session_says_so(self):
        self.session.close()
        with self.assertRaisesRegex(errors.FailedPreconditionError, "closed"):
            self.session.run("two:0")

    def test_a_step_that_waits_ends_by_its_deadline(self):
        with self.assertRaises(errors.DeadlineExceededError):
            self.session.run("take:0", timeout=0.1)

    def test_other_threads_run_while_a_step_waits(self):
        got = []
        thread = threading.Thread(target=lambda: got.append(self.session.run("take:0")))
        thread.start()
        time.sleep(0.05)
        self.session.run("put", {"x": [5]})
        thread.join(10)
        np.testing.assert_array_equal(got[0], [5])

    def test_ctrl_c_ends_a_step_and_leaves_the_session(self):
        send_signal(self, signal.SIGINT, 0.3)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            self.session.run("take:0")
        self.assertLess(time.monotonic() - begin, 5)
        self.session.run("put", {"x": [5]})
        np.testing.assert_array_equal(self.session.run("take:0"), [5])

    def test_a_signal_whose_handler_raises_nothing_lets_the_step_go_on(self):
        calls = []
        before = signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        send_signal(self, signal.SIGUSR1, 0.1)
        with self.assertRaises(errors.DeadlineExceededError):
            self.session.run("take:0", timeout=0.4)
        self.assertEqual(calls, [1])

    def test_ops_and_version(self):
        self.assertIn("MatMul", dict(monograph.ops()))
        self.assertRegex(monograph.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
