"""Graphs and sessions."""

import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from monograph import _native
from monograph._arrays import convert, to_numpy
from monograph.cluster import ClusterSpec

GraphLike = Union["Graph", bytes, str, "os.PathLike[str]", Any]


class Graph:
    """A dataflow graph: TensorFlow's GraphDef.

    Graph("graph.pb"), of a file, .pb or .pbtxt; Graph(b"..."), of a serialised GraphDef; or of
    anything with SerializeToString, as TensorFlow's GraphDef message.
    """

    def __init__(self, source: Optional[GraphLike] = None):
        self._native = _native.Graph()
        if source is not None:
            self.extend(source)

    def extend(self, source: GraphLike) -> None:
        """Adds nodes, whose inputs may be nodes of the graph; all of them or, if it raises, none.

        Sessions of the graph see them. Functions whose names the graph knows are not read again.
        """
        if isinstance(source, Graph):
            raise TypeError("a graph is shared, not extended by another: pass it to Session")
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._native.import_bytes(bytes(source))
        elif isinstance(source, (str, os.PathLike)):
            self._native.import_file(os.fspath(source))
        else:
            self._native.import_bytes(source.SerializeToString())

    def nodes(self) -> List[Tuple[str, str, str]]:
        """Name, op and requested device of every node."""
        return self._native.nodes()

    def tensor(self, name: str) -> Tuple[int, Optional[Tuple[int, ...]]]:
        """Type (TensorFlow's number) and static shape of "node:0"; -1 and None are unknown."""
        return self._native.find(name)


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _options(options: Mapping[str, Any]) -> List[Tuple[str, str]]:
    return [(name, _option_text(value)) for name, value in options.items() if value is not None]


def _flatten(fetches: Any, tensors: List[str], targets: List[str]) -> Callable[[List[Any]], Any]:
    """Collects the names of a structure of fetches; returns what rebuilds it from the values."""
    if isinstance(fetches, str):
        if ":" not in fetches:
            targets.append(fetches)
            return lambda values: None
        index = len(tensors)
        tensors.append(fetches)
        return lambda values: values[index]
    if isinstance(fetches, Mapping):
        parts = {key: _flatten(value, tensors, targets) for key, value in fetches.items()}
        return lambda values: {key: part(values) for key, part in parts.items()}
    if isinstance(fetches, (list, tuple)):
        items = [_flatten(item, tensors, targets) for item in fetches]
        kind = type(fetches)
        if hasattr(fetches, "_fields"):  # a named tuple
            return lambda values: kind(*(item(values) for item in items))
        return lambda values: kind(item(values) for item in items)
    raise TypeError(f"a fetch is the name of a tensor, 'node:0', or of an operation, 'node', not {fetches!r}")


# A step that is given one is recorded in it, by `run_metadata`. `trace_json` is Chrome's trace format
# (chrome://tracing, Perfetto): what each node did, of all tasks, on one clock. `trace_error` says
# which tasks' records could not be had, and why.
RunMetadata = _native.RunMetadata


def _milliseconds(timeout: Optional[float]) -> int:
    return -1 if timeout is None else max(int(timeout * 1000), 1)


class Prepared:
    """A step that was prepared once: see Session.make_callable."""

    def __init__(self, native: _native.Callable, rebuild: Callable[[List[Any]], Any]):
        self._native = native
        self._rebuild = rebuild

    def __call__(
        self, *feeds: Any, timeout: Optional[float] = None, run_metadata: Optional[RunMetadata] = None
    ) -> Any:
        """Runs it: feeds in the order in which they were named."""
        return self._run(feeds, timeout, run_metadata)

    def _run(self, feeds: Sequence[Any], timeout: Optional[float], metadata: Optional[RunMetadata] = None) -> Any:
        tensors = self._native.run(feeds, _milliseconds(timeout), convert, metadata)
        return self._rebuild([to_numpy(tensor) for tensor in tensors])


class PartialRun:
    """A step that is run in parts: see Session.partial_run_setup."""

    def __init__(self, native: _native.PartialRun):
        self._native = native

    def _run(self, names: List[str], values: Sequence[Any], fetches: List[str], timeout: Optional[float]) -> List[Any]:
        tensors = self._native.run(names, values, fetches, _milliseconds(timeout), convert)
        return [to_numpy(tensor) for tensor in tensors]


