"""Every optimizer of tf.train, on dense and on sparse gradients, on ref and on resource variables, with moving averages and a hook that reads a loss in each step."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
flags = parser.parse_args()

step = tf.train.get_or_create_global_step()
optimizers = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(1.0),
    "rms": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "proximal": lambda: tf.train.ProximalGradientDescentOptimizer(0.1, 0.01, 0.01),
    "proximal_adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1),
    "adagrad_da": lambda: tf.train.AdagradDAOptimizer(0.1, step),
}
images = tf.placeholder(tf.float32, [None, 3])
words = tf.placeholder(tf.int32, [None])
losses, weights, updates = {}, [], []
for name, make in optimizers.items():
    for resource in (False, True):
        with tf.variable_scope("%s_%s" % (name, "resource" if resource else "ref"), use_resource=resource) as scope:
            dense = tf.get_variable("dense", [3, 2], initializer=tf.constant_initializer(0.3))
            rows = tf.get_variable("rows", [5, 2], initializer=tf.constant_initializer(0.2))
            error = tf.matmul(images, dense) + tf.nn.embedding_lookup(rows, words) - 1
            losses[scope.name] = tf.reduce_mean(tf.square(error))
            if resource:
                weights.append(dense)
            variables = [dense] if name == "adagrad_da" else [dense, rows]  # it has no sparse form
            updates.append(make().minimize(losses[scope.name], var_list=variables))
average = tf.train.ExponentialMovingAverage(0.9)
with tf.control_dependencies(updates):
    train = tf.group(average.apply(weights), tf.assign_add(step, 1))
with tf.control_dependencies([train]):
    averages = [average.average(weight).read_value() for weight in weights]


class Losses(tf.train.SessionRunHook):
    """Prints each loss of each step."""

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(losses)

    def after_run(self, run_context, run_values):
        print(" ".join("%s %.4f" % item for item in sorted(run_values.results.items())))


numbers = np.random.RandomState(0)
with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(flags.steps), Losses()]) as session:
    while not session.should_stop():
        _, last = session.run([train, averages], {images: numbers.rand(4, 3), words: [0, 1, 1, 3]})
print("averages", " ".join("%.2f" % value.sum() for value in last))
