"""A line through points, as the first tutorial has it."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

W = tf.Variable([0.3], dtype=tf.float32)
b = tf.Variable([-0.3], dtype=tf.float32)
x = tf.placeholder(tf.float32)
y = tf.placeholder(tf.float32)
linear_model = W * x + b
loss = tf.reduce_sum(tf.square(linear_model - y))
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

x_train = [1, 2, 3, 4]
y_train = [0, -1, -2, -3]

sess = tf.Session()
sess.run(tf.global_variables_initializer())
for i in range(1000):
    sess.run(train, {x: x_train, y: y_train})

curr_W, curr_b, curr_loss = sess.run([W, b, loss], {x: x_train, y: y_train})
print("W: %.4f b: %.4f loss: %.1e" % (curr_W[0], curr_b[0], curr_loss))
assert np.allclose([curr_W[0], curr_b[0]], [-1, 1], atol=1e-4)
