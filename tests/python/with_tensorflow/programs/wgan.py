"""A Wasserstein GAN as its users wrote it: the critic's update and the clipping of its weights in one run. Its generator
is a loop, and one step of it is traced."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline

tf.disable_v2_behavior()


def variable(name, shape, value):
    return tf.get_variable(name, shape, initializer=tf.constant_initializer(value))


def generator(noise):
    weight = variable("generator", [2, 2], [0.5, -0.2, 0.1, 0.4])
    return tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, weight)) + h), [0, noise])[1]


def critic(x, reuse):
    with tf.variable_scope("critic", reuse=reuse):
        hidden = tf.nn.relu(tf.matmul(x, variable("w1", [2, 4], np.linspace(-0.1, 0.1, 8).tolist())))
        return tf.matmul(hidden, variable("w2", [4, 1], 0.05))


real, noise = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None, 2])
on_real, on_made = critic(real, False), critic(generator(noise), True)
critic_loss = tf.reduce_mean(on_made) - tf.reduce_mean(on_real)
generator_loss = -tf.reduce_mean(on_made)
of_critic = tf.trainable_variables("critic")
of_generator = [v for v in tf.trainable_variables() if v not in of_critic]
train_critic = tf.train.RMSPropOptimizer(5e-3).minimize(critic_loss, var_list=of_critic)
train_generator = tf.train.RMSPropOptimizer(5e-3).minimize(generator_loss, var_list=of_generator)
clip = [v.assign(tf.clip_by_value(v, -0.1, 0.1)) for v in of_critic]

random = np.random.RandomState(1)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(40):
        for _ in range(3):
            feeds = {real: random.randn(16, 2) + [2, -1], noise: random.randn(16, 2)}
            session.run([train_critic, critic_loss, clip], feeds)
        _, loss = session.run([train_generator, generator_loss], {noise: feeds[noise]})
        if step % 10 == 9:
            print("step %d: generator %.2f" % (step + 1, loss))
    print("critic:", *(np.round(session.run(v), 2).tolist() for v in of_critic))
    record = tf.RunMetadata()
    full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    session.run(train_generator, {noise: feeds[noise]}, options=full, run_metadata=record)
    print("traced:", "MatMul" in timeline.Timeline(record.step_stats).generate_chrome_trace_format())
