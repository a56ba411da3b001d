"""Mutates serialised protocol buffers without knowing their schema.

A message is read into a tree of fields (a length-delimited field that can be a message is one), one to three fields
are changed, and the tree is written again with right lengths: so a mutant gets past the reader, unlike flipped bytes,
of which some are made, too.
"""

import copy

NUMBERS = [0, 1, 2, 3, 7, 9, 14, 20, 21, 100, 101, 127, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = [b"", b"\xff\xfe", b"a", b"SAME", b"VALID", b"NCHW", b"NHWC", b"/job:worker/task:7", b"^", b"x:999999999999", b"loc:@x", b"\x00" * 40]


def read_varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def write_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data, depth=0):
    """A list of [field, type, value]; the value of a message is such a list. ValueError if it is none."""
    fields = []
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        field, kind = tag >> 3, tag & 7
        if field == 0 or field > 20000:
            raise ValueError
        if kind == 0:
            value, at = read_varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            if at + size > len(data):
                raise ValueError
            value = data[at:at + size]
            at += size
        elif kind == 2:
            size, at = read_varint(data, at)
            if at + size > len(data):
                raise ValueError
            value = data[at:at + size]
            at += size
            if depth < 8 and size > 0:
                try:
                    value = parse(value, depth + 1)
                except ValueError:
                    pass
        else:
            raise ValueError
        fields.append([field, kind, value])
    return fields


def write(fields):
    out = bytearray()
    for field, kind, value in fields:
        out += write_varint(field << 3 | kind)
        if kind == 0:
            out += write_varint(value & 2**64 - 1)
        elif kind == 2:
            data = write(value) if isinstance(value, list) else value
            out += write_varint(len(data)) + data
        else:
            out += value
    return bytes(out)


def lists_in(fields, found):
    if fields:
        found.append(fields)
    for _, _, value in fields:
        if isinstance(value, list):
            lists_in(value, found)
    return found


def change(fields, random):
    """Changes one field somewhere below."""
    if not fields:
        return
    where = random.choice(lists_in(fields, []))
    at = random.randrange(len(where))
    field, kind, value = where[at]
    what = random.randrange(10)
    # What is taken from elsewhere is copied: a message that became a field of its own field would have no end.
    if what == 0:
        del where[at]
    elif what == 1:
        where.append(copy.deepcopy(random.choice(where)))
    elif what == 2:  # a value from elsewhere in the graph
        other = random.choice(random.choice(lists_in(fields, [])))
        if other[1] == kind:
            where[at] = [field, kind, copy.deepcopy(other[2])]
    elif kind == 0:
        where[at] = [field, kind, random.choice(NUMBERS) if what < 7 else value + random.choice([-1, 1])]
    elif kind in (1, 5):
        where[at] = [field, kind, random.choice([b"\xff", b"\x00", b"\x7f"]) * len(value)]
    elif isinstance(value, list):
        if value and what < 6:
            random.shuffle(value)
        else:
            other = random.choice(random.choice(lists_in(fields, [])))[2] or b""
            if isinstance(other, (list, bytes)):
                where[at] = [field, kind, copy.deepcopy(other)]
    elif what < 6 or not value:
        where[at] = [field, kind, random.choice(TEXTS)]
    else:
        data = bytearray(value)
        data[random.randrange(len(data))] = random.randrange(256)
        where[at] = [field, kind, bytes(data)]


def mutated(data, random):
    if random.random() < 0.1:
        flipped = bytearray(data)
        for _ in range(random.randint(1, 4)):
            flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        return bytes(flipped)
    fields = parse(data)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        change(fields, random)
    return write(fields)
