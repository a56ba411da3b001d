"""TensorFlow 1.x programs on Monograph.

    python -m monograph.tensorflow program.py arguments...

or, as the first line of the program, `import monograph.tensorflow`.

TensorFlow builds the graph; its Session, InteractiveSession, MonitoredSession, Supervisor, Saver
and the rest are its own classes. What is replaced here are the methods of BaseSession that give
graphs and steps to TensorFlow's runtime, and those of train.Server. Before a step the session's
monograph.Graph gets the nodes that the program has added since the last one; feeds and fetches go
by name. Signatures that come again find what was worked out for them: TensorFlow's mapping of
fetches alone takes longer than a small step.
"""

import atexit
import os
import runpy
import socket
import sys
import threading
import uuid
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
from tensorflow.core.framework import graph_pb2, resource_handle_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, errors_impl, ops
from tensorflow.python.framework import tensor as tf_tensor
from tensorflow.python.ops import session_ops, variables
from tensorflow.python.training import server_lib
from tensorflow.python.util import compat

import monograph
import monograph._py_func
from monograph._step_stats import step_stats
from monograph.session import PartialRun, Prepared

# TensorFlow waits for the other tasks without a limit; the library's longest wait is 115 days.
_PATIENCE = 1e7
_MOST_PLANS = 256


# ---- Graphs

# Without a shared_name these belong to their session in TensorFlow: another one, which may have the
# same graph, gets its own. Variables, tables and staging areas are shared by their nodes' names.
_QUEUES = ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue")
_READERS = ("FixedLengthRecordReader", "IdentityReader", "TFRecordReader", "TextLineReader", "WholeFileReader")
_ACCUMULATORS = ("ConditionalAccumulator", "ResourceConditionalAccumulator", "SparseConditionalAccumulator")
_OF_A_SESSION = {
    *_QUEUES,
    *_READERS,
    *(kind + "V2" for kind in _QUEUES + _READERS),
    *_ACCUMULATORS,
    "Barrier",
    "Iterator",
    "IteratorV2",
    "OneShotIterator",
}


class _GrowingGraph:
    """The monograph.Graph of a tf.Graph. `container`, if not empty: of what belongs to the session."""

    def __init__(self, graph: ops.Graph, container: str = ""):
        self.native = monograph.Graph()
        self._container = container
        self._graph = graph
        self._lock = threading.Lock()
        self._version = 0
        self._nodes = 0  # how many of the graph's operations `native` has
        self._functions: set = set()

    def catch_up(self) -> None:
        if self._graph.version == self._version:
            return
        with self._lock:
            version = self._graph.version  # what is added from here on comes with the next step
            added = self._added()
            if self._container:
                self._contain(added)
            self.native.extend(added.SerializeToString())
            self._nodes += len(added.node)
            self._functions.update(function.signature.name for function in added.library.function)
            self._version = version

    def _contain(self, added: graph_pb2.GraphDef) -> None:
        for node in added.node:
            if node.op in _OF_A_SESSION and not node.attr["shared_name"].s:
                node.attr["container"].s = self._container.encode()

    def _added(self) -> graph_pb2.GraphDef:
        if self._nodes == 0:
            return self._graph.as_graph_def()
        added = graph_pb2.GraphDef(versions=self._graph.graph_def_versions)
        for operation in self._graph.get_operations()[self._nodes :]:
            added.node.append(operation.node_def)
        if any(compat.as_str(name) not in self._functions for name in self._graph._functions):
            added.library.CopyFrom(self._graph.as_graph_def().library)
        return added


def _tensorflows_error(error: monograph.Error, graph: Optional[ops.Graph]) -> errors_impl.OpError:
    node_def = operation = None
    if graph is not None and error.node is not None:
        try:
            operation = graph.get_operation_by_name(error.node)
            node_def = operation.node_def
        except (KeyError, ValueError):
            pass  # a node of a rewrite's or of a function
    return errors_impl.exception_type_from_error_code(error.code)(node_def, operation, error.message)


# ---- Sessions


class _Feed:
    """A tensor that a signature feeds: what TensorFlow checks of its values."""

    def __init__(self, tensor: tf_tensor.Tensor):
        self._tensor = tensor
        self._dtype = np.dtype(tensor.dtype.as_numpy_dtype)
        self._fitting: set = set()  # shapes that were found to be compatible

    def array(self, value: Any) -> Optional[np.ndarray]:
        """None if TensorFlow has to look at the value."""
        if type(value) is not np.ndarray:
            if not isinstance(value, (float, list, np.generic)):
                return None
            value = np.asarray(value, self._dtype)
        elif value.dtype != self._dtype:
            value = np.asarray(value, self._dtype)
        if value.shape not in self._fitting:
            if not self._tensor.get_shape().is_compatible_with(value.shape):
                return None
            self._fitting.add(value.shape)
        return value


