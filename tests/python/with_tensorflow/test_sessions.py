"""TensorFlow's classes after `import monograph.tensorflow`."""

import collections
import json
import tempfile
import threading
import time
import unittest

import monograph
import monograph.tensorflow
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline

tf.disable_v2_behavior()


class SessionTest(unittest.TestCase):
    def setUp(self):
        graph = tf.Graph()
        self.enterContext(graph.as_default()) if hasattr(self, "enterContext") else self._enter(graph.as_default())
        self.x = tf.placeholder(tf.float32, [None], name="x")
        self.y = tf.multiply(self.x, 2, name="y")

    def _enter(self, context):
        self.addCleanup(context.__exit__, None, None, None)
        context.__enter__()

    def test_the_step_is_ours(self):
        with tf.Session() as session:
            self.assertIsInstance(session._session, monograph.Session)
            np.testing.assert_array_equal(session.run(self.y, {self.x: [1, 2]}), [2, 4])
            self.assertEqual([device.device_type for device in session.list_devices()], ["CPU"])

    def test_fetches_keep_their_structure_however_often_they_run(self):
        Pair = collections.namedtuple("Pair", "a b")
        nothing = tf.no_op()
        with tf.Session() as session:
            for _ in range(3):
                feed = {self.x: np.float32([3])}
                self.assertIsNone(session.run(nothing))
                self.assertEqual(session.run([self.y, nothing], feed), [np.float32([6]), None])
                self.assertEqual(session.run({"p": Pair(self.y, (nothing,))}, feed), {"p": Pair([6], (None,))})
                self.assertEqual(session.run((self.x, [self.y]), feed), ([3], [[6]]))
                self.assertEqual(session.run("y:0", {"x:0": [3]}), [6])
                self.assertEqual(self.y.eval(feed), [6])
                self.assertEqual(session.run([]), [])

    def test_the_graph_grows_while_the_session_lives(self):
        with tf.Session() as session:
            total = self.y
            for i in range(3):
                total = total + float(i)
                np.testing.assert_array_equal(session.run(total, {self.x: [1]}), [2 + sum(range(i + 1))])

            @tf.function
            def twice(value):
                return value * 2

            np.testing.assert_array_equal(session.run(twice(total), {self.x: [1]}), [10])

    def test_feeds_are_checked_as_tensorflow_does(self):
        with tf.Session() as session:
            for _ in range(2):
                np.testing.assert_array_equal(session.run(self.y, {self.x: np.float64([1])}), [2])
                np.testing.assert_array_equal(session.run(self.y, {self.x: [1]}), [2])
                with self.assertRaisesRegex(ValueError, "Cannot feed value of shape"):
                    session.run(self.y, {self.x: [[1]]})
                with self.assertRaisesRegex(TypeError, "Cannot interpret feed_dict key"):
                    session.run(self.y, {"no_such:0": 1})
                with self.assertRaises((TypeError, ValueError)):
                    session.run(self.y, {self.x: "text"})

    def test_errors_are_tensorflows(self):
        variable = tf.get_variable("v", [2])
        with tf.Session() as session:
            with self.assertRaises(tf.errors.FailedPreconditionError) as caught:
                session.run(variable)
            self.assertIsInstance(caught.exception.__cause__, monograph.errors.FailedPreconditionError)
            with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
                session.run(tf.reshape(self.y, [3], name="odd"), {self.x: [1]})
            self.assertEqual(caught.exception.op.name, "odd")
            with self.assertRaises(tf.errors.DeadlineExceededError):
                queue = tf.FIFOQueue(1, tf.float32)
                session.run(queue.dequeue(), options=tf.RunOptions(timeout_in_ms=50))
        with self.assertRaisesRegex(RuntimeError, "closed Session"):
            session.run(self.y, {self.x: [1]})

    def test_variables_train_are_saved_and_come_back(self):
        w = tf.get_variable("w", initializer=[4.0])
        step = tf.train.get_or_create_global_step()
        train = tf.train.AdamOptimizer(0.1).minimize(tf.square(w - 1), step)
        saver = tf.train.Saver()
        with tempfile.TemporaryDirectory() as folder, tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(10):
                session.run(train)
            self.assertEqual(session.run(step), 10)
            value = session.run(w)
            path = saver.save(session, folder + "/model", step)
            with tf.Session() as other:
                saver.restore(other, path)
                self.assertEqual(other.run([w, step]), [value, 10])

    def test_variables_of_both_kinds_beside_each_other(self):
        by_reference = tf.get_variable("r", initializer=[1.0, 2.0], use_resource=False)
        by_handle = tf.get_variable("h", initializer=[5.0, 7.0], use_resource=True)
        self.assertEqual([by_reference.op.type, by_handle.op.type], ["VariableV2", "VarHandleOp"])
        moved = tf.assign(by_reference, by_handle - by_reference)
        chosen = tf.cond(self.x[0] > 0, lambda: tf.assign_add(by_reference, [1, 1]), lambda: by_reference * 0)
        scaled = tf.scatter_mul(by_reference, [1], [3.0])
        with tf.Session() as session:
            with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "Attempting to use uninitialized value r"):
                session.run(by_reference)
            self.assertEqual(session.run(tf.report_uninitialized_variables()).tolist(), [b"r", b"h"])
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(moved), [4, 5])
            np.testing.assert_array_equal(session.run(chosen, {self.x: [1]}), [5, 6])
            np.testing.assert_array_equal(session.run(chosen, {self.x: [-1]}), [0, 0])
            np.testing.assert_array_equal(session.run(scaled), [5, 18])
            np.testing.assert_array_equal(session.run([by_reference, by_handle]), [[5, 18], [5, 7]])
            by_reference.load([0, 0], session)
            np.testing.assert_array_equal(by_reference.eval(session), [0, 0])

    def test_complex_numbers_pass_between_borrowed_ops_variables_feeds_and_fetches(self):
        z = tf.placeholder(tf.complex64, [None], "z")
        w = tf.get_variable("w", initializer=np.array([1 + 2j, 3j], np.complex128))
        spectrum = tf.signal.rfft(self.x)
        size = tf.reduce_sum(tf.abs(spectrum))
        (slope,) = tf.gradients(size, self.x)
        both = tf.stack([z, tf.constant([1j, 2j], tf.complex64)])
        numbers, wave = np.array([1 - 1j, 2 + 3j]), np.sin(np.arange(16) * 0.3)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            feeds = {z: numbers, self.x: wave}
            values = session.run([both, tf.conj(z) * z, w.assign_add(w), spectrum, size, slope], feeds)
        self.assertEqual([value.dtype for value in values[:3]], [np.complex64, np.complex64, np.complex128])
        np.testing.assert_array_equal(values[0], [numbers, [1j, 2j]])
        np.testing.assert_allclose(values[1], numbers.conj() * numbers)
        np.testing.assert_array_equal(values[2], [2 + 4j, 6j])
        np.testing.assert_allclose(values[3], np.fft.rfft(wave), atol=1e-5)
        np.testing.assert_allclose(values[4], np.abs(np.fft.rfft(wave)).sum(), 1e-5)
        np.testing.assert_allclose(np.dot(values[5], wave), values[4], 1e-4)  # what grows with its input

    def test_quantized_numbers_pass_too(self):
        small, low, high = tf.quantize_v2(self.x, 0.0, 1.0, tf.quint8)
        q = tf.placeholder(tf.qint32, [2])
        fed = np.array([(-5,), (7,)], tf.qint32.as_numpy_dtype)
        with tf.Session() as session:
            fetches = [small, tf.dequantize(small, low, high), tf.bitcast(q, tf.int32), tf.identity(q)]
            values = session.run(fetches, {self.x: [0, 0.2, 1], q: fed})
        self.assertEqual([values[0].dtype, values[3].dtype], [np.uint8, np.int32])
        np.testing.assert_array_equal(values[0], [0, 51, 255])
        np.testing.assert_allclose(values[1], [0, 0.2, 1], 1e-6)
        np.testing.assert_array_equal(values[2], [-5, 7])
        np.testing.assert_array_equal(values[3], [-5, 7])

    def test_tensors_stay_in_the_session_under_handles(self):
        handle = tf.get_session_handle(self.y)
        with tf.Session() as session:
            kept = session.run(handle, {self.x: [1, 2]})
            holder, tensor = tf.get_session_tensor(kept.handle, tf.float32)
            np.testing.assert_array_equal(session.run(tensor * 3, {holder: kept.handle}), [6, 12])
            np.testing.assert_array_equal(kept.eval(), [2, 4])
            np.testing.assert_array_equal(session.run(self.y, {self.x: kept}), [4, 8])
            kept.delete()
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "keeps no tensor"):
                session.run(tensor, {holder: kept.handle})

    def test_two_iterators_of_one_shot(self):
        elements = [
            tf.data.make_one_shot_iterator(tf.data.Dataset.range(begin, begin + 2)).get_next() for begin in (1, 5)
        ]
        with tf.Session() as session:
            self.assertEqual([session.run(elements) for _ in range(2)], [[1, 5], [2, 6]])

    def test_a_strategy_feeds_its_replicas_from_one_data_set(self):
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        with strategy.scope():
            v = tf.get_variable("v", initializer=[1.0, 2.0], aggregation=tf.VariableAggregation.MEAN)

            def step(x):
                loss = tf.reduce_sum(tf.square(v * x))
                with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.1).minimize(loss)]):
                    return tf.identity(loss)

            data = tf.data.Dataset.from_tensor_slices(np.arange(8, dtype=np.float32)).batch(2, drop_remainder=True)
            iterator = strategy.make_dataset_iterator(data)
            losses = strategy.extended.call_for_each_replica(step, args=(iterator.get_next(),))
            total = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run([tf.global_variables_initializer(), iterator.initializer])
            # Each of the two gets half of a batch, 0 and 1, then 2 and 3; their gradients are added up.
            self.assertAlmostEqual(session.run(total), 5, 4)
            w = np.array([1 - 0.1 * 2, 2 - 0.1 * 4])
            self.assertAlmostEqual(session.run(total), (w**2).sum() * (2**2 + 3**2), 3)

    def test_callables(self):
        with tf.Session() as session:
            run = session.make_callable([self.y], [self.x])
            np.testing.assert_array_equal(run([1]), [[2]])
            self.assertIsNone(session.make_callable(tf.no_op())())
            with self.assertRaises(TypeError):
                session.make_callable(3)

    def test_a_step_is_recorded_for_tensorflows_timeline(self):
        total = tf.reduce_sum(tf.identity(self.y, name="same") + self.x, name="total")
        full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        metadata = tf.RunMetadata()
        with tf.Session() as session:
            for _ in range(3):  # also where the signature was run before, and with nothing to see
                self.assertEqual(session.run(total, {self.x: [1, 2]}, full, metadata), 9)
                devices = {device.device: device.node_stats for device in metadata.step_stats.dev_stats}
                stats = devices["/job:localhost/replica:0/task:0/device:CPU:0"]
                labels = {node.node_name: node.timeline_label for node in stats}
                self.assertEqual(labels["total"], "total = Sum(add, Const)")
                for node in stats:
                    self.assertLess(abs(node.all_start_micros / 1e6 - time.time()), 60)
                    self.assertGreaterEqual(node.all_end_rel_micros, node.op_end_rel_micros)
                    self.assertGreaterEqual(node.op_end_rel_micros, node.op_start_rel_micros)
                chrome = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
                ops_shown = [event["args"]["name"] for event in json.loads(chrome)["traceEvents"] if event["ph"] == "X"]
                self.assertIn("total", ops_shown)
                session.run(total, {self.x: [1]}, run_metadata=metadata)
                self.assertEqual(len(metadata.step_stats.dev_stats), 0)
            traced = session.make_callable(total, [self.x])
            self.assertEqual(traced([1], options=full, run_metadata=metadata), 3)
            self.assertEqual(len(metadata.step_stats.dev_stats), 1)

    def test_a_step_runs_in_parts(self):
        z = tf.placeholder(tf.float32, [], name="z")
        counter = tf.get_variable("counter", initializer=0.0)
        count = tf.assign_add(counter, 1)
        with tf.control_dependencies([count]):
            first = tf.identity(self.y)
        second = tf.reduce_sum(first) * z
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for i in range(3):
                handle = session.partial_run_setup([first, second, self.y], [self.x, z])
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "'x:0', which has not been fed"):
                    session.partial_run(handle, first)
                np.testing.assert_array_equal(session.partial_run(handle, first, {self.x: [1, 2]}), [2, 4])
                for feeds in ({self.x: [1]}, {self.y: [1]}):
                    with self.assertRaises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
                        session.partial_run(handle, [], feeds)
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "already been fetched"):
                    session.partial_run(handle, first)
                with self.assertRaises(tf.errors.NotFoundError):
                    session.partial_run(handle, count)
                with self.assertRaises(RuntimeError):
                    session.partial_run(handle, count.op)
                self.assertEqual(session.partial_run(handle, {"s": second}, {z: 10}), {"s": 60})
                np.testing.assert_array_equal(session.partial_run(handle, self.y), [2, 4])
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "has ended"):
                    session.partial_run(handle, [second])
                self.assertEqual(session.run(counter), i + 1)
            with self.assertRaises(tf.errors.InvalidArgumentError):
                session.partial_run("no handle", second)
            # A failure ends it; handles that are let go leave room for others.
            wrong = tf.reshape(first, [5])
            handle = session.partial_run_setup([wrong, second], [self.x, z])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "(?i)reshape"):
                session.partial_run(handle, wrong, {self.x: [1]})
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "has ended"):
                session.partial_run(handle, second, {z: 1})
            for _ in range(40):
                session.partial_run_setup([first, second], [self.x, z])
            handle = session.partial_run_setup([first, second], [self.x, z])
        with self.assertRaisesRegex(RuntimeError, "closed Session"):
            session.partial_run(handle, first, {self.x: [1]})

    def test_interactive_sessions_are_the_default(self):
        session = tf.InteractiveSession()
        np.testing.assert_array_equal(self.y.eval({self.x: [1]}), [2])
        session.close()

    def test_threads_share_a_session(self):
        queue = tf.FIFOQueue(10, tf.float32, shapes=[[]])
        put, take = queue.enqueue(3.0), queue.dequeue()
        with tf.Session() as session:
            coordinator = tf.train.Coordinator()
            runner = tf.train.QueueRunner(queue, [put])
            threads = runner.create_threads(session, coordinator, start=True)
            self.assertEqual([session.run(take) for _ in range(30)], [3] * 30)
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads)


