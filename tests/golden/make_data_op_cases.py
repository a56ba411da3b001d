#!/usr/bin/env python3
"""Writes ops/<family>.pb for the ops on arrays, segments, sparse tensors, strings and input, as make_op_cases.py
(which see) does for the others.

usage: make_data_op_cases.py [--out DIR] [--check] [FAMILY...]"""

import struct
import sys
import zlib

import make_op_cases as base
from make_op_cases import ALL, B, BF16, D, F, FLOATS, H, I, L, NUMBERS, SHORT, case, dims, fails, family, ints, np, tf, val

U8, S8, U16, S16, U32, U64 = np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.uint64
SMALL = [U8, S8, U16, S16, U32, U64]
base.SHORT.update({U8: "uint8", S8: "int8", U16: "uint16", S16: "int16", U32: "uint32", U64: "uint64"})
REAL = NUMBERS + [H, BF16] + SMALL


def num(t, shape, key=0, lo=-2.0, hi=2.0):
    """As val, also for small integers, which are not negative."""
    if t in SMALL:
        return np.abs(val(I, shape, key, lo, hi)).astype(t)
    return val(t, shape, key, lo, hi)


def text(*values):
    return np.array(values, dtype=object)


# ---- array --------------------------------------------------------------------------------------------------------


def slices():
    family("slices")
    for t in ALL + SMALL:
        case("GatherNd", SHORT[t], [num(t, (3, 4)), ints([[2, 1], [0, 0], [2, 1]])])
        case("TensorScatterUpdate", SHORT[t], [num(t, (4, 2)), ints([[2], [0]]), num(t, (2, 2), "u")])
        case("Gather", SHORT[t], [num(t, (4, 2)), ints([[3], [0]])])
    for t in REAL:
        case("ScatterNd", SHORT[t], [ints([[1], [3], [1]]), num(t, (3, 2)), ints([4, 2])])
        for op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterMin", "TensorScatterMax"):
            case(op, SHORT[t], [num(t, (4, 2), "x", 1, 3), ints([[2], [0], [2]]), num(t, (3, 2), "u", 0, 0.4)])
    for t in NUMBERS:
        case("ScatterNdNonAliasingAdd", SHORT[t], [num(t, (4, 2)), ints([[2], [0], [2]]), num(t, (3, 2), "u")])
        case("InplaceAdd", SHORT[t], [num(t, (4, 2)), ints([2, 0, 2]), num(t, (3, 2), "u")])
        case("InplaceSub", SHORT[t], [num(t, (4, 2)), ints([2, 0, 2]), num(t, (3, 2), "u")])
    for t in [F, I, B]:
        case("InplaceUpdate", SHORT[t], [num(t, (4, 2)), ints([2, 0]), num(t, (2, 2), "u")])
        case("DeepCopy", SHORT[t], [num(t, (4, 2))])
    words = text("a", "bb", "", "dd")
    case("GatherNd", "string", [words, ints([[3], [0], [1]])])
    case("TensorScatterUpdate", "string", [words, ints([[3], [0]]), text("x", "yy")])
    case("ScatterNd", "string", [ints([[1], [3]]), text("x", "yy"), ints([4])])
    case("ScatterNd", "bool", [ints([[1], [3], [1]]), np.array([True, True, True]), ints([4])])
    for s, ix in (
        ((5,), [[4], [0]]),
        ((3, 4), [[1], [2]]),
        ((3, 4), [[[0, 1]], [[2, 3]]]),
        ((2, 3, 4), [[1, 2]]),
        ((2, 3, 4), [[1, 2, 3], [0, 0, 0]]),
        ((2, 3), [1]),
        ((2, 3), [1, 2]),
    ):
        ix = ints(ix)
        label = "%s_by_%s" % (dims(s), dims(ix.shape))
        y = case("GatherNd", label, [val(F, s), ix])[0]
        if ix.ndim < 2:  # TensorFlow's other kernels want a list of vectors
            continue
        case("ScatterNd", label, [ix, val(F, y.shape, "u"), ints(s)])
        case("TensorScatterAdd", label, [val(F, s), ix, val(F, y.shape, "u")])
    case("GatherNd", "int64_indices", [val(F, (3, 2)), ints([[2], [1]], L)])
    case("ScatterNd", "int64_indices", [ints([[2], [1]], L), val(F, (2, 2)), ints([3, 2], L)])
    fails("GatherNd", "range", [val(F, (3, 2)), ints([[3]])])
    fails("GatherNd", "negative", [val(F, (3, 2)), ints([[0, -1]])])
    fails("GatherNd", "too_deep", [val(F, (3, 2)), ints([[0, 0, 0]])])
    fails("GatherNd", "scalar_params", [val(F, ()), ints([[0]])])
    fails("ScatterNd", "range", [ints([[4]]), val(F, (1, 2)), ints([4, 2])])
    fails("ScatterNd", "updates", [ints([[1]]), val(F, (1, 3)), ints([4, 2])])
    fails("TensorScatterUpdate", "range", [val(F, (3,)), ints([[3]]), val(F, (1,))])
    fails("TensorScatterAdd", "updates", [val(F, (3,)), ints([[1]]), val(F, (2,))])
    fails("Gather", "range", [val(F, (3, 2)), ints([3])])
    fails("InplaceUpdate", "shapes", [val(F, (3, 2)), ints([1]), val(F, (1, 3))])
    x = val(F, (3, 4), "strided")
    for k, (b, e, st, masks) in enumerate(
        (
            ([1, 0], [3, 2], [1, 1], {}),
            ([2, 3], [0, 0], [-1, -2], {}),
            ([1], [2], [1], dict(shrink_axis_mask=1)),
            ([0, 1], [0, 3], [1, 1], dict(begin_mask=1, end_mask=1)),
        )
    ):
        y = base.compute("StridedSlice", [x, ints(b), ints(e), ints(st)], **masks)[0]
        case("TensorStridedSliceUpdate", str(k), [x, ints(b), ints(e), ints(st), val(F, y.shape, "v")], **masks)
    fails("TensorStridedSliceUpdate", "shape", [x, ints([0]), ints([2]), ints([1]), val(F, (3, 4))])


def rearrange():
    family("rearrange")
    for t in ALL:
        case("Roll", SHORT[t], [val(t, (3, 4)), ints(1), ints(0)])
        case("Reverse", SHORT[t], [val(t, (3, 4)), np.array([True, False])])
        for mode in ("REFLECT", "SYMMETRIC"):
            case("MirrorPad", mode.lower() + "_" + SHORT[t], [val(t, (3, 4)), ints([[1, 2], [2, 0]])], mode=mode)
    for t in ALL[:5] + [H, BF16]:
        case("ReverseSequence", SHORT[t], [val(t, (2, 4)), ints([3, 1], L)], seq_dim=1)
        case("Concat", SHORT[t], [ints(1), [val(t, (2, 3)), val(t, (2, 1), "b")]])
    for t in NUMBERS + [H, BF16]:
        case("SpaceToBatchND", SHORT[t], [val(t, (1, 4, 2)), ints([2]), ints([[0, 0]])])
        case("BatchToSpaceND", SHORT[t], [val(t, (4, 2, 1)), ints([2]), ints([[0, 1]])])
        case("SpaceToDepth", SHORT[t], [val(t, (1, 4, 2, 3))], block_size=2)
        case("DepthToSpace", SHORT[t], [val(t, (1, 2, 1, 8))], block_size=2)
    for t in NUMBERS:
        case("MirrorPadGrad", SHORT[t], [val(t, (6, 6)), ints([[1, 2], [2, 0]])], mode="REFLECT")
    for s, sh, ax in (
        ((5,), 2, 0),
        ((5,), -7, 0),
        ((3, 4), [1, -1], [0, 1]),
        ((3, 4), [1, 1], [1, 1]),
        ((2, 3, 2), [5, 2], [-1, 1]),
        ((0, 3), 1, 1),
        ((3,), [], []),
    ):
        case("Roll", "%s_%s_%s" % (dims(s), sh, ax), [val(F, s), ints(sh), ints(ax)])
    case("Roll", "index_int64", [val(F, (3, 2)), ints(1, L), ints(0, L)])
    fails("Roll", "axis", [val(F, (3,)), ints(1), ints(1)])
    fails("Roll", "scalar", [val(F, ()), ints(1), ints(0)])
    fails("Roll", "sizes", [val(F, (3,)), ints([1]), ints(0)])
    case("Reverse", "both", [val(F, (2, 3, 2)), np.array([True, False, True])])
    case("Reverse", "none", [val(F, (2, 3)), np.array([False, False])])
    fails("Reverse", "rank", [val(F, (2, 3)), np.array([True])])
    case("Concat", "axis_0", [ints(0), [val(F, (2, 3)), val(F, (1, 3), "b"), val(F, (0, 3))]])
    case("Concat", "axis_-2", [ints(-2), [val(F, (2, 3)), val(F, (1, 3), "b")]])
    fails("Concat", "shapes", [ints(0), [val(F, (2, 3)), val(F, (2, 2))]])
    fails("Concat", "axis", [ints(2), [val(F, (2, 3)), val(F, (2, 3))]])
    case("ReverseSequence", "batch_1", [val(F, (3, 2, 2)), ints([3, 2])], seq_dim=0, batch_dim=1)
    case("ReverseSequence", "last", [val(F, (2, 2, 3)), ints([0, 3])], seq_dim=2, batch_dim=0)
    case("ReverseSequence", "empty", [val(F, (0, 3)), ints([], L)], seq_dim=1)
    fails("ReverseSequence", "length", [val(F, (2, 3)), ints([4, 0])], seq_dim=1)
    fails("ReverseSequence", "count", [val(F, (2, 3)), ints([1, 1, 1])], seq_dim=1)
    fails("ReverseSequence", "same", [val(F, (2, 3)), ints([1, 1])], seq_dim=0)
    for mode in ("REFLECT", "SYMMETRIC"):
        for s, p in (
            ((4,), [[3, 2]]),
            ((3, 3), [[0, 0], [0, 0]]),
            ((2, 3, 3), [[1, 1], [2, 1], [0, 2]]),
            ((1, 3, 3, 2), [[0, 0], [1, 1], [1, 1], [0, 0]]),
        ):
            y = case("MirrorPad", "%s_%s" % (mode, dims(s)), [val(F, s), ints(p)], mode=mode)[0]
            case("MirrorPadGrad", "%s_%s" % (mode, dims(s)), [val(F, y.shape, "dy"), ints(p)], mode=mode)
        case("MirrorPad", mode + "_int64", [val(F, (3,)), ints([[1, 1]], L)], mode=mode)
        fails("MirrorPad", mode + "_too_large", [val(F, (3,)), ints([[4, 0]])], mode=mode)
        fails("MirrorPad", mode + "_negative", [val(F, (3,)), ints([[-1, 0]])], mode=mode)
        fails("MirrorPad", mode + "_rank", [val(F, (3, 3)), ints([[1, 0]])], mode=mode)
    for s, b, e in (
        ((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]),
        ((1, 3, 4, 2), [2, 2], [[1, 0], [1, 1]]),
        ((2, 5), [3], [[0, 1]]),
        ((1, 3, 3), [2, 1], [[3, 2], [0, 0]]),
        ((2, 2, 2), [], np.zeros((0, 2), I)),
        ((1, 3, 2, 2), [1, 2], [[0, 0], [0, 2]]),
    ):
        label = "%s_by_%s" % (dims(s), "_".join(map(str, b)) or "none")
        y = case("SpaceToBatchND", label, [val(F, s), ints(b), ints(e)])[0]
        case("BatchToSpaceND", label, [val(F, y.shape), ints(b), ints(e)])
    for s, e in (((1, 4, 4, 1), [[0, 0], [0, 0]]), ((2, 3, 2, 2), [[1, 0], [1, 1]])):
        y = case("SpaceToBatch", dims(s), [val(F, s), ints(e)], block_size=2)[0]
        case("BatchToSpace", dims(s), [val(F, y.shape), ints(e)], block_size=2)
    fails("SpaceToBatchND", "multiple", [val(F, (1, 3)), ints([2]), ints([[0, 0]])])
    fails("SpaceToBatchND", "negative", [val(F, (1, 4)), ints([2]), ints([[-1, 1]])])
    fails("SpaceToBatchND", "zero_block", [val(F, (1, 4)), ints([0]), ints([[0, 0]])])
    fails("BatchToSpaceND", "batch", [val(F, (3, 4)), ints([2]), ints([[0, 0]])])
    fails("BatchToSpaceND", "crops", [val(F, (2, 2)), ints([2]), ints([[3, 2]])])
    fails("SpaceToBatch", "rank", [val(F, (1, 4, 4)), ints([[0, 0], [0, 0]])], block_size=2)
    case("SpaceToDepth", "block_3", [val(F, (2, 3, 6, 2))], block_size=3)
    case("DepthToSpace", "block_3", [val(F, (2, 1, 2, 18))], block_size=3)
    case("SpaceToDepth", "empty", [val(F, (0, 2, 2, 1))], block_size=2)
    fails("SpaceToDepth", "multiple", [val(F, (1, 3, 4, 1))], block_size=2)
    fails("DepthToSpace", "channels", [val(F, (1, 2, 2, 6))], block_size=2)
    fails("DepthToSpace", "rank", [val(F, (2, 2, 8))], block_size=2)


