"""Where an answer to a mutant of a graph is not TensorFlow's, and why. docs/porting.md has the same list in words."""

import re

THEY_REFUSE = "TensorFlow refuses what we run"
WE_REFUSE = "we refuse what TensorFlow runs"
VALUES = "values differ"

# What differs, a pattern of the message, the reason.
KNOWN = [
    (THEY_REFUSE, r"Op type not registered|Input \d+ of node factor was|AttrValue had value with type",
     "an op that we lack stays in the graph; a step that needs it fails"),
    (THEY_REFUSE, r"Value for attr 'T' of \w+ is not in the list of allowed values: double, float, half, complex64, complex128$",
     "an op that we lack stays in the graph; a step that needs it fails"),
    (THEY_REFUSE, r"NodeDef missing attr|(type|number|type list) attr not found",
     "a type or number that follows from the inputs need not be written"),
    (THEY_REFUSE, r"Wire format was corrupt|Invalid \"_output_shapes\"|Unable to parse config_proto string",
     "attributes that mean nothing here are not read"),
    (THEY_REFUSE, r"below min producer|less than the min_consumer|bad_consumers",
     "versions choose how a placeholder is read, no more"),
    (THEY_REFUSE, r"must not have reference type value|Cannot parse tensor from proto.* dtype: DT_\w+_REF$",
     "a reference type stands for the plain one"),
    (THEY_REFUSE, r"Trying to read variable with wrong dtype",
     "the type of a variable's value is compared in the step that assigns or reads it"),
    (THEY_REFUSE, r"Invalid value in tensor used for shape",
     "a shape that is wrong is told by the step that needs it"),
    (THEY_REFUSE, r"Failed to bind all placeholders in <Unknown AttrValue type>",
     "an attribute without a value, in a function, is as one that is not there"),
    (THEY_REFUSE, r"Cannot convert the argument `type_value`: 0 to a TensorFlow DType|AttrValue missing value with expected type",
     "an attribute whose value is missing, or no type, is as one that is not there"),
    (THEY_REFUSE, r"^UnicodeDecodeError", "names and texts that mean nothing here may have any bytes"),
    (THEY_REFUSE, r"Attr \w+_mask has value -?\d+ out of range for an int32",
     "bits of a slice's mask for dimensions that are not there mean nothing"),
    (THEY_REFUSE, r"Shape must be at least rank 3 but is rank 2",
     "a matrix has its channels last in either format"),
    (WE_REFUSE, r"op 'Cholesky' is not registered", "an op that we lack"),
    (WE_REFUSE, r"\(StackPush(V2)?\) on .*Stack\[\w+\] has already been closed",
     "TensorFlow's optimizer takes out a push that nothing pops, also one to a closed stack"),
    (WE_REFUSE, r"calls function '', which the graph's library lacks",
     "a function without a name is none"),
    (WE_REFUSE, r"SparseAccumulatorApplyGradient\) on .*Shape mismatch: expected \[\?,",
     "rows have the shape of the accumulator's"),
    (WE_REFUSE, r"^\w+: graph file '[^']*': (node|function) ",
     "every node is checked when its graph is loaded, also one that no step needs"),
]


def reason(what, message):
    """Of the first that fits; None for a difference that nobody has explained."""
    for known, pattern, why in KNOWN:
        if what == known and re.search(pattern, message):
            return why
    return None
