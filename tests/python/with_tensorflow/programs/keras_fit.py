"""Keras' fit, evaluate, callbacks and weights in graph mode, as TensorFlow 1.x had them. Needs Keras 2 (tf_keras)."""

import os
import tempfile

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def model():
    made = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, activation="relu", input_shape=(8,), kernel_initializer=tf.keras.initializers.RandomNormal(seed=1)),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(3, activation="softmax"),
        ]
    )
    made.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def main(_):
    random = np.random.RandomState(0)
    x = random.randn(300, 8).astype(np.float32)
    y = x[:, :3].argmax(1)
    with tempfile.TemporaryDirectory() as folder:
        trained = model()
        saved = tf.keras.callbacks.ModelCheckpoint(folder + "/weights", save_weights_only=True)
        trained.fit(x[:240], y[:240], epochs=15, batch_size=24, validation_split=0.1, callbacks=[saved], verbose=0)
        loss, accuracy = trained.evaluate(x[240:], y[240:], verbose=0)
        print("accuracy > 0.8: %s" % (accuracy > 0.8), flush=True)
        other = model()
        other.load_weights(folder + "/weights")
        print("the same: %s" % np.allclose(other.predict(x[240:]), trained.predict(x[240:])), flush=True)


if __name__ == "__main__":
    tf.app.run()