def order():
    family("order")
    for t in REAL:
        case("TopKV2", SHORT[t], [num(t, (2, 6)), ints(3)])
        case("NthElement", SHORT[t], [num(t, (2, 6)), ints(2)])
        case("LowerBound", SHORT[t], [np.sort(num(t, (2, 6)), axis=1), num(t, (2, 3), "v")])
        case("UpperBound", SHORT[t], [np.sort(num(t, (2, 6)), axis=1), num(t, (2, 3), "v")])
    equal = np.array([[1, 3, 3, 2, 3], [0, 0, 0, 0, 0]], F)
    for k in (0, 1, 2, 4, 5):
        # TensorFlow's kernel of TopK wants an attribute that the op has not.
        case("TopK", "ties_%d" % k, [equal], k=k, expect=case("TopKV2", "ties_%d" % k, [equal, ints(k)]))
    case("TopKV2", "vector", [val(F, (7,)), ints(7)])
    case("TopKV2", "rank_3", [val(F, (2, 2, 5)), ints(2)])
    case("TopKV2", "index_int64", [val(F, (2, 5)), ints(2, L)], index_type=L)
    case("TopKV2", "no_rows", [val(F, (0, 5)), ints(2)])
    fails("TopKV2", "too_many", [val(F, (2, 3)), ints(4)])
    fails("TopKV2", "negative", [val(F, (2, 3)), ints(-1)])
    fails("TopKV2", "scalar", [val(F, ()), ints(0)])
    for n in (0, 1, 4):
        for reverse in (False, True):
            case("NthElement", "%d_%s" % (n, reverse), [equal, ints(n)], reverse=reverse)
    case("NthElement", "vector", [val(F, (5,)), ints(3)])
    fails("NthElement", "range", [val(F, (2, 3)), ints(3)])
    bounds = [-1.5, 0.0, 0.0, 2.0, 7.5]
    for t in (F, D, I, L):
        case("Bucketize", SHORT[t], [np.array([[-9, -1.5, -1, 0], [1, 2, 7.5, 100]]).astype(t)], boundaries=bounds)
    case("Bucketize", "ends", [np.array([np.nan, np.inf, -np.inf, -0.0], F)], boundaries=bounds)
    case("Bucketize", "none", [val(F, (0, 3))], boundaries=[1.0])
    case("Bucketize", "no_boundaries", [val(F, (3,))], boundaries=[])
    fails("Bucketize", "order", [val(F, (3,))], boundaries=[1.0, 0.0])
    for op in ("LowerBound", "UpperBound"):
        rows = np.array([[0, 3, 9, 9, 10], [1, 2, 3, 4, 5]], I)
        case(op, "ties", [rows, ints([[2, 4, 9], [0, 2, 6]])])
        case(op, "index_int64", [rows, ints([[9], [0]])], out_type=L)
        case(op, "empty", [np.zeros((2, 0), F), val(F, (2, 3))])
        fails(op, "rows", [val(F, (2, 3)), val(F, (3, 3))])
    arr = ints([1, 0, 1, 5, 3, 3, 3])
    for t in NUMBERS:
        case("Bincount", SHORT[t], [arr, ints(6), np.zeros(0, t)])
        case("Bincount", "weights_" + SHORT[t], [arr, ints(6), val(t, (7,))])
        case("HistogramFixedWidth", SHORT[t], [val(t, (9,)), np.array([-1, 1], t), ints(5)])
    case("Bincount", "beyond", [arr, ints(4), np.zeros(0, F)])
    case("Bincount", "size_0", [arr, ints(0), np.zeros(0, F)])
    case("Bincount", "matrix", [ints([[1, 2], [2, 0]]), ints(3), np.zeros(0, F)])
    fails("Bincount", "negative", [ints([-1, 2]), ints(3), np.zeros(0, F)])
    fails("Bincount", "size", [ints([1, 2]), ints(-3), np.zeros(0, F)])
    fails("Bincount", "weights", [ints([1, 2]), ints(3), val(F, (3,))])
    case("HistogramFixedWidth", "out_int64", [val(F, (3, 4)), np.array([0, 1], F), ints(3)], dtype=L)
    case("HistogramFixedWidth", "edges", [np.array([0, 1, 2, 3, 5, 4.999, -9, 9], F), np.array([0, 5], F), ints(5)])
    fails("HistogramFixedWidth", "nbins", [val(F, (3,)), np.array([0, 1], F), ints(0)])
    fails("HistogramFixedWidth", "range", [val(F, (3,)), np.array([1, 1], F), ints(2)])
    for t in (I, L):
        case("InTopK", SHORT[t], [val(F, (4, 5)), ints([0, 4, 2, 2], t)], k=2)
    fails("InTopK", "rows", [val(F, (4, 5)), ints([0, 4])], k=2)


def whole():
    family("whole")
    for t in (F, D):
        case("LinSpace", SHORT[t], [np.asarray(-1, t), np.asarray(2, t), ints(7)])
    case("LinSpace", "one", [np.array(3.0, F), np.array(5.0, F), ints(1)])
    case("LinSpace", "down_int64", [np.array(3.0, D), np.array(-5.0, D), ints(4, L)])
    fails("LinSpace", "zero", [np.array(3.0, F), np.array(5.0, F), ints(0)])
    case("Empty", "float", [ints([2, 3])], dtype=F, init=True)
    case("Empty", "string", [ints([2])], dtype=tf.string, init=True)
    fails("Empty", "negative", [ints([-2])], dtype=F, init=True)
    case("Bitcast", "float_int32", [val(F, (2, 3))], type=I)
    case("Bitcast", "float_uint8", [val(F, (2,))], type=U8)
    case("Bitcast", "uint8_float", [np.arange(8, dtype=U8).reshape(2, 4)], type=F)
    case("Bitcast", "int64_double", [val(L, ())], type=D)
    case("Bitcast", "double_half", [val(D, (3, 1))], type=H)
    fails("Bitcast", "shape", [np.arange(6, dtype=U8).reshape(2, 3)], type=F)
    fails("Bitcast", "scalar", [np.array(1, U8)], type=F)
    case("EnsureShape", "partly", [val(F, (2, 3))], shape=[None, 3])
    case("EnsureShape", "unknown", [val(I, (2, 3))], shape=None)
    fails("EnsureShape", "other", [val(F, (2, 3))], shape=[2, 4])
    fails("EnsureShape", "rank", [val(F, (2, 3))], shape=[6])
    case("Snapshot", "float", [val(F, (2, 3))])
    for t in NUMBERS:
        case("Diag", SHORT[t], [val(t, (3,))])
        case("DiagPart", SHORT[t], [val(t, (3, 3))])
    case("Diag", "matrix", [val(F, (2, 3))])
    case("DiagPart", "matrix", [val(F, (2, 3, 2, 3))])
    case("Diag", "empty", [val(F, (0,))])
    fails("Diag", "scalar", [val(F, ())])
    fails("DiagPart", "odd", [val(F, (2, 2, 2))])
    fails("DiagPart", "not_square", [val(F, (2, 3))])
    for t in (I, L):
        case("UnravelIndex", SHORT[t], [ints([22, 41, 37], t), ints([7, 6], t)])
    case("UnravelIndex", "scalar", [ints(1621), ints([6, 7, 8, 9])])
    fails("UnravelIndex", "range", [ints([6]), ints([2, 3])])
    fails("UnravelIndex", "zero", [ints([0]), ints([2, 0])])
    repeated = lambda t: np.array([3, 1, 3, 7, 1, 3]).astype(t)
    for t in REAL:
        case("Unique", SHORT[t], [repeated(t)])
        case("UniqueWithCounts", SHORT[t], [repeated(t)])
        case("UniqueV2", SHORT[t], [repeated(t).reshape(3, 2)[:, :1].repeat(2, 1), ints([0])])
        case("ListDiff", SHORT[t], [repeated(t), np.array([3, 9]).astype(t)])
    words = text("b", "a", "", "b", "a")
    case("Unique", "string", [words])
    case("UniqueWithCounts", "string", [words], out_idx=L)
    case("ListDiff", "string", [words, text("a", "x")])
    case("Unique", "empty", [val(F, (0,))])
    rows = np.array([[1, 0, 0], [1, 0, 0], [2, 0, 0]], I)
    for op in ("UniqueV2", "UniqueWithCountsV2"):
        case(op, "no_axis", [repeated(F), ints([], L)])
        case(op, "vector", [repeated(F), ints([0])])
        case(op, "rows", [rows, ints([0])])
        case(op, "columns", [rows, ints([1])])
        case(op, "middle", [np.array([[[1, 2], [3, 4], [1, 2]], [[5, 6], [7, 8], [5, 6]]], F), ints([1], L)], out_idx=L)
        case(op, "string", [words, ints([0])])
        fails(op, "axis", [rows, ints([2])])
        fails(op, "matrix", [rows, ints([], L)])


# ---- segments, sparse tensors -------------------------------------------------------------------------------------


