"""Between-graph training with MonitoredTrainingSession and hooks: every task is this program. The chief
initializes, the other worker waits for it."""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def main(_):
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()

    worker = "/job:worker/task:%d" % index
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 3])
        y_ = tf.placeholder(tf.float32, [None, 1])
        w = tf.get_variable("w", [3, 1], initializer=tf.glorot_uniform_initializer())
        loss = tf.losses.mean_squared_error(y_, tf.matmul(x, w))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=global_step)

    random = np.random.RandomState(index)
    hooks = [tf.train.NanTensorHook(loss), tf.train.LoggingTensorHook([loss], every_n_iter=100)]
    config = tf.ConfigProto(device_filters=["/job:ps", worker])
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks, config=config) as sess:
        step = 0
        while not sess.should_stop() and step < 200:
            batch = random.randn(20, 3).astype(np.float32)
            label = batch @ np.float32([[1], [-2], [3]])
            last, value, step, _ = sess.run([w, loss, global_step, train_op], {x: batch, y_: label})
    print("Worker: %d, w: %s" % (index, last.round(1).ravel().tolist()), flush=True)


if __name__ == "__main__":
    tf.app.run()
