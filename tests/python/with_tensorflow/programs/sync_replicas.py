"""Synchronous replicas with a backup worker: of three workers' gradients each update takes the first
two. Every task is this program."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 50, "Updates")
FLAGS = flags.FLAGS


def main(_):
    workers = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    is_chief = FLAGS.task_index == 0
    worker = "/job:worker/task:%d" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 3])
        y_ = tf.placeholder(tf.float32, [None, 1])
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        loss = tf.losses.mean_squared_error(y_, tf.matmul(x, w))
        global_step = tf.train.get_or_create_global_step()
        rate = tf.train.exponential_decay(0.3, global_step, 20, 0.9)
        opt = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(rate),
            replicas_to_aggregate=len(workers) - 1,
            total_num_replicas=len(workers),
        )
        gradients, variables = zip(*opt.compute_gradients(loss))
        clipped, _ = tf.clip_by_global_norm(gradients, 5.0)
        train_op = opt.apply_gradients(zip(clipped, variables), global_step=global_step)

    random = np.random.RandomState(FLAGS.task_index)
    hooks = [opt.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=FLAGS.steps)]
    steps = []
    config = tf.ConfigProto(device_filters=["/job:ps", worker])
    with tf.train.MonitoredTrainingSession(server.target, is_chief=is_chief, hooks=hooks, config=config) as sess:
        while not sess.should_stop():
            batch = random.randn(20, 3).astype(np.float32)
            label = batch @ np.float32([[1], [-2], [3]])
            last, step, _ = sess.run([w, global_step, train_op], {x: batch, y_: label})
            steps.append(int(step))
    assert steps == sorted(steps), steps
    print("Worker: %d, w: %s" % (FLAGS.task_index, last.round(1).ravel().tolist()), flush=True)


if __name__ == "__main__":
    tf.app.run()
