#!/usr/bin/env python3
"""Writes saved_models/: models as TensorFlow's saved_model functions write them, and a frozen graph (see README.md)."""

import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved_models")


def folder(name):
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def model(resource):
    """y = x w + b with w in two parts, a scaled output, and a path that the initializer keeps."""
    with v1.variable_scope("", use_resource=resource):
        x = v1.placeholder(tf.float32, (None, 2), name="x")
        with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(2)):
            w = v1.get_variable("w", (2, 1), initializer=v1.ones_initializer())
        b = v1.get_variable("b", initializer=tf.constant([0.5]))
        y = tf.add(tf.matmul(x, tf.convert_to_tensor(w)), b, name="y")
        scale = v1.placeholder_with_default(tf.constant(10.0), (), name="scale")
        scaled = tf.multiply(y, scale, name="scaled")
    assign = [part.assign([[2.0 + i]]) for i, part in enumerate(w)]
    return x, y, scale, scaled, assign


def info(tensor):
    return v1.saved_model.utils.build_tensor_info(tensor)


def signature(inputs, outputs):
    return v1.saved_model.signature_def_utils.build_signature_def(
        {k: info(t) for k, t in inputs.items()}, {k: info(t) for k, t in outputs.items()}, "tensorflow/serving/predict")


def of_version_1(name, resource):
    with v1.Graph().as_default(), v1.Session() as session:
        x, y, scale, scaled, assign = model(resource)
        signatures = {"serving_default": signature({"input": x}, {"output": y}),
                      "scaled": signature({"input": x, "scale": scale}, {"output": y, "scaled": scaled})}
        main_op = None
        if resource:
            words = "words.txt"  # in OUT; the graph keeps the name
            with open(words, "w") as file:
                file.write("one\ntwo\n")
            path = tf.constant(words, name="words_path")
            v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
            kept = v1.get_variable("kept", initializer=tf.constant(""), trainable=False, use_resource=True,
                                   collections=[v1.GraphKeys.LOCAL_VARIABLES])
            main_op = kept.assign(path).op
            signatures["asset"] = signature({}, {"path": tf.identity(kept, name="kept_path")})
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        session.run(assign)
        builder = v1.saved_model.Builder(folder(name))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, main_op=main_op,
                                             assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS))
        if resource:
            builder.add_meta_graph(["serve", "train"], {"train": signature({"input": x}, {"output": y})})
        builder.save()
        if resource:
            os.remove(words)
            frozen = v1.graph_util.convert_variables_to_constants(session, session.graph.as_graph_def(), ["scaled"])
            with open(os.path.join(OUT, "frozen.pb"), "wb") as file:
                file.write(frozen.SerializeToString())


def of_version_2(name):
    class Line(tf.Module):
        def __init__(self):
            self.w = tf.Variable([[2.0], [3.0]])
            self.b = tf.Variable([0.5])

        @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32, name="input")])
        def __call__(self, input):
            return {"output": tf.matmul(input, self.w) + self.b}

    line = Line()
    tf.saved_model.save(line, folder(name), signatures=line.__call__)
    os.remove(os.path.join(OUT, name, "fingerprint.pb"))


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    os.chdir(OUT)
    of_version_2("version_2")
    v1.disable_eager_execution()
    of_version_1("resource_variables", True)
    of_version_1("ref_variables", False)
