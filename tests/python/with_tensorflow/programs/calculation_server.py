"""A calculation server: workers ask the model on the ps for values, and put what they find into a queue;
the trainer takes batches from it. All tasks share variables and the queue by name. Every task is this
program."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'; worker 0 trains")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 60, "Updates")
FLAGS = flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(100, [tf.float32, tf.float32], shapes=[[3], []], shared_name="experience")
        ready = tf.get_variable("ready", initializer=False, trainable=False)
        w = tf.get_variable("w", [3], initializer=tf.zeros_initializer())
    with tf.device("/job:worker/task:%d" % FLAGS.task_index):
        one_x, one_y = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [])
        put = queue.enqueue([one_x, one_y])
        answer = tf.tensordot(one_x, w, 1)
        x, y = queue.dequeue_many(10)
        loss = tf.reduce_mean(tf.square(tf.tensordot(x, w, 1) - y))
        train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    with tf.device("/job:ps/task:0"):
        is_ready = tf.assign(ready, True)
        close = queue.close(cancel_pending_enqueues=True)

    random = np.random.RandomState(FLAGS.task_index)
    filters = ["/job:ps", "/job:worker/task:%d" % FLAGS.task_index]
    with tf.Session(server.target, config=tf.ConfigProto(device_filters=filters)) as sess:
        if FLAGS.task_index == 0:
            sess.run(tf.global_variables_initializer())
            sess.run(is_ready)
            for _ in range(FLAGS.steps):
                value, _ = sess.run([loss, train_op])
            print("loss %.1f, w: %s" % (value, sess.run(w).round(1).tolist()), flush=True)
            sess.run(close)
            return
        waiting = tf.report_uninitialized_variables([ready, w])
        while len(sess.run(waiting)) > 0:
            pass
        asked = 0
        try:
            while True:
                sample = random.randn(3).astype(np.float32)
                sess.run(answer, {one_x: sample})
                sess.run(put, {one_x: sample, one_y: sample @ np.float32([1, -2, 3])})
                asked += 1
        except (tf.errors.CancelledError, tf.errors.AbortedError):
            print("Worker: %d, enough: %s" % (FLAGS.task_index, asked > 10), flush=True)


if __name__ == "__main__":
    tf.app.run()