def segment():
    family("segment")
    ids = ints([0, 0, 1, 3, 3, 3])
    for t in REAL:
        x = num(t, (6, 2), "x", 0.5, 2)
        for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"):
            if op == "SegmentMean" and t in SMALL:  # sums that TensorFlow's mean does not hold
                continue
            case(op, SHORT[t], [x, ids])
        for op in ("UnsortedSegmentProd", "UnsortedSegmentMin", "UnsortedSegmentMax"):
            case(op, SHORT[t], [x, ints([2, 0, 2, -1, 4, 0]), ints(5)])
    for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"):
        case(op, "index_int64", [val(F, (3, 2, 2)), ints([1, 1, 2], L)])
        case(op, "vector", [val(F, (4,)), ints([0, 1, 1, 1])])
        case(op, "empty", [val(F, (0, 2)), ints([])])
        fails(op, "order", [val(F, (3,)), ints([0, 2, 1])])
        fails(op, "negative", [val(F, (3,)), ints([-1, 0, 1])])
        fails(op, "count", [val(F, (3,)), ints([0, 1])])
    for op in ("UnsortedSegmentProd", "UnsortedSegmentMin", "UnsortedSegmentMax"):
        case(op, "matrix_index", [val(F, (2, 2, 3)), ints([[0, 1], [1, 0]]), ints(2)])
        case(op, "index_int64", [val(F, (3, 2)), ints([2, 2, 0], L), ints(3, L)])
        case(op, "empty", [val(F, (0, 2)), ints([]), ints(3)])
        fails(op, "range", [val(F, (3,)), ints([0, 1, 2]), ints(2)])
    at, to = ints([3, 0, 3, 1, 2]), ints([0, 0, 2, 2, 2])
    for kind, types in (("Sum", REAL), ("Mean", FLOATS), ("SqrtN", FLOATS)):
        op = "SparseSegment" + kind
        for t in types:
            case(op, SHORT[t], [num(t, (4, 3)), at, to])
            case(op + "WithNumSegments", SHORT[t], [num(t, (4, 3)), at, to, ints(5)])
        for t in FLOATS:
            case(op + "Grad", SHORT[t], [val(t, (3, 3)), at, to, ints(4)])
        case(op, "index_int64", [val(F, (4,)), at.astype(L), to])
        case(op, "ids_int64", [val(F, (4, 2)), at, to.astype(L)])
        case(op, "empty", [val(F, (4, 2)), ints([]), ints([])])
        case(op + "WithNumSegments", "index_int64", [val(F, (4, 2)), at.astype(L), to.astype(L), ints(3, L)])
        case(op + "Grad", "output_larger", [val(F, (3, 2)), at.astype(L), to, ints(6)])
        fails(op, "range", [val(F, (3, 2)), at, to])
        fails(op, "order", [val(F, (4, 2)), at, ints([0, 1, 0, 2, 2])])
        fails(op, "sizes", [val(F, (4, 2)), at, ints([0, 1])])
        fails(op + "WithNumSegments", "too_few", [val(F, (4, 2)), at, to, ints(2)])
        fails(op + "Grad", "range", [val(F, (3, 2)), at, to, ints(3)])
        fails(op + "Grad", "ids", [val(F, (2, 2)), at, to, ints(4)])


def sparse():
    family("sparse")
    at, shape = ints([[0, 1], [0, 3], [2, 0], [3, 1]], L), ints([5, 4], L)
    back = at[::-1].copy()
    for t in ALL + SMALL:
        v = num(t, (4,))
        case("SparseToDense", SHORT[t], [at, shape, v, num(t, (), "d")])
        case("SparseReorder", SHORT[t], [back, v, shape])
        case("SparseSlice", SHORT[t], [at, v, shape, ints([0, 1], L), ints([3, 3], L)])
        case("SparseConcat", SHORT[t], [[at, at], [v, v[::-1].copy()], [shape, ints([5, 6], L)]], concat_dim=1)
        case("SparseFillEmptyRows", SHORT[t], [at, v, shape, num(t, (), "d")])
    for t in REAL:
        case("SparseReduceSum", SHORT[t], [at, num(t, (4,)), shape, ints([1])])
    for t in NUMBERS:
        case("SparseFillEmptyRowsGrad", SHORT[t], [ints([2, 1, 3], L), val(t, (5,))])
        case("SparseSliceGrad", SHORT[t], [val(t, (2,)), at, ints([0, 1], L), ints([[0, 0], [0, 2]], L)])
    words = text("a", "b", "c", "d")
    case("SparseToDense", "string", [at, shape, words, text("").reshape(())])
    case("SparseReorder", "string", [back, words, shape])
    case("SparseFillEmptyRows", "string", [at, words, shape, text("x").reshape(())])
    case("SparseConcat", "string", [[at, at], [words, words], [shape, shape]], concat_dim=0)
    case("SparseToDense", "scalar_value", [ints([1, 3]), ints([5]), np.array(2.0, F), np.array(0.5, F)])
    case("SparseToDense", "one", [ints(2), ints([5]), np.array(2.0, F), np.array(0.5, F)])
    case("SparseToDense", "any_order", [back, shape, val(F, (4,)), np.array(0.0, F)], validate_indices=False)
    case("SparseToDense", "empty", [np.zeros((0, 2), L), shape, np.zeros(0, F), np.array(1.0, F)])
    fails("SparseToDense", "order", [back, shape, val(F, (4,)), np.array(0.0, F)])
    fails("SparseToDense", "repeats", [ints([1, 1]), ints([5]), val(F, (2,)), np.array(0.5, F)])
    fails("SparseToDense", "range", [ints([1, 5]), ints([5]), val(F, (2,)), np.array(0.5, F)])
    fails("SparseToDense", "values", [ints([1, 2]), ints([5]), val(F, (3,)), np.array(0.5, F)])
    for to in ([20], [2, -1], [2, 5, 2], [-1, 4]):
        case("SparseReshape", "_".join(map(str, to)), [at, shape, ints(to, L)])
    case("SparseReshape", "empty", [np.zeros((0, 2), L), shape, ints([4, 5], L)])
    fails("SparseReshape", "elements", [at, shape, ints([3, 7], L)])
    fails("SparseReshape", "two_open", [at, shape, ints([-1, -1], L)])
    case("SparseConcat", "axis_-2", [[at, at], [val(F, (4,)), val(F, (4,), 1)], [shape, ints([4, 4], L)]], concat_dim=-2)
    fails("SparseConcat", "shapes", [[at, at], [val(F, (4,)), val(F, (4,), 1)], [shape, ints([5, 6], L)]], concat_dim=0)
    case("SparseSlice", "beyond", [at, val(F, (4,)), shape, ints([2, 0], L), ints([9, 9], L)])
    case("SparseSlice", "nothing", [at, val(F, (4,)), shape, ints([4, 0], L), ints([1, 4], L)])
    case("SparseFillEmptyRows", "none_empty", [ints([[0, 1], [1, 0]], L), val(F, (2,)), ints([2, 2], L), np.array(0.5, F)])
    case("SparseFillEmptyRows", "all_empty", [np.zeros((0, 2), L), np.zeros(0, F), ints([2, 2], L), np.array(0.5, F)])
    case("SparseFillEmptyRows", "unordered", [back, val(F, (4,)), shape, np.array(0.5, F)])
    fails("SparseFillEmptyRows", "range", [ints([[5, 0]], L), val(F, (1,)), shape, np.array(0.5, F)])
    for axes in ([0], [0, 1], [-1], []):
        for keep in (False, True):
            label = "%s_%s" % ("_".join(map(str, axes)) or "all", keep)
            case("SparseReduceSum", label, [at, val(F, (4,)), shape, ints(axes)], keep_dims=keep)
    fails("SparseReduceSum", "axis", [at, val(F, (4,)), shape, ints([2])])
    for t in NUMBERS[:3] + [BF16]:
        case("SparseTensorDenseMatMul", SHORT[t], [at, val(t, (4,)), shape, val(t, (4, 3))])
    for a in (False, True):
        for b in (False, True):
            inner = 5 if a else 4
            inputs = [at, val(F, (4,)), shape, val(F, (3, inner) if b else (inner, 3))]
            case("SparseTensorDenseMatMul", "adjoint_%d%d" % (a, b), inputs, adjoint_a=a, adjoint_b=b)
    case("SparseTensorDenseMatMul", "index_int32", [at.astype(I), val(F, (4,)), shape, val(F, (4, 3))])
    fails("SparseTensorDenseMatMul", "inner", [at, val(F, (4,)), shape, val(F, (5, 3))])
    fails("SparseTensorDenseMatMul", "range", [ints([[5, 0]], L), val(F, (1,)), shape, val(F, (4, 3))])


def sparse_arithmetic():
    family("sparse_arithmetic")
    at, shape = ints([[0, 0], [0, 2], [1, 0], [3, 1]], L), ints([4, 5], L)
    other, back = ints([[0, 1], [0, 2], [2, 4], [3, 1]], L), ints([[3, 1], [0, 2], [1, 0], [0, 0]], L)
    none = np.zeros((0, 2), L)
    for t in NUMBERS + [np.int8, np.int16]:
        a, b = num(t, (4,), "a", -3, 3), num(t, (4,), "b", -3, 3)
        case("SparseAdd", SHORT[t], [at, a, shape, other, b, shape, np.array(2, t)])
        case("SparseAdd", SHORT[t] + "_all", [at, a, shape, other, b, shape, np.array(0, t)])
        case("SparseAddGrad", SHORT[t], [num(t, (3,)), at, other, ints([[0, 0], [0, 2], [2, 4]], L)])
    x = val(F, (4,))
    case("SparseAdd", "nothing", [none, x[:0], shape, none, x[:0], shape, np.array(0, F)])
    case("SparseAdd", "nothing_left", [at, x, shape, at, -x, shape, np.array(0.1, F)])
    case("SparseAdd", "one_empty", [at, x, shape, none, x[:0], shape, np.array(9, F)])
    nan = np.array([np.nan, -0.0, 1, np.inf], F)
    case("SparseAdd", "no_number", [at, nan, shape, at, nan, shape, np.array(0, F)])
    fails("SparseAdd", "shapes", [at, x, shape, at, x, ints([4, 6], L), np.array(0, F)])
    fails("SparseAdd", "ranks", [at, x, shape, ints([[0], [1], [2], [3]], L), x, ints([4], L), np.array(0, F)])
    fails("SparseAdd", "values", [at, x[:3], shape, at, x, shape, np.array(0, F)])
    fails("SparseAdd", "thresh", [at, x, shape, at, x, shape, np.zeros(1, F)])
    case("SparseAddGrad", "empty", [x[:0], at, none, none])
    fails("SparseAddGrad", "grads", [x, at, other, other[:2]])
    fails("SparseAddGrad", "ranks", [x, at, np.zeros((4, 3), L), at])
    for op in ("SparseSparseMaximum", "SparseSparseMinimum"):
        for t in REAL:
            case(op, SHORT[t], [at, num(t, (4,), "a"), shape, other, num(t, (4,), "b"), shape])
        case(op, "empty", [none, x[:0], shape, other, x, shape])
        fails(op, "shapes", [at, x, shape, at, x, ints([4, 6], L)])
    for t in REAL:
        case("SparseTensorDenseAdd", SHORT[t], [at, num(t, (4,), "a", 0, 1), shape, num(t, (4, 5), "b", 0, 1)])
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
            case(op, SHORT[t], [at, num(t, (4,), "a", 1, 2), shape, num(t, (4, 5), "b", 1, 2)])
    case("SparseTensorDenseAdd", "int32_indices", [at.astype(I), x, shape.astype(I), val(F, (4, 5))])
    case("SparseTensorDenseAdd", "repeated", [at[[1, 1, 2, 1]], x, shape, val(F, (4, 5))])
    case("SparseTensorDenseAdd", "row", [ints([[1], [4]], L), x[:2], ints([5], L), val(F, (5,))])
    case("SparseTensorDenseAdd", "empty", [none, x[:0], shape, val(F, (4, 5))])
    fails("SparseTensorDenseAdd", "shape", [at, x, shape, val(F, (4, 1))])
    fails("SparseTensorDenseAdd", "range", [ints([[4, 0]], L), x[:1], shape, val(F, (4, 5))])
    for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
        for dense in ((), (5,), (1,), (4, 1), (1, 5), (1, 1)):
            case(op, "by_" + dims(dense), [at, x, shape, val(F, dense, "y", 1, 2)])
        case(op, "int_by_scalar", [at, ints([-7, 7, 5, 0]), shape, ints(3)])
        case(op, "empty", [none, x[:0], shape, val(F, (5,))])
        fails(op, "dense", [at, x, shape, val(F, (4,))])
        fails(op, "sparse", [at, x, ints([4, 1], L), val(F, (5,))])
        fails(op, "rank", [at, x, shape, val(F, (2, 4, 5))])
    rows = ints([[0, 0, 1], [0, 0, 3], [0, 1, 0], [2, 0, 0], [2, 0, 1], [2, 0, 3]], L)
    for t in (F, D, H):
        case("SparseSoftmax", SHORT[t], [rows, val(t, (6,)), ints([3, 2, 4], L)])
    case("SparseSoftmax", "unordered", [back, x, shape])
    case("SparseSoftmax", "large", [at, x * 1000, shape])
    case("SparseSoftmax", "empty", [none, x[:0], shape])
    fails("SparseSoftmax", "rank", [ints([[0], [1]], L), x[:2], ints([4], L)])
    for t in ALL + SMALL:
        case("SparseSplit", SHORT[t], [ints(1, L), at, num(t, (4,)), shape], num_split=3)
    case("SparseSplit", "string", [ints(0, L), at, text("a", "", "b", "c"), shape], num_split=2)
    for axis, n in ((0, 1), (0, 4), (1, 5), (-1, 2), (-2, 3)):
        case("SparseSplit", "axis_%d_in_%d" % (axis, n), [ints(axis, L), at, x, shape], num_split=n)
    case("SparseSplit", "empty", [ints(0, L), none, x[:0], shape], num_split=2)
    fails("SparseSplit", "parts", [ints(0, L), at, x, shape], num_split=5)
    fails("SparseSplit", "axis", [ints(2, L), at, x, shape], num_split=2)
    fails("SparseSplit", "values", [ints(0, L), at, x[:2], shape], num_split=2)


