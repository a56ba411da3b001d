"""TensorFlow's StepStats of a recorded step, for tf.RunMetadata.

The trace (Chrome's format) has a line per node, send and receive, with times in microseconds from
the step's first event. Here they become NodeExecStats by device. What a label says of inputs, and
what a node's outputs are, is taken from the tf.Graph; nodes that are not in it, such as receives,
have neither.
"""

import json
import time

from tensorflow.core.framework import step_stats_pb2
from tensorflow.python.framework import ops


def step_stats(trace_json: str, graph: ops.Graph) -> step_stats_pb2.StepStats:
    """The end of the step is taken to be now: the clock of TensorFlow's times is the wall's."""
    events = [event for event in json.loads(trace_json)["traceEvents"] if event["ph"] == "X"]
    stats = step_stats_pb2.StepStats()
    if not events:
        return stats
    begin = time.time_ns() - _nanoseconds(max(event["ts"] + event["dur"] for event in events))
    by_device = {}
    for event in events:
        device = event["args"]["device"]
        if device not in by_device:
            by_device[device] = stats.dev_stats.add(device=device)
        _add_node(by_device[device].node_stats.add(), event, begin, graph)
    return stats


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def _add_node(node: step_stats_pb2.NodeExecStats, event: dict, begin: int, graph: ops.Graph) -> None:
    start, duration = begin + _nanoseconds(event["ts"]), _nanoseconds(event["dur"])
    node.node_name = event["name"]
    node.thread_id = event["tid"]
    node.scheduled_nanos, node.scheduled_micros = start, start // 1000
    node.all_start_nanos, node.all_start_micros = start, start // 1000
    # A span that is shorter than a microsecond shows as one.
    node.op_end_rel_nanos = node.all_end_rel_nanos = duration
    node.op_end_rel_micros = node.all_end_rel_micros = max(duration // 1000, 1)
    operation = _operation(graph, event["name"])
    inputs = []
    if operation is not None:
        inputs = [_short_name(tensor) for tensor in operation.inputs]
        inputs += ["^" + control.name for control in operation.control_inputs]
        for slot, tensor in enumerate(operation.outputs):
            output = node.output.add(slot=slot)
            output.tensor_description.dtype = tensor.dtype.as_datatype_enum
            if tensor.shape.is_fully_defined():
                output.tensor_description.shape.CopyFrom(tensor.shape.as_proto())
    node.timeline_label = f"{event['name']} = {event['args']['op']}({', '.join(inputs)})"


def _operation(graph: ops.Graph, name: str):
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _short_name(tensor) -> str:
    return tensor.op.name if tensor.value_index == 0 else tensor.name
