"""The softmax regression of the MNIST tutorial, on images that need no download."""

import argparse
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class DataSet:
    def __init__(self, count, seed):
        random = np.random.RandomState(seed)
        digits = np.random.RandomState(0).rand(10, 784)
        which = random.randint(10, size=count)
        self.images = np.clip(digits[which] + 0.5 * random.randn(count, 784), 0, 1).astype(np.float32)
        self.labels = np.eye(10, dtype=np.float32)[which]
        self._next = 0

    def next_batch(self, count):
        begin = self._next
        self._next = (begin + count) % len(self.images)
        return self.images[begin : begin + count], self.labels[begin : begin + count]


def main(_):
    train, test = DataSet(2000, 1), DataSet(500, 2)
    x = tf.placeholder(tf.float32, [None, 784])
    W = tf.Variable(tf.zeros([784, 10]))
    b = tf.Variable(tf.zeros([10]))
    y = tf.matmul(x, W) + b
    y_ = tf.placeholder(tf.float32, [None, 10])
    cross_entropy = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=y))
    train_step = tf.train.GradientDescentOptimizer(FLAGS.learning_rate).minimize(cross_entropy)

    sess = tf.InteractiveSession()
    tf.global_variables_initializer().run()
    for _ in range(FLAGS.steps):
        batch_xs, batch_ys = train.next_batch(100)
        sess.run(train_step, feed_dict={x: batch_xs, y_: batch_ys})

    # Built after training, as the tutorial does.
    correct_prediction = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
    accuracy = tf.reduce_mean(tf.cast(correct_prediction, tf.float32))
    print("accuracy %.3f" % sess.run(accuracy, feed_dict={x: test.images, y_: test.labels}))
    print("loss %.4f" % cross_entropy.eval({x: test.images, y_: test.labels}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=200)
    FLAGS, unparsed = parser.parse_known_args()
    tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)