class _Plan:
    """A signature that was run before. Holds fetches and feeds, by whose identity it is found."""

    def __init__(self, session: tf_session.BaseSession, fetches: Any, feeds: Tuple[tf_tensor.Tensor, ...]):
        self._held = (_copy(fetches), feeds)
        self._session = session
        self._feeds = [_Feed(tensor) for tensor in feeds]
        self._handler = tf_session._FetchHandler(session.graph, fetches, {})
        tensors, targets = self._handler.fetches(), self._handler.targets()
        self._single = isinstance(fetches, tf_tensor.Tensor) and len(tensors) == 1
        self._nothing = isinstance(fetches, ops.Operation)
        self._prepared = _prepared(session, [tensor.name for tensor in feeds], tensors, targets)

    def run(self, values: Any, timeout: Optional[float]) -> Tuple[bool, Any]:
        """Whether it could run the step with these values, and the result."""
        arrays = []
        for feed, value in zip(self._feeds, values):
            array = feed.array(value)
            if array is None:
                return False, None
            arrays.append(array)
        results = self._prepared._run(arrays, timeout)
        if self._nothing:
            return True, None
        return True, results[0] if self._single else self._handler.build_results(self._session, results)


_ELEMENTS = (ops.Operation, tf_tensor.Tensor, variables.Variable)


def _copy(fetches: Any) -> Any:
    if isinstance(fetches, dict):
        return {key: _copy(value) for key, value in fetches.items()}
    return [_copy(item) for item in fetches] if isinstance(fetches, (list, tuple)) else fetches


def _key(fetches: Any) -> Any:
    """Equal for structures of the same elements; None for what is left to TensorFlow."""
    kind = type(fetches)
    if kind is str:
        return fetches
    if isinstance(fetches, _ELEMENTS):
        return id(fetches)
    if kind is list or kind is tuple:
        keys = tuple(map(_key, fetches))
    elif kind is dict and all(type(key) is str for key in fetches):
        keys = tuple(fetches) + tuple(map(_key, fetches.values()))
    else:
        return None
    return None if not keys or None in keys else (kind, keys)


def _prepared(
    session: tf_session.BaseSession,
    feeds: List[str],
    fetches: List[tf_tensor.Tensor],
    targets: List[ops.Operation],
) -> Prepared:
    names = tuple(feeds), tuple(tensor.name for tensor in fetches), tuple(target.name for target in targets)
    found = session._monograph_prepared.get(names)
    if found is None:
        session._extend_graph()
        native = session._session._native.make_callable(*map(list, names))
        found = _remember(session._monograph_prepared, names, Prepared(native, list))
    return found


def _remember(known: Dict[Any, Any], key: Any, value: Any) -> Any:
    if len(known) >= _MOST_PLANS:
        known.pop(next(iter(known)), None)
    known[key] = value
    return value


class _PartialRunHandle(str):
    """Handles are texts in TensorFlow. This one holds the step."""

    step: PartialRun


_TRUTH = {
    **dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "n", "off"), False),
}


def _session_options(config: config_pb2.ConfigProto, target: str) -> Dict[str, Any]:
    options: Dict[str, Any] = {"allow_soft_placement": config.allow_soft_placement}
    if target:
        options["start_timeout"] = _PATIENCE
    else:
        options.update(_device_options(config))
    if config.log_device_placement:
        options["log_device_placement"] = "full"
    if config.device_filters:
        options["device_filters"] = list(config.device_filters)
    if config.operation_timeout_in_ms > 0:
        options["operation_timeout"] = config.operation_timeout_in_ms / 1000
    # ConfigProto has no such field. The words are those of a flag.
    if streams := os.environ.get("MONOGRAPH_TENSORFLOW_RANDOM_STREAMS", "").lower():
        options["tensorflow_random_streams"] = _TRUTH.get(streams, streams)
    options.update(_thread_options(config))
    return options


def _device_options(config: config_pb2.ConfigProto) -> Dict[str, Any]:
    counts = {kind.upper(): count for kind, count in config.device_count.items()}
    return {f"{kind.lower()}_devices": counts[kind] for kind in ("CPU", "GPU") if kind in counts}


def _thread_options(config: config_pb2.ConfigProto) -> Dict[str, Any]:
    threads = {
        "inter_op_parallelism_threads": config.inter_op_parallelism_threads,
        "intra_op_parallelism_threads": config.intra_op_parallelism_threads,
    }
    return {name: count for name, count in threads.items() if count > 0}


