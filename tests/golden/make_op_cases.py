#!/usr/bin/env python3
"""Writes ops/<family>.pb: reference cases for single ops, answered by TensorFlow (see README.md for the format).

usage: make_op_cases.py [--out DIR] [--check] [FAMILY...]

--check compares what TensorFlow answers now with the files that are there, and writes nothing."""

import argparse
import itertools
import os
import sys
import zlib

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # plain Eigen kernels, so that values do not depend on the processor
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2, tensor_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

v1 = tf.compat.v1
v1.disable_eager_execution()

BF16 = tf.bfloat16.as_numpy_dtype
F, D, H = np.float32, np.float64, np.float16
I, L, B = np.int32, np.int64, np.bool_
FLOATS = [F, D, H, BF16]
WIDE = [F, D]
NUMBERS = [F, D, I, L]
ALL = [F, D, I, L, B, H, BF16]
SMALL = [np.int8, np.int16, np.uint8, np.uint16]
BITS = SMALL + [I, L, np.uint32, np.uint64]
SHORT = {F: "float", D: "double", H: "half", BF16: "bfloat16", I: "int32", L: "int64", B: "bool"}
SHORT.update({t: np.dtype(t).name for t in SMALL + [np.uint32, np.uint64]})
TOLERANCE = {"float32": (1e-5, 1e-6), "float64": (1e-12, 1e-13), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2)}

CONFIG = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
CONFIG.graph_options.optimizer_options.opt_level = -1


# ---- values -------------------------------------------------------------------------------------------------------


def rng(*key):
    return np.random.RandomState(zlib.crc32(repr(key).encode()) & 0x7FFFFFFF)


def val(dtype, shape, key=0, lo=-2.0, hi=2.0):
    """Reproducible values in [lo, hi]; whole numbers from lo*4 to hi*4 for integers."""
    r = rng(SHORT[dtype], tuple(shape), key)
    if dtype is B:
        return r.randint(0, 2, size=shape).astype(B)
    if dtype in BITS:
        lo = lo if np.iinfo(dtype).min < 0 else 0
        return r.randint(int(lo * 4), int(hi * 4) + 1, size=shape).astype(dtype)
    return r.uniform(lo, hi, size=shape).astype(F).astype(dtype)


def ints(values, dtype=I):
    return np.array(values, dtype=dtype)


# ---- wire format --------------------------------------------------------------------------------------------------


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def fixed32(number, value):
    return varint(number << 3 | 5) + np.array(value, "<f4").tobytes() if value else b""


def tensor_proto(a):
    """Always raw bytes, or strings, so that a reader of cases needs no other encoding."""
    a = np.asarray(a, object if isinstance(a, bytes) else None)  # NumPy's own strings lose zeros at their end
    t = tensor_pb2.TensorProto(dtype=tf.as_dtype(a.dtype).as_datatype_enum)
    t.tensor_shape.SetInParent()
    for d in a.shape:
        t.tensor_shape.dim.add(size=d)
    if t.dtype == types_pb2.DT_STRING:
        t.string_val.extend(tf.compat.as_bytes(x) for x in a.reshape(-1))
    else:
        t.tensor_content = a.tobytes()
    return t


# ---- one case -----------------------------------------------------------------------------------------------------

FAMILIES = {}
NAMES = set()
_family = None


def family(name):
    global _family
    _family = name
    FAMILIES[name] = []


def attr_value(kind, value):
    a = attr_value_pb2.AttrValue()
    if kind == "type":
        a.type = tf.as_dtype(value).as_datatype_enum
    elif kind == "int":
        a.i = value
    elif kind == "float":
        a.f = value
    elif kind == "bool":
        a.b = value
    elif kind == "string":
        a.s = value.encode()
    elif kind == "shape":
        a.shape.CopyFrom(tf.TensorShape(value).as_proto())
    elif kind == "tensor":
        a.tensor.CopyFrom(value)
    elif kind == "list(int)":
        a.list.SetInParent()
        a.list.i.extend(value)
    elif kind == "list(float)":
        a.list.SetInParent()
        a.list.f.extend(value)
    elif kind == "list(string)":
        a.list.SetInParent()
        a.list.s.extend(v if isinstance(v, bytes) else v.encode() for v in value)
    elif kind == "list(shape)":
        a.list.SetInParent()
        a.list.shape.extend(tf.TensorShape(v).as_proto() for v in value)
    elif kind == "list(type)":
        a.list.SetInParent()
        a.list.type.extend(tf.as_dtype(v).as_datatype_enum for v in value)
    else:
        raise ValueError(kind)
    return a


def make_node(name, op, inputs, attrs):
    """A NodeDef with type and number attributes taken from the inputs; an input that is a list is a list argument."""
    od = op_def_registry.get(op)
    if od is None:
        raise ValueError("TensorFlow has no op " + op)
    if len(od.input_arg) != len(inputs):
        raise ValueError("%s takes %d inputs, not %d" % (op, len(od.input_arg), len(inputs)))
    kinds = {a.name: a.type for a in od.attr}
    node = node_def_pb2.NodeDef(name=name, op=op)
    flat, found = [], {}
    for arg, x in zip(od.input_arg, inputs):
        is_list = bool(arg.number_attr or arg.type_list_attr)
        xs = [np.asarray(e) for e in x] if is_list else [np.asarray(x)]
        flat += xs
        if arg.number_attr:
            found[arg.number_attr] = len(xs)
        if arg.type_list_attr:
            found[arg.type_list_attr] = [e.dtype for e in xs]
        elif arg.type_attr and xs:
            found.setdefault(arg.type_attr, xs[0].dtype)
    found.update(attrs)
    for k, v in found.items():
        node.attr[k].CopyFrom(attr_value(kinds[k], v))
    node.input.extend("in%d" % i for i in range(len(flat)))
    return node, flat


# Ops whose shape functions want to know the rank of an input.
KNOWN_SHAPES = {"SpaceToBatchND", "BatchToSpaceND", "ParallelConcat", "AccumulateNV2"}


def evaluate(node, flat):
    """(node as TensorFlow writes it, outputs); raises what TensorFlow raises."""
    gd = graph_pb2.GraphDef()
    for i, x in enumerate(flat):
        p = gd.node.add(name="in%d" % i, op="Placeholder")
        p.attr["dtype"].type = tf.as_dtype(x.dtype).as_datatype_enum
        if node.op in KNOWN_SHAPES:
            p.attr["shape"].shape.CopyFrom(tf.TensorShape(x.shape).as_proto())
        else:
            p.attr["shape"].shape.unknown_rank = True
    gd.node.add().CopyFrom(node)
    with tf.Graph().as_default() as g:
        tf.graph_util.import_graph_def(gd, name="")
        op = g.get_operation_by_name(node.name)
        full = op.node_def
        with v1.Session(config=CONFIG) as s:
            feeds = {g.get_tensor_by_name("in%d:0" % i): x for i, x in enumerate(flat)}
            if not op.outputs:
                s.run(op, feeds)
                return full, []
            # An identity per output makes TensorFlow hand out what the kernel wrote, even where the op is fed through.
            return full, s.run([tf.identity(o) for o in op.outputs], feeds)


def clean(e):
    """The canonical code and what the kernel or the shape function says, without TensorFlow's report around it."""
    lines = (getattr(e, "message", None) or str(e)).strip().split("\n")
    for i, line in enumerate(lines):
        if line.startswith("Node: ") and i + 1 < len(lines):
            lines = lines[i + 1 :]
            break
    line = lines[0].split("\t [[")[0].replace("{{node ", "").replace("}}", "")
    codes = {v: k for k, v in vars(tf.errors).items() if k.isupper()}
    return "%s: %s" % (codes[e.error_code] if isinstance(e, tf.errors.OpError) else "INVALID_ARGUMENT", line)


def case(op, label, inputs, rtol=None, atol=None, fails=False, expect=None, **attrs):
    """Adds one case and returns its outputs. `expect`, where given, replaces TensorFlow's answer (see conv())."""
    name = "%s/%s" % (op, label)
    if (_family, name) in NAMES:
        raise ValueError("two cases named " + name)
    NAMES.add((_family, name))
    node, flat = make_node(op.lower(), op, inputs, attrs)
    error, outputs = "", []
    try:
        node, outputs = evaluate(node, flat)
        if expect is not None:
            outputs = expect
    except (tf.errors.OpError, ValueError) as e:
        if expect is not None:
            outputs = expect
        elif not fails:
            print("unexpected: %s: %s" % (name, e), file=sys.stderr)
            raise
        else:
            error = clean(e)
    if fails and not error:
        raise ValueError("%s was expected to fail, but gave %r" % (name, outputs))
    r = a = 0.0
    for o in outputs:
        t = TOLERANCE.get(str(np.asarray(o).dtype), (0.0, 0.0))
        r, a = max(r, t[0]), max(a, t[1])
    wire = field(1, name.encode()) + field(2, node.SerializeToString(deterministic=True))
    wire += b"".join(field(3, tensor_proto(x).SerializeToString()) for x in flat)
    wire += b"".join(field(4, tensor_proto(x).SerializeToString()) for x in outputs)
    wire += fixed32(5, r if rtol is None else rtol) + fixed32(6, a if atol is None else atol)
    wire += field(7, error.encode()) if error else b""
    FAMILIES[_family].append(wire)
    return outputs


def fails(op, label, inputs, **attrs):
    case(op, "error_" + label, inputs, fails=True, **attrs)


def dims(shape):
    return "x".join(str(d) for d in shape) or "scalar"


# ---- elementwise --------------------------------------------------------------------------------------------------

BROADCASTS = [
    ((), ()),
    ((3,), ()),
    ((), (3,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 3), (2, 1)),
    ((2, 1), (1, 3)),
    ((1, 3, 1), (2, 1, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 3, 1), (4, 1, 2)),
    ((0, 3), (3,)),
    ((1,), (0,)),
    ((1, 1), (1,)),
    ((2, 3, 2), (2, 1, 2)),
    ((1, 2, 1, 2, 1), (2, 1, 2, 1, 2)),
]


