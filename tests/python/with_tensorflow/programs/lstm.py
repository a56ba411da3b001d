"""An LSTM over sequences of several lengths, by dynamic_rnn: is the sum of a sequence above zero? The
cell is the program's own, as TensorFlow from 2.16 on has none without Keras 2."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

UNITS, STEPS = 8, 6


class LSTMCell:
    """Gates i, j, f, o of one product; the forget gate's bias is 1."""

    state_size = (UNITS, UNITS)
    output_size = UNITS

    def zero_state(self, batch_size, dtype):
        return tuple(tf.zeros([batch_size, units], dtype) for units in self.state_size)

    def __call__(self, inputs, state, scope=None):
        c, h = state
        with tf.variable_scope(scope or "lstm_cell", reuse=tf.AUTO_REUSE):
            initializer = tf.constant_initializer(np.random.RandomState(1).randn(1 + UNITS, 4 * UNITS) / 4)
            kernel = tf.get_variable("kernel", [1 + UNITS, 4 * UNITS], initializer=initializer)
            bias = tf.get_variable("bias", [4 * UNITS], initializer=tf.zeros_initializer())
        i, j, f, o = tf.split(tf.matmul(tf.concat([inputs, h], 1), kernel) + bias, 4, axis=1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, (c, h)


def main(_):
    x = tf.placeholder(tf.float32, [None, STEPS, 1])
    length = tf.placeholder(tf.int32, [None])
    y_ = tf.placeholder(tf.float32, [None])
    outputs, (_, last) = tf.nn.dynamic_rnn(LSTMCell(), x, sequence_length=length, dtype=tf.float32)
    weights = tf.get_variable("weights", [UNITS, 1], initializer=tf.constant_initializer(0.1))
    logits = tf.squeeze(tf.matmul(last, weights), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y_, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, y_ > 0.5), tf.float32))
    optimizer = tf.train.AdamOptimizer(0.02)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    train_op = optimizer.apply_gradients(zip(gradients, variables))
    random = np.random.RandomState(0)

    def batch(count):
        lengths = random.randint(1, STEPS + 1, size=count)
        values = random.randn(count, STEPS, 1).astype(np.float32)
        sums = [values[i, : lengths[i]].sum() for i in range(count)]
        return {x: values, length: lengths, y_: np.float32(sums) > 0}

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(1, 61):
            value, _ = sess.run([loss, train_op], batch(50))
            if step % 20 == 0:
                print("step %d, loss %.2f" % (step, value), flush=True)
        test = batch(300)
        print("beyond the end: %s" % np.abs(sess.run(outputs, test)[test[length] < STEPS, -1]).max(), flush=True)
        print("accuracy > 0.9: %s" % (sess.run(accuracy, test) > 0.9), flush=True)


if __name__ == "__main__":
    tf.app.run()