class _SessionMethods:
    """What BaseSession has instead of its own."""

    def __init__(self, target="", graph=None, config=None):
        if graph is not None and not isinstance(graph, ops.Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if isinstance(target, config_pb2.ConfigProto):
            raise TypeError('target must be a string; did you do "Session(config)" instead of "Session(config=config)"?')
        if config is not None and not isinstance(config, config_pb2.ConfigProto):
            raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
        self._graph = ops.get_default_graph() if graph is None else graph
        self._config = config_pb2.ConfigProto() if config is None else config
        self._target = None if target is None else compat.as_bytes(target)
        self._add_shapes = self._config.graph_options.infer_shapes
        self._closed = False
        self._session = None
        self._delete_lock = threading.Lock()
        self._dead_handles: List[str] = []
        # A local session has resources of its own; those of servers outlive sessions.
        container = f"session.{uuid.uuid4().hex}" if target else ""
        self._monograph_graph = _GrowingGraph(self._graph, container)
        self._monograph_prepared: Dict[Any, Prepared] = {}
        self._monograph_plans: Dict[Any, _Plan] = {}
        text = compat.as_str(target or "")
        options = dict(_session_options(self._config, text), container=container)
        try:
            self._monograph_graph.catch_up()
            self._session = monograph.Session(self._monograph_graph.native, text, **options)
        except monograph.Error as error:
            raise _tensorflows_error(error, self._graph) from error

    def __del__(self):
        try:
            self.close()
        except Exception:  # at the end of the process modules may be gone
            pass

    def close(self):
        if self._session is not None and not self._closed:
            self._closed = True
            self._monograph_plans.clear()
            self._monograph_prepared.clear()
            self._session.close()

    def list_devices(self):
        return [
            tf_session._DeviceAttributes(name, name.split(":")[-2], limit, 0)
            for name, _, limit in self._session.devices()
        ]

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if run_metadata is not None:
            run_metadata.Clear()
        key = None if _is_traced(options, run_metadata) else _key(fetches)
        plan = None
        if feed_dict:
            if key is not None and all(isinstance(tensor, tf_tensor.Tensor) for tensor in feed_dict):
                key = (key, *map(id, feed_dict))
            else:
                key = None
        if key is not None and not self._closed:
            plan = self._monograph_plans.get(key)
            if plan is not None:
                try:
                    done, result = plan.run(feed_dict.values() if feed_dict else (), _timeout(options))
                except monograph.Error as error:
                    raise _tensorflows_error(error, self._graph) from error
                if done:
                    return result
        result = self._run(None, fetches, feed_dict, options, run_metadata)
        if key is not None and plan is None and not _fetches_a_feed(self, fetches, feed_dict):
            _remember(self._monograph_plans, key, _Plan(self, fetches, tuple(feed_dict or ())))
        return result

    def _do_run(self, handle, target_list, fetch_list, feed_dict, options, run_metadata):
        try:
            if handle is not None:
                return self._run_part(handle, target_list, fetch_list, feed_dict)
            prepared = _prepared(self, [tensor.deref().name for tensor in feed_dict], fetch_list, target_list)
            feeds = [self._of_handle(tensor.deref(), value) for tensor, value in feed_dict.items()]
            return _run_traced(prepared, feeds, options, run_metadata, self._graph)
        except monograph.Error as error:
            raise _tensorflows_error(error, self._graph) from error

    def _of_handle(self, tensor, value):
        """What is fed: for a TensorHandle, which comes as a serialised handle, the tensor itself."""
        if getattr(value, "dtype", None) != dtypes.np_resource or tensor.dtype == dtypes.resource:
            return value
        handle = resource_handle_pb2.ResourceHandleProto.FromString(value.tobytes()).name
        holder, reader = session_ops._get_handle_reader(self._graph, handle, tensor.dtype)
        return self.run(reader, {holder: handle})

    def _extend_graph(self):
        with self._graph._session_run_lock():
            self._monograph_graph.catch_up()

    # TensorFlow's partial_run checks feeds and fetches, and calls _do_run with the handle.
    def partial_run_setup(self, fetches, feeds=None):
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        names = []
        for feed in feeds if isinstance(feeds, (list, tuple)) else [] if feeds is None else [feeds]:
            expand = next(row[3] for row in tf_session._REGISTERED_EXPANSIONS if isinstance(feed, row[0]))
            names += [self._graph.as_graph_element(part, allow_operation=False).name for part in expand(feed)]
        handler = tf_session._FetchHandler(self._graph, fetches, {})
        tensors, targets = handler.fetches(), handler.targets()
        self._extend_graph()
        try:
            native = self._session._native.partial_run_setup(
                names, [tensor.name for tensor in tensors], [target.name for target in targets]
            )
        except monograph.Error as error:
            raise _tensorflows_error(error, self._graph) from error
        handle = _PartialRunHandle(f"partial run of {len(names)} feeds and {len(tensors)} fetches")
        handle.step = PartialRun(native)
        return handle

    def _run_part(self, handle, targets, fetches, feeds):
        if targets:
            raise RuntimeError(f"partial_run fetches tensors alone, not the operation {targets[0].name!r}")
        if not isinstance(handle, _PartialRunHandle):
            raise errors_impl.InvalidArgumentError(
                None, None, f"{handle!r} is no handle of partial_run_setup, which comes before partial_run"
            )
        names = [tensor.deref().name for tensor in feeds]
        return handle.step._run(names, list(feeds.values()), [tensor.name for tensor in fetches], None)

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError("`feed_list` must be a list or tuple.")
        if feed_list is None:  # bad fetches are told at once
            tf_session._FetchHandler(self._graph, fetches, {})

        def call(*values, options=None, run_metadata=None):
            return self.run(fetches, dict(zip(feed_list or (), values)), options, run_metadata)

        return call

    def _make_callable_from_options(self, callable_options):
        graph = self._graph
        try:
            prepared = _prepared(
                self,
                list(callable_options.feed),
                [graph.as_graph_element(name, allow_operation=False) for name in callable_options.fetch],
                [graph.as_graph_element(name, allow_tensor=False) for name in callable_options.target],
            )
        except monograph.Error as error:
            raise _tensorflows_error(error, graph) from error

        def call(*values, run_metadata=None):
            try:
                return _run_traced(prepared, values, callable_options.run_options, run_metadata, graph)
            except monograph.Error as error:
                raise _tensorflows_error(error, graph) from error

        return call


def _timeout(options: Optional[config_pb2.RunOptions]) -> Optional[float]:
    return options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms > 0 else None


def _is_traced(options: Optional[config_pb2.RunOptions], metadata: Optional[config_pb2.RunMetadata]) -> bool:
    return metadata is not None and options is not None and options.trace_level != config_pb2.RunOptions.NO_TRACE


def _run_traced(prepared: Prepared, feeds: Any, options: Any, metadata: Any, graph: ops.Graph) -> List[Any]:
    """Runs a step, and records it if `options` say so."""
    if not _is_traced(options, metadata):
        return prepared._run(feeds, _timeout(options))
    record = monograph.RunMetadata()
    results = prepared._run(feeds, _timeout(options), record)
    metadata.step_stats.CopyFrom(step_stats(record.trace_json, graph))
    return results


def _fetches_a_feed(session: tf_session.BaseSession, fetches: Any, feed_dict: Any) -> bool:
    """Such a fetch is the value as it was fed: TensorFlow's business."""
    if not feed_dict:
        return False
    fetched = tf_session._FetchHandler(session.graph, fetches, {}).fetches()
    return any(tensor is fed for tensor in fetched for fed in feed_dict)


def _reset(target, containers=None, config=None):
    options = _session_options(config or config_pb2.ConfigProto(), compat.as_str(target or ""))
    try:
        with monograph.Session(monograph.Graph(), compat.as_str(target or ""), **options) as session:
            session.reset([compat.as_str(name) for name in containers or ()])
    except monograph.Error as error:
        raise _tensorflows_error(error, None) from error


# ---- Servers


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class _ServerMethods:
    """What train.Server has instead of its own."""

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        self._server_def = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        for job in self._server_def.cluster.job:
            for index, address in job.tasks.items():
                if job.name == self._server_def.job_name and index == self._server_def.task_index:
                    if address.endswith(":0"):
                        job.tasks[index] = address[:-1] + str(_free_port())
                    self._address = job.tasks[index]
        self._server = None
        if start:
            self.start()

    def __del__(self):
        pass  # a server that nobody holds goes on, as TensorFlow's do

    def start(self):
        if self._server is not None:
            return
        config = self._server_def.default_session_config
        cluster = {job.name: dict(job.tasks) for job in self._server_def.cluster.job}
        try:
            self._server = monograph.Server(
                cluster,
                self._server_def.job_name,
                self._server_def.task_index,
                **_device_options(config),
                **_thread_options(config),
            )
        except monograph.Error as error:
            raise _tensorflows_error(error, None) from error
        atexit.register(self._server.stop)  # which holds it until then

    def join(self):
        self.start()
        self._server.join()

    @property
    def target(self):
        return "grpc://" + self._address


# ---- What is replaced


def _replace(cls: type, methods: type) -> None:
    for name, value in vars(methods).items():
        if callable(value) or isinstance(value, property):
            setattr(cls, name, value)


_replace(tf_session.BaseSession, _SessionMethods)
_replace(server_lib.Server, _ServerMethods)
tf_session.Session.reset = staticmethod(_reset)


# ---- The environment, of this process and of those that the program starts


def _set_environment() -> None:
    # Whose kernels compute what Monograph lacks.
    os.environ.setdefault("MONOGRAPH_TENSORFLOW", sys.executable)
    started = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_started")
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if started not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([started, *paths])


_set_environment()


def _main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m monograph.tensorflow program.py arguments...")
    sys.argv.pop(0)
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
