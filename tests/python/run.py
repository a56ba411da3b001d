"""Runs the tests of this folder. Exits with 77, which ctest takes for a skip, where NumPy is missing."""

import os
import sys
import unittest

try:
    import numpy  # noqa: F401
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

here = os.path.dirname(os.path.abspath(__file__))
tests = unittest.defaultTestLoader.discover(here)
assert tests.countTestCases() > 20, "the tests were not found"
result = unittest.TextTestRunner(verbosity=2).run(tests)
sys.exit(not result.wasSuccessful())