class Session:
    """Runs parts of a graph, in this process or on a cluster.

    Session(graph)                                in this process
    Session(graph, "grpc://host:2222")            on the cluster that this daemon or server belongs to
    Session(graph, cluster={"worker": [...]})     on the cluster that is described

    graph: a Graph, which may grow later, or what Graph() takes. Options are those of the C API
    (monograph/c_api.h, MG_SetSessionOption): key_file, start_timeout, operation_timeout (seconds),
    allow_soft_placement, log_device_placement, device_filters, cpu_devices, gpu_devices,
    inter_op_parallelism_threads, intra_op_parallelism_threads, optimizer_level,
    tensorflow_random_streams, container, lanes, trusted_network.

    Methods may be called from any thread; several steps may run at once.
    """

    _MOST_PREPARED = 64

    def __init__(
        self,
        graph: GraphLike,
        target: str = "",
        *,
        cluster: Union[ClusterSpec, Mapping[str, Any], str, None] = None,
        **options: Any,
    ):
        self.graph = graph if isinstance(graph, Graph) else Graph(graph)
        if target:
            options["target"] = target
        if cluster is not None:
            options["cluster"] = ClusterSpec(cluster).to_json()
        self._native = _native.Session(self.graph._native, _options(options))
        self._prepared: Dict[Any, Prepared] = {}

    def run(
        self,
        fetches: Any,
        feed_dict: Optional[Mapping[str, Any]] = None,
        *,
        timeout: Optional[float] = None,
        run_metadata: Optional[RunMetadata] = None,
    ) -> Any:
        """Runs one step and returns the values of `fetches`, in their structure.

        fetches: "node:0" is a tensor, "node" an operation, which runs and whose value is None; or a
        list, tuple or dictionary of fetches. feed_dict: by "node:0" or "node" an array, a number, a
        nested list, a tensor of another library with DLPack, or for string tensors str and bytes.
        timeout: seconds. run_metadata: what the step is recorded in.

        An array of the right type that lies row by row is not copied: it must not change while the
        step runs, and may afterwards. A fetched array owns its memory, which nobody else uses.
        """
        feeds = feed_dict or {}
        # Equal texts are equal structures, types and all.
        key = (fetches if isinstance(fetches, str) else (repr(fetches),), *feeds)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self.make_callable(fetches, list(feeds))
            if len(self._prepared) >= self._MOST_PREPARED:
                self._prepared.pop(next(iter(self._prepared)), None)
            self._prepared[key] = prepared
        return prepared._run(list(feeds.values()), timeout, run_metadata)

    def make_callable(self, fetches: Any, feed_list: Sequence[str] = ()) -> Prepared:
        """Prepares a step once. The result is called with values for `feed_list`, in its order."""
        tensors: List[str] = []
        targets: List[str] = []
        rebuild = _flatten(fetches, tensors, targets)
        return Prepared(self._native.make_callable(list(feed_list), tensors, targets), rebuild)

    def partial_run_setup(self, fetches: Any, feeds: Sequence[str] = ()) -> PartialRun:
        """Begins a step that partial_run feeds, and whose tensors it fetches, in parts.

        fetches: all that partial_run will be asked for, and operations that are to run. feeds: all
        that it will feed. A step of which the result is let go before it has ended is cancelled.
        """
        tensors: List[str] = []
        targets: List[str] = []
        _flatten(fetches, tensors, targets)
        return PartialRun(self._native.partial_run_setup(list(feeds), tensors, targets))

    def partial_run(
        self,
        handle: PartialRun,
        fetches: Any,
        feed_dict: Optional[Mapping[str, Any]] = None,
        *,
        timeout: Optional[float] = None,
    ) -> Any:
        """Feeds some of the step's feeds and returns some of its fetches, each of them once.

        What is fetched must not need what has not been fed yet. The call that leaves nothing to feed
        or fetch ends the step; so does one that the step fails under.
        """
        tensors: List[str] = []
        targets: List[str] = []
        rebuild = _flatten(fetches, tensors, targets)
        if targets:
            raise ValueError(f"operation '{targets[0]}' runs by itself: name it to partial_run_setup alone")
        feeds = feed_dict or {}
        return rebuild(handle._run(list(feeds), list(feeds.values()), tensors, timeout))

    def devices(self) -> List[Tuple[str, str, int]]:
        """Name, description and bytes of memory of every device that the session may use."""
        return [(name, text, int(limit)) for name, text, limit in self._native.devices()]

    def reset(self, containers: Sequence[str] = ()) -> None:
        """Drops variables and other resources of these containers (all, if none are named)."""
        self._native.reset(list(containers))

    def close(self) -> None:
        """Ends running steps and frees what daemons hold of the session. Variables stay."""
        self._prepared.clear()
        self._native.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
