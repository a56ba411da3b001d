"""Monograph: TensorFlow 1.x graphs, in this process or on a cluster of its daemons.

    import monograph

    with monograph.Session("graph.pb") as session:
        session.run("init")
        loss = session.run("loss:0", {"x:0": batch})

docs/python.md is the manual.
"""

import ctypes as _ctypes
import importlib as _importlib
import os as _os
import sys as _sys

# Where the plug-in for GPUs lies, if the package has one.
_plugin = _os.path.join(_os.path.dirname(__file__), "bin", "libmonograph_cuda.so")
if _os.path.exists(_plugin):
    _os.environ.setdefault("MONOGRAPH_CUDA_PLUGIN", _plugin)


def _load_native() -> None:
    """TensorFlow shows its own copies of protobuf, oneDNN and others to the whole process. The
    extension must look for symbols in the libraries that it was linked with first, which no
    replacement of malloc (LD_PRELOAD) would survive."""
    flags = _sys.getdlopenflags()
    if not _os.environ.get("LD_PRELOAD"):
        _sys.setdlopenflags(flags | _os.RTLD_DEEPBIND)
        # UCX reads `environ`, and so finds libc's. An interpreter that is no PIE (Debian's) has a copy
        # of its own, which everybody else uses, and leaves libc's empty.
        libc = _ctypes.c_void_p.in_dll(_ctypes.CDLL("libc.so.6"), "environ")
        libc.value = libc.value or _ctypes.c_void_p.in_dll(_ctypes.CDLL(None), "environ").value
    try:
        _importlib.import_module("monograph._native")
    finally:
        _sys.setdlopenflags(flags)


_load_native()

from monograph import _native, errors
from monograph._arrays import empty
from monograph.cluster import ClusterSpec
from monograph.errors import Error
from monograph.server import Server, launch
from monograph.session import Graph, PartialRun, Prepared, RunMetadata, Session

__all__ = ["ClusterSpec", "Error", "Graph", "PartialRun", "Prepared", "RunMetadata", "Server", "Session", "empty", "errors", "launch", "ops"]
__version__: str = _native.version()


def ops():
    """Name and signature of every op that the library knows."""
    return _native.ops()
