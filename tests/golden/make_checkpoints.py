#!/usr/bin/env python3
"""Writes checkpoints/: what TensorFlow's Saver and its ops write (see README.md)."""

import json
import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()
v1.disable_control_flow_v2()
v1.logging.set_verbosity(v1.logging.ERROR)

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "checkpoints")

TYPES = ["float32", "float64", "int32", "uint8", "int16", "int8", "int64", "bool", "bfloat16", "uint16", "float16",
         "uint32", "uint64"]


def folder(name):
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def counted(dtype, shape):
    """1, 2, 3, ...; of bool true, false, true, ..."""
    count = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    return (count % 2 == 1) if dtype == "bool" else count.astype(tf.as_dtype(dtype).as_numpy_dtype)


def save_raw(prefix, names, slices, values):
    with v1.Graph().as_default(), v1.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=slices,
                                      tensors=[tf.constant(value) for value in values]))


def types():
    """One tensor of each type, a scalar, an empty one, strings."""
    names, values = [], []
    for dtype in TYPES:
        names.append("of_" + dtype)
        values.append(counted(dtype, (2, 3)))
    names += ["scalar", "empty", "strings", "text"]
    values += [np.float32(2.5), np.zeros((0, 4), np.float32),
               np.array([b"one", b"", b"t" * 200, b"zero\0inside"], object), np.array(b"a scalar", object)]
    save_raw(os.path.join(folder("types"), "model"), names, [""] * len(names), values)


def slices():
    """Tensors in parts: by rows, by columns, in a grid, one dimension's extent written out."""
    parts = [("rows", "5 2 0,3:-", counted("float32", (5, 2))[:3]), ("rows", "5 2 3,2:-", counted("float32", (5, 2))[3:]),
             ("columns", "2 70 -:0,6", counted("int32", (2, 70))[:, :6]),
             ("columns", "2 70 -:6,64", counted("int32", (2, 70))[:, 6:]),
             ("written_out", "4 3 0,4:0,1", counted("float32", (4, 3))[:, :1]),
             ("written_out", "4 3 0,4:1,2", counted("float32", (4, 3))[:, 1:]),
             ("long", "20000 0,100", counted("uint8", (20000,))[:100]),
             ("long", "20000 100,8100", counted("uint8", (20000,))[100:8200]),
             ("long", "20000 8200,11800", counted("uint8", (20000,))[8200:])]
    for i in range(2):
        for j in range(2):
            parts.append(("zero\0ff\u00ff", f"4 6 {2 * i},2:{3 * j},3", counted("float32", (4, 6))[2 * i:2 * i + 2, 3 * j:3 * j + 3]))
    # "long" would be large: its values are zeros, which compress in the repository.
    values = [np.zeros_like(v) if n == "long" else v for n, _, v in parts]
    save_raw(os.path.join(folder("slices"), "model"), [n.encode("latin-1") for n, _, _ in parts],
             [s for _, s, _ in parts], values)


def job():
    """A training job's folder: sharded, a partitioned variable, Adam's slots, a step that is counted."""
    path = folder("job")
    os.chdir(path)  # so that the file "checkpoint" names no folder
    with v1.Graph().as_default():
        with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(2)):
            table = v1.get_variable("table", shape=(5, 2), initializer=v1.constant_initializer(0.5))
        with v1.device("/cpu:1"):
            w = v1.get_variable("w", initializer=tf.constant([[0.5], [-0.25]]))
        step = v1.train.get_or_create_global_step()
        rows = v1.nn.embedding_lookup(table, [0, 3, 4], partition_strategy="div")
        loss = tf.reduce_mean(tf.square(tf.matmul(rows, w) - [[1.0], [2.0], [3.0]]))
        train = v1.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
        saver = v1.train.Saver(sharded=True)
        config = v1.ConfigProto(device_count={"CPU": 2}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            losses = []
            for i in range(6):
                if i in (2, 3):
                    saver.save(session, "model.ckpt", global_step=step)
                losses.append(float(session.run([loss, train])[0]))
    with open(os.path.join(path, "losses.json"), "w") as file:
        json.dump({"loss": losses}, file)  # of steps 0 to 5; saved before steps 2 and 3
    for name in os.listdir(path):
        if name.endswith(".meta"):
            os.remove(os.path.join(path, name))


if __name__ == "__main__":
    types()
    slices()
    job()
