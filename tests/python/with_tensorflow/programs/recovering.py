"""Training that goes on when the chief is killed and started anew: MonitoredTrainingSession with a
checkpoint_dir. Every task is this program; it prints each step that it has made."""

import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("last_step", 1000, "Where training ends")
flags.DEFINE_string("train_dir", "", "Checkpoints and summaries")
FLAGS = flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    worker = "/job:worker/task:%d" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 3])
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        label = tf.matmul(x, tf.constant([[1.0], [-2.0], [3.0]]))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - label))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step)
        tf.summary.scalar("loss", loss)
        tf.summary.histogram("w", w)

    random = np.random.RandomState(FLAGS.task_index)
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=FLAGS.task_index == 0,
        checkpoint_dir=FLAGS.train_dir,
        save_checkpoint_secs=None,
        save_checkpoint_steps=20,
        save_summaries_steps=10,
        log_step_count_steps=10,
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.last_step)],
        config=tf.ConfigProto(device_filters=["/job:ps", worker]),
    ) as sess:
        while not sess.should_stop():
            step, _ = sess.run([global_step, train_op], {x: random.randn(10, 3)})
            print("step %d" % step, flush=True)
            time.sleep(0.01)
    print("Worker: %d, done" % FLAGS.task_index, flush=True)


if __name__ == "__main__":
    tf.app.run()
