"""The library in one process with TensorFlow, and graphs that TensorFlow builds there."""

import subprocess
import sys
import unittest

import monograph
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

STEP = """
import numpy as np
def ours():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        tf.multiply(x, x, name="y")
    with monograph.Session(graph.as_graph_def()) as session:
        np.testing.assert_array_equal(session.run("y:0", {"x:0": [2, 3]}), [4, 9])
def theirs():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(tf.nn.softmax([0.0, 0.0]) * 2), [1, 1])
for i in range(2):
    ours()
    theirs()
print("fine")
"""


class OneProcessTest(unittest.TestCase):
    def check(self, imports):
        done = subprocess.run([sys.executable, "-c", imports + STEP], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, "fine\n"), done.stderr)

    def test_tensorflow_first(self):
        self.check("import tensorflow as tf\nimport monograph\n")

    def test_monograph_first(self):
        self.check("import monograph\nimport tensorflow as tf\n")

    def test_both_before_either_is_used_by_another_thread(self):
        self.check(
            "import threading, importlib\n"
            "thread = threading.Thread(target=importlib.import_module, args=['tensorflow'])\n"
            "thread.start()\nimport monograph\nthread.join()\nimport tensorflow as tf\n"
        )


class GraphsTest(unittest.TestCase):
    def test_a_model_trains_with_tensorflows_numbers(self):
        graph = tf.Graph()
        with graph.as_default():
            v1.enable_resource_variables()
            random = np.random.RandomState(1)
            x = v1.placeholder(tf.float32, [None, 6, 6, 2], name="x")
            labels = v1.placeholder(tf.int64, [None], name="labels")
            filters = v1.get_variable("filters", initializer=random.randn(3, 3, 2, 4).astype(np.float32) / 4)
            weights = v1.get_variable("weights", initializer=random.randn(36, 5).astype(np.float32) / 6)
            bias = v1.get_variable("bias", [5], initializer=v1.zeros_initializer())
            hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME")), 2, 2, "VALID")
            logits = tf.matmul(tf.reshape(hidden, [-1, 36]), weights) + bias
            loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
            train = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_or_create_global_step())
            init = v1.global_variables_initializer()
            top = tf.argmax(logits, 1)
        images, which = random.rand(20, 8, 6, 6, 2).astype(np.float32), random.randint(5, size=(20, 8))
        fetches = [loss.name, top.name, "global_step/Read/ReadVariableOp:0", train.name]

        def curve(run):
            run(init.name)
            return [run(fetches, {"x:0": images[i], "labels:0": which[i]})[:2] for i in range(20)]

        with v1.Session(graph=graph) as session:
            expected = curve(session.run)
        with monograph.Session(graph.as_graph_def()) as session:
            got = curve(session.run)
        np.testing.assert_allclose([loss for loss, _ in got], [loss for loss, _ in expected], rtol=1e-4)
        for (_, ours), (_, theirs) in zip(got, expected):
            np.testing.assert_array_equal(ours, theirs)
        self.assertLess(got[-1][0], got[0][0])

    def test_arrays_of_all_types_go_through_both_alike(self):
        names = "float32 float64 int32 uint8 int16 int8 int64 bool bfloat16 uint16 float16 uint32 uint64".split()
        graph = tf.Graph()
        with graph.as_default():
            for name in names:
                tf.identity(v1.placeholder(name, [None], name=name), name=name + "_same")
        with monograph.Session(graph.as_graph_def()) as ours, v1.Session(graph=graph) as theirs:
            for name in names:
                value = np.array([0, 1, 1], tf.as_dtype(name).as_numpy_dtype)
                got = [session.run(name + "_same:0", {name + ":0": value}) for session in (ours, theirs)]
                self.assertEqual(got[0].dtype, got[1].dtype, name)
                np.testing.assert_array_equal(*got)

    def test_random_ops_with_seeds_draw_tensorflows_bits(self):
        graph = tf.Graph()
        with graph.as_default():
            raw, fetches = tf.raw_ops, []
            for op in (raw.RandomUniform, raw.RandomStandardNormal, raw.TruncatedNormal):
                for dtype in (tf.float32, tf.float64, tf.half):
                    fetches += [op(shape=[n], dtype=dtype, seed=3, seed2=n) for n in (1, 257, 100000)]
            fetches.append(v1.random_uniform([1000], -5, 2**40, tf.int64, seed=4))
            fetches.append(v1.random_shuffle(tf.range(100), seed=5))
        names = [fetch.name for fetch in fetches]
        one_thread = v1.ConfigProto(intra_op_parallelism_threads=1)
        with v1.Session(graph=graph, config=one_thread) as theirs:
            with monograph.Session(graph.as_graph_def(), tensorflow_random_streams=True) as ours:
                for _ in range(3):
                    for name, got, expected in zip(names, ours.run(names), theirs.run(names)):
                        self.assertEqual(got.tobytes(), expected.tobytes(), name)


if __name__ == "__main__":
    unittest.main()
