"""For processes that a program under `python -m monograph.tensorflow` starts: its folder is first in
their PYTHONPATH, and Python imports this at their start. With `import tensorflow` comes
`import monograph.tensorflow`."""

import importlib
import importlib.util
import os
import sys


class _Finder:
    """Of the first import of TensorFlow."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_replace(module):
                execute(module)
                importlib.import_module("monograph.tensorflow")

            spec.loader.exec_module = execute_and_replace
        return spec


sys.meta_path.insert(0, _Finder())

# The sitecustomize that this one stands before.
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))]
_this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ImportError:
    sys.modules["sitecustomize"] = _this