def elementwise():
    family("elementwise")
    binary = {
        "AddV2": ALL[:4] + [H, BF16],
        "Add": NUMBERS,
        "Sub": NUMBERS + [H, BF16],
        "Mul": NUMBERS + [H, BF16],
        "RealDiv": FLOATS,
        "Maximum": NUMBERS + [H, BF16],
        "Minimum": NUMBERS + [H, BF16],
        "SquaredDifference": NUMBERS + [H, BF16],
        "FloorDiv": NUMBERS,
        "FloorMod": NUMBERS,
        "Pow": NUMBERS,
        "DivNoNan": WIDE,
    }
    compare = {
        "Equal": ALL,
        "NotEqual": ALL,
        "Less": NUMBERS + [H, BF16],
        "LessEqual": NUMBERS + [H],
        "Greater": NUMBERS + [H, BF16],
        "GreaterEqual": NUMBERS + [H],
    }

    def operands(op, t, sa, sb):
        lo = 0.25 if op == "Pow" else -2.0
        a, b = val(t, sa, "a", lo), val(t, sb, "b", lo)
        if op == "Pow" and t in (I, L):
            b = np.asarray(b % 4).astype(t)
        if op in ("FloorDiv", "FloorMod"):
            b = np.where(b == 0, np.asarray(3, t), b).astype(t)
        return [a, b]

    for op, types in list(binary.items()) + list(compare.items()):
        for t in types:
            case(op, "%s_same" % SHORT[t], operands(op, t, (2, 3), (2, 3)))
            case(op, "%s_broadcast" % SHORT[t], operands(op, t, (2, 1, 3), (4, 1)))
        if op in ("AddV2", "Sub", "RealDiv", "Less", "Maximum"):
            for sa, sb in BROADCASTS:
                case(op, "broadcast_%s_%s" % (dims(sa), dims(sb)), operands(op, F, sa, sb))
        else:
            for sa, sb in (((), (3,)), ((2, 3), ()), ((2, 0), (1,))):
                case(op, "broadcast_%s_%s" % (dims(sa), dims(sb)), operands(op, F, sa, sb))
        if op in ("AddV2", "Less", "Mul"):
            fails(op, "incompatible", [val(F, (2, 3)), val(F, (2, 2))])
            fails(op, "incompatible_rank", [val(F, (2, 3)), val(F, (2,))])
    # Signs, zeros and the ends of the range.
    s = np.array([7, -7, 7, -7, 6, 0], I)
    u = np.array([3, 3, -3, -3, 3, -5], I)
    for t in NUMBERS:
        case("FloorDiv", "signs_%s" % SHORT[t], [s.astype(t), u.astype(t)])
        case("FloorMod", "signs_%s" % SHORT[t], [s.astype(t), u.astype(t)])
    fails("FloorDiv", "zero_int32", [ints([1, 2]), ints([1, 0])])
    fails("FloorMod", "zero_int64", [ints([1, 2], L), ints([1, 0], L)])
    fails("Pow", "negative_exponent_int32", [ints([2, 3]), ints([1, -1])])
    edge = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], F)
    case("RealDiv", "edges", [edge, np.array([0.0, 1.0, 0.0, 0.0, 2.0, -2.0, 1.0], F)])
    case("DivNoNan", "zero", [np.array([1.0, -2.0, 0.0, 3.0], F), np.array([0.0, 0.0, 0.0, 2.0], F)])
    case("Pow", "edges", [np.array([0, 0, 2, -2, -2, 4, 1e-3, 9], F), np.array([0, 2, -1, 3, 2, 0.5, 2, -0.5], F)])
    for op in compare:
        case(op, "edges", [edge, np.array([-0.0, 0.0, np.nan, 1.0, np.inf, np.inf, np.nan], F)])
    big = np.array([2**31 - 1, -(2**31), 5], I)
    case("Maximum", "int32_ends", [big, big[::-1].copy()])
    case("AddV2", "int64_ends", [np.array([2**62, -(2**62)], L), np.array([2**62 - 1, -(2**62)], L)])

    any_value = {
        "Neg": NUMBERS + [H, BF16],
        "Abs": NUMBERS + [H, BF16],
        "Square": NUMBERS + [H, BF16],
        "Sign": NUMBERS + [H, BF16],
        "Exp": FLOATS,
        "Sigmoid": FLOATS,
        "Tanh": FLOATS,
        "Sin": FLOATS,
        "Cos": FLOATS,
        "Floor": FLOATS,
        "Relu": NUMBERS + [H, BF16],
    }
    positive = {"Log": FLOATS, "Sqrt": FLOATS, "Rsqrt": FLOATS, "Reciprocal": FLOATS, "Log1p": WIDE}
    for op, types in any_value.items():
        for t in types:
            case(op, SHORT[t], [val(t, (2, 5), op, -3, 3)])
        case(op, "scalar", [val(F, (), op)])
        case(op, "empty", [val(F, (2, 0, 3), op)])
        case(op, "rank4", [val(F, (2, 1, 3, 2), op)])
        case(op, "odd_17", [val(F, (17,), op)])
    for op, types in positive.items():
        for t in types:
            case(op, SHORT[t], [val(t, (2, 5), op, 0.1, 4)])
        case(op, "scalar", [val(F, (), op, 0.5, 4)])
        case(op, "empty", [val(F, (0,), op)])
        case(op, "odd_17", [val(F, (17,), op, 0.5, 4)])
    ends = np.array([0.0, 1e-30, 1e30, -1.0, np.inf], F)
    case("Log", "edges", [ends])
    case("Sqrt", "edges", [ends])
    case("Rsqrt", "edges", [np.array([1e-30, 1e30, 0.0, 1.0], F)])
    case("Reciprocal", "edges", [np.array([1e-30, 1e30, 0.0, -4.0, np.inf], F)])
    wide = np.array([-100.0, -88.0, -20.0, -1e-4, 0.0, 1e-4, 20.0, 88.0, 100.0], F)
    for op in ("Exp", "Sigmoid", "Tanh"):
        case(op, "wide", [wide], rtol=2e-5, atol=1e-12)
    case("Exp", "infinite", [np.array([-np.inf, np.inf], F)])
    case("Relu", "signs", [np.array([-0.0, 0.0, -1e-30, 1e-30, -np.inf, np.inf], F)])
    case("Sign", "signs", [np.array([-0.0, 0.0, -1e-30, 1e-30, -np.inf, np.inf], F)])
    case("Abs", "signs", [np.array([-0.0, -np.inf, -3.5], F)])

    halves = np.array([-2.5, -1.5, -0.5, -0.2, 0.0, 0.5, 0.7, 1.5, 2.5], F)
    for op in ("Ceil", "Round"):
        for t in FLOATS:
            case(op, SHORT[t], [val(t, (2, 5), op, -3, 3)])
        case(op, "halves", [halves])
    # No integers for Round: this TensorFlow answers 0 for all of them.
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e-40], F)
    for op in ("IsFinite", "IsInf", "IsNan"):
        for t in FLOATS:
            case(op, SHORT[t], [ends.astype(t) if t is not H else np.clip(ends, -6e4, 6e4).astype(t)])
        case(op, "scalar", [np.array(np.inf, F)])
        case(op, "empty", [np.zeros((0, 2), F)])
    for t in FLOATS:
        case("Inv", SHORT[t], [val(t, (2, 5), "Inv", 0.3, 3)])
        case("InvGrad", SHORT[t], [val(t, (2, 5), "InvGrad", 0.5, 3), val(t, (2, 5), "dy")])
        case("Div", SHORT[t], [val(t, (2, 3), "Div"), val(t, (3,), "divisor", 0.5, 2)])
    for t in (I, L):
        signs = [np.array([7, -7, 7, -7, 0], t), np.array([2, 2, -2, -2, 3], t)]
        case("Div", "signs_%s" % SHORT[t], signs)
        fails("Div", "zero_%s" % SHORT[t], [np.array([1], t), np.array([0], t)])
    activations = dict.fromkeys(("Elu", "Softplus", "LeakyRelu", "Relu6", "Selu", "Softsign"), FLOATS)
    for op, types in activations.items():
        more = {"alpha": 0.3} if op == "LeakyRelu" else {}
        for t in types:
            case(op, SHORT[t], [val(t, (3, 7), op, -4, 8)], **more)
            case(op + "Grad", SHORT[t], [val(t, (3, 7), "dy"), val(t, (3, 7), op, 0.1, 8)], **more)
        case(op, "scalar", [val(F, (), op)])
        case(op, "empty", [val(F, (0, 3), op)])
        case(op, "wide", [np.array([-100.0, -30.0, -1e-6, 0.0, 1e-6, 5.9, 6.0, 6.1, 30.0, 100.0], F)])
        at = np.array([-30.0, -1.0, -0.1, 0.1, 3.0, 5.9, 6.1, 30.0], F)
        if op == "Elu":
            at = np.where(at < 0, np.expm1(at), at).astype(F)  # EluGrad and SeluGrad take the output
        if op == "Selu":
            at = np.where(at < 0, 1.7580993408473766 * np.expm1(at), 1.0507009873554805 * at).astype(F)
        case(op + "Grad", "wide", [val(F, (8,), "dy"), at])

    # Gradients that are elementwise: (y or x, dy).
    for op, lo, hi in (
        ("TanhGrad", -0.95, 0.95),
        ("SigmoidGrad", 0.05, 0.95),
        ("SqrtGrad", 0.5, 3),
        ("RsqrtGrad", 0.5, 3),
        ("ReciprocalGrad", 0.5, 3),
    ):
        for t in FLOATS:
            case(op, SHORT[t], [val(t, (2, 5), op, lo, hi), val(t, (2, 5), "dy")])
        case(op, "scalar", [val(F, (), op, lo, hi), val(F, (), "dy")])
        case(op, "empty", [val(F, (0, 2), op, lo, hi), val(F, (0, 2), "dy")])
    for t in NUMBERS + [H, BF16]:
        case("ReluGrad", SHORT[t], [val(t, (2, 5), "dy"), val(t, (2, 5), "x")])
    case("ReluGrad", "at_zero", [np.array([1, 2, 3, 4], F), np.array([0.0, -0.0, 1e-30, -1e-30], F)])
    case("ReluGrad", "empty", [val(F, (0, 4)), val(F, (0, 4))])
    fails("ReluGrad", "incompatible", [val(F, (2, 3)), val(F, (3, 2))])

    for op in ("LogicalAnd", "LogicalOr"):
        table = [np.array([0, 0, 1, 1], B), np.array([0, 1, 0, 1], B)]
        case(op, "table", table)
        case(op, "broadcast", [np.array([[0], [1]], B), np.array([0, 1], B)])
        case(op, "scalar", [np.array(True), np.array([0, 1, 0], B)])
        case(op, "empty", [np.zeros((0, 2), B), np.array([0, 1], B)])
    for shape in ((), (4,), (2, 3), (0,)):
        case("LogicalNot", dims(shape), [val(B, shape)])

    for t in NUMBERS + [H, BF16]:
        for n in (1, 2, 5):
            case("AddN", "%s_%d" % (SHORT[t], n), [[val(t, (2, 3), i) for i in range(n)]])
    case("AddN", "scalars", [[val(F, (), i) for i in range(3)]])
    case("AddN", "nine", [[val(F, (5,), i) for i in range(9)]])
    case("AddN", "empty", [[val(F, (0, 3), i) for i in range(2)]])
    fails("AddN", "incompatible", [[val(F, (2, 3)), val(F, (3, 2))]])

    cond = [
        ((2, 3), (2, 3), (2, 3)),
        ((), (2, 3), (2, 3)),
        ((2, 1), (2, 3), ()),
        ((3,), (2, 3), (2, 1)),
        ((2, 3), (), ()),
        ((4, 1, 1), (3, 1), (2,)),
        ((0, 3), (3,), ()),
        ((), (), ()),
    ]
    for sc, sa, sb in cond:
        case(
            "SelectV2", "%s_%s_%s" % (dims(sc), dims(sa), dims(sb)), [val(B, sc, "c"), val(F, sa, "a"), val(F, sb, "b")]
        )
    for t in ALL:
        case("SelectV2", SHORT[t], [val(B, (2, 3), "c"), val(t, (2, 3), "a"), val(t, (3,), "b")])
        case("Select", SHORT[t], [val(B, (2, 3), "c"), val(t, (2, 3), "a"), val(t, (2, 3), "b")])
    case("Select", "scalar_condition", [np.array(False), val(F, (2, 3), "a"), val(F, (2, 3), "b")])
    case("Select", "row_condition", [np.array([1, 0, 1], B), val(F, (3, 2), "a"), val(F, (3, 2), "b")])
    case("Select", "row_condition_rank3", [np.array([0, 1], B), val(I, (2, 2, 2), "a"), val(I, (2, 2, 2), "b")])
    case("Select", "empty", [np.zeros((0, 2), B), val(F, (0, 2)), val(F, (0, 2))])
    fails("Select", "incompatible", [val(B, (2, 3)), val(F, (2, 3)), val(F, (3, 2))])
    fails("SelectV2", "incompatible", [val(B, (2, 3)), val(F, (2, 2)), val(F, (3,))])

    source = np.array([[-3.0, -1.7, -0.4], [0.0, 0.6, 5.9]])
    for a, b in itertools.product(ALL, ALL):
        case("Cast", "%s_to_%s" % (SHORT[a], SHORT[b]), [source.astype(a)], DstT=b)
    digits = [1.999999, -1.999999, 65519.9, 1e6, 3e-8, 6.1e-5, np.nan, np.inf, -np.inf, 0.1, -0.1, 0.0]
    for a, b in ((F, H), (F, BF16), (F, D), (F, I), (D, H), (D, F), (D, BF16), (H, BF16)):
        with np.errstate(over="ignore"):
            source = np.array(digits if b is not I else [1.9, -1.9], a)
        case("Cast", "truncates_%s_to_%s" % (SHORT[a], SHORT[b]), [source], DstT=b, Truncate=True, rtol=0.0, atol=0.0)
    case("Cast", "empty", [np.zeros((0, 2), F)], DstT=I)
    case("Cast", "scalar", [np.array(2.5, F)], DstT=I)
    case("Cast", "uint8_to_float", [np.array([0, 7, 255], np.uint8)], DstT=F)
    case("Cast", "int64_to_int32_wraps", [np.array([2**32 + 5, -(2**32) - 6, 2**31], L)], DstT=I)
    case("Cast", "double_rounds_to_float", [np.array([0.1, 1 + 2**-24, 1e-46], D)], DstT=F, rtol=0.0, atol=0.0)
    case(
        "Cast",
        "float_rounds_to_bfloat16",
        [np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.14159], F)],
        DstT=BF16,
        rtol=0.0,
        atol=0.0,
    )
    case(
        "Cast",
        "float_rounds_to_half",
        [np.array([1 + 2**-11, 1 + 3 * 2**-11, 65504.0, 70000.0, 6e-8], F)],
        DstT=H,
        rtol=0.0,
        atol=0.0,
    )


def functions():
    family("functions")
    third = dict(rtol=2e-5, atol=1e-6)
    ranges = {  # where each is tested
        "Tan": (-1.4, 1.4),
        "Asin": (-0.95, 0.95),
        "Acos": (-0.95, 0.95),
        "Atan": (-4, 4),
        "Sinh": (-4, 4),
        "Cosh": (-4, 4),
        "Asinh": (-4, 4),
        "Acosh": (1.1, 6),
        "Atanh": (-0.95, 0.95),
        "Expm1": (-4, 4),
        "Erf": (-3, 3),
        "Erfc": (-3, 3),
        "Rint": (-4, 4),
        "Erfinv": (-0.98, 0.98),
        "Ndtri": (0.02, 0.98),
        "Lgamma": (0.1, 9),
        "Digamma": (0.1, 9),
    }
    in_float = ("Rint", "Erfinv", "Ndtri")  # TensorFlow has kernels for float and double alone
    for op, (lo, hi) in ranges.items():
        for t in WIDE if op in in_float else [F, D, H] if op in ("Lgamma", "Digamma") else FLOATS:
            more = dict(rtol=1e-10, atol=1e-11) if t is D else third if t is F else {}
            case(op, SHORT[t], [val(t, (3, 7), op, lo, hi)], **more)
        case(op, "scalar", [val(F, (), op, lo, hi)], **third)
        case(op, "empty", [val(F, (0, 3), op, lo, hi)])
    bessel = {"I0": -6, "I0e": -6, "I1": -6, "I1e": -6, "J0": -9, "J1": -9, "K0": 0.1, "K0e": 0.1, "K1": 0.1, "K1e": 0.1, "Y0": 0.1, "Y1": 0.1}
    for name, lo in bessel.items():
        op = "Bessel" + name
        for t in (H, F, D):
            more = dict(rtol=1e-10, atol=1e-11) if t is D else third if t is F else {}
            case(op, SHORT[t], [val(t, (3, 7), op, lo, 9)], **more)
        case(op, "scalar", [val(F, (), op, lo, 9)], **third)
        case(op, "empty", [val(F, (0, 3), op, lo, 9)])
        edges = [-2.5, 0, 1e-3, 40, 99, 101, 600, np.nan] if name[0] in "IJ" else [-2.5, 0, 1e-3, 40, 99, 101, 600, np.inf if name[0] == "K" else 1e3]
        case(op, "edges", [np.array(edges, D)], rtol=1e-9, atol=1e-13)
    case("Rint", "halves", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], F)])
    case("Asin", "edges", [np.array([-1, 1, -1.5, 2, 0], F)], **third)
    case("Acos", "edges", [np.array([-1, 1, -1.5, 2, 0], F)], **third)
    case("Acosh", "edges", [np.array([1, 0.5, 1e30], F)], **third)
    case("Atanh", "edges", [np.array([-1, 1, 1.5], F)], **third)
    case("Erf", "edges", [np.array([-9, 9, np.inf, -np.inf, np.nan, 1e-20], F)], **third)
    case("Erfinv", "edges", [np.array([-1, 1, 1.5, -2, 0, 0.999, 1e-7], F)], **third)
    case("Ndtri", "edges", [np.array([0, 1, 0.5, 1e-10, 1e-4], D)], rtol=1e-9, atol=1e-10)
    case("Lgamma", "edges", [np.array([-0.5, -2.5, 0, 1, 2, 100, 1e-4, np.inf], F)], **third)
    case("Digamma", "edges", [np.array([-0.5, -2.5, 1, 2, 100, 1e-4], F)], rtol=1e-4, atol=1e-5)

    pairs = {  # values of both operands, and types
        "Atan2": (-3, 3, -3, 3, FLOATS),
        "Xlogy": (-2, 2, 0.2, 4, FLOATS),
        "Xlog1py": (-2, 2, -0.8, 4, FLOATS),
        "Xdivy": (-2, 2, 0.2, 4, FLOATS),
        "MulNoNan": (-2, 2, -2, 2, FLOATS),
        "TruncateDiv": (-6, 6, 0.5, 3, FLOATS + BITS),
        "TruncateMod": (-6, 6, 0.6, 3, NUMBERS),
        "Mod": (-6, 6, 0.6, 3, NUMBERS),
        "NextAfter": (-2, 2, -2, 2, WIDE),
        "Polygamma": (1, 1, 0.3, 6, WIDE),
        "Zeta": (1.2, 6, 0.3, 6, WIDE),
        "Igamma": (0.3, 6, 0.1, 9, WIDE),
        "Igammac": (0.3, 6, 0.1, 9, WIDE),
        "IgammaGradA": (0.3, 6, 0.1, 9, WIDE),
    }
    special = ("Polygamma", "Zeta", "Igamma", "Igammac", "IgammaGradA")
    for op, (a_low, a_high, b_low, b_high, types) in pairs.items():
        more = {F: dict(rtol=1e-4, atol=1e-5), D: dict(rtol=1e-9, atol=1e-10)} if op in special else {F: third}
        for t in types:
            for how, sa, sb in (("same", (2, 5), (2, 5)), ("broadcast", (2, 1, 3), (4, 1))):
                a, b = val(t, sa, "a", a_low, a_high), val(t, sb, "b", b_low, b_high)
                if t in BITS:
                    b = np.where(b == 0, np.asarray(3, t), b).astype(t)
                case(op, "%s_%s" % (how, SHORT[t]), [a, b], **more.get(t, {}))
        case(op, "scalar", [val(F, (), "a", a_low, a_high), val(F, (3,), "b", b_low, b_high)], **more[F])
        case(op, "empty", [val(F, (0, 3), "a", a_low, a_high), val(F, (3,), "b", b_low, b_high)])
    odd = np.array([7, -7, 7, -7, 6, 0], I), np.array([3, 3, -3, -3, 3, -5], I)
    for t in NUMBERS:
        for op in ("TruncateDiv", "TruncateMod", "Mod"):
            case(op, "signs_%s" % SHORT[t], [x.astype(t) for x in odd])
    for op in ("TruncateDiv", "TruncateMod", "Mod"):
        fails(op, "zero_int32", [ints([1, 2]), ints([1, 0])])
    zero = np.array([0, 0, 0, 1, -2], F)
    for op in ("Xlogy", "Xlog1py", "Xdivy"):
        case(op, "zero", [zero, np.array([0, -3, np.inf, 0, 2], F)])
    case("MulNoNan", "zero", [np.array([np.inf, np.nan, 2, np.inf], F), np.array([0, 0, 0, 2], F)])
    case("Atan2", "axes", [np.array([0, 0, 1, -1, 0.0, -0.0], F), np.array([1, -1, 0, 0, 0, -1], F)], **third)
    ends = np.array([0, 1, -1, np.inf, 3e38], F)
    case("NextAfter", "ends", [ends, np.array([1, 1, 0, 0, np.inf], F)], rtol=0.0, atol=0.0)
    case("Polygamma", "orders", [np.array([0, 1, 2, 3, 5, 0.5], D), np.full(6, 1.7, D)], rtol=1e-9, atol=1e-10)
    case("Zeta", "edges", [np.array([1, 0.5, 3, 50], D), np.array([2, 2, 100, 1], D)], rtol=1e-9, atol=1e-10)
    gamma = [np.array([1, 10, 100, 0.01, 2, -1, 3], D), np.array([0, 30, 90, 1e-3, 80, 1, -1], D)]
    for op in ("Igamma", "Igammac", "IgammaGradA"):
        case(op, "edges", gamma, rtol=1e-8, atol=1e-9)

    for t, close in ((F, dict(rtol=1e-4, atol=1e-5)), (D, dict(rtol=1e-9, atol=1e-10))):
        for how, sa, sb, sx in (
            ("same", (2, 5), (2, 5), (2, 5)),
            ("scalar_x", (3,), (3,), ()),
            ("scalar_ab", (), (), (2, 3)),
            ("scalar_b", (3,), (), (3,)),
            ("scalars", (), (), ()),
            ("empty", (0, 2), (), (0, 2)),
        ):
            a, b, x = val(t, sa, "a", 0.2, 8), val(t, sb, "b", 0.2, 8), val(t, sx, "x", 0, 1)
            case("Betainc", "%s_%s" % (how, SHORT[t]), [a, b, x], **close)
    x = np.array([0, 1, -0.1, 1.1, 0.5, 0.5, 0.5, np.nan, 0.25, 0.75], D)
    a = np.array([2, 2, 2, 2, -1, 0.5, 1, 1, 200, 0.01], D)
    b = np.array([3, 3, 3, 3, 1, -2, 1, 1, 100, 0.01], D)
    case("Betainc", "edges", [a, b, x], rtol=1e-9, atol=1e-10)
    fails("Betainc", "shapes", [val(D, (3,)), val(D, ()), val(D, (2,))])

    for t in BITS:
        high = np.iinfo(t).max
        a = np.array([0, 1, 5, high, high - 6, 85], t)
        b = np.array([3, 7, high, 12, high, 51], t)
        if np.iinfo(t).min < 0:
            a[1], b[4] = -7, -3
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            case(op, SHORT[t], [a, b])
            case(op, "broadcast_%s" % SHORT[t], [a.reshape(2, 1, 3), b[:2].reshape(2, 1)])
        for op in ("LeftShift", "RightShift"):
            case(op, SHORT[t], [a, np.array([0, 1, 3, 7, 2, 5], t)])
            case(op, "too_far_%s" % SHORT[t], [a, np.array([64, 100, 99, 8, 127, 64], t)])
        case("Invert", SHORT[t], [a])
        case("PopulationCount", SHORT[t], [a])
    case("LeftShift", "negative", [ints([1, -5]), ints([-1, -3])])
    case("Invert", "empty", [np.zeros((0, 2), I)])

    for t in FLOATS + SMALL + [I, L]:
        x = val(t, (4, 5), "x", -3, 3)
        low, high = np.array(1, t), np.array(3, t)
        case("ClipByValue", "scalars_%s" % SHORT[t], [x, low, high])
        case("ClipByValue", "tensors_%s" % SHORT[t], [x, val(t, (4, 5), "lo", 0, 1), val(t, (4, 5), "hi", 1, 2)])
        case("ClipByValue", "mixed_%s" % SHORT[t], [x, low, val(t, (4, 5), "hi", 1, 2)])
    case("ClipByValue", "empty", [val(F, (0, 2)), np.array(0, F), np.array(1, F)])
    fails("ClipByValue", "shape", [val(F, (3, 2)), val(F, (3, 1)), np.array(1, F)])
    for t in FLOATS + BITS:
        case("Cross", SHORT[t], [val(t, (2, 3), "a"), val(t, (2, 3), "b")])
    case("Cross", "rank_3", [val(F, (2, 2, 3), "a"), val(F, (2, 2, 3), "b")])
    fails("Cross", "two", [val(F, (2, 2)), val(F, (2, 2))])
    fails("Cross", "shapes", [val(F, (2, 3)), val(F, (1, 3))])
    for t in WIDE:
        near = [np.array([1, 2, 3, np.nan, np.inf], t), np.array([1.005, 2.5, 3, 1, np.inf], t)]
        case("ApproximateEqual", SHORT[t], near, tolerance=0.01)
    case("ApproximateEqual", "default", [np.array([1, 1], F), np.array([1.000001, 1.1], F)])
    fails("ApproximateEqual", "shapes", [val(F, (2, 3)), val(F, (3,))])


