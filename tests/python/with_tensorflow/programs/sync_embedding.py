"""An embedding trained by SyncReplicasOptimizer: each update takes the rows' means over two steps' gradients."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

WORDS, SIZE, STEPS = 12, 2, 60

words, labels = tf.placeholder(tf.int32, [None, 2]), tf.placeholder(tf.float32, [None])
start = np.linspace(-0.1, 0.1, WORDS * SIZE, dtype=np.float32).reshape(WORDS, SIZE)
embedding = tf.get_variable("embedding", initializer=start)
weights = tf.get_variable("weights", [SIZE, 1], initializer=tf.ones_initializer())
looked_up = tf.reduce_sum(tf.nn.embedding_lookup(embedding, words), 1)
loss = tf.losses.mean_squared_error(labels, tf.squeeze(tf.matmul(looked_up, weights), 1))
global_step = tf.train.get_or_create_global_step()
opt = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.3), replicas_to_aggregate=2, total_num_replicas=1)
gradients, variables = zip(*opt.compute_gradients(loss))
assert isinstance(gradients[0], tf.IndexedSlices)
# Every gradient is there before the first is handed in, so no update changes what another one is made of.
clipped, _ = tf.clip_by_global_norm(gradients, 5.0)
train_op = opt.apply_gradients(zip(clipped, variables), global_step=global_step)
accumulators = [op for op in tf.get_default_graph().get_operations() if op.type == "SparseConditionalAccumulator"]
assert len(accumulators) == 1, accumulators

random = np.random.RandomState(0)
# With one token at first, every second step waits for the update that it completes.
hooks = [opt.make_session_run_hook(is_chief=True, num_tokens=1)]
# In the end the chief's thread waits for gradients that nobody has any more, until the session closes.
with tf.train.MonitoredTrainingSession(hooks=hooks, stop_grace_period_secs=1) as sess:
    for i in range(STEPS):
        # The last word is in no batch, and few words are in both of two batches.
        batch = random.randint(WORDS - 1, size=(4, 2))
        value, _ = sess.run([loss, train_op], {words: batch, labels: batch.sum(1) % 5})
        if i % 20 == 19:
            print("%d updates, loss %.3f" % (sess.run(global_step), value), flush=True)
    trained, factors = sess.run([embedding, weights])
for name, values in (("embedding", trained), ("weights", factors)):
    print(name, values.astype(float).round(3).tolist())
assert (trained[-1] == start[-1]).all()
