"""Training from TFRecords by tf.data: examples are written, read, parsed, shuffled and batched."""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def write_records(path, count, random):
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(count):
            x = random.randn(4).astype(np.float32)
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(x.sum() > 0)])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def parse(record):
    features = {"x": tf.FixedLenFeature([4], tf.float32), "label": tf.FixedLenFeature([], tf.int64)}
    example = tf.parse_single_example(record, features)
    return example["x"], example["label"]


def main(_):
    random = np.random.RandomState(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [folder + "/part-%d.tfrecords" % i for i in range(2)]
        for path in files:
            write_records(path, 100, random)
        dataset = tf.data.TFRecordDataset(files).map(parse).cache().shuffle(200, seed=1).repeat(10).batch(20).prefetch(2)
        iterator = tf.data.make_initializable_iterator(dataset)
        x, label = iterator.get_next()
        w = tf.get_variable("w", [4, 2], initializer=tf.zeros_initializer())
        loss = tf.losses.sparse_softmax_cross_entropy(label, tf.matmul(x, w))
        train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), iterator.initializer])
            steps, value = 0, None
            try:
                while True:
                    value, _ = sess.run([loss, train_op])
                    steps += 1
            except tf.errors.OutOfRangeError:
                print("%d steps, small loss: %s" % (steps, value < 0.3), flush=True)


if __name__ == "__main__":
    tf.app.run()
