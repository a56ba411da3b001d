#!/usr/bin/env python3
"""Writes training.json: what TensorFlow's optimizers, learning rate schedules, clipping and moving averages give (see
README.md)."""

import json
import os
import zlib

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

SHAPE = (4, 3)
STEPS = 6


def values(key, shape, lo=-1.0, hi=1.0):
    r = np.random.RandomState(zlib.crc32(repr((key, tuple(shape))).encode()) & 0x7FFFFFFF)
    return r.uniform(lo, hi, size=shape).astype(np.float32)


def number(a):
    """Shortest digits that give the float back; what JSON lacks as a string."""
    a = np.float32(a)
    return float(str(a)) if np.isfinite(a) else str(a)


def flat(a):
    return [number(x) for x in np.asarray(a).reshape(-1)]


def session():
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # no division by way of a rounded reciprocal
    return v1.Session(config=config)


# ---- optimizers ---------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "Nesterov": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "AdagradFromOne": lambda: v1.train.AdagradOptimizer(0.1, initial_accumulator_value=1.0),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.01),
    "RMSPropMomentum": lambda: v1.train.RMSPropOptimizer(0.01, decay=0.8, momentum=0.5, epsilon=1e-3),
    "RMSPropCentered": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, epsilon=1e-2, centered=True),
    "Adam": lambda: v1.train.AdamOptimizer(),
    "AdamOther": lambda: v1.train.AdamOptimizer(0.05, beta1=0.8, beta2=0.99, epsilon=1e-4),
}


def optimizer(make, sparse):
    """STEPS updates of a matrix w, by the same gradients for all, and of a vector b. What every variable then is."""
    with tf.Graph().as_default(), session() as s:
        w = v1.get_variable("w", initializer=tf.constant(values("w", SHAPE)))
        b = v1.get_variable("b", initializer=tf.constant(values("b", (3,))))
        dw = v1.placeholder(tf.float32, [3, 3] if sparse else SHAPE)
        db = v1.placeholder(tf.float32, [3])
        step = v1.train.get_or_create_global_step()
        gradient = tf.IndexedSlices(dw, tf.constant([2, 0, 2]), tf.constant(SHAPE)) if sparse else dw
        train = make().apply_gradients([(gradient, w), (db, b)], global_step=step)
        s.run(v1.global_variables_initializer())
        for i in range(STEPS):
            s.run(train, {dw: values(("dw", i), dw.shape), db: values(("db", i), (3,))})
        return {v.op.name: flat(s.run(v.read_value())) for v in v1.global_variables()}


def optimizers():
    out = {
        "w": flat(values("w", SHAPE)),
        "b": flat(values("b", (3,))),
        "dw": [flat(values(("dw", i), SHAPE)) for i in range(STEPS)],
        "dw_rows": [flat(values(("dw", i), (3, 3))) for i in range(STEPS)],
        "db": [flat(values(("db", i), (3,))) for i in range(STEPS)],
        "rows": [2, 0, 2],
    }
    for name, make in OPTIMIZERS.items():
        out[name] = {"dense": optimizer(make, False), "sparse": optimizer(make, True)}
    return out


# ---- learning rates -----------------------------------------------------------------------------------------------

SCHEDULES = {
    "ExponentialDecay": lambda t: v1.train.exponential_decay(0.1, t, 10, 0.9),
    "ExponentialDecayStaircase": lambda t: v1.train.exponential_decay(0.1, t, 10, 0.9, staircase=True),
    "NaturalExpDecay": lambda t: v1.train.natural_exp_decay(0.1, t, 10, 0.9),
    "NaturalExpDecayStaircase": lambda t: v1.train.natural_exp_decay(0.1, t, 10, 0.9, staircase=True),
    "InverseTimeDecay": lambda t: v1.train.inverse_time_decay(0.1, t, 10, 0.9),
    "InverseTimeDecayStaircase": lambda t: v1.train.inverse_time_decay(0.1, t, 10, 0.9, staircase=True),
    "PiecewiseConstant": lambda t: v1.train.piecewise_constant(t, [5, 10, 20], [1.0, 0.5, 0.25, 0.1]),
    "PolynomialDecay": lambda t: v1.train.polynomial_decay(0.1, t, 20),
    "PolynomialDecayPower": lambda t: v1.train.polynomial_decay(0.1, t, 20, 0.01, power=0.5),
    "PolynomialDecayCycle": lambda t: v1.train.polynomial_decay(0.1, t, 7, 0.01, power=2.0, cycle=True),
    "CosineDecay": lambda t: v1.train.cosine_decay(0.1, t, 20),
    "CosineDecayAlpha": lambda t: v1.train.cosine_decay(0.1, t, 20, alpha=0.3),
    "CosineDecayRestarts": lambda t: v1.train.cosine_decay_restarts(0.1, t, 6),
    "CosineDecayRestartsEqual": lambda t: v1.train.cosine_decay_restarts(0.1, t, 6, t_mul=1.0, m_mul=0.9, alpha=0.1),
}


