"""The MNIST tutorial between graphs, with a Supervisor: one ps, several workers, asynchronous. Every
task is this program; the chief initializes, restores and saves, the others wait for it."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 60, "Steps of all workers together")
flags.DEFINE_integer("batch_size", 20, "Images of a step")
flags.DEFINE_string("logdir", "", "Checkpoints and summaries")
FLAGS = flags.FLAGS


def images(count, random):
    """Bright squares of 4x4 in one of ten places of an image of 14x14, and which place that is."""
    labels = random.randint(10, size=count)
    x = random.rand(count, 14, 14, 1).astype(np.float32) * 0.3
    for image, label in zip(x, labels):
        row, column = divmod(label, 5)
        image[2 + 6 * row : 6 + 6 * row, 2 * column : 2 * column + 4] += 0.7
    return x.reshape(count, 196), np.eye(10, dtype=np.float32)[labels]


def conv_pool(x, filters, name):
    with tf.variable_scope(name):
        shape = [5, 5, int(x.shape[3]), filters]
        kernel = tf.get_variable("kernel", shape, initializer=tf.truncated_normal_initializer(stddev=0.1))
        bias = tf.get_variable("bias", [filters], initializer=tf.constant_initializer(0.1))
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, [1, 1, 1, 1], "SAME"), bias))
        return tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")


def dense(x, units, name):
    with tf.variable_scope(name):
        shape = [int(x.shape[1]), units]
        kernel = tf.get_variable("kernel", shape, initializer=tf.truncated_normal_initializer(stddev=0.1))
        return tf.matmul(x, kernel) + tf.get_variable("bias", [units], initializer=tf.constant_initializer(0.1))


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    is_chief = FLAGS.task_index == 0
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 196], name="x-input")
        y_ = tf.placeholder(tf.float32, [None, 10], name="y-input")
        hidden = conv_pool(conv_pool(tf.reshape(x, [-1, 14, 14, 1]), 4, "conv1"), 8, "conv2")
        y = dense(tf.nn.relu(dense(tf.reshape(hidden, [-1, 4 * 4 * 8]), 32, "fc1")), 10, "fc2")
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=y))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1)), tf.float32))
        global_step = tf.Variable(0, name="global_step", trainable=False)
        train_op = tf.train.AdamOptimizer(0.003).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.histogram("logits", y)
        summary_op = tf.summary.merge_all()
        saver = tf.train.Saver()
        init_op = tf.global_variables_initializer()

    sv = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.logdir,
        init_op=init_op,
        summary_op=None,
        saver=saver,
        global_step=global_step,
        save_model_secs=600,
    )
    random = np.random.RandomState(FLAGS.task_index)
    config = tf.ConfigProto(
        allow_soft_placement=True, device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index]
    )
    with sv.prepare_or_wait_for_session(server.target, config=config) as sess:
        step = 0
        while not sv.should_stop() and step < FLAGS.steps:
            batch_x, batch_y = images(FLAGS.batch_size, random)
            _, step, value = sess.run([train_op, global_step, accuracy], {x: batch_x, y_: batch_y})
            if step % 20 == 0:
                print("Worker: %d, Step: %d, Accuracy(batch): %.2f" % (FLAGS.task_index, step, value), flush=True)
                if is_chief:
                    sv.summary_computed(sess, sess.run(summary_op, {x: batch_x, y_: batch_y}))
        test_x, test_y = images(200, np.random.RandomState(99))
        print("Test-Accuracy: %.2f" % sess.run(accuracy, {x: test_x, y_: test_y}), flush=True)
        if is_chief:
            print("saved", saver.save(sess, FLAGS.logdir + "/final", global_step=step).rsplit("/", 1)[1].split("-")[0], flush=True)
    sv.stop()


if __name__ == "__main__":
    tf.app.run()
