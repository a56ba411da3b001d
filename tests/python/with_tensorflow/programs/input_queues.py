"""Input by queues: string_input_producer, readers of TFRecords and of records of fixed length, shuffle_batch,
and the threads of a Coordinator, as programs read their files before tf.data."""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

EXAMPLES, EPOCHS, BATCH = 60, 3, 12


def write_records(path, ids):
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in ids:
            features = {
                "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[np.float32([i, i * i]).tobytes()])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def read_example(queue):
    _, serialized = tf.TFRecordReader().read(queue)
    features = tf.parse_single_example(
        serialized, {"id": tf.FixedLenFeature([], tf.int64), "raw": tf.FixedLenFeature([], tf.string)}
    )
    raw = tf.decode_raw(features["raw"], tf.float32)
    raw.set_shape([2])
    return features["id"], raw


def read_fixed(queue):
    reader = tf.FixedLengthRecordReader(record_bytes=5, header_bytes=3)
    _, value = reader.read(queue)
    record = tf.decode_raw(value, tf.uint8)
    return tf.cast(record[0], tf.int64), tf.cast(tf.reshape(tf.strided_slice(record, [1], [3]), [2]), tf.float32)


def batches(files, read):
    """The batches of all epochs."""
    queue = tf.train.string_input_producer(files, num_epochs=EPOCHS, shuffle=True)
    ids, values = tf.train.shuffle_batch(
        read(queue), BATCH, capacity=50, min_after_dequeue=20, num_threads=2, allow_smaller_final_batch=True
    )
    total = tf.get_variable("total", [2], initializer=tf.zeros_initializer())
    add = total.assign_add(tf.reduce_sum(values, 0))
    return ids, values, add


def run(files, read):
    with tf.Graph().as_default():
        ids, values, add = batches(files, read)
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        with tf.Session() as sess:
            sess.run(init)
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess=sess, coord=coord)
            seen, total = [], None
            try:
                while not coord.should_stop():
                    some, both, total = sess.run([ids, values, add])
                    assert both.shape == (len(some), 2) and (both[:, 0] == some).all()
                    seen += some.tolist()
            except tf.errors.OutOfRangeError:
                print("Done training for %d epochs, %d examples." % (EPOCHS, len(seen)))
            finally:
                coord.request_stop()
            coord.join(threads)
        print("each as often: %s, shuffled: %s" % (
            sorted(seen) == sorted(list(range(EXAMPLES)) * EPOCHS), seen[:EXAMPLES] != sorted(seen[:EXAMPLES])))
        print("total:", total.tolist())


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        names = [folder + "/part-%d" % i for i in range(3)]
        for i, name in enumerate(names):
            write_records(name, range(i, EXAMPLES, 3))
        run(names, read_example)
        names = [folder + "/batch-%d.bin" % i for i in range(2)]
        for i, name in enumerate(names):
            ids = np.arange(i, EXAMPLES, 2)
            records = np.stack([ids, ids, 2 * ids, ids, ids], 1).astype(np.uint8)
            with open(name, "wb") as file:
                file.write(b"hdr" + records.tobytes())
        run(names, read_fixed)


if __name__ == "__main__":
    tf.app.run()
