"""Training by a MonitoredTrainingSession with a Scaffold of the program's own, a hook that asks for fetches of
its own, and summaries by a FileWriter."""

import glob
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


class LossHook(tf.train.SessionRunHook):
    """Writes the loss, prints it every 20 steps, and stops training when it is small."""

    def __init__(self, loss, summary, folder):
        self._loss, self._summary, self._folder = loss, summary, folder

    def begin(self):
        self._global_step = tf.train.get_global_step()
        self._writer = tf.summary.FileWriter(self._folder, tf.get_default_graph())

    def after_create_session(self, session, coord):
        self._step = session.run(self._global_step)
        print("begins at step %d" % self._step)

    def before_run(self, run_context):
        assert len(run_context.original_args.feed_dict) == 2
        return tf.train.SessionRunArgs(
            {"loss": self._loss, "summary": self._summary}, options=tf.RunOptions(timeout_in_ms=60000)
        )

    def after_run(self, run_context, run_values):
        self._step += 1
        self._writer.add_summary(run_values.results["summary"], self._step)
        if self._step % 20 == 0:
            print("step %d, loss %.3f" % (self._step, run_values.results["loss"]))
        if run_values.results["loss"] < 1e-4:
            run_context.request_stop()

    def end(self, session):
        print("ends at step %d" % session.run(self._global_step))
        self._writer.close()


def train(folder, events, steps):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        labels = tf.placeholder(tf.float32, [None, 1], name="labels")
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer(), trainable=False)
        loss = tf.losses.mean_squared_error(labels, tf.matmul(x, w) + offset)
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step)
        average = tf.train.ExponentialMovingAverage(0.9, global_step)
        with tf.control_dependencies([train_op]):
            train_op = average.apply([w])
        summary = tf.summary.merge([tf.summary.scalar("loss", loss), tf.summary.histogram("w", w)])

        def init_fn(scaffold, session):
            print("init_fn")
            session.run(offset.initializer, {offset.initializer.inputs[1]: 0.5})

        scaffold = tf.train.Scaffold(
            init_op=tf.global_variables_initializer(),
            init_fn=init_fn,
            local_init_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer()),
            saver=tf.train.Saver({"weights": average.average(w), "w": w, "offset": offset, "step": global_step}),
        )
        random = np.random.RandomState(0)
        hooks = [LossHook(loss, summary, events), tf.train.StopAtStepHook(num_steps=steps)]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, scaffold=scaffold, hooks=hooks, save_checkpoint_steps=25, save_summaries_steps=10
        ) as sess:
            while not sess.should_stop():
                batch = random.randn(16, 3).astype(np.float32)
                sess.run(train_op, {x: batch, labels: batch @ np.float32([[1], [-2], [3]]) + 0.5})


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        train(folder, folder + "/events-1", 40)
        train(folder, folder + "/events-2", 500)  # goes on from the checkpoint
        latest = tf.train.latest_checkpoint(folder)
        reader = tf.train.load_checkpoint(latest)
        print(sorted(reader.get_variable_to_shape_map()), reader.get_tensor("step"), reader.get_tensor("offset"))
        print(reader.get_tensor("w").round(2).ravel().tolist(), reader.get_tensor("weights").round(2).ravel().tolist())
        counts = {}
        for path in sorted(glob.glob(folder + "/events-*/*tfevents*")):
            for event in tf.train.summary_iterator(path):
                for value in event.summary.value:
                    counts[value.tag] = counts.get(value.tag, 0) + 1
        print(sorted(counts.items()))


if __name__ == "__main__":
    tf.app.run()
