"""Towers in one graph, as in the tutorial on several GPUs: one client, a tower per device with shared
variables, losses in a collection, gradients averaged and applied once. The devices are CPUs of this
process, or workers of a cluster."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
flags = tf.app.flags
flags.DEFINE_string("target", "", "A server of the cluster; empty: this process")
flags.DEFINE_integer("towers", 2, "Number of towers")
flags.DEFINE_integer("steps", 20, "Steps")
FLAGS = flags.FLAGS


def variable_on_cpu(name, shape):
    device = "/job:ps/cpu:0" if FLAGS.target else "/cpu:0"
    with tf.device(device):
        return tf.get_variable(name, shape, initializer=tf.constant_initializer(0.05))


def tower_loss(images, labels):
    weights = variable_on_cpu("weights", [6, 4])
    tf.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(weights), 0.01, name="weight_loss"))
    logits = tf.matmul(images, weights) + variable_on_cpu("biases", [4])
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    tf.add_to_collection("losses", tf.reduce_mean(entropy, name="cross_entropy"))


def average_gradients(tower_grads):
    average = []
    for grad_and_vars in zip(*tower_grads):
        grads = tf.concat([tf.expand_dims(g, 0) for g, _ in grad_and_vars], 0)
        average.append((tf.reduce_mean(grads, 0), grad_and_vars[0][1]))
    return average


def main(_):
    with tf.Graph().as_default(), tf.device("/job:ps/cpu:0" if FLAGS.target else "/cpu:0"):
        images, labels = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int64, [None])
        shards = list(zip(tf.split(images, FLAGS.towers), tf.split(labels, FLAGS.towers)))
        global_step = tf.get_variable("global_step", [], initializer=tf.constant_initializer(0), trainable=False)
        rate = tf.train.exponential_decay(0.5, global_step, 5, 0.9, staircase=True)
        opt = tf.train.MomentumOptimizer(rate, 0.9)
        tower_grads, tower_losses = [], []
        with tf.variable_scope(tf.get_variable_scope()):
            for i in range(FLAGS.towers):
                device = "/job:worker/task:%d" % i if FLAGS.target else "/cpu:%d" % i
                with tf.device(device), tf.name_scope("tower_%d" % i) as scope:
                    tower_loss(*shards[i])
                    loss = tf.add_n(tf.get_collection("losses", scope), name="total_loss")
                    tf.get_variable_scope().reuse_variables()
                    tower_grads.append(opt.compute_gradients(loss))
                    tower_losses.append(loss)
        grads = average_gradients(tower_grads)
        apply_gradients = opt.apply_gradients(grads, global_step=global_step)
        averages = tf.train.ExponentialMovingAverage(0.9, global_step)
        with tf.control_dependencies([apply_gradients]):
            train_op = averages.apply(tf.trainable_variables())
        mean_loss = tf.add_n(tower_losses) / FLAGS.towers

        config = tf.ConfigProto(allow_soft_placement=True, device_count={"CPU": FLAGS.towers})
        with tf.Session(FLAGS.target, config=config) as sess:
            sess.run(tf.global_variables_initializer())
            random = np.random.RandomState(0)
            for step in range(1, FLAGS.steps + 1):
                batch = random.randn(8 * FLAGS.towers, 6).astype(np.float32)
                feed = {images: batch, labels: batch[:, :4].argmax(1)}
                _, value = sess.run([train_op, mean_loss], feed)
                if step % 5 == 0:
                    print("step %d, loss = %.3f" % (step, value), flush=True)
            weights = [v for v in tf.trainable_variables() if v.op.name == "weights"][0]
            print("average %.3f" % np.abs(sess.run(averages.average(weights))).mean(), flush=True)


if __name__ == "__main__":
    tf.app.run()