# ---- array --------------------------------------------------------------------------------------------------------


def array():
    family("array")
    for a, b in (((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((), (2,)), ((), ()), ((4, 1, 5), (3, 1)), ((0,), (1,))):
        case("BroadcastArgs", "%s_%s" % (dims(a), dims(b)), [ints(list(a)), ints(list(b))])
    case("BroadcastArgs", "int64", [ints([2, 1], L), ints([3], L)])
    fails("BroadcastArgs", "incompatible", [ints([2]), ints([3])])
    for t in ALL:
        case("ReverseV2", SHORT[t], [val(t, (3, 4)), ints([0])])
    for axes in ([], [1], [-1], [0, 2], [0, 1, 2]):
        case("ReverseV2", "axes_%s" % "_".join(map(str, axes)), [val(F, (2, 3, 4)), ints(axes)])
    case("ReverseV2", "int64_axes", [val(F, (2, 3)), ints([1], L)])
    case("ReverseV2", "empty", [val(F, (0, 3)), ints([0])])
    fails("ReverseV2", "axis", [val(F, (2, 3)), ints([2])])
    fails("ReverseV2", "twice", [val(F, (2, 3)), ints([1, -1])])
    for t in ALL:
        a = val(t, (2, 3), "const")
        case("Const", "%s_matrix" % SHORT[t], [], value=tf.make_tensor_proto(a), dtype=t)
        case("Const", "%s_scalar" % SHORT[t], [], value=tf.make_tensor_proto(a[0, 0]), dtype=t)
    filled = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[2.5])
    for d in (2, 3):
        filled.tensor_shape.dim.add(size=d)
    case("Const", "one_value_fills", [], value=filled, dtype=F)
    tail = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[4, 5, 6])
    tail.tensor_shape.dim.add(size=6)
    case("Const", "last_value_repeats", [], value=tail, dtype=I)
    none = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT)
    none.tensor_shape.dim.add(size=3)
    case("Const", "no_value_is_zero", [], value=none, dtype=F)
    case("Const", "empty", [], value=tf.make_tensor_proto(np.zeros((0, 3), F)), dtype=F)
    halves = tensor_pb2.TensorProto(dtype=types_pb2.DT_HALF, half_val=[0x3C00, 0xC000])
    halves.tensor_shape.dim.add(size=2)
    case("Const", "half_val", [], value=halves, dtype=H)
    brains = tensor_pb2.TensorProto(dtype=types_pb2.DT_BFLOAT16, half_val=[0x3F80, 0xC000])
    brains.tensor_shape.dim.add(size=2)
    case("Const", "bfloat16_half_val", [], value=brains, dtype=BF16)

    for op in ("Identity", "StopGradient", "ZerosLike", "OnesLike", "PreventGradient"):
        for t in ALL:
            case(op, SHORT[t], [val(t, (2, 3))])
        case(op, "scalar", [val(F, ())])
        case(op, "empty", [val(F, (0, 2))])
    case("PlaceholderWithDefault", "matrix", [val(F, (2, 3))], shape=[None, 3])
    case("PlaceholderWithDefault", "scalar", [val(I, ())], shape=[])
    case("IdentityN", "three", [[val(F, (2,)), val(I, ()), val(B, (0, 3))]])
    case("IdentityN", "one", [[val(D, (2,))]])

    for shape in ((), (3,), (2, 0, 4), (1, 2, 3, 4, 5)):
        for op in ("Shape", "Size"):
            for o in (I, L):
                case(op, "%s_%s" % (dims(shape), SHORT[o]), [val(F, shape)], out_type=o)
        case("Rank", dims(shape), [val(F, shape)])
    for t in ALL:
        case("Shape", SHORT[t], [val(t, (2, 3))])
        case("Size", SHORT[t], [val(t, (2, 3))])
        case("Rank", SHORT[t], [val(t, (2, 3))])
    for o in (I, L):
        case("ShapeN", "three_%s" % SHORT[o], [[val(F, (2, 3)), val(F, ()), val(F, (4, 0, 1))]], out_type=o)
    case("ShapeN", "one", [[val(I, (2, 3))]])

    for t in ALL:
        case("Reshape", SHORT[t], [val(t, (2, 6)), ints([3, 4])])
    for s, to in (
        ((2, 6), [-1]),
        ((2, 6), [4, -1]),
        ((2, 6), [-1, 1, 3]),
        ((), [1]),
        ((), []),
        ((1, 1), []),
        ((0, 4), [2, 0, 3]),
        ((0, 3), [-1, 3]),
        ((2, 3, 2), [2, 3, 2]),
        ((2, 0), [0]),
        ((), [-1]),
    ):
        case("Reshape", "%s_to_%s" % (dims(s), "_".join(map(str, to)) or "scalar"), [val(F, s), ints(to)])
    case("Reshape", "int64_shape", [val(F, (2, 6)), ints([-1, 2], L)])
    fails("Reshape", "count", [val(F, (2, 3)), ints([4])])
    fails("Reshape", "two_unknown", [val(F, (2, 3)), ints([-1, -1])])
    fails("Reshape", "not_divisible", [val(F, (2, 3)), ints([4, -1])])
    fails("Reshape", "negative", [val(F, (2, 3)), ints([-2, -3])])
    fails("Reshape", "shape_is_a_matrix", [val(F, (2, 3)), ints([[2, 3]])])
    case("Reshape", "unknown_of_empty", [val(F, (0, 3)), ints([0, -1])])

    for d in (0, 1, 2, -1, -3):
        case("ExpandDims", "axis_%d" % d, [val(F, (2, 3)), ints(d)])
    case("ExpandDims", "scalar", [val(I, ()), ints(0)])
    case("ExpandDims", "int64_axis", [val(F, (2, 0)), ints(-2, L)])
    case("ExpandDims", "axis_of_one_element", [val(F, (2, 3)), ints([1])])
    fails("ExpandDims", "axis_too_large", [val(F, (2, 3)), ints(3)])
    fails("ExpandDims", "axis_too_small", [val(F, (2, 3)), ints(-4)])
    for s, ax in (
        ((1, 2, 1, 3, 1), []),
        ((1, 2, 1, 3, 1), [0]),
        ((1, 2, 1, 3, 1), [2, -1]),
        ((1, 1), []),
        ((2, 3), []),
        ((1, 0), [0]),
        ((), []),
        ((1, 1, 1), [-3, -1]),
    ):
        case("Squeeze", "%s_%s" % (dims(s), "_".join(map(str, ax)) or "all"), [val(F, s)], squeeze_dims=ax)
    case("Squeeze", "bool", [val(B, (1, 3))], squeeze_dims=[0])
    fails("Squeeze", "not_one", [val(F, (2, 1))], squeeze_dims=[0])
    fails("Squeeze", "axis_range", [val(F, (2, 1))], squeeze_dims=[2])

    for t in ALL:
        case("Transpose", SHORT[t], [val(t, (2, 3)), ints([1, 0])])
    for p in itertools.permutations(range(3)):
        case("Transpose", "rank3_%d%d%d" % p, [val(F, (2, 3, 4)), ints(p)])
    for p in ([0, 3, 1, 2], [0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 2, 3], [0, 1, 3, 2], [2, 3, 0, 1]):
        case("Transpose", "rank4_" + "".join(map(str, p)), [val(F, (2, 3, 1, 4)), ints(p)])
    case("Transpose", "rank5", [val(F, (2, 1, 2, 3, 2)), ints([4, 2, 0, 3, 1])])
    case("Transpose", "rank6", [val(I, (1, 2, 2, 1, 2, 2)), ints([5, 0, 4, 1, 3, 2])])
    case("Transpose", "rank0", [val(F, ()), ints([])])
    case("Transpose", "rank1", [val(F, (3,)), ints([0])])
    case("Transpose", "empty", [val(F, (0, 3)), ints([1, 0])])
    case("Transpose", "int64_perm", [val(F, (2, 3)), ints([1, 0], L)])
    case("Transpose", "negative_perm", [val(F, (2, 3)), ints([-1, 0])])
    fails("Transpose", "perm_length", [val(F, (2, 3)), ints([0])])
    fails("Transpose", "perm_repeats", [val(F, (2, 3)), ints([0, 0])])
    fails("Transpose", "perm_range", [val(F, (2, 3)), ints([0, 2])])

    for t in ALL:
        case("ConcatV2", SHORT[t], [[val(t, (2, 3), 0), val(t, (1, 3), 1)], ints(0)])
    for ax in (0, 1, 2, -1, -2, -3):
        shapes = [[2, 3, 2] for _ in range(3)]
        for i in range(3):
            shapes[i][ax] = i + 1
        case("ConcatV2", "rank3_axis_%d" % ax, [[val(F, s, i) for i, s in enumerate(shapes)], ints(ax)])
    case("ConcatV2", "int64_axis", [[val(F, (2,), 0), val(F, (3,), 1)], ints(0, L)])
    case("ConcatV2", "with_empty", [[val(F, (2, 0), 0), val(F, (2, 2), 1), val(F, (2, 0), 2)], ints(1)])
    case("ConcatV2", "all_empty", [[val(F, (0, 2), 0), val(F, (0, 2), 1)], ints(0)])
    case("ConcatV2", "two_same", [[val(I, (1,), 0), val(I, (1,), 1)], ints(-1)])
    fails("ConcatV2", "shapes", [[val(F, (2, 3)), val(F, (2, 2))], ints(0)])
    fails("ConcatV2", "ranks", [[val(F, (2, 3)), val(F, (3,))], ints(0)])
    fails("ConcatV2", "axis_range", [[val(F, (2, 3)), val(F, (2, 3))], ints(2)])
    fails("ConcatV2", "scalars", [[val(F, ()), val(F, ())], ints(0)])

    for t in ALL:
        case("Split", SHORT[t], [ints(0), val(t, (4, 2))], num_split=2)
        case("SplitV", SHORT[t], [val(t, (4, 2)), ints([1, 3]), ints(0)], num_split=2)
    for ax, n in ((0, 2), (1, 3), (2, 4), (-1, 2), (-2, 1), (-3, 4)):
        case("Split", "rank3_axis_%d_in_%d" % (ax, n), [ints(ax), val(F, (4, 3, 4))], num_split=n)
    case("Split", "empty", [ints(0), val(F, (0, 2))], num_split=3)
    fails("Split", "uneven", [ints(0), val(F, (5, 2))], num_split=2)
    fails("Split", "axis_range", [ints(2), val(F, (4, 2))], num_split=2)
    for ax, sizes in ((0, [1, 2, 1]), (1, [2, -1]), (-1, [-1, 0, 3]), (0, [4]), (1, [0, 0, 5]), (-2, [1, 3])):
        case(
            "SplitV",
            "axis_%d_%s" % (ax, "_".join(map(str, sizes))),
            [val(F, (4, 5)), ints(sizes), ints(ax)],
            num_split=len(sizes),
        )
    case("SplitV", "int64_sizes", [val(F, (4, 5)), ints([2, 3], L), ints(1)], num_split=2)
    fails("SplitV", "sum", [val(F, (4, 5)), ints([2, 2]), ints(1)], num_split=2)
    fails("SplitV", "two_unknown", [val(F, (4, 5)), ints([-1, -1]), ints(1)], num_split=2)

    for t in ALL:
        case("Pack", SHORT[t], [[val(t, (2, 3), 0), val(t, (2, 3), 1)]], axis=0)
        case("ParallelConcat", SHORT[t], [[val(t, (1, 2, 3), i) for i in range(3)]], shape=[3, 2, 3])
        case("ConjugateTranspose", SHORT[t], [val(t, (2, 3, 4)), ints([2, 0, 1])])
        case("Unpack", SHORT[t], [val(t, (2, 3))], num=2, axis=0)
    for ax in (0, 1, 2, -1, -2, -3):
        case("Pack", "axis_%d" % ax, [[val(F, (2, 3), i) for i in range(3)]], axis=ax)
        if ax != -3 and ax != 2:
            case("Unpack", "axis_%d" % ax, [val(F, (3, 2))], num=3 if ax in (0, -2) else 2, axis=ax)
    for t in NUMBERS:
        case("AccumulateNV2", SHORT[t], [[val(t, (2, 3), i) for i in range(3)]], shape=[2, 3])
    case("DebugGradientIdentity", "float", [val(F, (2, 3))])
    case("GuaranteeConst", "float", [val(F, (2, 3))])
    fails("ParallelConcat", "rows", [[val(F, (2, 3)), val(F, (2, 3))]], shape=[4, 3])
    fails("ParallelConcat", "shapes", [[val(F, (1, 3)), val(F, (1, 2))]], shape=[2, 3])
    case("Pack", "scalars", [[val(I, (), i) for i in range(4)]], axis=0)
    case("Pack", "one", [[val(F, (3,))]], axis=1)
    case("Pack", "empty", [[val(F, (0, 2)), val(F, (0, 2))]], axis=0)
    case("Unpack", "to_scalars", [val(F, (3,))], num=3, axis=0)
    case("Unpack", "rank3", [val(F, (2, 3, 2))], num=3, axis=1)
    case("Unpack", "none", [val(F, (0, 2))], num=0, axis=0)
    case("Unpack", "empty_parts", [val(F, (2, 0))], num=2, axis=0)
    fails("Pack", "shapes", [[val(F, (2,)), val(F, (3,))]], axis=0)
    fails("Pack", "axis_range", [[val(F, (2,)), val(F, (2,))]], axis=2)
    fails("Unpack", "count", [val(F, (3, 2))], num=2, axis=0)

    for t in ALL:
        case("Slice", SHORT[t], [val(t, (3, 4)), ints([1, 0]), ints([2, 3])])
    for s, b, z in (
        ((3, 4), [0, 0], [3, 4]),
        ((3, 4), [1, 2], [-1, -1]),
        ((3, 4), [2, 1], [1, -1]),
        ((3, 4), [3, 0], [0, 4]),
        ((5,), [1], [3]),
        ((), [], []),
        ((2, 3, 4), [0, 1, 0], [2, 1, 4]),
        ((2, 3, 2, 2), [1, 0, 1, 0], [-1, 2, 1, 2]),
        ((0, 2), [0, 0], [0, 2]),
        ((3, 4), [1, 0], [2, 4]),
    ):
        case(
            "Slice",
            "%s_at_%s_of_%s" % (dims(s), "_".join(map(str, b)), "_".join(map(str, z))),
            [val(F, s), ints(b), ints(z)],
        )
    case("Slice", "index_int64", [val(F, (3, 4)), ints([1, 1], L), ints([-1, 2], L)])
    fails("Slice", "size", [val(F, (3, 4)), ints([1, 0]), ints([3, 4])])
    fails("Slice", "begin", [val(F, (3, 4)), ints([-1, 0]), ints([1, 1])])
    fails("Slice", "rank", [val(F, (3, 4)), ints([1]), ints([1])])

    x3, x4 = (3, 4, 5), (2, 3, 2, 4)
    sl = [  # shape, begin, end, strides, masks (begin, end, ellipsis, new_axis, shrink)
        ((6,), [1], [4], [1], {}),
        ((6,), [0], [6], [2], {}),
        ((6,), [1], [6], [3], {}),
        ((6,), [4], [1], [-1], {}),
        ((6,), [-1], [-7], [-1], {}),
        ((6,), [5], [0], [-2], {}),
        ((6,), [-3], [-1], [1], {}),
        ((6,), [2], [100], [1], {}),
        ((6,), [-100], [3], [1], {}),
        ((6,), [4], [2], [1], {}),
        ((6,), [2], [0], [1], dict(shrink_axis_mask=1)),
        ((6,), [-1], [0], [1], dict(shrink_axis_mask=1)),
        ((6,), [3], [2], [1], dict(begin_mask=1)),
        ((6,), [3], [2], [1], dict(end_mask=1)),
        ((6,), [3], [2], [-1], dict(begin_mask=1)),
        ((6,), [3], [2], [-1], dict(end_mask=1)),
        ((6,), [3], [2], [-1], dict(begin_mask=1, end_mask=1)),
        (x3, [1, 0, 2], [3, 4, 5], [1, 2, 1], {}),
        (x3, [1], [3], [1], {}),
        (x3, [0, 1], [3, 3], [2, 1], {}),
        (x3, [1, 1, 1], [0, 0, 0], [1, 1, 1], dict(shrink_axis_mask=7)),
        (x3, [1, 1, 1], [2, 3, 4], [1, 1, 1], dict(shrink_axis_mask=2)),
        (x3, [0, 1], [0, 2], [1, 1], dict(ellipsis_mask=1, shrink_axis_mask=2)),
        (x3, [1, 0, 2], [2, 0, 4], [1, 1, 1], dict(ellipsis_mask=2)),
        (x3, [1, 0], [2, 0], [1, 1], dict(ellipsis_mask=2)),
        (x3, [0], [0], [1], dict(ellipsis_mask=1)),
        (x3, [0, 1], [0, 3], [1, 1], dict(new_axis_mask=1)),
        (x3, [0, 0], [0, 0], [1, 1], dict(ellipsis_mask=1, new_axis_mask=2)),
        (x3, [0, 0, 1], [0, 0, 3], [1, 1, 1], dict(new_axis_mask=1, ellipsis_mask=2)),
        (x3, [0, 0, 0, 1], [0, 2, 0, 0], [1, 1, 1, 1], dict(new_axis_mask=5, shrink_axis_mask=8)),
        (x3, [2, 3, 4], [0, 0, 0], [-1, -2, -1], {}),
        (x3, [2, 3, 4], [0, 0, 0], [-1, -1, -3], dict(begin_mask=7, end_mask=7)),
        (x3, [0, 2, 0], [3, 2, 5], [1, 1, 1], {}),
        (x3, [0, 0, 0], [3, 4, 1], [1, 1, 1], dict(begin_mask=3, end_mask=3, shrink_axis_mask=4)),
        (x4, [0, 1, 0, 1], [2, 3, 2, 4], [1, 1, 1, 2], {}),
        (x4, [1, 0, -1], [0, 0, 0], [1, 1, 1], dict(ellipsis_mask=2, shrink_axis_mask=5)),
        (x4, [0, 0, 0, 0], [1, 3, 2, 3], [1, 1, 1, 1], dict(begin_mask=6, end_mask=2)),
        (x4, [0, 0, 3], [0, 0, 0], [1, 1, -1], dict(ellipsis_mask=1, new_axis_mask=2, end_mask=4)),
        ((0, 3), [0, 1], [0, 3], [1, 1], {}),
        ((1,), [0], [1], [1], dict(shrink_axis_mask=1)),
        ((), [], [], [], {}),
        ((), [0], [0], [1], dict(new_axis_mask=1)),
        ((2, 3), [0, 1], [2, 2], [1, 1], dict(begin_mask=1, end_mask=1, shrink_axis_mask=2)),
        ((2, 1, 2, 1, 2, 2), [0, 0, 1], [2, 1, 2], [1, 1, 1], {}),
    ]
    for k, (s, b, e, st, masks) in enumerate(sl):
        label = "%02d_%s" % (k, dims(s))
        x = val(F, s)
        y = case("StridedSlice", label, [x, ints(b), ints(e), ints(st)], **masks)[0]
        if k % 2 == 0 or masks:
            case("StridedSliceGrad", label, [ints(s), ints(b), ints(e), ints(st), val(F, y.shape, "dy")], **masks)
    for t in ALL:
        case("StridedSlice", SHORT[t], [val(t, (3, 4)), ints([2, 1]), ints([0, 4]), ints([-1, 2])])
        case("StridedSliceGrad", SHORT[t], [ints([3, 4]), ints([2, 1]), ints([0, 4]), ints([-1, 2]), val(t, (2, 2))])
    case("StridedSlice", "int64_index", [val(F, (3, 4)), ints([0, 1], L), ints([2, 4], L), ints([1, 2], L)])
    case(
        "StridedSliceGrad",
        "int64_index",
        [ints([3, 4], L), ints([0, 1], L), ints([2, 4], L), ints([1, 2], L), val(F, (2, 2))],
    )
    fails("StridedSlice", "zero_stride", [val(F, (3,)), ints([0]), ints([2]), ints([0])])
    fails("StridedSlice", "shrink_range", [val(F, (3,)), ints([3]), ints([4]), ints([1])], shrink_axis_mask=1)
    fails("StridedSlice", "too_many", [val(F, (3,)), ints([0, 0]), ints([1, 1]), ints([1, 1])])
    fails("StridedSlice", "two_ellipses", [val(F, (3, 3)), ints([0, 0]), ints([1, 1]), ints([1, 1])], ellipsis_mask=3)
    fails("StridedSliceGrad", "dy_shape", [ints([6]), ints([1]), ints([4]), ints([1]), val(F, (2,))])

    for t in ALL:
        case("Tile", SHORT[t], [val(t, (2, 3)), ints([2, 1])])
    for s, m in (
        ((2, 3), [1, 1]),
        ((2, 3), [3, 2]),
        ((2, 3), [0, 2]),
        ((3,), [4]),
        ((), []),
        ((2, 1, 3), [1, 4, 2]),
        ((1, 2, 1, 2), [2, 1, 3, 2]),
        ((0, 2), [2, 2]),
    ):
        case("Tile", "%s_by_%s" % (dims(s), "_".join(map(str, m))), [val(F, s), ints(m)])
    case("Tile", "index_int64", [val(F, (2,)), ints([3], L)])
    fails("Tile", "rank", [val(F, (2, 3)), ints([2])])
    fails("Tile", "negative", [val(F, (2, 3)), ints([2, -1])])
    for op in ("Pad", "PadV2"):
        more = lambda t: [np.asarray(val(t, (), "pad"))] if op == "PadV2" else []
        for t in ALL:
            case(op, SHORT[t], [val(t, (2, 3)), ints([[1, 0], [0, 2]])] + more(t))
        for s, p in (
            ((2, 3), [[0, 0], [0, 0]]),
            ((3,), [[2, 1]]),
            ((2, 1, 2), [[0, 1], [1, 1], [2, 0]]),
            ((1, 2, 2, 1), [[0, 0], [1, 1], [1, 1], [0, 0]]),
            ((0, 2), [[1, 1], [0, 0]]),
            ((1, 1, 1, 2, 1), [[0, 1], [0, 0], [1, 0], [0, 1], [0, 0]]),
        ):
            case(op, dims(s) + "_" + "_".join("%d%d" % tuple(q) for q in p), [val(F, s), ints(p)] + more(F))
        case(op, "index_int64", [val(F, (2,)), ints([[1, 1]], L)] + more(F))
        case(op, "scalar", [val(F, ()), np.zeros((0, 2), I)] + more(F))
        fails(op, "negative", [val(F, (2,)), ints([[-1, 0]])] + more(F))
        fails(op, "rank", [val(F, (2, 2)), ints([[1, 0]])] + more(F))

    for t in ALL:
        case("GatherV2", SHORT[t], [val(t, (4, 2)), ints([3, 0, 3]), ints(0)])
    for s, ix, ax, bd in (
        ((4,), [2, 0], 0, 0),
        ((4, 3), [[1, 2], [0, 0]], 0, 0),
        ((4, 3), [2, 0, 1, 1], 1, 0),
        ((4, 3), 2, 0, 0),
        ((4, 3), 1, -1, 0),
        ((2, 3, 4), [[2], [0]], 1, 0),
        ((2, 3, 4), [3, 1], -1, 0),
        ((2, 3, 4), [[0, 2], [1, 1]], 1, 1),
        ((2, 3, 4), [[3, 0], [2, 2]], 2, 1),
        ((2, 2, 3), [[[0], [2]], [[1], [1]]], 2, 2),
        ((2, 3), [[0, 2], [1, 1]], 1, -1),
        ((0, 3), [], 0, 0),
        ((3, 0), [1, 2], 0, 0),
        ((3, 2), [], 0, 0),
    ):
        ix = ints(ix)
        case(
            "GatherV2",
            "%s_by_%s_axis_%d_batch_%d" % (dims(s), dims(ix.shape), ax, bd),
            [val(F, s), ix, ints(ax)],
            batch_dims=bd,
        )
    case("GatherV2", "index_int64", [val(F, (4, 2)), ints([1, 3], L), ints(0, L)])
    fails("GatherV2", "index_too_large", [val(F, (4, 2)), ints([4]), ints(0)])
    fails("GatherV2", "index_negative", [val(F, (4, 2)), ints([-1]), ints(0)])
    fails("GatherV2", "axis_range", [val(F, (4, 2)), ints([1]), ints(2)])

    for t in ALL:
        case("OneHot", SHORT[t], [ints([0, 2, -1, 3, 1]), ints(3), np.asarray(1, t), np.asarray(0, t)], axis=-1)
    for ax in (-1, 0, 1, 2):
        case(
            "OneHot",
            "matrix_axis_%d" % ax,
            [ints([[0, 2], [1, 5]]), ints(3), np.array(5.0, F), np.array(-1.0, F)],
            axis=ax,
        )
    case("OneHot", "scalar", [ints(1), ints(4), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    case("OneHot", "int64_indices", [ints([1, 0], L), ints(2), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    case("OneHot", "uint8_indices", [np.array([1, 0], np.uint8), ints(2), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    case("OneHot", "depth_zero", [ints([1, 0]), ints(0), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    case("OneHot", "empty", [ints([]), ints(3), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    fails("OneHot", "depth_negative", [ints([1, 0]), ints(-1), np.array(1.0, F), np.array(0.0, F)], axis=-1)
    fails("OneHot", "axis_range", [ints([1, 0]), ints(2), np.array(1.0, F), np.array(0.0, F)], axis=2)

    for t, a, b, c in (
        (I, 0, 5, 1),
        (I, 2, 11, 3),
        (I, 5, 0, -2),
        (I, 3, 3, 1),
        (L, -2, 4, 2),
        (F, 0, 1, 0.25),
        (F, 1, -1, -0.5),
        (D, 0.5, 3, 0.75),
        (F, 0, 1, 0.3),
        (BF16, 0, 3, 0.3),
        (BF16, 3, -1, -0.7),
    ):
        case("Range", "%s_%s_%s_%s" % (SHORT[t], a, b, c), [np.asarray(a, t), np.asarray(b, t), np.asarray(c, t)])
    fails("Range", "zero_delta", [ints(0), ints(3), ints(0)])
    fails("Range", "wrong_direction", [ints(3), ints(0), ints(1)])

    for t in ALL:
        case("Fill", SHORT[t], [ints([2, 3]), val(t, ())])
    for s in ([], [0, 3], [5], [1, 2, 1, 2]):
        case("Fill", dims(s), [ints(s), np.array(1.5, F)])
    case("Fill", "index_int64", [ints([2], L), np.array(1.5, F)])
    fails("Fill", "negative", [ints([2, -1]), np.array(1.5, F)])
    fails("Fill", "dims_are_a_matrix", [ints([[2, 1]]), np.array(1.5, F)])
    for t in ALL:
        case("BroadcastTo", SHORT[t], [val(t, (2, 1)), ints([2, 3])])
    for s, to in (((), [2, 2]), ((3,), [2, 3]), ((1, 3, 1), [2, 3, 2]), ((2, 3), [2, 3]), ((1,), [0]), ((), [])):
        case("BroadcastTo", "%s_to_%s" % (dims(s), dims(to)), [val(F, s), ints(to)])
    case("BroadcastTo", "index_int64", [val(F, (1,)), ints([4], L)])
    fails("BroadcastTo", "incompatible", [val(F, (2,)), ints([2, 3])])

    for sa, sb in BROADCASTS + [((2, 3), (2, 3)), ((1,), (1,)), ((1, 1, 2), (2,))]:
        case("BroadcastGradientArgs", "%s_%s" % (dims(sa), dims(sb)), [ints(sa), ints(sb)])
    case("BroadcastGradientArgs", "index_int64", [ints([2, 1], L), ints([3], L)])
    fails("BroadcastGradientArgs", "incompatible", [ints([2, 3]), ints([2, 2])])
    case("ConcatOffset", "axis_0", [ints(0), [ints([2, 3]), ints([1, 3]), ints([4, 3])]])
    case("ConcatOffset", "axis_1", [ints(1), [ints([2, 3, 4]), ints([2, 0, 4]), ints([2, 5, 4])]])
    case("ConcatOffset", "axis_-1", [ints(-1), [ints([2, 3]), ints([2, 1])]])
    fails("ConcatOffset", "shapes", [ints(0), [ints([2, 3]), ints([2, 4])]])
    for t in NUMBERS + [B]:
        case("DynamicStitch", SHORT[t], [[ints([0, 2]), ints([1, 3])], [val(t, (2, 2), 0), val(t, (2, 2), 1)]])
    case("DynamicStitch", "scalars", [[ints(1), ints([0, 2])], [val(F, (), 0), val(F, (2,), 1)]])
    case("DynamicStitch", "last_wins", [[ints([0, 1, 2]), ints([1])], [val(F, (3, 2), 0), val(F, (1, 2), 1)]])
    case("DynamicStitch", "matrix_index", [[ints([[0, 1], [3, 2]])], [val(F, (2, 2, 3), 0)]])
    case("DynamicStitch", "shape_of_reduction", [[ints([0, 1, 2]), ints([1])], [ints([2, 3, 4]), ints([1])]])
    case("DynamicStitch", "empty_part", [[ints([0, 1]), np.zeros(0, I)], [ints([5, 6]), np.zeros(0, I)]])
    fails("DynamicStitch", "negative", [[ints([-1, 0])], [val(F, (2,))]])
    fails("DynamicStitch", "data_shape", [[ints([0, 1])], [val(F, (3,))]])
    for t in NUMBERS + [H, BF16]:
        case("UnsortedSegmentSum", SHORT[t], [val(t, (4, 2)), ints([1, 0, 1, 3]), ints(4)])
    case("UnsortedSegmentSum", "vector", [val(F, (5,)), ints([0, 0, 2, 2, 2]), ints(3)])
    case("UnsortedSegmentSum", "negative_is_dropped", [val(F, (4,)), ints([0, -1, 1, -1]), ints(2)])
    case("UnsortedSegmentSum", "matrix_index", [val(F, (2, 2, 3)), ints([[0, 1], [1, 0]]), ints(2)])
    case("UnsortedSegmentSum", "index_int64", [val(F, (3, 2)), ints([2, 2, 0], L), ints(3, L)])
    case("UnsortedSegmentSum", "empty", [val(F, (0, 2)), ints([]), ints(3)])
    fails("UnsortedSegmentSum", "range", [val(F, (3,)), ints([0, 1, 2]), ints(2)])
    fails("UnsortedSegmentSum", "shapes", [val(F, (3,)), ints([0, 1]), ints(2)])
    case("InvertPermutation", "int32", [ints([2, 0, 3, 1])])
    case("InvertPermutation", "int64", [ints([1, 0], L)])
    case("InvertPermutation", "empty", [ints([])])
    fails("InvertPermutation", "repeats", [ints([0, 0, 1])])
    fails("InvertPermutation", "range", [ints([0, 3, 1])])
    case("ListDiff", "int32", [ints([1, 2, 3, 4, 5, 3]), ints([1, 3, 9])])
    case("ListDiff", "float_int64", [np.array([1.0, 2.0], F), np.array([], F)], out_idx=L)
    case("Unique", "int32", [ints([3, 1, 3, 7, 1])])
    case("Unique", "int64_index", [ints([5, 5, 4], L)], out_idx=L)
    case("ListDiff", "nothing_left", [ints([1, 1]), ints([1])])


# ---- reductions ---------------------------------------------------------------------------------------------------


def reduce():
    family("reduce")
    for op, types in (
        ("Sum", NUMBERS + [H, BF16]),
        ("Mean", NUMBERS + [H, BF16]),
        ("Max", NUMBERS + [H, BF16]),
        ("Min", NUMBERS + [H, BF16]),
        ("Prod", NUMBERS + [H, BF16]),
        ("EuclideanNorm", NUMBERS + [H, BF16]),
        ("All", [B]),
        ("Any", [B]),
    ):
        t0 = types[0]
        lo = 0.5 if op in ("Mean", "Prod") else -2.0
        for t in types:
            for ax in ([0], [1], [0, 1]):
                case(op, "%s_axis_%s" % (SHORT[t], "_".join(map(str, ax))), [val(t, (3, 4), op, lo), ints(ax)])
        for s, ax in (
            ((2, 3, 4), 1),
            ((2, 3, 4), [0, 2]),
            ((2, 3, 4), [1, 2]),
            ((2, 3, 4), [-1]),
            ((2, 3, 4), [-3, 1]),
            ((2, 3, 4), []),
            ((2, 3, 4), [0, 1, 2]),
            ((5,), 0),
            ((), []),
            ((1, 3, 1), [0, 2]),
            ((2, 3, 2, 2), [0, 1, 2]),
            ((2, 3, 2, 2), [1, 3]),
            ((2, 1, 2, 1, 3), [0, 2, 4]),
            ((33,), [0]),
            ((3, 17), [1]),
            ((17, 3), [0]),
        ):
            for keep in (False, True):
                label = "%s_axis_%s%s" % (
                    dims(s),
                    "_".join(map(str, np.atleast_1d(ax).astype(int))) or "none",
                    "_keep" if keep else "",
                )
                case(op, label, [val(t0, s, op, lo), ints(ax)], keep_dims=keep)
        case(op, "int64_axis", [val(t0, (2, 3), op, lo), ints([1], L)])
        case(op, "empty_reduced", [val(t0, (0, 3)), ints([0])])
        case(op, "empty_kept", [val(t0, (0, 3)), ints([1])])
        case(op, "empty_kept_dims", [val(t0, (2, 0, 3)), ints([1])], keep_dims=True)
        fails(op, "axis_range", [val(t0, (2, 3)), ints([2])])
        if op == "Sum":
            fails(op, "axis_repeats", [val(t0, (2, 3)), ints([0, 0])])
            fails(op, "axis_too_small", [val(t0, (2, 3)), ints([-3])])
    for t in SMALL:
        for op in ("ArgMax", "ArgMin"):
            case(op, SHORT[t], [val(t, (3, 5), op), ints(1)])
    case("Sum", "large_and_small", [np.array([1e8, 1.0, -1e8, 1.0], D), ints([0])])
    for op in ("ArgMax", "ArgMin"):
        for t in NUMBERS + [H, BF16]:
            case(op, SHORT[t], [val(t, (3, 4)), ints(1)], output_type=L)
        for ax in (0, 1, 2, -1, -3):
            for o in (I, L):
                case(op, "rank3_axis_%d_%s" % (ax, SHORT[o]), [val(F, (2, 3, 4)), ints(ax)], output_type=o)
        case(op, "ties_take_the_first", [np.array([[1, 3, 3, 1], [1, 1, 0, 0]], F), ints(1)])
        case(op, "int64_axis", [val(F, (3, 4)), ints(0, L)])
        case(op, "vector", [val(F, (6,)), ints(0)])
        case(op, "empty_kept", [val(F, (0, 3)), ints(1)])
        fails(op, "axis_range", [val(F, (2, 3)), ints(2)])
        fails(op, "empty_reduced", [val(F, (2, 0)), ints(1)])
    for ex, rev in itertools.product((False, True), (False, True)):
        for op in ("Cumprod", "Cumsum", "CumulativeLogsumexp"):
            case(op, "exclusive_%d_reverse_%d" % (ex, rev), [val(F, (3, 4)), ints(1)], exclusive=ex, reverse=rev)
            case(
                op, "axis_0_exclusive_%d_reverse_%d" % (ex, rev), [val(D, (3, 2)), ints(-2)], exclusive=ex, reverse=rev
            )

    for t in (H, BF16, F, D):
        case("CumulativeLogsumexp", SHORT[t], [val(t, (3, 4)), ints(0, L)], exclusive=False, reverse=False)
    ends = np.array([[-np.inf, -np.inf, 1, 2], [3e38, 1, -3e38, 0], [1, np.inf, 1, 2]], F)
    for ex in (False, True):
        case("CumulativeLogsumexp", "ends_%d" % ex, [ends, ints(1)], exclusive=ex, reverse=False)
    fails("CumulativeLogsumexp", "axis_range", [val(F, (2, 3)), ints(2)], exclusive=False, reverse=False)


# ---- matmul, bias, loss, softmax ----------------------------------------------------------------------------------


def matmul():
    family("matmul")
    for ax, ay in itertools.product((False, True), (False, True)):
        for t in (F, D, I):
            x, y = val(t, (2, 4, 3) if ax else (2, 3, 4), "x"), val(t, (2, 5, 4) if ay else (2, 4, 5), "y")
            case("BatchMatMulV2", "%s_%d%d" % (SHORT[t], ax, ay), [x, y], adj_x=ax, adj_y=ay, atol=1e-5)
    for a, b in (((3, 4), (4, 2)), ((5, 1, 3, 4), (2, 4, 2)), ((3, 4), (2, 4, 2)), ((0, 3, 4), (4, 2)), ((2, 3, 0), (2, 0, 2))):
        case("BatchMatMulV2", "%s_%s" % (dims(a), dims(b)), [val(F, a, "x"), val(F, b, "y")], atol=1e-5)
    fails("BatchMatMulV2", "inner", [val(F, (2, 3, 4)), val(F, (2, 3, 4))])
    fails("BatchMatMulV2", "batch", [val(F, (2, 3, 4)), val(F, (3, 4, 2))])
    for ta, tb in itertools.product((False, True), (False, True)):
        for m, k, n in (
            (2, 3, 4),
            (1, 5, 1),
            (7, 1, 3),
            (1, 4, 6),
            (6, 4, 1),
            (5, 17, 9),
            (0, 3, 2),
            (2, 0, 3),
            (2, 3, 0),
        ):
            a, b = val(F, (k, m) if ta else (m, k), "a"), val(F, (n, k) if tb else (k, n), "b")
            case("MatMul", "%dx%dx%d_%d%d" % (m, k, n, ta, tb), [a, b], transpose_a=ta, transpose_b=tb, atol=1e-5)
        for t in (D, I, L, H, BF16):
            a, b = val(t, (3, 2) if ta else (2, 3), "a"), val(t, (4, 3) if tb else (3, 4), "b")
            case("MatMul", "%s_%d%d" % (SHORT[t], ta, tb), [a, b], transpose_a=ta, transpose_b=tb)
    fails("MatMul", "inner", [val(F, (2, 3)), val(F, (2, 3))])
    fails("MatMul", "rank", [val(F, (2, 3, 1)), val(F, (3, 2))])
    fails("MatMul", "vector", [val(F, (3,)), val(F, (3, 2))])
    for t in NUMBERS + [H, BF16]:
        case("BiasAdd", SHORT[t], [val(t, (2, 3)), val(t, (3,), "b")])
        case("BiasAddGrad", SHORT[t], [val(t, (4, 3))])
    for s in ((2, 3, 4), (2, 3, 2, 5), (1, 1), (0, 3), (5, 1)):
        case("BiasAdd", dims(s), [val(F, s), val(F, s[-1:], "b")])
        case("BiasAddGrad", dims(s), [val(F, s)])
    case("BiasAdd", "NCHW", [val(F, (2, 3, 2, 2)), val(F, (3,), "b")], data_format="NCHW")
    case("BiasAddGrad", "NCHW", [val(F, (2, 3, 2, 2))], data_format="NCHW")
    fails("BiasAdd", "size", [val(F, (2, 3)), val(F, (2,))])
    fails("BiasAdd", "bias_rank", [val(F, (2, 3)), val(F, (3, 1))])


def softmax():
    family("softmax")
    for op in ("Softmax", "LogSoftmax"):
        for t in FLOATS:
            case(op, SHORT[t], [val(t, (3, 5), op, -4, 4)])
        for s in ((4,), (2, 3, 4), (1, 1), (0, 3), (2, 17), (2, 1, 2, 3)):
            case(op, dims(s), [val(F, s, op)])
        case(op, "wide", [np.array([[1000.0, 0.0, -1000.0], [-1000.0, -1001.0, -1002.0], [88.0, 89.0, 90.0]], F)])
        fails(op, "scalar", [val(F, ())])


def loss():
    family("loss")
    scores = np.array([[0.1, 0.9, 0.5], [0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [np.nan, 0.2, 0.1], [0.5, np.inf, 0.1]], F)
    for t in (I, L):
        for k in (1, 2, 3):
            case("InTopKV2", "%s_%d" % (SHORT[t], k), [scores, np.array([1, 2, 0, 1, 0], t), np.array(k, t)])
        case("InTopKV2", "out_of_range_%s" % SHORT[t], [scores, np.array([3, -1, 2, 0, 1], t), np.array(2, t)])
    for t in FLOATS:
        p = np.exp(val(D, (3, 4), "labels"))
        p = (p / p.sum(1, keepdims=True)).astype(t)
        case("SoftmaxCrossEntropyWithLogits", SHORT[t], [val(t, (3, 4), "x"), p])
        case("SparseSoftmaxCrossEntropyWithLogits", SHORT[t], [val(t, (3, 4), "x"), ints([3, 0, 1])])
        case("SparseSoftmaxCrossEntropyWithLogits", "%s_int64" % SHORT[t], [val(t, (3, 4), "x"), ints([3, 0, 1], L)])
        case("L2Loss", SHORT[t], [val(t, (3, 4))])
    one = np.eye(5, dtype=F)[[4, 0, 2]]
    case("SoftmaxCrossEntropyWithLogits", "one_hot", [val(F, (3, 5)), one])
    case(
        "SoftmaxCrossEntropyWithLogits",
        "wide",
        [np.array([[1000.0, 0.0, -50.0], [-1000.0, 1.0, 2.0]], F), np.array([[0, 1, 0], [0, 0.5, 0.5]], F)],
    )
    case("SoftmaxCrossEntropyWithLogits", "labels_broadcast", [val(F, (3, 4)), np.array([[0.1, 0.2, 0.3, 0.4]], F)])
    case("SoftmaxCrossEntropyWithLogits", "logits_broadcast", [val(F, (1, 4)), np.eye(4, dtype=F)[[1, 3]]])
    case("SoftmaxCrossEntropyWithLogits", "empty", [val(F, (0, 4)), val(F, (0, 4))])
    fails("SoftmaxCrossEntropyWithLogits", "shapes", [val(F, (3, 4)), val(F, (3, 5))])
    fails("SoftmaxCrossEntropyWithLogits", "rank", [val(F, (3,)), val(F, (3,))])
    case(
        "SparseSoftmaxCrossEntropyWithLogits",
        "wide",
        [np.array([[1000.0, 0.0, -50.0], [-1000.0, 1.0, 2.0]], F), ints([1, 2])],
    )
    case("SparseSoftmaxCrossEntropyWithLogits", "ten_classes", [val(F, (7, 10)), ints([0, 9, 3, 3, 5, 1, 8])])
    case("SparseSoftmaxCrossEntropyWithLogits", "one_class", [val(F, (2, 1)), ints([0, 0])])
    case("SparseSoftmaxCrossEntropyWithLogits", "empty", [val(F, (0, 4)), ints([])])
    fails("SparseSoftmaxCrossEntropyWithLogits", "label_range", [val(F, (2, 3)), ints([0, 3])])
    fails("SparseSoftmaxCrossEntropyWithLogits", "label_negative", [val(F, (2, 3)), ints([0, -1])])
    fails("SparseSoftmaxCrossEntropyWithLogits", "batch", [val(F, (2, 3)), ints([0, 1, 2])])
    for s in ((), (0,), (17,), (2, 2, 3)):
        case("L2Loss", dims(s), [val(F, s)])


# ---- convolution and pooling --------------------------------------------------------------------------------------


def dilate(w, dh, dw):
    kh, kw, i, o = w.shape
    big = np.zeros(((kh - 1) * dh + 1 if kh else 0, (kw - 1) * dw + 1 if kw else 0, i, o), w.dtype)
    big[::dh, ::dw] = w
    return big


def compute(op, inputs, **attrs):
    node, flat = make_node("reference", op, inputs, attrs)
    return evaluate(node, flat)[1]


def conv():
    family("conv")
    cases = []  # label, dtype, input, filter, strides, padding, dilations, explicit paddings

    def add(x, w, s=(1, 1), p="SAME", d=(1, 1), t=F, e=()):
        label = "%s_by_%s_%s_s%d%d_d%d%d_%s" % (dims(x), dims(w), p.lower(), s[0], s[1], d[0], d[1], SHORT[t])
        cases.append((label + ("_" + "".join(map(str, e)) if e else ""), t, x, w, s, p, d, list(e)))

    for p in ("SAME", "VALID"):
        for x, w in (
            ((2, 7, 5, 3), (3, 3, 3, 4)),
            ((1, 6, 6, 1), (5, 5, 1, 2)),
            ((1, 5, 7, 2), (2, 4, 2, 3)),
            ((2, 4, 4, 3), (1, 1, 3, 2)),
            ((1, 5, 6, 2), (1, 3, 2, 2)),
            ((1, 6, 5, 2), (3, 1, 2, 2)),
        ):
            for s in ((1, 1), (2, 2), (1, 2)):
                add(x, w, s, p)
        add((1, 9, 8, 2), (3, 3, 2, 2), (3, 3), p)
        add((1, 8, 7, 2), (2, 2, 2, 3), (3, 2), p)  # a stride larger than the filter
        for d in ((2, 2), (1, 3), (2, 1)):
            add((1, 9, 8, 2), (3, 2, 2, 2), (1, 1), p, d)
        add((1, 9, 9, 1), (3, 3, 1, 2), (2, 2), p, (2, 2))
        for t in (D, H, BF16):
            add((1, 5, 4, 2), (3, 3, 2, 2), (1, 1), p, t=t)
        add((1, 4, 4, 17), (3, 3, 17, 16), (1, 1), p)
        add((1, 3, 3, 1), (3, 3, 1, 1), (1, 1), p)
        add((0, 4, 4, 2), (3, 3, 2, 2), (1, 1), p)
    add((1, 3, 3, 2), (5, 5, 2, 2))  # a filter larger than the image
    add((1, 1, 1, 2), (3, 3, 2, 2), (2, 2))
    for e in ((1, 1, 1, 1), (0, 2, 1, 0), (2, 2, 0, 1)):
        add((1, 5, 6, 2), (3, 3, 2, 2), (1, 1), "EXPLICIT", e=(0, 0) + e + (0, 0))
        add((1, 5, 6, 2), (3, 3, 2, 2), (2, 1), "EXPLICIT", e=(0, 0) + e + (0, 0))
    add((1, 7, 7, 1), (3, 3, 1, 2), (1, 1), "EXPLICIT", (2, 2), e=(0, 0, 2, 1, 1, 2, 0, 0))

    for label, t, xs, ws, s, p, d, e in cases:
        x, w = val(t, xs, "x"), val(t, ws, "w")
        attrs = dict(strides=[1, s[0], s[1], 1], padding=p, dilations=[1, d[0], d[1], 1], explicit_paddings=e)
        loose = {"float": dict(atol=1e-5), "half": dict(atol=1e-2), "bfloat16": dict(atol=8e-2)}.get(SHORT[t], {})
        y = case("Conv2D", label, [x, w], **attrs, **loose)[0]
        dy = val(t, y.shape, "dy")
        # TensorFlow's plain CPU kernels have no backprop with dilations. Its answer for a filter with the zeros
        # written out is the same.
        dense = dict(attrs, dilations=[1, 1, 1, 1])
        wide = dilate(w, *d)
        if d != (1, 1):
            dx = compute("Conv2DBackpropInput", [ints(xs), wide, dy], **dense)
            dw = [compute("Conv2DBackpropFilter", [x, ints(wide.shape), dy], **dense)[0][:: d[0], :: d[1]]]
        else:
            dx = dw = None
        dx = case("Conv2DBackpropInput", label, [ints(xs), w, dy], expect=dx, **attrs, **loose)[0]
        dw = case("Conv2DBackpropFilter", label, [x, ints(ws), dy], expect=dw, **attrs, **loose)[0]
        if t in WIDE:  # the three are adjoint
            np.testing.assert_allclose(np.vdot(x, dx), np.vdot(y, dy), rtol=1e-3, atol=1e-4, err_msg=label)
            np.testing.assert_allclose(np.vdot(w, dw), np.vdot(y, dy), rtol=1e-3, atol=1e-4, err_msg=label)
    # In groups: TensorFlow's CPUs have no gradients of these.
    for t, xs, ws, st in ((F, (2, 5, 4, 4), (3, 3, 2, 6), 1), (F, (1, 6, 5, 6), (1, 1, 1, 12), 2), (D, (1, 4, 4, 6), (2, 3, 3, 4), 1)):
        label = "groups_%s_%s_%s" % (dims(xs), dims(ws), SHORT[t])
        case("Conv2D", label, [val(t, xs, "x"), val(t, ws, "w")], strides=[1, st, st, 1], padding="SAME", atol=1e-5)
    one = dict(strides=[1, 1, 1, 1], padding="VALID")
    fails("Conv2D", "groups", [val(F, (1, 4, 4, 4)), val(F, (2, 2, 2, 3))], **one)
    fails("Conv2D", "depth", [val(F, (1, 4, 4, 3)), val(F, (2, 2, 2, 4))], **one)
    fails("Conv2D", "filter_too_large", [val(F, (1, 2, 2, 1)), val(F, (5, 5, 1, 1))], **one)
    fails("Conv2D", "rank", [val(F, (4, 4, 3)), val(F, (2, 2, 3, 4))], **one)
    fails("Conv2D", "batch_stride", [val(F, (1, 4, 4, 1)), val(F, (2, 2, 1, 1))], strides=[2, 1, 1, 1], padding="VALID")
    fails("Conv2DBackpropInput", "dy_shape", [ints([1, 4, 4, 1]), val(F, (2, 2, 1, 1)), val(F, (1, 4, 4, 1))], **one)
    fails("Conv2DBackpropFilter", "dy_depth", [val(F, (1, 4, 4, 1)), ints([2, 2, 1, 1]), val(F, (1, 3, 3, 2))], **one)


def diagonals():
    family("diagonals")
    every = FLOATS + BITS + [B]
    for t in every:
        x = val(t, (2, 3, 4), "x")
        case("MatrixDiagPart", SHORT[t], [x])
        case("MatrixDiag", SHORT[t], [val(t, (2, 3), "d")])
        case("MatrixSetDiag", SHORT[t], [x, val(t, (2, 3), "d")])
        case("MatrixBandPart", SHORT[t], [x, ints(1, L), ints(0, L)])
        case("MatrixDiagPartV3", SHORT[t], [x, ints([-1, 1]), np.array(1, t)])
        case("MatrixDiagV3", SHORT[t], [val(t, (2, 3), "d"), ints(1), ints(-1), ints(-1), np.array(1, t)])
        case("MatrixSetDiagV3", SHORT[t], [x, val(t, (2, 2, 3), "d"), ints([0, 1])])
    for s in ((3, 3), (2, 4), (4, 2), (2, 3, 4), (1, 1), (0, 2, 3)):
        case("MatrixDiagPart", dims(s), [val(F, s)])
        case("MatrixSetDiag", dims(s), [val(F, s), val(F, s[:-2] + (min(s[-2:]),))])
        for lower, upper in ((0, 0), (-1, 0), (1, -1), (0, 1), (-1, -1), (1, 1)):
            label = "%s_%d_%d" % (dims(s), lower, upper)
            case("MatrixBandPart", label, [val(F, s), ints(lower), ints(upper)])
    fails("MatrixBandPart", "lower", [val(F, (2, 3)), ints(3), ints(0)])
    fails("MatrixBandPart", "vector", [val(F, (3,)), ints(0), ints(0)])
    fails("MatrixDiagPart", "vector", [val(F, (3,))])
    fails("MatrixSetDiag", "shapes", [val(F, (3, 3)), val(F, (2,))])
    bands = [[0], [1], [-1], [2], [0, 1], [-1, 0], [-2, 1], [-1, 2], [1, 2], [-2, -1]]
    aligns = ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"]
    nine = np.array(9, F)
    for version, align in [("V2", None)] + [("V3", a) for a in aligns]:
        more = dict(align=align) if align else {}
        for s in ((3, 4), (4, 3), (2, 3, 3)):
            for k in bands:
                label = "%s_%s%s" % (dims(s), "_".join(map(str, k)), "_" + align if align else "")
                band = ints(k if len(k) > 1 else k[0])
                d = case("MatrixDiagPart" + version, label, [val(F, s), band, nine], **more)[0]
                other = val(F, d.shape, "d")
                case("MatrixSetDiag" + version, label, [val(F, s), other, band], **more)
                sizes = [ints(s[-2]), ints(s[-1])]
                # As TensorFlow asks: one of the sizes is the least that there may be.
                longest, low, high = d.shape[-1], k[0], k[-1]
                if s[-2] != longest - min(high, 0) and s[-1] != longest + max(low, 0):
                    sizes = [ints(-1), ints(-1)]
                case("MatrixDiag" + version, label, [other, band] + sizes + [nine], **more)
        for rows, columns in ((-1, -1), (5, -1), (-1, 5), (4, 6)):
            label = "sized_%d_%d%s" % (rows, columns, "_" + align if align else "")
            inputs = [val(F, (2, 3)), ints([0, 1]), ints(rows), ints(columns), nine]
            if (rows, columns) in ((-1, -1), (5, -1), (-1, 5)):
                case("MatrixDiag" + version, label, inputs, **more)
            else:
                fails("MatrixDiag" + version, label, inputs, **more)
    fails("MatrixDiagPartV3", "outside", [val(F, (3, 4)), ints(4), nine])
    fails("MatrixDiagPartV3", "order", [val(F, (3, 4)), ints([1, 0]), nine])
    fails("MatrixDiagV3", "count", [val(F, (3, 3)), ints([0, 1]), ints(-1), ints(-1), nine])
    fails("MatrixSetDiagV3", "shapes", [val(F, (3, 4)), val(F, (2, 2)), ints([0, 1])])


def products():
    family("products")
    for op, more in (("BatchMatMul", lambda t: {}), ("BatchMatMulV3", lambda t: dict(Tout=t))):
        for t in NUMBERS + ([H] if op == "BatchMatMul" else []) + [BF16]:
            case(op, SHORT[t], [val(t, (2, 3, 4), "x"), val(t, (2, 4, 5), "y")], **more(t))
        for ax, ay in itertools.product((False, True), repeat=2):
            x, y = val(F, (2, 4, 3) if ax else (2, 3, 4), "x"), val(F, (2, 5, 4) if ay else (2, 4, 5), "y")
            case(op, "adj_%d%d" % (ax, ay), [x, y], adj_x=ax, adj_y=ay, **more(F))
        case(op, "empty", [val(F, (0, 3, 4)), val(F, (0, 4, 5))], **more(F))
        fails(op, "inner", [val(F, (2, 3, 4)), val(F, (2, 3, 5))], **more(F))
    case("BatchMatMulV3", "broadcast", [val(F, (2, 1, 3, 4), "x"), val(F, (3, 4, 2), "y")], Tout=F)
    fails("BatchMatMul", "batches", [val(F, (2, 3, 4)), val(F, (3, 4, 5))])
    for ta, tb in itertools.product((F, BF16), repeat=2):
        case("SparseMatMul", "%s_%s" % (SHORT[ta], SHORT[tb]), [val(ta, (3, 4), "a"), val(tb, (4, 5), "b")])
    for a, b in itertools.product((False, True), repeat=2):
        x, y = val(F, (4, 3) if a else (3, 4), "a"), val(F, (5, 4) if b else (4, 5), "b")
        case("SparseMatMul", "transposed_%d%d" % (a, b), [x, y], transpose_a=a, transpose_b=b, a_is_sparse=True)
    fails("SparseMatMul", "inner", [val(F, (3, 4)), val(F, (3, 4))])
    for t in NUMBERS + [H, BF16]:
        case("Einsum", SHORT[t], [[val(t, (3, 4), "a"), val(t, (4, 5), "b")]], equation="ij,jk->ik")
    for equation, *shapes in (
        ("ij->ji", (3, 4)),
        ("ij->j", (3, 4)),
        ("ij->", (3, 4)),
        ("ii->i", (4, 4)),
        ("ii->", (4, 4)),
        ("ijk->kij", (2, 3, 4)),
        ("...ij->...ji", (2, 3, 4, 5)),
        ("i,i->", (5,), (5,)),
        ("i,j->ij", (3,), (4,)),
        ("i,ij->j", (3,), (3, 4)),
        ("ij,ij->ij", (3, 4), (3, 4)),
        ("ij,ji->", (3, 4), (4, 3)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bij,jk->bik", (2, 3, 4), (4, 5)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("bhij,bhjd->bihd", (2, 3, 4, 6), (2, 3, 6, 5)),
        ("abc,cd->abd", (2, 3, 4), (4, 5)),
        ("ijk,kl->jl", (2, 3, 4), (4, 5)),
        ("ij,kl->ik", (2, 3), (4, 5)),
        ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
        ("...ij,...jk->...ik", (3, 1, 3, 4), (2, 4, 5)),
        ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
        ("iij,jk->ik", (3, 3, 4), (4, 2)),
        ("ij,jk->ik", (0, 4), (4, 5)),
        ("ij,jk->ik", (3, 0), (0, 5)),
    ):
        label = equation.replace("->", "_to_").replace(",", "_by_").replace("...", "dots_")
        values = [[val(F, s, n) for n, s in zip("ab", shapes)]]
        case("Einsum", "%s_%s" % (label, "_".join(map(dims, shapes))), values, equation=equation, atol=1e-5)
    fails("Einsum", "sizes", [[val(F, (3, 4)), val(F, (3, 5))]], equation="ij,jk->ik")
    fails("Einsum", "rank", [[val(F, (3, 4)), val(F, (3,))]], equation="ij,jk->ik")
    fails("Einsum", "unknown_label", [[val(F, (3, 4))]], equation="ij->k")
    fails("Einsum", "no_arrow", [[val(F, (3, 4))]], equation="ij")
    for t in NUMBERS + [H, BF16]:
        case("BiasAddV1", SHORT[t], [val(t, (2, 3, 4), "x"), val(t, (4,), "bias")])
    fails("BiasAddV1", "length", [val(F, (2, 3)), val(F, (2,))])


def deep():
    family("deep")
    # Depthwise. Dilations: TensorFlow's CPUs have no gradients of these; its answers for a filter with the zeros
    # written out are the same.
    for label, t, xs, ws, s, p, d, e in (
        ("same", F, (2, 6, 5, 3), (3, 3, 3, 2), 1, "SAME", 1, ()),
        ("valid", F, (1, 6, 5, 4), (2, 3, 4, 1), 1, "VALID", 1, ()),
        ("strides", F, (1, 7, 6, 2), (3, 3, 2, 3), 2, "SAME", 1, ()),
        ("one_channel", F, (2, 5, 5, 1), (3, 3, 1, 4), 1, "SAME", 1, ()),
        ("wide", F, (1, 4, 4, 17), (3, 3, 17, 1), 1, "SAME", 1, ()),
        ("double", D, (1, 5, 4, 2), (3, 2, 2, 2), 1, "SAME", 1, ()),
        ("half", H, (1, 5, 4, 2), (3, 2, 2, 2), 1, "VALID", 1, ()),
        ("bfloat16", BF16, (1, 5, 4, 2), (3, 2, 2, 2), 1, "SAME", 1, ()),
        ("dilations", F, (1, 9, 8, 2), (3, 2, 2, 2), 1, "SAME", 2, ()),
        ("explicit", F, (1, 5, 6, 2), (3, 3, 2, 2), 1, "EXPLICIT", 1, (0, 0, 1, 2, 0, 1, 0, 0)),
        ("empty", F, (0, 4, 4, 2), (3, 3, 2, 2), 1, "SAME", 1, ()),
    ):
        op = "DepthwiseConv2dNative"
        x, w = val(t, xs, "x"), val(t, ws, "w")
        attrs = dict(strides=[1, s, s, 1], padding=p, dilations=[1, d, d, 1], explicit_paddings=list(e))
        loose = {"float": dict(atol=1e-5), "half": dict(atol=1e-2), "bfloat16": dict(atol=8e-2)}.get(SHORT[t], {})
        dense = dict(attrs, dilations=[1, 1, 1, 1])
        wide = dilate(w, d, d)
        y = compute(op, [x, wide], **dense)
        case(op, label, [x, w], expect=y, **attrs, **loose)
        dy = val(t, y[0].shape, "dy")
        dx = compute(op + "BackpropInput", [ints(xs), wide, dy], **dense) if xs[0] else [np.zeros(xs, t)]
        dw = compute(op + "BackpropFilter", [x, ints(wide.shape), dy], **dense) if xs[0] else [np.zeros(ws, t)]
        case(op + "BackpropInput", label, [ints(xs), w, dy], expect=dx, **attrs, **loose)
        case(op + "BackpropFilter", label, [x, ints(ws), dy], expect=[dw[0][::d, ::d]], **attrs, **loose)
    one = dict(strides=[1, 1, 1, 1], padding="VALID")
    fails("DepthwiseConv2dNative", "depth", [val(F, (1, 4, 4, 3)), val(F, (2, 2, 4, 1))], **one)
    fails("DepthwiseConv2dNative", "rank", [val(F, (4, 4, 3)), val(F, (2, 2, 3, 1))], **one)

    for t in FLOATS + [I, L] + SMALL:
        attrs = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
        x, w = val(t, (1, 4, 5, 2), "x"), val(t, (2, 3, 2), "w")
        y = case("Dilation2D", SHORT[t], [x, w], **attrs)[0]
        for op in ("Dilation2DBackpropInput", "Dilation2DBackpropFilter"):
            case(op, SHORT[t], [x, w, val(t, y.shape, "dy")], **attrs)
    for p, s, r in itertools.product(("SAME", "VALID"), (1, 2), (1, 2)):
        attrs = dict(strides=[1, s, s, 1], rates=[1, r, r, 1], padding=p)
        x, w, label = val(F, (2, 7, 6, 3), "x"), val(F, (3, 2, 3), "w"), "%s_s%d_r%d" % (p.lower(), s, r)
        y = case("Dilation2D", label, [x, w], **attrs)[0]
        for op in ("Dilation2DBackpropInput", "Dilation2DBackpropFilter"):
            case(op, label, [x, w, val(F, y.shape, "dy")], **attrs)
    attrs = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    fails("Dilation2D", "channels", [val(F, (1, 4, 4, 2)), val(F, (2, 2, 3))], **attrs)

    # Of volumes.
    for label, t, xs, ws, s, p in (
        ("same", F, (2, 4, 5, 3, 2), (3, 3, 2, 2, 3), (1, 1, 1), "SAME"),
        ("valid", F, (1, 4, 5, 6, 3), (2, 3, 3, 3, 4), (1, 1, 1), "VALID"),
        ("strides", F, (1, 5, 6, 7, 2), (3, 3, 3, 2, 2), (2, 1, 2), "SAME"),
        ("flat", F, (2, 1, 5, 5, 2), (1, 3, 3, 2, 2), (1, 1, 1), "SAME"),
        ("one_channel", F, (1, 4, 4, 4, 1), (2, 2, 2, 1, 1), (1, 1, 1), "VALID"),
        ("wide", F, (1, 3, 3, 3, 17), (2, 2, 2, 17, 16), (1, 1, 1), "SAME"),
        ("double", D, (1, 4, 3, 5, 2), (2, 3, 2, 2, 2), (1, 2, 1), "SAME"),
        ("half", H, (1, 4, 3, 4, 2), (2, 2, 2, 2, 2), (1, 1, 1), "SAME"),
        ("bfloat16", BF16, (1, 4, 3, 4, 2), (2, 2, 2, 2, 2), (1, 1, 1), "SAME"),
    ):
        x, w = val(t, xs, "x"), val(t, ws, "w")
        attrs = dict(strides=[1, *s, 1], padding=p)
        loose = {"float": dict(atol=1e-5), "half": dict(atol=2e-2), "bfloat16": dict(atol=8e-2)}.get(SHORT[t], {})
        y = case("Conv3D", label, [x, w], **attrs, **loose)[0]
        dy = val(t, y.shape, "dy")
        case("Conv3DBackpropInputV2", label, [ints(xs), w, dy], **attrs, **loose)
        case("Conv3DBackpropFilterV2", label, [x, ints(ws), dy], **attrs, **loose)
        if t in (F, D):
            case("Conv3DBackpropInput", label, [x, w, dy], **attrs, **loose)
            case("Conv3DBackpropFilter", label, [x, w, dy], **attrs, **loose)
    sizes = [ints((1, 4, 4, 4, 2), L), val(F, (2, 2, 2, 2, 3)), val(F, (1, 4, 4, 4, 3))]
    case("Conv3DBackpropInputV2", "int64_sizes", sizes, strides=[1] * 5, padding="SAME", atol=1e-5)
    one = dict(strides=[1] * 5, padding="VALID")
    fails("Conv3D", "depth", [val(F, (1, 4, 4, 4, 3)), val(F, (2, 2, 2, 4, 1))], **one)
    fails("Conv3D", "rank", [val(F, (4, 4, 4, 3)), val(F, (2, 2, 2, 3, 1))], **one)


def pool():
    family("pool")
    grid = []
    for p in ("SAME", "VALID"):
        for s, k, st in (
            ((2, 6, 4, 3), (2, 2), (2, 2)),
            ((1, 7, 5, 2), (2, 2), (2, 2)),
            ((1, 7, 7, 2), (3, 3), (2, 2)),
            ((1, 5, 6, 2), (3, 3), (1, 1)),
            ((1, 6, 7, 1), (1, 3), (1, 2)),
            ((1, 7, 4, 2), (3, 1), (2, 1)),
            ((1, 8, 8, 1), (2, 3), (3, 2)),
            ((1, 5, 5, 17), (3, 3), (3, 3)),
            ((1, 3, 3, 2), (3, 3), (1, 1)),
            ((2, 4, 4, 1), (1, 1), (2, 2)),
            ((1, 4, 4, 1), (1, 1), (1, 1)),
        ):
            grid.append((F, s, k, st, p))
        for t in (D, H, BF16):
            grid.append((t, (1, 5, 4, 2), (2, 2), (2, 2), p))
        grid.append((F, (0, 4, 4, 2), (2, 2), (2, 2), p))
    grid.append((F, (1, 2, 2, 1), (3, 3), (2, 2), "SAME"))
    for t, s, k, st, p in grid:
        label = "%s_k%d%d_s%d%d_%s_%s" % (dims(s), k[0], k[1], st[0], st[1], p.lower(), SHORT[t])
        attrs = dict(ksize=[1, k[0], k[1], 1], strides=[1, st[0], st[1], 1], padding=p)
        x = val(t, s, "x")
        y = case("MaxPool", label, [x], **attrs)[0]
        dy = val(t, y.shape, "dy")
        case("MaxPoolGrad", label, [x, y, dy], **attrs)
        case("MaxPoolGradGrad", label, [x, y, val(t, s, "ddx")], **attrs)
        case("AvgPool", label, [x], **attrs)
        case("AvgPoolGrad", label, [ints(s), dy], **attrs)
    # After a ReLU many windows hold equal values: the gradient goes to the first of them, row by row.
    ties = np.maximum(val(F, (1, 6, 6, 2), "ties"), 0)
    for k, st, p in (((2, 2), (2, 2), "SAME"), ((3, 3), (2, 2), "SAME"), ((3, 3), (1, 1), "VALID")):
        attrs = dict(ksize=[1, k[0], k[1], 1], strides=[1, st[0], st[1], 1], padding=p)
        for label, x in (("relu", ties), ("zeros", np.zeros_like(ties))):
            label = "ties_%s_k%d_s%d_%s" % (label, k[0], st[0], p.lower())
            y = case("MaxPool", label, [x], **attrs)[0]
            case("MaxPoolGrad", label, [x, y, val(F, y.shape, "dy")], **attrs)
            case("MaxPoolGradGrad", label, [x, y, val(F, x.shape, "ddx")], **attrs)
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    case("MaxPool", "negative_border", [-1 - np.abs(val(F, (1, 3, 3, 2)))], **attrs)
    fails("MaxPool", "rank", [val(F, (4, 4, 1))], **attrs)
    fails(
        "AvgPool", "window_too_large", [val(F, (1, 2, 2, 1))], ksize=[1, 5, 5, 1], strides=[1, 1, 1, 1], padding="VALID"
    )
    fails("AvgPoolGrad", "dy_shape", [ints([1, 4, 4, 1]), val(F, (1, 4, 4, 1))], **attrs)
    fails("MaxPoolGradGrad", "ddx_shape", [val(F, (1, 4, 4, 1)), val(F, (1, 2, 2, 1)), val(F, (1, 2, 2, 1))], **attrs)
    fails("MaxPoolGrad", "dy_shape", [val(F, (1, 4, 4, 1)), val(F, (1, 2, 2, 1)), val(F, (1, 4, 4, 1))], **attrs)


def more_pools():
    family("more_pools")
    for t in FLOATS:
        for p in ("SAME", "VALID"):
            x, k, st = val(t, (1, 5, 4, 2), "x"), ints([1, 2, 3, 1]), ints([1, 2, 1, 1])
            label = "%s_%s" % (SHORT[t], p.lower())
            y = case("MaxPoolV2", label, [x, k, st], padding=p)[0]
            case("MaxPoolGradV2", label, [x, y, val(t, y.shape, "dy"), k, st], padding=p)
            case("MaxPoolGradGradV2", label, [x, y, val(t, x.shape, "ddx"), k, st], padding=p)
    fails("MaxPoolV2", "rank", [val(F, (4, 4, 1)), ints([1, 2, 2, 1]), ints([1, 2, 2, 1])], padding="SAME")
    fails("MaxPoolV2", "length", [val(F, (1, 4, 4, 1)), ints([1, 2, 2]), ints([1, 2, 2, 1])], padding="SAME")
    for t in FLOATS + [I, L] + SMALL:
        for index in (I, L):
            attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME", Targmax=index)
            case("MaxPoolWithArgmax", "%s_%s" % (SHORT[t], SHORT[index]), [val(t, (2, 5, 4, 3), "x")], **attrs)
    for p, batch in itertools.product(("SAME", "VALID"), (False, True)):
        attrs = dict(ksize=[1, 3, 2, 1], strides=[1, 2, 1, 1], padding=p, include_batch_in_index=batch)
        label = "%s%s" % (p.lower(), "_batch" if batch else "")
        for t in (F, D, H):
            x = val(t, (2, 5, 4, 3), "x")
            y, at = case("MaxPoolWithArgmax", "%s_%s" % (label, SHORT[t]), [x], **attrs)
            case("MaxPoolGradWithArgmax", "%s_%s" % (label, SHORT[t]), [x, val(t, y.shape, "dy"), at], **attrs)
            # TensorFlow's CPUs have no kernel of this one; its answer follows from the places.
            ddx = val(t, x.shape, "ddx")
            flat = ddx.reshape(-1) if batch else ddx.reshape(2, -1)
            ddy = flat[at] if batch else np.stack([flat[n][at[n]] for n in range(2)])
            inputs = [x, ddx, at]
            case("MaxPoolGradGradWithArgmax", "%s_%s" % (label, SHORT[t]), inputs, expect=[ddy], **attrs)
    ties = np.maximum(val(F, (1, 6, 6, 2), "ties"), 0)
    case("MaxPoolWithArgmax", "ties", [ties], ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    for op, name in (("MaxPool3D", "Max"), ("AvgPool3D", "Avg")):
        for t in (F, BF16):
            for p in ("SAME", "VALID"):
                for s, k, st in (
                    ((2, 4, 5, 6, 3), (2, 2, 2), (2, 2, 2)),
                    ((1, 3, 4, 5, 2), (3, 2, 3), (1, 2, 1)),
                    ((1, 4, 3, 3, 17), (1, 3, 2), (2, 1, 3)),
                ):
                    attrs = dict(ksize=[1, *k, 1], strides=[1, *st, 1], padding=p)
                    label = "%s_%s_%s" % (dims(s), p.lower(), SHORT[t])
                    loose = dict(atol=5e-2) if t is BF16 else {}
                    x = val(t, s, "x")
                    y = case(op, label, [x], **attrs, **loose)[0]
                    dy = val(t, y.shape, "dy")
                    if name == "Avg":
                        case("AvgPool3DGrad", label, [ints(s), dy], **attrs, **loose)
                        continue
                    case("MaxPool3DGrad", label, [x, y, dy], T=t, TInput=t, **attrs, **loose)
                    case("MaxPool3DGradGrad", label, [x, y, val(t, s, "ddx")], **attrs)
        one = dict(ksize=[1] * 5, strides=[1] * 5, padding="VALID")
        fails(op, "rank", [val(F, (4, 4, 4, 1))], **one)
    ties = np.maximum(val(F, (1, 4, 4, 4, 2), "ties"), 0)
    attrs = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1], padding="VALID")
    for label, x in (("ties", ties), ("zeros", np.zeros_like(ties))):
        y = case("MaxPool3D", label, [x], **attrs)[0]
        case("MaxPool3DGrad", label, [x, y, val(F, y.shape, "dy")], T=F, TInput=F, **attrs)
        case("MaxPool3DGradGrad", label, [x, y, val(F, x.shape, "ddx")], **attrs)
    fractional_pools()


def fractional_pools():
    """With seeds: TensorFlow then cuts rows and columns in the same way in every run."""
    draws = [dict(deterministic=True, seed=s, seed2=s2) for s, s2 in ((1, 2), (0, 77), (-5, 1 << 40))]
    shapes = (((1, 7, 6, 2), (1.4, 1.7)), ((2, 5, 6, 1), (2.3, 2)), ((1, 9, 17, 1), (1.0, 3.1)))
    for t, way in itertools.product((F, D, I, L), itertools.product((False, True), (False, True))):
        pseudo_random, overlapping = way
        for draw, (shape, (rows, columns)) in list(zip(draws, shapes))[: 3 if t is F else 1]:
            label = "%s%s%s_%s" % (dims(shape), "_pseudo" * pseudo_random, "_overlapping" * overlapping, SHORT[t])
            attrs = dict(pooling_ratio=[1, rows, columns, 1], pseudo_random=pseudo_random, overlapping=overlapping)
            x = val(t, shape, "x")
            for op in ("FractionalMaxPool", "FractionalAvgPool"):
                y, row_cuts, column_cuts = case(op, label, [x], **attrs, **draw)
                first = [x, y] if "Max" in op else [ints(shape, L)]
                inputs = first + [val(t, y.shape, "dy"), row_cuts, column_cuts]
                case(op + "Grad", label, inputs, overlapping=overlapping)
    for op in ("FractionalMaxPool", "FractionalAvgPool"):
        for label, shape, ratio, more in (
            ("rank", (4, 4, 1), [1, 1.5, 1.5, 1], {}),
            ("small_ratio", (1, 4, 4, 1), [1, 0.5, 1.5, 1], {}),
            ("large_ratio", (1, 4, 4, 1), [1, 1.5, 4.5, 1], {}),
            ("channels", (1, 4, 4, 4), [1.5, 1.5, 1.5, 2], {}),
            ("ratios", (1, 4, 4, 1), [1, 1.5, 1.5, 1, 1], {}),
            ("seed", (1, 4, 4, 1), [1, 1.5, 1.5, 1], dict(seed=3)),
        ):
            fails(op, label, [val(F, shape)], pooling_ratio=ratio, **more)
    image, y = val(F, (1, 5, 5, 1)), val(F, (1, 3, 3, 1))
    cuts = ints([0, 2, 4, 5], L)
    fails("FractionalMaxPoolGrad", "length", [image, y, y, cuts[:3], cuts])
    fails("FractionalMaxPoolGrad", "outside", [image, y, y, cuts, ints([0, 2, 4, 50], L)])
    fails("FractionalAvgPoolGrad", "length", [ints([1, 5, 5, 1], L), y, cuts[:3], cuts])
    fails("FractionalAvgPoolGrad", "shape", [ints([1, 5, 5], L), y, cuts, cuts])


def norm():
    family("norm")
    empty = np.zeros(0, F)
    for label, t, shape, fmt in (
        ("float", F, (2, 3, 4, 5), "NHWC"),
        ("float_first", F, (3, 4, 5, 2), "NCHW"),
        ("half", H, (2, 4, 3, 3), "NHWC"),
        ("bfloat16", BF16, (2, 4, 3, 3), "NHWC"),
        ("many_rows", F, (7, 9, 11, 3), "NHWC"),
        ("one_row", F, (1, 1, 1, 4), "NHWC"),
        ("empty", F, (0, 2, 2, 3), "NHWC"),
    ):
        channels = shape[1 if fmt == "NCHW" else 3]
        x, dy = val(t, shape, "x", -1, 5), val(t, shape, "dy")
        scale, offset = val(F, (channels,), "scale"), val(F, (channels,), "offset")
        mean, variance = val(F, (channels,), "mean"), val(F, (channels,), "variance", 0.1, 2)
        loose = {"half": dict(rtol=2e-3, atol=4e-3), "bfloat16": dict(rtol=2e-2, atol=4e-2)}.get(
            SHORT[t], dict(rtol=2e-5, atol=1e-5)
        )
        for how, m, v, attrs in (
            ("train", empty, empty, dict(is_training=True)),
            ("average", mean, variance, dict(is_training=True, exponential_avg_factor=0.25)),
            ("infer", mean, variance, dict(is_training=False)),
        ):
            attrs = dict(attrs, epsilon=0.01, data_format=fmt)
            inputs = [x, scale, offset, m, v]
            out = compute("FusedBatchNormV3", inputs, **attrs)
            # What TensorFlow leaves undefined is what the gradient needs here, NaN for nothing, and 0.
            if x.size == 0:
                out[3:5] = [np.full_like(scale, np.nan)] * 2
            elif how == "infer":
                out[3:5] = [mean, variance]
            out[5] = np.zeros((), F)
            case("FusedBatchNormV3", how + "_" + label, inputs, expect=out, **attrs, **loose)
            if how == "average" or (how == "infer" and fmt == "NCHW"):  # TensorFlow lacks the latter
                continue
            attrs.pop("exponential_avg_factor", None)
            case("FusedBatchNormGradV3", how + "_" + label, [dy, x, scale, mean, variance, empty], **attrs, **loose)
    # The first two versions.
    for version, t in (("", F), ("V2", F), ("V2", H), ("V2", BF16)):
        loose = {"half": dict(rtol=2e-3, atol=4e-3), "bfloat16": dict(rtol=2e-2, atol=4e-2)}.get(
            SHORT[t], dict(rtol=2e-5, atol=1e-5)
        )
        x, dy = val(t, (2, 3, 4, 5), "x", -1, 5), val(t, (2, 3, 4, 5), "dy")
        scale, offset = val(F, (5,), "scale"), val(F, (5,), "offset")
        mean, variance = val(F, (5,), "mean"), val(F, (5,), "variance", 0.1, 2)
        for how, m, v, training in (("train", empty, empty, True), ("infer", mean, variance, False)):
            attrs = dict(epsilon=0.01, is_training=training)
            out = compute("FusedBatchNorm" + version, [x, scale, offset, m, v], **attrs)
            if not training:
                out[3:5] = [mean, variance]
            label = "%s_%s" % (how, SHORT[t])
            case("FusedBatchNorm" + version, label, [x, scale, offset, m, v], expect=out, **attrs, **loose)
            case("FusedBatchNormGrad" + version, label, [dy, x, scale, mean, variance], **attrs, **loose)
    for t in (F, D, H):
        shape = (2, 3, 2, 4)
        x, dy = val(t, shape, "x", -1, 3), val(t, shape, "dy")
        m, v = val(t, (4,), "m"), val(t, (4,), "v", 0.2, 2)
        beta, gamma = val(t, (4,), "beta"), val(t, (4,), "gamma", 0.5, 2)
        loose = {"half": dict(rtol=1e-2, atol=4e-2), "float": dict(rtol=2e-5, atol=2e-5)}.get(SHORT[t], {})
        for scales in (False, True):
            label = SHORT[t] + ("_scaled" if scales else "")
            attrs = dict(variance_epsilon=0.01, scale_after_normalization=scales)
            case("BatchNormWithGlobalNormalization", label, [x, m, v, beta, gamma], **attrs, **loose)
            case("BatchNormWithGlobalNormalizationGrad", label, [x, m, v, gamma, dy], **attrs, **loose)
    one = dict(variance_epsilon=0.01, scale_after_normalization=True)
    vectors = [val(F, (3,)) for _ in range(4)]
    fails("BatchNormWithGlobalNormalization", "rank", [val(F, (2, 3))] + vectors, **one)
    # Local response normalisation.
    for t in (F, H):
        loose = dict(rtol=1e-2, atol=1e-2) if t is H else dict(rtol=2e-5, atol=2e-6)
        for label, shape, attrs in (
            ("default", (2, 3, 2, 7), {}),
            ("alexnet", (1, 2, 3, 20), dict(depth_radius=4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)),
            ("narrow", (1, 2, 2, 3), dict(depth_radius=5, bias=2.0, alpha=0.5, beta=1.0)),
            ("alone", (1, 2, 2, 4), dict(depth_radius=0, bias=1.0, alpha=2.0, beta=0.5)),
            ("empty", (0, 2, 2, 4), {}),
        ):
            x, dy = val(t, shape, "x"), val(t, shape, "dy")
            y = case("LRN", "%s_%s" % (label, SHORT[t]), [x], **attrs, **loose)[0]
            case("LRNGrad", "%s_%s" % (label, SHORT[t]), [dy, x, y], **attrs, **loose)
    fails("LRN", "rank", [val(F, (2, 3))])
    x, one = val(F, (1, 2, 2, 3)), val(F, (3,))
    fails("FusedBatchNormV3", "scale", [x, val(F, (2,)), one, one, one])
    fails("FusedBatchNormV3", "mean", [x, one, one, val(F, (2,)), one], is_training=False)
    fails("FusedBatchNormV3", "average_without_old", [x, one, one, empty, empty], exponential_avg_factor=0.5)
    fails("FusedBatchNormV3", "rank", [val(F, (2, 2, 3)), one, one, one, one])
    fails("FusedBatchNormGradV3", "shapes", [val(F, (1, 2, 1, 3)), x, one, one, one, empty])


def control():
    family("control")
    for t in FLOATS:
        case("CheckNumerics", SHORT[t], [val(t, (2, 3))], message="all are numbers")
    fails("CheckNumerics", "nan", [np.array([1.0, np.nan], F)], message="no numbers")
    fails("CheckNumerics", "infinite", [np.array([1.0, -np.inf], D)], message="no numbers")
    case("NoOp", "alone", [])
    case("Assert", "true", [np.array(True), [val(F, (3,))]], summarize=3)
    case("Assert", "true_mixed", [np.array(True), [val(F, (3,)), ints(3), val(B, (2,))]], summarize=1)
    fails("Assert", "false", [np.array(False), [np.array([1.5, 2.5, 3.5, 4.5], F), ints(3)]], summarize=3)
    fails("Assert", "condition_is_a_vector", [np.array([True, True]), [ints(3)]])


# ---- parts of a tensor by index -----------------------------------------------------------------------------------


def partition():
    family("partition")
    for t in ALL:
        case("DynamicPartition", SHORT[t], [val(t, (5, 2)), ints([1, 0, 2, 1, 1])], num_partitions=3)
    case("DynamicPartition", "vector", [val(F, (4,)), ints([0, 0, 1, 0])], num_partitions=2)
    case("DynamicPartition", "partitions_of_rank_2", [val(F, (2, 3, 2)), ints([[0, 1, 0], [1, 1, 0]])], num_partitions=2)
    case("DynamicPartition", "an_empty_part", [val(F, (2, 3)), ints([2, 0])], num_partitions=4)
    case("DynamicPartition", "no_rows", [val(F, (0, 3)), ints([])], num_partitions=2)
    case("DynamicPartition", "one_number_for_all", [val(F, (2, 3)), np.array(1, I)], num_partitions=2)
    fails("DynamicPartition", "beyond", [val(F, (2,)), ints([0, 2])], num_partitions=2)
    fails("DynamicPartition", "negative", [val(F, (2,)), ints([0, -1])], num_partitions=2)
    fails("DynamicPartition", "shapes", [val(F, (3,)), ints([0, 1])], num_partitions=2)
    for t in (F, I):
        data = [val(t, (2, 2), 0), val(t, (3, 2), 1)]
        case("ParallelDynamicStitch", SHORT[t], [[ints([4, 0]), ints([1, 3, 2])], data])
    fails("ParallelDynamicStitch", "shapes", [[ints([0, 1])], [val(F, (3, 2))]])
    for t in (F, D, I, L, B, BF16):
        case("Where", SHORT[t], [np.array([[0, 1, 0], [2, 0, 3]]).astype(t)])
    case("Where", "bool_rank_3", [np.array([[[True], [False]], [[True], [True]]])])
    case("Where", "negative_zero_and_nan", [np.array([-0.0, np.nan, -1.0], F)])
    case("Where", "none", [np.zeros((3, 2), bool)])
    case("Where", "empty", [np.zeros((0, 4), bool)])
    fails("Where", "scalar", [np.array(True)])


# ---- texts ----------------------------------------------------------------------------------------------------------


def texts(*values):
    return np.array(values, dtype=object)


def strings():
    family("strings")
    words = texts("", "a", "ab", "abc", "a-b", "AB", "a\nb", "7", "x12", "\u00e4", "s3://bucket", "a.b", "[]")
    patterns = {
        "literal": "ab", "empty": "", "any": ".", "any_number": ".*", "one_or_more": "a+b*", "optional": "ab?c?", "choice": "a|ab|x\\d+",
        "group": "(a|b)+", "no_capture": "(?:a|b){2}", "counted": "[a-z]{2,3}", "open_count": "[a-z]{2,}", "class": "[a-c-]+", "negated": "[^a]",
        "bracket_in_class": "[]\\[]+", "escapes": "\\w\\W\\w", "digits": "\\D\\d\\d", "space": "a\\sb", "anchors": "^abc$", "inner_anchor": "a^b",
        "lazy": "a+?b", "dot": "a\\.b", "ignore_case": "(?i)ab", "dot_is_all": "(?s)a.b", "checkpoint": "^s3://.*", "a_brace": "a{|ab", "ends": "\\Aab\\z",
    }
    for label, pattern in patterns.items():
        case("StaticRegexFullMatch", label, [words], pattern=pattern)
    case("StaticRegexFullMatch", "matrix", [texts("a", "b").reshape(2, 1)], pattern="a")
    case("RegexFullMatch", "scalar", [texts("ab").reshape(()), texts("a.").reshape(())])
    case("RegexFullMatch", "vector", [words, texts("a.*").reshape(())])
    for label, pattern in {"open": "(a", "close": "a)", "class": "[a", "star": "*a", "backslash": "a\\", "range": "[b-a]", "twice": "a**"}.items():
        fails("RegexFullMatch", label, [words, texts(pattern).reshape(())])
    fails("RegexFullMatch", "pattern_is_a_vector", [words, texts("a")])


    both = [words, texts(*"abcdefghijklm")]
    case("Select", "vector", [np.arange(13) % 3 == 0, *both])
    case("Select", "scalar", [np.array(False), *both])
    case("Select", "rows", [np.array([True, False]), texts(*"abcd").reshape(2, 2), texts(*"efgh").reshape(2, 2)])
    case("SelectV2", "vector", [np.arange(13) % 2 == 0, *both])
    case("SelectV2", "broadcast", [np.array([[True], [False]]), texts("x", "y"), texts("z").reshape(())])


def summary():
    family("summary")
    tag = texts("loss").reshape(())
    reals = [F, D, I, np.uint8, np.int16, np.int8, L, BF16, np.uint16, H, np.uint32, np.uint64]
    for t in reals:
        case("ScalarSummary", np.dtype(t).name, [tag, np.array(3).astype(t)])
        case("HistogramSummary", np.dtype(t).name, [tag, np.array([[1, 2], [2, 100]]).astype(t)])
    case("ScalarSummary", "vector", [texts("a", "b"), np.array([1.5, -2], F)])
    case("ScalarSummary", "nan", [tag, np.array(np.nan, F)])
    case("HistogramSummary", "around_zero", [tag, np.array([0, -0.0, 1e-13, -1e-13, 1e-12, -3, 5e20, 1e300], D)])
    case("HistogramSummary", "empty", [tag, np.zeros((0, 2), F)])
    case("HistogramSummary", "zeros", [tag, np.zeros(5, F)])
    fails("ScalarSummary", "shapes", [texts("a", "b"), np.array([1], F)])
    fails("HistogramSummary", "nan", [tag, np.array([1, np.nan], F)])
    fails("HistogramSummary", "infinite", [tag, np.array([1, np.inf], D)])
    metadata = texts(b"\x0a\x06\x0a\x04text").reshape(())
    for t in (F, I, B):
        case("TensorSummaryV2", SHORT[t], [tag, val(t, (2, 3)), metadata])
    case("TensorSummaryV2", "equal", [tag, np.ones((2, 2), F), texts("").reshape(())])
    case("TensorSummaryV2", "scalar", [tag, np.array(2, L), metadata])
    case("TensorSummaryV2", "string", [tag, texts("a", "b"), metadata])
    first = case("ScalarSummary", "first", [texts("x").reshape(()), np.array(1, F)])[0]
    second = case("HistogramSummary", "second", [texts("y").reshape(()), np.array([1, 2], F)])[0]
    third = case("TensorSummaryV2", "third", [texts("z").reshape(()), np.array([1, 2], F), metadata])[0]
    one, two, three = (texts(x).reshape(()) for x in (first, second, third))
    case("MergeSummary", "three", [[one, two, three]])
    case("MergeSummary", "one", [[two]])
    fails("MergeSummary", "twice", [[one, two, one]])
    fails("MergeSummary", "no_summary", [[texts("\x07\x07").reshape(())]])


def main(makers, description=__doc__):
    """Writes or checks the families of `makers`, functions by name."""
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("family", nargs="*")
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops"))
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    status = 0
    for name in args.family or makers:
        makers[name]()
        data = b"".join(field(1, c) for c in FAMILIES[name])
        path = os.path.join(args.out, name + ".pb")
        if args.check:
            same = os.path.exists(path) and open(path, "rb").read() == data
            status |= not same
            print("%-12s %s" % (name, "same" if same else "DIFFERS"))
            continue
        with open(path, "wb") as f:
            f.write(data)
        print("%-12s %5d cases %8d bytes" % (name, len(FAMILIES[name]), len(data)), flush=True)
    return status


MAKERS = dict(
    elementwise=elementwise,
    functions=functions,
    array=array,
    reduce=reduce,
    matmul=matmul,
    softmax=softmax,
    loss=loss,
    conv=conv,
    diagonals=diagonals,
    deep=deep,
    products=products,
    pool=pool,
    more_pools=more_pools,
    norm=norm,
    control=control,
    partition=partition,
    strings=strings,
    summary=summary,
)

if __name__ == "__main__":
    sys.exit(main(MAKERS))
