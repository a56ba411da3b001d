"""For processes that a program under `python -m monograph.tensorflow` starts: its folder is first in
their PYTHONPATH, and Python imports this at their start. With `import tensorflow` comes
`import monograph.tensorflow`."""

import importlib
import importlib.util
import os
import sys


class _Finder:
    """Stands before those who find TensorFlow, until it is imported; some programs only ask first whether it is there."""

    _asks = False

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow" or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_replace(module):
                sys.meta_path.remove(self)
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
