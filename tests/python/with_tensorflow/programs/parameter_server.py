"""One ps and two workers, asynchronous: the program of the tutorial on distributed TensorFlow. Every
task is this program with its own --job_name and --task_index; the first worker initializes."""

import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 100, "Steps of all workers together")
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
        y_ = tf.placeholder(tf.float32, [None])
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(x, w), 1) - y_))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)

    random = np.random.RandomState(FLAGS.task_index)
    config = tf.ConfigProto(device_filters=["/job:ps", worker])  # another worker's end is nothing to this one
    with tf.Session(server.target, config=config) as sess:
        if FLAGS.task_index == 0:
            sess.run(tf.global_variables_initializer())
        while True:
            try:
                sess.run(global_step)
                break
            except tf.errors.FailedPreconditionError:
                time.sleep(0.1)
        step = 0
        while step < FLAGS.steps:
            batch = random.randn(20, 3).astype(np.float32)
            step, _ = sess.run([global_step, train_op], {x: batch, y_: batch @ np.float32([1, -2, 3])})
        print("Worker: %d, Step: %d" % (FLAGS.task_index, step), flush=True)
        print("w", sess.run(w).round(1).ravel().tolist(), flush=True)


if __name__ == "__main__":
    tf.app.run()
