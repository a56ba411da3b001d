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


def learns(optimizer):
    """Whether an embedding, trained by rows, and a dense layer learn which ids are large."""
    ids = np.arange(40).reshape(-1, 1)
    made = tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(40, 4, input_length=1),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1, activation="sigmoid", kernel_initializer=tf.keras.initializers.RandomNormal(seed=1)),
        ]
    )
    made.compile(optimizer=optimizer, loss="binary_crossentropy", metrics=["accuracy"])
    made.fit(ids, ids >= 20, epochs=60, batch_size=8, verbose=0)
    return made.evaluate(ids, ids >= 20, verbose=0)[1] > 0.9


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
    optimizers = tf.keras.optimizers
    for name, optimizer in (
        ("momentum", optimizers.SGD(0.5, momentum=0.9)),
        ("nesterov", optimizers.SGD(0.5, momentum=0.9, nesterov=True)),
        ("amsgrad", optimizers.Adam(0.05, amsgrad=True)),
    ):
        print("%s learns: %s" % (name, learns(optimizer)), flush=True)


if __name__ == "__main__":
    tf.app.run()
