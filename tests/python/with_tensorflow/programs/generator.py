"""A data set of the program's own generator, tf.data.Dataset.from_generator, batched with padding, for two epochs."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def sequences(count):
    for i in range(count):
        yield i, [i * 0.5] * i


def main(_):
    dataset = tf.data.Dataset.from_generator(sequences, (tf.int64, tf.float32), ([], [None]), args=(7,))
    dataset = dataset.map(lambda i, x: (i * 2, x)).padded_batch(3, ([], [None])).repeat(2)
    iterator = tf.data.make_initializable_iterator(dataset)
    ids, values = iterator.get_next()
    with tf.Session() as sess:
        sess.run(iterator.initializer)
        try:
            while True:
                some, padded = sess.run([ids, values])
                print(some.tolist(), padded.tolist())
        except tf.errors.OutOfRangeError:
            print("end")


if __name__ == "__main__":
    tf.app.run()
