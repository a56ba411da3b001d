#!/usr/bin/env python3
"""What wire_mutator.py makes of messages."""
import random
import unittest

import wire_mutator


def message(number, *parts):
    """A field that holds the parts."""
    content = b"".join(parts)
    return wire_mutator.write_varint(number << 3 | 2) + wire_mutator.write_varint(len(content)) + content


class WireMutator(unittest.TestCase):
    FIVE = wire_mutator.write_varint(1 << 3) + b"\x05"
    NESTED = message(1, message(2, message(3, FIVE), FIVE), message(1, FIVE)) + message(1, message(4, FIVE))

    def test_what_is_read_is_written_again(self):
        self.assertEqual(wire_mutator.write(wire_mutator.parse(self.NESTED)), self.NESTED)

    def test_a_message_in_the_place_of_its_own_field_ends(self):
        larger = set()
        for seed in range(2000):
            mutant = wire_mutator.mutated(self.NESTED, random.Random(seed))
            if len(mutant) > len(self.NESTED):
                larger.add(mutant)
        self.assertGreater(len(larger), 100)


if __name__ == "__main__":
    unittest.main()