def sets():
    family("sets")
    at, shape = ints([[0, 0], [0, 2], [0, 3], [2, 0], [3, 1]], L), ints([4, 5], L)
    other = ints([[0, 1], [1, 2], [2, 1], [2, 4], [3, 1]], L)
    operations = ("a-b", "B-A", "intersection", "union")
    for t in (np.int8, np.int16, I, L, U8, U16):
        a, b = np.array([3, 1, 3, 7, 4], t), np.array([1, 5, 9, 7, 4], t)
        dense = np.array([[3, 1, 1], [2, 2, 2], [9, 7, 8], [5, 4, 5]], t)
        for operation in operations:
            label = "%s_%s" % (SHORT[t], operation)
            case("SparseToSparseSetOperation", label, [at, a, shape, other, b, shape], set_operation=operation)
            case("DenseToSparseSetOperation", label, [dense, other, b, shape], set_operation=operation)
            case("DenseToDenseSetOperation", label, [dense, dense[::-1, :2].copy()], set_operation=operation)
        case("SetSize", SHORT[t], [at, a, shape])
    a, b = text("c", "a", "c", "gg", ""), text("a", "e", "h", "gg", "")
    dense = np.array([["c", "a"], ["b", "b"], ["h", "gg"], ["", "x"]], object)
    for operation in operations:
        label = "string_" + operation
        case("SparseToSparseSetOperation", label, [at, a, shape, other, b, shape], set_operation=operation)
        case("DenseToSparseSetOperation", label, [dense, other, b, shape], set_operation=operation)
        case("DenseToDenseSetOperation", label, [dense, dense[:, ::-1].copy()], set_operation=operation)
    case("SetSize", "string", [at, a, shape])
    n, none = ints([3, 1, 3, 7, 4]), np.zeros((0, 2), L)
    deep = ints([[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 3]], L)
    case("SetSize", "of_matrices", [deep, n, ints([2, 2, 4], L)])
    case("SetSize", "unordered", [at[::-1].copy(), n, shape], validate_indices=False)
    case("SetSize", "empty", [none, n[:0], shape])
    case("DenseToSparseSetOperation", "of_matrices", [ints(range(12)).reshape(2, 2, 3), deep, n, ints([2, 2, 4], L)], set_operation="union")
    case("SparseToSparseSetOperation", "empty", [none, n[:0], shape, none, n[:0], shape], set_operation="union")
    case("SparseToSparseSetOperation", "one_empty", [none, n[:0], shape, other, n, ints([4, 7], L)], set_operation="union")
    case("DenseToDenseSetOperation", "empty", [np.zeros((2, 0), I), np.zeros((2, 0), I)], set_operation="union")
    case("DenseToSparseSetOperation", "empty", [np.zeros((4, 0), I), at, n, shape], set_operation="union")
    fails("SetSize", "order", [at[::-1].copy(), n, shape])
    fails("SetSize", "repeated", [at[[0, 0, 1, 2, 3]], n, shape])
    fails("SetSize", "range", [ints([[0, 5]], L), n[:1], shape])
    fails("SetSize", "rank", [ints([[0]], L), n[:1], ints([4], L)])
    fails("DenseToDenseSetOperation", "groups", [np.zeros((2, 1), I), np.zeros((3, 1), I)], set_operation="union")
    fails("DenseToDenseSetOperation", "rank", [np.zeros(2, I), np.zeros(2, I)], set_operation="union")
    fails("DenseToDenseSetOperation", "operation", [np.zeros((2, 1), I), np.zeros((2, 1), I)], set_operation="a+b")
    fails("SparseToSparseSetOperation", "groups", [at, n, shape, at, n, ints([5, 5], L)], set_operation="union")


def crosses():
    family("crosses")
    at = ints([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1]], L)
    more = ints([[0, 0], [1, 0], [1, 1], [2, 0], [3, 0], [3, 1], [3, 2]], L)
    shape, wide = ints([4, 2], L), ints([4, 3], L)
    words, numbers = text("a", "bb", "", "dd", "eeeeeeeee"), ints([1, -2, 30, 4, 1 << 40, 6, 7], L)
    dense_words = np.array([["x", "y"], ["z", ""], ["u", "v"], ["p", "q"]], object)
    dense_numbers = ints([[5], [6], [7], [1 << 50]], L)
    columns = {
        "words": ([at], [words], [shape], []),
        "numbers": ([more], [numbers], [wide], []),
        "both": ([at, more], [words, numbers], [shape, wide], []),
        "with_dense": ([at, more], [words, numbers], [shape, wide], [dense_words, dense_numbers]),
        "dense": ([], [], [], [dense_words, dense_numbers]),
        "dense_words": ([at], [words], [shape], [dense_words]),
        "dense_numbers": ([], [], [], [dense_numbers, dense_numbers]),
        "nothing": ([np.zeros((0, 2), L), more], [words[:0], numbers], [shape, wide], []),
        "unordered": ([at[[0, 1, 3, 2, 4]], more], [words, numbers], [shape, wide], []),
    }
    for label, inputs in columns.items():
        for out, key, buckets in ((np.int64, 0xDECAFCAFFE, 0), (np.int64, 5, 1000), (tf.string, 0, 0)):
            case(
                "SparseCross", "%s_%s_%d" % (label, tf.as_dtype(out).name, buckets), list(inputs),
                hashed_output=out is np.int64, num_buckets=buckets, hash_key=key, out_type=out, internal_type=np.int64
            )
        case("SparseCrossV2", label, list(inputs) + [text("_x_").reshape(())])
        for buckets, strong in ((0, False), (0, True), (100, True)):
            if strong and any(x.dtype == L for x in inputs[3]):
                continue  # TensorFlow crashes
            salt = ints([137, 173], L)
            case(
                "SparseCrossHashed", "%s_%d_%d" % (label, buckets, strong),
                list(inputs) + [ints(buckets, L), np.array(strong), salt]
            )
    attrs = dict(hashed_output=False, num_buckets=0, hash_key=0, out_type=tf.string)
    case("SparseCross", "internal_string", [[at, at], [words, words], [shape, shape], [dense_words]], internal_type=tf.string, **attrs)
    fails("SparseCross", "internal_type", list(columns["both"]), internal_type=tf.string, **attrs)
    fails("SparseCross", "batch", [[at, at], [words, words], [shape, ints([5, 2], L)], []], internal_type=tf.string, **attrs)
    fails("SparseCross", "dense_batch", [[at], [words], [shape], [dense_words[:3]]], internal_type=tf.string, **attrs)
    fails("SparseCross", "values", [[at], [words[:3]], [shape], []], internal_type=tf.string, **attrs)
    fails("SparseCross", "shape", [[at], [words], [ints([4], L)], []], internal_type=tf.string, **attrs)
    fails("SparseCrossV2", "sep", list(columns["words"]) + [text("_")])
    fails("SparseCrossHashed", "salt", list(columns["words"]) + [ints(0, L), np.array(True), ints([1, 2, 3], L)])


