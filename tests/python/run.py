"""run.py MODULES TEST.py: runs a test program that needs these modules (joined by commas). Exits with 77, which ctest takes for a skip, where one is missing.

TensorFlow's interpreter may be another one, of the same version of Python: the variable MONOGRAPH_TENSORFLOW names it."""

import importlib.util
import os
import runpy
import subprocess
import sys

missing = [name for name in sys.argv[1].split(",") if importlib.util.find_spec(name) is None]
other = os.environ.get("MONOGRAPH_TENSORFLOW", "")
if missing == ["tensorflow"] and other and os.path.abspath(other) != sys.executable:
    tag = "import sys; print(sys.implementation.cache_tag)"
    found = subprocess.run([other, "-c", tag], capture_output=True, text=True, check=True).stdout.strip()
    if found == sys.implementation.cache_tag:
        os.execv(other, [other, *sys.argv])
    missing[0] += f" for {sys.implementation.cache_tag} (MONOGRAPH_TENSORFLOW is {found})"
if missing:
    print("skipped: this Python has no", ", ".join(missing))
    sys.exit(77)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
