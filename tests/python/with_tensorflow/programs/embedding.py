"""An embedding in parts on two ps, looked up and trained by rows between graphs. Every task is this program."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 150, "Steps of this worker")
FLAGS = flags.FLAGS

WORDS, SIZE = 21, 4


def main(_):
    ps = FLAGS.ps_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps, "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    worker = "/job:worker/task:%d" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        words, labels = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
        embeddings = tf.get_variable(
            "embeddings",
            [WORDS, SIZE],
            initializer=tf.random_uniform_initializer(-0.1, 0.1),
            partitioner=tf.fixed_size_partitioner(len(ps)),
        )
        weights = tf.get_variable("weights", [SIZE, 1], initializer=tf.ones_initializer())
        looked_up = tf.nn.embedding_lookup(embeddings, words, partition_strategy="div")
        loss = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(looked_up, weights), 1) - labels))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step)
    assert {part.device for part in embeddings} == {"/job:ps/task:%d" % i for i in range(len(ps))}

    random = np.random.RandomState(FLAGS.task_index)
    filters = ["/job:ps", worker]
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=FLAGS.task_index == 0, config=tf.ConfigProto(device_filters=filters)
    ) as sess:
        for _ in range(FLAGS.steps):
            batch = random.randint(WORDS, size=16)
            value, _ = sess.run([loss, train_op], {words: batch, labels: batch % 5})
        print("Worker: %d, small loss: %s" % (FLAGS.task_index, value < 0.05), flush=True)


if __name__ == "__main__":
    tf.app.run()