def schedules():
    steps = [0, 1, 4, 5, 6, 7, 10, 11, 14, 19, 20, 21, 33, 1000]
    out = {"steps": steps}
    with tf.Graph().as_default(), session() as s:
        t = v1.placeholder(tf.int64, [])
        rates = {name: make(t) for name, make in SCHEDULES.items()}
        for name in rates:
            out[name] = []
        for step in steps:
            for name, rate in s.run(rates, {t: step}).items():
                out[name].append(number(rate))
    return out


# ---- clipping -----------------------------------------------------------------------------------------------------


def clipping():
    a, b = values("a", (3, 4)), values("b", (5,), -3, 3)
    zero = np.zeros((2, 2), np.float32)
    infinite = np.array([1, np.inf, 2], np.float32)
    out = {"a": flat(a), "b": flat(b), "infinite": flat(infinite)}
    with tf.Graph().as_default(), session() as s:

        def lists(tensors, norm):
            clipped, used = tf.clip_by_global_norm([tf.constant(t) for t in tensors], norm)
            return {"clipped": [flat(x) for x in s.run(clipped)], "norm": number(s.run(used))}

        out["by_value"] = flat(s.run(tf.clip_by_value(tf.constant(b), -0.5, 1.5)))
        out["by_norm"] = flat(s.run(tf.clip_by_norm(tf.constant(a), 0.7)))
        out["by_norm_short"] = flat(s.run(tf.clip_by_norm(tf.constant(a), 100.0)))
        out["by_norm_zero"] = flat(s.run(tf.clip_by_norm(tf.constant(zero), 1.0)))
        out["by_norm_axis"] = flat(s.run(tf.clip_by_norm(tf.constant(a), 0.7, axes=[1])))
        out["global_norm"] = number(s.run(v1.global_norm([tf.constant(a), tf.constant(b)])))
        out["by_global_norm"] = lists([a, b], 2.0)
        out["by_global_norm_short"] = lists([a, b], 100.0)
        out["by_global_norm_zero"] = lists([zero], 1.0)
        out["by_global_norm_infinite"] = lists([infinite, b], 1.0)
    return out


# ---- moving averages ----------------------------------------------------------------------------------------------


def moving_averages():
    """Averages of a vector that takes a value per step, and of a tensor."""
    out = {"values": [flat(values(("v", i), (3,))) for i in range(5)]}
    for name, kwargs in (
        ("plain", {}),
        ("num_updates", {"num_updates": True}),
        ("zero_debias", {"zero_debias": True}),
    ):
        with tf.Graph().as_default(), session() as s:
            v = v1.get_variable("v", initializer=tf.constant(values("start", (3,))))
            fed = v1.placeholder(tf.float32, [3])
            tensor = tf.multiply(fed, 2.0, name="tensor")
            count = v1.get_variable("count", initializer=tf.constant(0, tf.int64), trainable=False)
            if "num_updates" in kwargs:
                kwargs = {"num_updates": count}
            ema = tf.train.ExponentialMovingAverage(0.9, **kwargs)
            with tf.control_dependencies([v.assign(fed), count.assign_add(1)]):
                step = ema.apply([v, tensor])
            s.run(v1.global_variables_initializer())
            averages = []
            for i in range(5):
                s.run(step, {fed: values(("v", i), (3,))})
                averages.append([flat(s.run(ema.average(x).read_value())) for x in (v, tensor)])
            out[name] = averages
            out[name + "_names"] = [ema.average_name(v), ema.average_name(tensor)]
    out["start"] = flat(values("start", (3,)))
    return out


def main():
    out = {
        "optimizers": optimizers(),
        "schedules": schedules(),
        "clipping": clipping(),
        "moving_averages": moving_averages(),
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training.json")
    with open(path, "w") as f:
        json.dump(out, f, indent=None, separators=(",", ":"))
        f.write("\n")
    print("%s: %d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main()