def candidates():
    family("candidates")
    true = ints([[0, 1], [3, 4], [0, 9]], L)
    seeds = dict(seed=12, seed2=34)
    for op in (
        "UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler"
    ):
        for unique in (True, False):
            for n, most in ((5, 10), (10, 10), (16, 16), (40, 1000), (300, 100000)):
                if op.startswith("LogUniform") or n < most or unique:
                    label = "%d_of_%d%s" % (n, most, "_unique" if unique else "")
                    case(op, label, [true], num_true=2, num_sampled=n, unique=unique, range_max=most, **seeds)
        case(op, "more_than_range", [true], num_true=2, num_sampled=50, unique=False, range_max=10, **seeds)
        case(op, "seed2", [true], num_true=2, num_sampled=5, unique=True, range_max=100, seed2=-7)
        case(op, "large_seeds", [true], num_true=2, num_sampled=5, unique=True, range_max=100, seed=-1, seed2=1 << 40)
        case(op, "no_rows", [true[:0]], num_true=2, num_sampled=5, unique=True, range_max=100, **seeds)
        fails(op, "range", [true], num_true=2, num_sampled=11, unique=True, range_max=10, **seeds)
        fails(op, "true", [true], num_true=2, num_sampled=5, unique=True, range_max=9, **seeds)
        fails(op, "negative", [-true], num_true=2, num_sampled=5, unique=True, range_max=10, **seeds)
        fails(op, "columns", [true], num_true=3, num_sampled=5, unique=True, range_max=10, **seeds)
        fails(op, "vector", [true[0]], num_true=2, num_sampled=5, unique=True, range_max=10, **seeds)
    for op in ("UniformCandidateSampler", "LogUniformCandidateSampler"):
        case(op, "huge", [true], num_true=2, num_sampled=20, unique=True, range_max=(1 << 62) + 5, **seeds)
    op = "FixedUnigramCandidateSampler"
    weights = [0.5, 3, 0.25, 7, 1, 1, 0, 2.5, 0.125, 4]
    for unique in (True, False):
        for distortion in (1.0, 0.75, 0.0):
            label = "%s%s" % (distortion, "_unique" if unique else "")
            case(
                op, label, [true], num_true=2, num_sampled=6, unique=unique, range_max=10, unigrams=weights,
                distortion=distortion, **seeds
            )
    many = [float(x) for x in base.rng("weights").uniform(0, 1, 1000).astype(F)]
    case(op, "many", [true], num_true=2, num_sampled=200, unique=True, range_max=1000, unigrams=many, **seeds)
    case(op, "reserved", [true], num_true=2, num_sampled=6, unique=False, range_max=12, num_reserved_ids=2, unigrams=weights, **seeds)
    for shard in (0, 1, 2):
        few = [1.0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
        of = (len(few) - shard + 2) // 3
        case(
            op, "shard_%d" % shard, [ints([[0, 1]], L)], num_true=2, num_sampled=3, unique=False, range_max=of,
            num_shards=3, shard=shard, unigrams=few, **seeds
        )
    fails(op, "no_weights", [true], num_true=2, num_sampled=6, unique=True, range_max=10, **seeds)
    fails(op, "two", [true], num_true=2, num_sampled=6, unique=True, range_max=10, unigrams=weights, vocab_file="x", **seeds)
    fails(op, "no_file", [true], num_true=2, num_sampled=6, unique=True, range_max=10, vocab_file="/no such file", **seeds)
    fails(op, "size", [true], num_true=2, num_sampled=6, unique=True, range_max=11, unigrams=weights, **seeds)
    for unique in (True, False):
        case("AllCandidateSampler", "unique_%d" % unique, [true], num_true=2, num_sampled=10, unique=unique, **seeds)
    fails("AllCandidateSampler", "true", [true], num_true=2, num_sampled=9, unique=True, **seeds)
    sampled = ints([3, 7, 0, 3, 100, -4], L)
    case("ComputeAccidentalHits", "some", [true, sampled], num_true=2)
    case("ComputeAccidentalHits", "repeated", [ints([[3, 3], [-4, 0]], L), sampled], num_true=2)
    case("ComputeAccidentalHits", "none", [true, sampled[4:]], num_true=2)
    case("ComputeAccidentalHits", "nothing_sampled", [true, sampled[:0]], num_true=2)
    case("ComputeAccidentalHits", "no_rows", [true[:0], sampled], num_true=2)
    fails("ComputeAccidentalHits", "columns", [true, sampled], num_true=1)
    fails("ComputeAccidentalHits", "matrix", [true, sampled.reshape(2, 3)], num_true=2)


# ---- random -------------------------------------------------------------------------------------------------------


def stateless():
    family("stateless")
    seeds = ints([17, -3], L)
    exact = dict(rtol=0.0, atol=0.0)
    for t in FLOATS:
        case("StatelessRandomUniform", SHORT[t], [ints([3, 7]), seeds], dtype=t, **exact)
        # Sines and logarithms differ in the last places, whose library it is.
        near = dict(rtol=1e-5, atol=1e-6) if t is F else {}
        case("StatelessRandomNormal", SHORT[t], [ints([3, 7]), seeds], dtype=t, **near)
        case("StatelessTruncatedNormal", SHORT[t], [ints([5, 7]), seeds], dtype=t, **near)
    for t in (I, L):
        case("StatelessRandomUniformInt", SHORT[t], [ints([3, 7]), seeds, np.asarray(-5, t), np.asarray(90, t)])
    for t in (I, L, U32, U64):
        case("StatelessRandomUniformFullInt", SHORT[t], [ints([3, 7]), seeds], dtype=t)
    for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
        case(op, "int32_seed", [ints([10]), ints([-1, 2])], dtype=F)
        case(op, "long", [ints([2001], L), seeds], dtype=F)
        case(op, "scalar", [ints([]), seeds], dtype=F)
        fails(op, "seed", [ints([10]), ints([1])], dtype=F)
    fails("StatelessRandomUniformInt", "range", [ints([3]), seeds, ints(5), ints(5)])
    for t in (F, D, H):
        case("StatelessMultinomial", SHORT[t], [val(t, (3, 4)), ints(5), seeds])
    case("StatelessMultinomial", "int32_out", [val(F, (2, 4)), ints(6), seeds], output_dtype=I)
    case("StatelessMultinomial", "infinite", [np.array([[0, -np.inf, 1], [np.nan, 1, 1]], F), ints(9), seeds])
    fails("StatelessMultinomial", "logits", [val(F, (4,)), ints(6), seeds])
    fails("StatelessMultinomial", "samples", [val(F, (2, 4)), ints(-1), seeds])


# ---- strings ------------------------------------------------------------------------------------------------------


def texts():
    family("texts")
    one = lambda s: np.array(s, dtype=object).reshape(())
    rows = text("a b  c", "", " d", "ef,g")
    for d in (" ", "", " ,", "b"):
        for skip in (True, False):
            case("StringSplit", "by_%s_%s" % (d.encode().hex() or "none", skip), [rows, one(d)], skip_empty=skip)
    more = text("a<><>b", "", "  x  y ", "<>", "one")
    for sep in ("<>", "", " "):
        for most in (-1, 0, 1):
            case("StringSplitV2", "by_%s_%d" % (sep.encode().hex() or "none", most), [more, one(sep)], maxsplit=most)
    fails("StringSplit", "rank", [one("a"), one(" ")])
    numbers = text("1", " -3 ", "27", "+5")
    for t in (F, D, I, L):
        case("StringToNumber", SHORT[t], [numbers], out_type=t)
    case("StringToNumber", "floats", [text("1.5", "-2e3", ".25", "1e-3", "inf", "nan", "1e50")], out_type=F)
    fails("StringToNumber", "word", [text("1x")], out_type=F)
    fails("StringToNumber", "fraction", [text("1.5")], out_type=I)
    fails("StringToNumber", "range", [text("3000000000")], out_type=I)
    fails("StringToNumber", "empty", [text("")], out_type=F)
    for t in REAL + [B]:
        case("AsString", SHORT[t], [num(t, (4,))])
    x = np.array([3.14159, -1e-7, 1e20, 0.0], D)
    for k, attrs in enumerate(
        (
            dict(precision=2),
            dict(scientific=True),
            dict(shortest=True),
            dict(precision=3, width=12),
            dict(precision=3, width=12, fill="0"),
            dict(scientific=True, precision=1, fill="+"),
            dict(width=9, fill="-", precision=1),
        )
    ):
        case("AsString", "float_%d" % k, [x], **attrs)
    case("AsString", "int_width", [ints([1, -20]), ], width=5)
    case("AsString", "int_zeros", [ints([1, -20]), ], width=5, fill="0")
    fails("AsString", "int_precision", [ints([1])], precision=2)
    fails("AsString", "both", [x], scientific=True, shortest=True)
    words = text("Hello", " World ", "", "x_Y\t\n")
    for op in ("StringLower", "StringUpper", "StringStrip", "StringLength", "EncodeBase64"):
        case(op, "words", [words])
        case(op, "scalar", [one("Ab")])
    wide = text("h\u00e4\u00dflich", "\u65e5\u672c", "a")
    case("StringLength", "utf8", [wide], unit="UTF8_CHAR")
    case("EncodeBase64", "pad", [text("a", "ab", "abc", "abcd", "\u00ff\u00fe")], pad=True)
    case("DecodeBase64", "words", [text("YQ", "YQ==", "YWI=", "YWJj", "_-8", "")])
    fails("DecodeBase64", "letter", [text("Y!==")])
    fails("DecodeBase64", "length", [text("YWJjY")])
    for t in (I, L):
        case("Substr", SHORT[t], [text("hello", "world"), np.asarray(1, t), np.asarray(3, t)])
    case("Substr", "each", [text("hello", "world"), ints([1, -3]), ints([9, 2])])
    case("Substr", "broadcast", [text("hello", "world").reshape(2, 1), ints([0, 1, 2]), ints([1, 1, 9])])
    case("Substr", "one_of_many", [one("hello"), ints([0, 4]), ints([2, 2])])
    case("Substr", "utf8", [wide, ints([1, 0, 0]), ints([2, 1, 1])], unit="UTF8_CHAR")
    fails("Substr", "range", [text("hello"), ints(6), ints(1)])
    fails("Substr", "shapes", [text("hello"), ints([1]), ints(1)])
    grid = text("a", "b", "c", "d", "e", "f").reshape(2, 3)
    for axes in ([0], [1], [0, 1], [1, 0], [-1], -2):
        for keep in (False, True):
            label = "%s_%s" % ("_".join(map(str, np.atleast_1d(axes))), keep)
            case("ReduceJoin", label, [grid, ints(axes)], keep_dims=keep, separator="-" if keep else "")
    case("ReduceJoin", "nothing", [text(), ints([0])])
    fails("ReduceJoin", "axis", [grid, ints([2])])
    fails("ReduceJoin", "repeats", [grid, ints([1, 1])])
    raw = np.array([bytes(range(8)), bytes(range(100, 108))], dtype=object)
    for t in (F, D, H, I, L, U8, S8, U16, S16):
        case("DecodeRaw", SHORT[t], [raw], out_type=t)
        case("DecodeRaw", "big_" + SHORT[t], [raw], out_type=t, little_endian=False)
    case("DecodeRaw", "scalar", [one(b"\x01\x02")], out_type=U8)
    case("DecodeRaw", "none", [text()], out_type=F)
    fails("DecodeRaw", "multiple", [text("abc")], out_type=F)
    fails("DecodeRaw", "sizes", [text("abcd", "abc")], out_type=U8)
    lines = text('1,2.5,"a ""b"", c"', "3,,x", "4,1e2,")
    kinds = [I, F, tf.string]
    defaults = [ints([7]), np.array([0.5], F), text("none")]
    case("DecodeCSV", "three", [lines, defaults], OUT_TYPE=kinds)
    case("DecodeCSV", "scalar", [one("5,6"), [np.zeros(0, L), np.zeros(0, D)]], OUT_TYPE=[L, D])
    case("DecodeCSV", "tabs", [text("5\t6"), [ints([0]), ints([0])]], OUT_TYPE=[I, I], field_delim="\t")
    case("DecodeCSV", "na", [text("NA,2"), [ints([9]), ints([9])]], OUT_TYPE=[I, I], na_value="NA")
    case("DecodeCSV", "some", [text("1,2,3,4"), [ints([9]), ints([9])]], OUT_TYPE=[I, I], select_cols=[1, 3])
    case("DecodeCSV", "without_quotes", [text('a"b,2'), [text(""), ints([9])]], OUT_TYPE=[tf.string, I], use_quote_delim=False)
    case("DecodeCSV", "spaces", [text(" 1 , 2"), [ints([9]), np.array([9.0], F)]], OUT_TYPE=[I, F])
    fails("DecodeCSV", "too_few", [text("1"), [ints([9]), ints([9])]], OUT_TYPE=[I, I])
    fails("DecodeCSV", "required", [text(",1"), [np.zeros(0, I), ints([9])]], OUT_TYPE=[I, I])
    fails("DecodeCSV", "number", [text("x,1"), [ints([9]), ints([9])]], OUT_TYPE=[I, I])
    fails("DecodeCSV", "quote", [text('"a,1'), [text(""), ints([9])]], OUT_TYPE=[tf.string, I])


def example():
    family("example")

    def make(**features):
        e = tf.train.Example()
        for k, v in features.items():
            f = e.features.feature[k]
            v = [v] if not isinstance(v, list) else v
            if all(isinstance(x, int) for x in v) and v:
                f.int64_list.value.extend(v)
            elif all(isinstance(x, float) for x in v) and v:
                f.float_list.value.extend(v)
            else:
                f.bytes_list.value.extend(x.encode() for x in v)
        return e.SerializeToString()

    one = lambda s: np.array(s, dtype=object).reshape(())
    vec = lambda *s: np.array(s, dtype=object)
    a = make(x=[1.5, 2.5], n=[3, -4, 5], s=["a", "bb"], label=7)
    b = make(x=[0.5, -1.0], s=[], label=-1)
    c = make(x=[3.0, 4.0], n=[9], s=["ccc"], label=2**40, other=[1, 2])
    batch, none = vec(a, b, c), vec()
    key = one
    dense = dict(Nsparse=0, sparse_types=[])
    case(
        "ParseExample",
        "dense",
        [batch, none, [], [key("x"), key("label")], [np.zeros(0, F), np.zeros(0, L)]],
        Ndense=2, Tdense=[F, L], dense_shapes=[[2], []], **dense
    )
    case(
        "ParseExample",
        "missing",
        [vec(a, b), none, [], [key("n"), key("y"), key("t")], [ints([7, 8, 9], L), np.array([0.5], F), text("d")]],
        Ndense=3, Tdense=[L, F, tf.string], dense_shapes=[[3], [1], [1]], **dense
    )
    case(
        "ParseExample",
        "open",
        [batch, none, [], [key("n"), key("s"), key("x")], [ints([-1], L), text("-"), np.zeros(1, F)]],
        Ndense=3, Tdense=[L, tf.string, F], dense_shapes=[[None], [None], [None, 2]], **dense
    )
    case(
        "ParseExample",
        "sparse",
        [batch, none, [key("n"), key("s"), key("gone")], [key("x")], [np.zeros(0, F)]],
        Nsparse=3, sparse_types=[L, tf.string, F], Ndense=1, Tdense=[F], dense_shapes=[[1, 2]]
    )
    case(
        "ParseExample",
        "nobody",
        [vec(), none, [key("n")], [key("x")], [np.zeros(0, F)]],
        Nsparse=1, sparse_types=[L], Ndense=1, Tdense=[F], dense_shapes=[[2]]
    )
    x1 = dict(Ndense=1, Tdense=[F], dense_shapes=[[2]], **dense)
    fails("ParseExample", "bytes", [vec(b"\x0a\xff"), none, [], [key("x")], [np.zeros(0, F)]], **x1)
    fails("ParseExample", "required", [vec(make(y=1)), none, [], [key("x")], [np.zeros(0, F)]], **x1)
    fails("ParseExample", "size", [vec(make(x=[1.0])), none, [], [key("x")], [np.zeros(0, F)]], **x1)
    fails("ParseExample", "type", [vec(make(x=[1, 2])), none, [], [key("x")], [np.zeros(0, F)]], **x1)
    fails("ParseExample", "names", [vec(a, b), vec("A"), [], [key("x")], [np.zeros(0, F)]], **x1)
    fails("ParseExample", "default", [vec(a), none, [], [key("x")], [np.zeros(3, F)]], **x1)
    fails(
        "ParseExample", "sparse_type", [vec(a), none, [key("n")], [], []],
        Nsparse=1, sparse_types=[F], Ndense=0, Tdense=[], dense_shapes=[]
    )
    for label, s in (("vector", batch), ("scalar", one(a))):
        case(
            "ParseExampleV2", label,
            [s, none, text("n", "gone"), text("x", "label"), none, [np.zeros(0, F), np.zeros(0, L)]],
            num_sparse=2, sparse_types=[L, tf.string], Tdense=[F, L], dense_shapes=[[2], []],
            ragged_value_types=[], ragged_split_types=[]
        )
    case(
        "ParseExampleV2", "ragged", [batch, none, none, none, text("n", "s"), []],
        num_sparse=0, sparse_types=[], Tdense=[], dense_shapes=[],
        ragged_value_types=[L, tf.string], ragged_split_types=[L, I]
    )
    for label, s in (("all", a), ("some", b)):
        case(
            "ParseSingleExample", label, [one(s), [np.zeros(0, F), ints(5, L)]],
            num_sparse=2, sparse_keys=["n", "s"], sparse_types=[L, tf.string],
            dense_keys=["x", "label"], Tdense=[F, L], dense_shapes=[[2], []]
        )
    case(
        "ParseSingleExample", "open", [one(a), [ints([0], L)]],
        num_sparse=0, sparse_keys=[], sparse_types=[], dense_keys=["n"], Tdense=[L], dense_shapes=[[None]]
    )
    fails(
        "ParseSingleExample", "required", [one(b), [np.zeros(0, L)]],
        num_sparse=0, sparse_keys=[], sparse_types=[], dense_keys=["n"], Tdense=[L], dense_shapes=[[3]]
    )


# ---- images -------------------------------------------------------------------------------------------------------


def colours(shape, key=0):
    return val(F, shape, key, 0, 1)


def image():
    family("image")
    both = dict(plain={}, corners=dict(align_corners=True), half=dict(half_pixel_centers=True))
    sizes = [(5, 7), (2, 3), (1, 1), (3, 4), (9, 1)]
    x = val(F, (2, 3, 4, 2))
    for how, attrs in both.items():
        for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
            for s in sizes:
                case(op, "%s_%s" % (how, dims(s)), [x, ints(s)], **attrs)
            case(op, how + "_of_one", [val(F, (1, 1, 1, 3)), ints([3, 2])], **attrs)
        for s in sizes:
            g = val(F, (2,) + s + (2,), "g")
            for op in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
                case(op, "%s_%s" % (how, dims(s)), [g, x], **attrs)
            case("ResizeNearestNeighborGrad", "%s_%s" % (how, dims(s)), [g, ints([3, 4])], **attrs)
    for t in FLOATS + [I, L, U8, S8, S16, U16]:
        for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
            case(op, SHORT[t], [num(t, (1, 3, 2, 2), "t", 0, 30), ints([4, 5])])
    for t in FLOATS:
        case("ResizeBilinearGrad", SHORT[t], [val(F, (1, 4, 5, 2), "g"), val(t, (1, 3, 2, 2))])
    for t in FLOATS + [I, U8, S8]:
        case("ResizeNearestNeighborGrad", SHORT[t], [num(t, (1, 4, 5, 2), "g"), ints([3, 2])])
    case("ResizeBilinear", "empty", [val(F, (0, 3, 4, 2)), ints([2, 2])])
    case("ResizeBicubicGrad", "double", [val(F, (1, 4, 5, 2), "g"), val(D, (1, 3, 2, 2))])
    wide = val(F, (2, 7, 9, 3))
    for corners in (False, True):
        for s in sizes + [(7, 9), (4, 20)]:
            label = "%s%s" % ("corners_" if corners else "", dims(s))
            case("ResizeArea", label, [wide, ints(s)], align_corners=corners)
    for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
        fails(op, "rank", [val(F, (3, 4, 2)), ints([2, 2])])
        fails(op, "size", [x, ints([0, 2])])
        fails(op, "negative", [x, ints([-1, 2])])
        fails(op, "three", [x, ints([1, 2, 3])])
        fails(op, "scalar", [x, ints(2)])
        fails(op, "no_pixels", [val(F, (1, 0, 4, 2)), ints([2, 2])])
        if op == "ResizeArea":
            continue
        fails(op, "both", [x, ints([2, 2])], align_corners=True, half_pixel_centers=True)
    for op in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        fails(op, "rank", [val(F, (3, 4, 2)), x])
    fails("ResizeNearestNeighborGrad", "size", [val(F, (1, 3, 4, 2)), ints([0, 2])])

    photo = val(F, (2, 4, 5, 2))
    boxes = np.array([[0.1, 0, 0.9, 0.6], [1, 0.2, 0, 0.9], [-0.5, 0, 1, 1.5], [0, 0, 1, 1]], F)
    which = ints([1, 0, 1, 0])
    for method in ("bilinear", "nearest"):
        for s in ((4, 3), (1, 1), (1, 6), (7, 2)):
            case(
                "CropAndResize", "%s_%s" % (method, dims(s)), [photo, boxes, which, ints(s)],
                method=method, extrapolation_value=1.5
            )
            case(
                "CropAndResizeGradImage", "%s_%s" % (method, dims(s)),
                [val(F, (4,) + s + (2,), "g"), boxes, which, ints([2, 4, 5, 2])], method=method, T=F
            )
    for s in ((4, 3), (1, 1), (1, 6), (7, 2)):
        case("CropAndResizeGradBoxes", dims(s), [val(F, (4,) + s + (2,), "g"), photo, boxes, which])
    for t in [F, D, H, I, L, U8, S8, S16, U16]:
        case("CropAndResize", SHORT[t], [num(t, (2, 4, 5, 1), "t", 0, 30), boxes, which, ints([2, 2])])
        case(
            "CropAndResizeGradBoxes", SHORT[t],
            [val(F, (4, 2, 3, 1), "g"), num(t, (2, 4, 5, 1), "t", 0, 5), boxes, which]
        )
    for t in [F, D, H]:
        case(
            "CropAndResizeGradImage", SHORT[t],
            [val(F, (4, 2, 3, 1), "g"), boxes, which, ints([2, 4, 5, 1])], T=t
        )
    case("CropAndResize", "nobody", [photo, np.zeros((0, 4), F), ints([]), ints([2, 2])])
    fails("CropAndResize", "index", [photo, boxes, ints([0, 1, 2, 0]), ints([2, 2])])
    fails("CropAndResize", "columns", [photo, boxes[:, :3], which, ints([2, 2])])
    fails("CropAndResize", "count", [photo, boxes, ints([0, 1]), ints([2, 2])])
    fails("CropAndResize", "size", [photo, boxes, which, ints([2, 0])])
    fails("CropAndResize", "rank", [photo[0], boxes, which, ints([2, 2])])
    fails("CropAndResizeGradImage", "channels", [val(F, (4, 2, 3, 1)), boxes, which, ints([2, 4, 5, 2])], T=F)
    fails("CropAndResizeGradImage", "size", [val(F, (4, 2, 3, 1)), boxes, which, ints([2, 4, 5])], T=F)
    fails("CropAndResizeGradBoxes", "count", [val(F, (3, 2, 3, 2)), photo, boxes, which])

    for t in [F, D, H, BF16, I, L] + SMALL:
        case(
            "ExtractImagePatches", SHORT[t], [num(t, (1, 3, 4, 2))],
            ksizes=[1, 2, 2, 1], strides=[1, 1, 2, 1], rates=[1, 1, 1, 1], padding="VALID"
        )
    for k, s, r in (((3, 3), (1, 1), (1, 1)), ((2, 3), (2, 1), (1, 2)), ((1, 1), (3, 2), (1, 1))):
        for padding in ("SAME", "VALID"):
            case(
                "ExtractImagePatches", "%s_%s_%s_%s" % (padding, dims(k), dims(s), dims(r)), [val(F, (2, 5, 6, 2))],
                ksizes=[1, *k, 1], strides=[1, *s, 1], rates=[1, *r, 1], padding=padding
            )
    fails(
        "ExtractImagePatches", "channels", [val(F, (1, 3, 4, 2))],
        ksizes=[1, 2, 2, 2], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="SAME"
    )
    fails(
        "ExtractImagePatches", "stride", [val(F, (1, 3, 4, 2))],
        ksizes=[1, 2, 2, 1], strides=[1, 0, 1, 1], rates=[1, 1, 1, 1], padding="SAME"
    )

    for by in (0.0, 0.5, 2.0, -1.0):
        f = np.array(by, F)
        for shape in ((3, 4, 3), (2, 3, 2, 5)):
            case("AdjustContrastv2", "%s_%s" % (by, dims(shape)), [val(F, shape), f])
        for shape in ((4, 5, 3), (2, 3, 2, 3)):
            case("AdjustHue", "%s_%s" % (by / 3, dims(shape)), [colours(shape), np.array(by / 3, F)])
            case("AdjustSaturation", "%s_%s" % (by, dims(shape)), [colours(shape), f])
    greys = np.full((1, 2, 3), 0.25, F)
    corners = np.array([[[r, g, b] for g in (0, 1) for b in (0, 0.5, 1)] for r in (0, 0.5, 1)], F)
    for label, x in (("grey", greys), ("corners", corners)):
        case("AdjustHue", label, [x, np.array(0.3, F)])
        case("AdjustSaturation", label, [x, np.array(0.7, F)])
        case("RGBToHSV", label, [x])
        case("HSVToRGB", label, [x])
    for op in ("AdjustContrastv2", "AdjustHue", "AdjustSaturation"):
        fails(op, "rank", [colours((4, 3)), np.array(0.5, F)])
        fails(op, "vector", [colours((4, 4, 3)), np.array([0.5], F)])
        if op != "AdjustContrastv2":
            fails(op, "channels", [colours((4, 4, 4)), np.array(0.5, F)])
    for op in ("RGBToHSV", "HSVToRGB"):
        for t in FLOATS:
            case(op, SHORT[t], [colours((7, 3)).astype(t)])
        case(op, "vector", [colours((3,))])
        case(op, "empty", [colours((0, 3))])
        fails(op, "channels", [colours((4, 4))])
        fails(op, "scalar", [colours(())])


def image_boxes():
    family("image_boxes")
    boxes = np.array(
        [[[0, 0, 1, 1], [0.2, 0.3, 0.7, 0.6], [-0.5, -1, 0.4, 0.5]], [[0.5, 0.2, 3, 2], [0.6, 0, 0.2, 1], [2, 2, 3, 3]]], F
    )
    strange = np.array([[[np.nan, 0, 1, 1], [0, 0, np.inf, 1], [-1e30, 0, 0.5, 1], [0, 1, 1, 1], [-3, -3, 3, 3]]], F)
    colors = colours((2, 4))
    for channels in (1, 3, 4):
        x = colours((2, 6, 8, channels))
        case("DrawBoundingBoxes", "channels_%d" % channels, [x, boxes])
        case("DrawBoundingBoxesV2", "channels_%d" % channels, [x, boxes, colors])
    x = colours((1, 6, 8, 3))
    for op, more in (("DrawBoundingBoxes", []), ("DrawBoundingBoxesV2", [colors])):
        case(op, "half", [x.astype(H), boxes[:1]] + more)
        case(op, "strange", [x, strange] + more)
        case(op, "many", [x, np.tile(boxes[:1], (1, 5, 1))] + more)
        case(op, "no_boxes", [x, np.zeros((1, 0, 4), F)] + more)
        case(op, "no_images", [x[:0], np.zeros((0, 3, 4), F)] + more)
        fails(op, "rank", [x[0], boxes[:1]] + more)
        fails(op, "boxes", [x, boxes[0]] + more)
        fails(op, "batch", [x, boxes] + more)
        fails(op, "channels", [x[:, :, :, :2], boxes[:1]] + more)
        fails(op, "numbers", [x, boxes[:1, :, :3]] + more)
    case("DrawBoundingBoxesV2", "no_colours", [x, boxes[:1], np.zeros((0, 3), F)])
    fails("DrawBoundingBoxesV2", "few_columns", [x, boxes[:1], colors[:, :2]])
    fails("DrawBoundingBoxesV2", "vector", [x, boxes[:1], colors[0]])

    few = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [1, 11.1, 0, 10.1], [0, 100, 1, 101]], F)
    scores = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], F)
    begin = val(F, (40, 2), "begin", 0, 3)
    many = np.concatenate([begin, begin + val(F, (40, 2), "size", -0.2, 2)], 1)
    of_many = np.round(val(F, (40,), "scores", -1, 1), 1)
    odd = np.array([[np.nan, 0, 1, 1], [0, 0, np.inf, 1], [0, 0, 1, 1], [0, 0, 1e30, 1e30], [0, 0, 0, 0]], F)
    of_odd = np.array([0.5, np.inf, np.nan, -np.inf, 0.5], F)
    for label, b, sc in (("few", few, scores), ("many", many, of_many), ("odd", odd, of_odd), ("none", few[:0], scores[:0])):
        for most in (0, 3, 30):
            for overlap in (0.0, 0.5, 1.0):
                at = "%s_%d_%s" % (label, most, overlap)
                n, o = ints(most), np.array(overlap, F)
                case("NonMaxSuppression", at, [b, sc, n], iou_threshold=overlap)
                case("NonMaxSuppressionV2", at, [b, sc, n, o])
                case("NonMaxSuppressionV3", at, [b, sc, n, o, np.array(0.4, F)])
                if label in ("few", "many"):
                    t = [x.astype(H) for x in (b, sc)] + [n]
                    case("NonMaxSuppressionV2", at + "_half", t + [o.astype(H)])
                    case("NonMaxSuppressionV3", at + "_half", t + [o, np.array(0.4, F)], T_threshold=F)
                for pad in (False, True):
                    case("NonMaxSuppressionV4", "%s_%d" % (at, pad), [b, sc, n, o, np.array(-0.2, F)], pad_to_max_output_size=pad)
                for sigma in (0.0, 0.5):
                    soft = [b, sc, n, o, np.array(0.2, F), np.array(sigma, F)]
                    case("NonMaxSuppressionV5", "%s_%s" % (at, sigma), soft, pad_to_max_output_size=overlap == 0.5)
    soft = [x.astype(H) for x in (many, of_many)]
    case("NonMaxSuppressionV5", "half", soft + [ints(20), np.array(0.5, H), np.array(0.1, H), np.array(0.25, H)])
    o, low = np.array(0.5, F), np.array(0, F)
    for op, more in (("", []), ("V2", [o]), ("V3", [o, low]), ("V4", [o, low]), ("V5", [o, low, low])):
        op = "NonMaxSuppression" + op
        fails(op, "rank", [few[0], scores[:1], ints(3)] + more)
        fails(op, "numbers", [few[:, :3], scores, ints(3)] + more)
        fails(op, "scores", [few, scores[:4], ints(3)] + more)
        fails(op, "most", [few, scores, ints([3])] + more)
        fails(op, "negative", [few, scores, ints(-1)] + more)
        if more:
            fails(op, "threshold", [few, scores, ints(3), np.array(1.5, F)] + more[1:])
            fails(op, "nan", [few, scores, ints(3), np.array(np.nan, F)] + more[1:])
            fails(op, "vector", [few, scores, ints(3), np.array([0.5], F)] + more[1:])
    fails("NonMaxSuppression", "threshold", [few, scores, ints(3)], iou_threshold=-0.5)
    fails("NonMaxSuppressionV5", "sigma", [few, scores, ints(3), o, low, np.array(-1, F)])

    # The first run of a kernel, by seed.
    some = np.array([[[0.1, 0.2, 0.6, 0.9], [0.5, 0.5, 0.7, 0.6]]], F)
    least = np.array(0.5, F)
    for k, (size, b, attrs) in enumerate(
        (
            ([40, 50, 3], some, {}),
            ([40, 50, 3], some, dict(seed=7, seed2=0)),
            ([40, 50, 3], some, dict(seed=-3, seed2=1 << 40)),
            ([480, 641, 3], some, dict(area_range=[0.3, 0.4])),
            ([480, 641, 3], some, dict(aspect_ratio_range=[0.2, 5.0])),
            ([99, 7, 1], some, dict(aspect_ratio_range=[3.0, 3.0])),
            ([99, 7, 1], some, dict(max_attempts=2)),
            ([3, 3, 1], some, dict(area_range=[0.01, 0.02])),
            ([30, 30, 1], some, dict(area_range=[0.9, 0.2])),
            ([31, 17, 3], some[:, :0], dict(use_image_if_no_bounding_boxes=True)),
            ([31, 17, 3], np.array([[[0.5, 0.5, 0.5, 0.5]]], F), {}),
            ([0, 5, 3], some, {}),
        )
    ):
        attrs = dict(dict(seed=87654321 + k, seed2=k), **attrs)
        case("SampleDistortedBoundingBox", str(k), [ints(size), b], min_object_covered=0.5, **attrs)
        case("SampleDistortedBoundingBoxV2", str(k), [ints(size), b, least], **attrs)
    for t in (U8, S8, S16, I, L):
        case("SampleDistortedBoundingBox", SHORT[t], [np.array([90, 100, 3], t), some], seed=5, seed2=6)
        case("SampleDistortedBoundingBoxV2", SHORT[t], [np.array([90, 100, 3], t), some, least], seed=5, seed2=6)
    for op, more in (("SampleDistortedBoundingBox", []), ("SampleDistortedBoundingBoxV2", [least])):
        fails(op, "size", [ints([4, 5]), some] + more)
        fails(op, "negative", [ints([-4, 5, 3]), some] + more)
        fails(op, "huge", [ints([5, 2**31 - 1, 3]), some] + more)
        fails(op, "boxes", [ints([4, 5, 3]), some[0]] + more)
        fails(op, "numbers", [ints([4, 5, 3]), some[:, :, :3]] + more)
        fails(op, "none", [ints([4, 5, 3]), some[:, :0]] + more)
        fails(op, "outside", [ints([4, 5, 3]), 2 * some] + more)
        fails(op, "nan", [ints([4, 5, 3]), np.nan * some] + more)
        fails(op, "aspects", [ints([4, 5, 3]), some] + more, aspect_ratio_range=[0.0, 1.0])
        fails(op, "three_aspects", [ints([4, 5, 3]), some] + more, aspect_ratio_range=[1.0, 1.0, 1.0])
        fails(op, "areas", [ints([4, 5, 3]), some] + more, area_range=[0.5, 1.5])
        fails(op, "attempts", [ints([4, 5, 3]), some] + more, max_attempts=0)
    fails("SampleDistortedBoundingBox", "covered", [ints([4, 5, 3]), some], min_object_covered=-1.0)
    fails("SampleDistortedBoundingBoxV2", "covered", [ints([4, 5, 3]), some, np.array(-1, F)])
    fails("SampleDistortedBoundingBoxV2", "vector", [ints([4, 5, 3]), some, np.array([0.5], F)])


