"""tf.py_func, tf.numpy_function and tf.py_function after `import monograph.tensorflow`."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import tensorflow.compat.v1 as tf

importlib.import_module("monograph.tensorflow")
tf.disable_v2_behavior()


class PyFuncTest(unittest.TestCase):
    def setUp(self):
        context = tf.Graph().as_default()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.x = tf.placeholder(tf.float32, name="x")

    def run_one(self, *arguments, feed=1.0, **options):
        with tf.Session() as session:
            return session.run(tf.py_func(*arguments, **options), {self.x: feed})

    def test_values_are_numpys(self):
        kinds = []

        def several(a, text, numbers, one):
            kinds.extend(type(value) for value in (a, text, numbers, one))
            return a.sum(), text + b"!", np.flip(numbers), [b"a", b"b"], numbers > 1, np.float16(2)

        types = [tf.float32, tf.string, tf.int64, tf.string, tf.bool, tf.half]
        got = self.run_one(several, [self.x, "text", np.arange(3), 2.5], types, feed=[1, 2])
        self.assertEqual(kinds, [np.ndarray, bytes, np.ndarray, np.float32])
        self.assertEqual((got[0], got[1], got[5]), (3, b"text!", 2))
        np.testing.assert_array_equal(got[2], [2, 1, 0])
        self.assertEqual(got[3].tolist(), [b"a", b"b"])
        np.testing.assert_array_equal(got[4], [False, False, True])

    def test_one_value_or_none(self):
        self.assertEqual(self.run_one(lambda x: x + 1, [self.x], tf.float32), 2)
        self.assertEqual(self.run_one(lambda x: np.float32(x + 1), [self.x], [tf.float32], stateful=False), [2])
        called = []
        with tf.Session() as session:
            session.run(tf.py_func(called.append, [self.x], []), {self.x: 7})
            self.assertEqual(session.run(tf.numpy_function(np.negative, [self.x], tf.float32), {self.x: 3}), -3)
        self.assertEqual(called, [7])

    def test_a_function_may_keep_and_change_its_arrays(self):
        state = np.zeros(2, np.float32)
        kept = []

        def add(x):
            kept.append(x)
            np.add(state, x, out=state)
            return state

        total = tf.py_func(add, [self.x], tf.float32)
        with tf.Session() as session:
            first = session.run(total, {self.x: [1, 2]})
            np.testing.assert_array_equal(session.run(total, {self.x: [1, 2]}), [2, 4])
        np.testing.assert_array_equal(first, [1, 2])
        np.testing.assert_array_equal(kept, [[1, 2], [1, 2]])

    def test_what_it_raises_comes_back(self):
        def check(raised, expected, text):
            def fail(_):
                raise raised

            with self.assertRaises(expected) as caught:
                self.run_one(fail, [self.x], tf.float32, name="the_function")
            self.assertIn(text, caught.exception.message)
            self.assertIn("in fail", caught.exception.message)  # the traceback
            self.assertEqual(caught.exception.op.name[:12], "the_function")

        check(ValueError("odd"), tf.errors.InvalidArgumentError, "ValueError: odd")
        check(TypeError("odd"), tf.errors.InvalidArgumentError, "TypeError: odd")
        check(StopIteration(), tf.errors.OutOfRangeError, "StopIteration")
        check(MemoryError("full"), tf.errors.ResourceExhaustedError, "MemoryError: full")
        check(NotImplementedError("no"), tf.errors.UnimplementedError, "NotImplementedError: no")
        check(KeyError("k"), tf.errors.UnknownError, "KeyError: 'k'")
        for wrong, types in ((lambda x: x, tf.float64), (lambda x: [x, x], tf.float32), (lambda x: "a", tf.int32)):
            with self.assertRaises(tf.errors.InvalidArgumentError):
                self.run_one(wrong, [self.x], types)

    def test_py_function_is_eager_and_has_gradients(self):
        seen = []

        def cube(a):
            seen.append(tf.executing_eagerly())
            return a * a * a if a < 10 else a

        y = tf.py_function(cube, [self.x], tf.float32)
        slope = tf.gradients(y, self.x)[0]
        with tf.Session() as session:
            self.assertEqual(session.run([y, slope], {self.x: 2}), [8, 12])
            self.assertEqual(session.run([y, slope], {self.x: 20}), [20, 1])
            self.assertEqual(session.run(tf.py_function(lambda t: t + "b", ["a"], tf.string)), b"ab")
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "ValueError: odd"):
                session.run(tf.py_function(self.fail_oddly, [self.x], tf.float32), {self.x: 1})
        self.assertTrue(all(seen))

    def fail_oddly(self, _):
        raise ValueError("odd")

    def test_threads_and_sessions_inside(self):
        inner = tf.Graph()
        with inner.as_default():
            z = tf.placeholder(tf.float32)
            double = z * 2

        def nested(x):
            with tf.Session(graph=inner) as session:
                return session.run(double, {z: x})

        y = tf.py_func(nested, [self.x], tf.float32)
        with tf.Session() as session:
            got = [None] * 4
            threads = [
                threading.Thread(target=lambda i=i: got.__setitem__(i, session.run(y, {self.x: i}))) for i in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual(got, [0, 2, 4, 6])

    def test_ctrl_c_ends_it(self):
        sleep = tf.py_func(lambda x: time.sleep(float(x)), [self.x], [])
        with tf.Session() as session:
            for _ in range(2):  # also where the signature is known to be short
                session.run(sleep, {self.x: 0})
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                begin = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    session.run(sleep, {self.x: 2})
                timer.join()
                self.assertLess(time.monotonic() - begin, 10)
            session.run(sleep, {self.x: 0})


class PlacesTest(unittest.TestCase):
    def test_it_runs_in_the_process_that_made_it(self):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = "localhost:%d" % free.getsockname()[1]
        host = f"import monograph; monograph.Server({{'worker': ['{address}']}}, 'worker', 0).join()"
        other = subprocess.Popen([sys.executable, "-c", host], stderr=subprocess.DEVNULL)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        own = tf.train.Server.create_local_server()
        for target, task, runs in ((own.target, "/job:localhost/task:0", True), ("grpc://" + address, "/job:worker", False)):
            with tf.Graph().as_default():
                with tf.device(task):
                    x = tf.constant(2.0)
                    there = tf.py_func(lambda x: x + 1, [x], tf.float32)
                here = tf.py_func(lambda x: x + os.getpid(), [tf.cast(x, tf.int64)], tf.int64)
                with tf.Session(target) as session:
                    self.assertEqual(session.run(here), 2 + os.getpid())
                    if runs:
                        self.assertEqual(session.run(there), 3)
                    else:
                        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "is not in this process"):
                            session.run(there)


if __name__ == "__main__":
    unittest.main()