class ServerTest(unittest.TestCase):
    def test_sessions_share_a_servers_variables(self):
        server = tf.train.Server.create_local_server()
        self.assertTrue(server.target.startswith("grpc://localhost:"))
        with tf.Graph().as_default():
            v = tf.get_variable("v", initializer=[1.0])
            add = tf.assign_add(v, [2.0])
            with tf.Session(server.target) as session:
                session.run(tf.global_variables_initializer())
                session.run(add)
            with tf.Session(server.target) as session:
                np.testing.assert_array_equal(session.run(v), [3])
            tf.Session.reset(server.target)
            with tf.Session(server.target) as session:
                with self.assertRaises(tf.errors.FailedPreconditionError):
                    session.run(v)
        thread = threading.Thread(target=server.join)
        thread.start()
        server._server.stop()  # as at the end of the process
        thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_queues_without_a_shared_name_end_with_their_session(self):
        target = tf.train.Server.create_local_server().target
        with tf.Graph().as_default() as graph:
            own, shared = (tf.FIFOQueue(9, tf.int32, [[]], **named) for named in ({"name": "q"}, {"shared_name": "q2"}))
            fill, sizes = [own.enqueue(1), shared.enqueue(1)], [own.size(), shared.size()]
            with tf.Session(target) as session, tf.Session(target) as other:
                session.run(fill)
                self.assertEqual(session.run(sizes), [1, 1])
                self.assertEqual(other.run(sizes), [0, 1])
            with tf.Session(target, graph=graph) as session:
                self.assertEqual(session.run(sizes), [0, 1])
            # As a MonitoredSession that begins again after its inputs have ended.
            x = tf.train.string_input_producer(["a", "b"], num_epochs=1, shuffle=False).dequeue()
            for _ in range(2):
                with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(master=target)) as session:
                    read = []
                    while not session.should_stop():
                        read.append(session.run(x))
                self.assertEqual(read, [b"a", b"b"])

    def test_a_value_of_an_attribute_that_ours_lacks_is_tensorflows(self):
        with tf.Session() as session:
            for text in (["\u00c9T\u00c9 A"], tf.placeholder(tf.string)):
                lower = tf.strings.lower(text, encoding="utf-8"), tf.strings.lower(text)
                feed = {} if isinstance(text, list) else {text: ["\u00c9T\u00c9 A"]}
                values = [value.flat[0].decode() for value in session.run(lower, feed)]
                self.assertEqual(values, ["\u00e9t\u00e9 a", "\u00c9t\u00c9 a"])

    def test_a_server_that_nobody_holds_goes_on(self):
        target = tf.train.Server.create_local_server().target
        with tf.Graph().as_default(), tf.Session(target) as session:
            self.assertEqual(session.run(tf.constant(1)), 1)


if __name__ == "__main__":
    unittest.main()