def bmp(pixels, top_down=False, gap=0):
    """A BMP file of [height, width, 1, 3 or 4], whose first byte of a pixel comes first in the file."""
    height, width, channels = pixels.shape
    rows = [r.tobytes() + b"\0" * (-r.size % 4) for r in pixels]
    offset = 54 + gap
    header = struct.pack("<2sIIIIiiHH", b"BM", offset + len(rows[0]) * height, 0, offset, 40, width,
                         -height if top_down else height, 1, 8 * channels)
    return header + b"\0" * (offset - len(header)) + b"".join(rows)


def png(width, height, depth, kind, rows, palette=b"", trns=b"", interlaced=False):
    """A PNG file of rows of packed bytes, each without a filter."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"tRNS", trns)]
    chunks += [(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(n, d) for n, d in chunks if d or n == b"IEND")


def adam7(pixels):
    """The rows of an interlaced image of 8 bits."""
    rows = []
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        rows += [r.tobytes() for r in pixels[y::dy, x::dx] if r.size]
    return rows


def image_codec():
    family("image_codec")

    def file(data):
        return np.array(data, dtype=object)

    def photo(height, width, channels, t=U8):
        """Smooth, with some noise."""
        y, x, k = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
        level = 0.5 + 0.4 * np.sin(x / 5 + k) * np.cos(y / 7 - k) + 0.1 * val(F, (height, width, channels), 0, -1, 1)
        return (level * np.iinfo(t).max).astype(t)

    image = photo(20, 27, 3)
    grey = photo(17, 10, 1)
    jpegs = {}
    for label, x, attrs in (
        ("plain", image, {}),
        ("grey", grey, {}),
        ("quality_10", image, dict(quality=10)),
        ("progressive", image, dict(progressive=True)),
        ("small", image, dict(optimize_size=True)),
        ("all_chroma", image, dict(chroma_downsampling=False)),
        ("density", grey, dict(density_unit="cm", x_density=7, y_density=65535)),
        ("metadata", grey, dict(xmp_metadata="<x/>")),
        ("format_grey", grey, dict(format="grayscale")),
        ("format_rgb", image, dict(format="rgb", quality=0)),
    ):
        jpegs[label] = case("EncodeJpeg", label, [x], **attrs)[0]
    for label in ("plain", "grey", "quality_10", "progressive", "all_chroma", "metadata"):
        for channels in (0, 1, 3):
            case("DecodeJpeg", "%s_%d" % (label, channels), [file(jpegs[label])], channels=channels)
    for ratio in (2, 4, 8):
        case("DecodeJpeg", "ratio_%d" % ratio, [file(jpegs["plain"])], ratio=ratio)
    case("DecodeJpeg", "plain_upscaling", [file(jpegs["plain"])], fancy_upscaling=False)
    for method in ("INTEGER_FAST", "INTEGER_ACCURATE"):
        case("DecodeJpeg", method.lower(), [file(jpegs["plain"])], dct_method=method)
    cut = jpegs["all_chroma"][:-200]
    case("DecodeJpeg", "some_rows", [file(cut)], acceptable_fraction=0.1)
    case("DecodePng", "of_jpeg", [file(jpegs["plain"])])
    fails("DecodeJpeg", "cut", [file(cut)])
    fails("DecodeJpeg", "no_pixels", [file(jpegs["plain"][:200])], try_recover_truncated=True)
    fails("DecodeJpeg", "few_rows", [file(cut)], acceptable_fraction=0.99)
    fails("DecodeJpeg", "empty", [file(b"")])
    fails("DecodeJpeg", "text", [file(b"no image at all")])
    fails("DecodeJpeg", "begin", [file(b"\xff\xd8\xff")])
    fails("DecodeJpeg", "four_channels", [file(jpegs["plain"])], channels=4)
    fails("DecodeJpeg", "two_channels", [file(jpegs["plain"])], channels=2)
    fails("DecodeJpeg", "ratio", [file(jpegs["plain"])], ratio=3)
    fails("DecodeJpeg", "method", [file(jpegs["plain"])], dct_method="FLOAT")
    fails("DecodeJpeg", "rank", [np.array([jpegs["plain"]] * 2, dtype=object)])
    fails("EncodeJpeg", "channels", [photo(3, 3, 2)])
    fails("EncodeJpeg", "format", [image], format="grayscale")
    fails("EncodeJpeg", "quality", [image], quality=101)
    fails("EncodeJpeg", "rank", [image[0]])

    pngs = {}
    for t in (U8, U16):
        for channels in (1, 2, 3, 4):
            label = "%s_%d" % (SHORT[t], channels)
            pngs[label] = case("EncodePng", label, [photo(5, 7, channels, t)])[0]
    for compression in (0, 9):
        case("EncodePng", "level_%d" % compression, [image], compression=compression)
    bits = [np.array(r, U8).tobytes() for r in ([0b10110000], [0b01010000], [0xF0])]
    nibbles = [bytes([0x01, 0x23]), bytes([0x45, 0x67])]
    colours, clear = bytes(range(0, 48)), bytes([0, 128, 255])
    pngs["one_bit"] = png(4, 3, 1, 0, bits)
    pngs["two_bits"] = png(4, 3, 2, 0, [bytes([0x1B]), bytes([0xE4]), bytes([0])])
    pngs["four_bits"] = png(4, 2, 4, 0, nibbles)
    pngs["palette"] = png(4, 2, 4, 3, nibbles, colours)
    pngs["clear_palette"] = png(4, 2, 4, 3, nibbles, colours, clear)
    pngs["clear_grey"] = png(2, 1, 8, 0, [bytes([7, 9])], trns=bytes([0, 9]))
    pngs["interlaced"] = png(27, 20, 8, 2, adam7(image), interlaced=True)
    for label, data in pngs.items():
        for channels in (0, 1, 3, 4):
            for t in (U8, U16):
                if label == "interlaced" and channels != 0 and t == U16:
                    continue
                case("DecodePng", "%s_%d_%s" % (label, channels, SHORT[t]), [file(data)], channels=channels, dtype=t)
    case("DecodeJpeg", "of_png", [file(pngs["uint8_3"])])

    bmps = {str(n): bmp(photo(4, 5, n)) for n in (1, 3, 4)}
    bmps["top_down"], bmps["gap"] = bmp(photo(4, 5, 3), top_down=True), bmp(photo(3, 2, 1), gap=1024)
    for label, data in bmps.items():
        for channels in (0, 3, 4):
            case("DecodeBmp", "%s_%d" % (label, channels), [file(data)], channels=channels)
    for dtype in (U8, U16, F):
        for label, data in (("jpeg", jpegs["plain"]), ("png_8", pngs["uint8_4"]), ("png_16", pngs["uint16_3"]), ("bmp", bmps["3"])):
            for channels in (0, 3):
                at = "%s_%d_%s" % (label, channels, SHORT[dtype])
                case("DecodeImage", at, [file(data)], channels=channels, dtype=dtype, expand_animations=False)
    case("DecodeImage", "with_animations", [file(bmps["3"])])
    case("DecodePng", "of_jpeg_uint16", [file(jpegs["plain"])], dtype=U16)
    for label, data in (("short", bmps["3"][:31]), ("cut", bmps["3"][:-1]), ("long", bmps["3"] + b"x")):
        fails("DecodeBmp", label, [file(data)])
    for label, at, number in (("no_width", 18, 0), ("no_height", 22, 0), ("wide", 18, 2**31 - 1), ("offset", 10, -1),
                              ("high", 22, -(2**31)), ("bits", 28, 16)):
        data = bytearray(bmps["3"])
        data[at : at + 4] = struct.pack("<i", number)
        fails("DecodeBmp", label, [file(bytes(data))])
    fails("DecodeBmp", "one_channel", [file(bmps["3"])], channels=1)
    fails("DecodeBmp", "of_jpeg", [file(jpegs["plain"])])
    fails("DecodeBmp", "of_png", [file(pngs["uint8_3"])])
    for op in ("DecodeJpeg", "DecodePng"):
        fails(op, "of_bmp", [file(bmps["3"])])
    fails("DecodeImage", "text", [file(b"no image at all")])
    fails("DecodeImage", "cut", [file(jpegs["plain"][:60])])
    windows = [(0, 0, 5, 5), (0, 0, 20, 27), (3, 8, 9, 11), (15, 22, 5, 5), (1, 1, 1, 1), (0, 17, 20, 9), (16, 0, 4, 27)]
    for label in ("plain", "grey", "progressive", "all_chroma"):
        for w in windows[: 1 if label == "grey" else None]:
            case("DecodeAndCropJpeg", "%s_%s" % (label, dims(w)), [file(jpegs[label]), ints(w)])
    for channels in (1, 3):
        case("DecodeAndCropJpeg", "channels_%d" % channels, [file(jpegs["plain"]), ints(windows[2])], channels=channels)
    case("DecodeAndCropJpeg", "ratio_2", [file(jpegs["plain"]), ints((2, 3, 5, 6))], ratio=2)
    case("DecodeAndCropJpeg", "plain_upscaling", [file(jpegs["plain"]), ints(windows[2])], fancy_upscaling=False)
    for label, w in (("empty", (0, 0, 0, 5)), ("negative", (-1, 0, 3, 3)), ("low", (16, 0, 5, 5)), ("right", (0, 20, 5, 8)),
                     ("sum", (1, 1, 2**31 - 1, 2**31 - 1)), ("three", (0, 0, 5))):
        fails("DecodeAndCropJpeg", label, [file(jpegs["plain"]), ints(w)])
    fails("DecodeAndCropJpeg", "of_png", [file(pngs["uint8_3"]), ints((0, 0, 1, 1))])
    fails("DecodeAndCropJpeg", "of_bmp", [file(bmps["3"]), ints((0, 0, 1, 1))])
    for label in ("plain", "grey", "progressive"):
        for t in (I, L):
            case("ExtractJpegShape", "%s_%s" % (label, SHORT[t]), [file(jpegs[label])], output_type=t)
    fails("ExtractJpegShape", "of_png", [file(pngs["uint8_3"])])
    fails("ExtractJpegShape", "empty", [file(b"")])
    fails("ExtractJpegShape", "vector", [np.array([jpegs["plain"]] * 2, dtype=object)])
    fails("DecodePng", "cut", [file(pngs["uint8_3"][:-40])])
    fails("DecodePng", "header", [file(pngs["uint8_3"][:20])])
    fails("DecodePng", "checksum", [file(pngs["uint8_3"].replace(b"IDAT", b"IDAt"))])
    fails("DecodePng", "huge", [file(png(1 << 30, 1 << 30, 8, 2, [b""]))])
    fails("DecodePng", "empty", [file(png(0, 3, 8, 2, [b""]))])
    fails("DecodePng", "channels", [file(pngs["uint8_3"])], channels=2)
    fails("DecodePng", "negative", [file(pngs["uint8_3"])], channels=-1)
    fails("EncodePng", "rank", [image[0]])
    fails("EncodePng", "channels", [photo(3, 3, 5)])
    fails("EncodePng", "no_rows", [image[:0]])
    fails("EncodePng", "level", [image], compression=10)


def words():
    family("words")
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    long = [(alphabet * 30)[: n] for n in (1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 1000)]
    many = text("", "hello", "\0x", "\u00e4", *long)
    for n in (1, 10, 1 << 40, (1 << 63) - 1):
        case("StringToHashBucket", str(n), [many], num_buckets=n)
        case("StringToHashBucketFast", str(n), [many], num_buckets=n)
        case("StringToHashBucketStrong", str(n), [many], num_buckets=n, key=[1, -2])
    case("StringToHashBucketFast", "matrix", [text("a", "b").reshape(2, 1)], num_buckets=7)
    case("StringToHashBucketStrong", "scalar", [text("a").reshape(())], num_buckets=7, key=[0, 0])
    case("StringToHashBucket", "matrix", [text("a", "b").reshape(2, 1)], num_buckets=7)
    fails("StringToHashBucket", "none", [many], num_buckets=0)
    fails("StringToHashBucketFast", "none", [many], num_buckets=0)
    fails("StringToHashBucketStrong", "none", [many], num_buckets=0, key=[1, 2])
    fails("StringToHashBucketStrong", "key", [many], num_buckets=3, key=[1])

    some = text("", "a", "ab", "aaab", "xaby", "a-b-c", "one two  three", "\u00e4\u00f6a", "ABC", "foobar", "2020-01-31", "\nb")
    for label, pattern, rewrite in (
        ("letter", "a", "X"), ("nothing", "a", ""), ("empty", "", "-"), ("maybe", "a*", "-"), ("lazy", "a*?", "-"),
        ("lazy_more", "a+?b", "[\\0]"), ("greedy", "a+b?", "[\\0]"), ("choice", "a|ab", "<\\0>"), ("longer", "ab|a", "<\\0>"),
        ("groups", "(\\w+) (\\w+)", "\\2 \\1"), ("date", "(\\d+)-(\\d+)-(\\d+)", "\\3.\\2.\\1\\\\"),
        ("unused", "(a)|(b)", "[\\1|\\2]"), ("repeated", "(a|b)+", "{\\1}"), ("inner", "((a)b?)+", "{\\1\\2}"),
        ("space", "\\s+", "_"), ("begin", "^a", "X"), ("end", "b$", "X"), ("only_end", "$", "!"), ("only_begin", "^", "!"),
        ("any", ".", "\\0\\0"), ("none", "zzz", "X"), ("ignore_case", "(?i)B", "x"), ("counted", "a{2,3}", "#"),
        ("lazy_count", "a{1,3}?", "#"), ("optional", "(a)?b", "\\1!"), ("lazy_optional", "a??b", "!"), ("not", "[^ab]+", "."),
        ("plain_group", "(?:a|o)(b|.)", "\\1"), ("nested", "(a(b)?)(y)?", "\\3\\2\\1"), ("words", "[a-z]+", "<\\0>"),
    ):
        for everywhere in (True, False):
            case("StaticRegexReplace", "%s_%s" % (label, everywhere), [some], pattern=pattern, rewrite=rewrite, replace_global=everywhere)
    case("RegexReplace", "vector", [some, text("a(.)").reshape(()), text("\\1a").reshape(())])
    case("RegexReplace", "first", [some, text("a").reshape(()), text("b").reshape(())], replace_global=False)
    fails("RegexReplace", "pattern", [some, text("(a").reshape(()), text("b").reshape(())])
    fails("RegexReplace", "patterns", [some, text("a"), text("b").reshape(())])
    fails("RegexReplace", "rewrites", [some, text("a").reshape(()), text("b")])


MAKERS = dict(
    slices=slices,
    rearrange=rearrange,
    order=order,
    whole=whole,
    segment=segment,
    sparse=sparse,
    sparse_arithmetic=sparse_arithmetic,
    sets=sets,
    crosses=crosses,
    candidates=candidates,
    stateless=stateless,
    texts=texts,
    example=example,
    image=image,
    image_boxes=image_boxes,
    image_codec=image_codec,
    words=words,
)

if __name__ == "__main__":
    sys.exit(base.main(MAKERS, __doc__))
