"""CIFAR-10 from its files: records of fixed length, distorted images, shuffled batches, by tf.data. The
files are made here, with a colour for each class."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

BATCH = 16


def write_files(folder):
    random = np.random.RandomState(0)
    names = [os.path.join(folder, "data_batch_%d.bin" % i) for i in (1, 2)]
    for name in names:
        labels = random.randint(10, size=(60, 1)).astype(np.uint8)
        images = random.randint(60, size=(60, 3, 32 * 32))
        images[np.arange(60), labels[:, 0] % 3] += 20 * labels
        np.concatenate([labels, images.reshape(60, -1).astype(np.uint8)], 1).tofile(name)
    return names


def parse(value):
    record = tf.decode_raw(value, tf.uint8)
    depth_major = tf.reshape(record[1:], [3, 32, 32])
    image = tf.random_crop(tf.cast(tf.transpose(depth_major, [1, 2, 0]), tf.float32), [24, 24, 3])
    return tf.image.random_flip_left_right(image) / 255.0, tf.cast(record[0], tf.int32)


def distorted_inputs(files):
    dataset = tf.data.FixedLengthRecordDataset(files, 1 + 32 * 32 * 3).map(parse, num_parallel_calls=2)
    dataset = dataset.shuffle(60).repeat().batch(BATCH, drop_remainder=True).prefetch(1)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def inference(images):
    def variable(name, shape, stddev):
        return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=stddev))

    kernel = variable("conv", [5, 5, 3, 8], 0.1)
    conv = tf.nn.relu(tf.nn.conv2d(images, kernel, [1, 2, 2, 1], padding="SAME"))
    pool = tf.nn.max_pool(conv, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    return tf.matmul(tf.reshape(pool, [BATCH, 6 * 6 * 8]), variable("local", [6 * 6 * 8, 10], 0.05))


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        images, labels = distorted_inputs(write_files(folder))
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=inference(images))
        )
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, train_op])[0] for _ in range(150)]
        print("it learns: %s" % (np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])), flush=True)


if __name__ == "__main__":
    tf.app.run()
