"""One process with TensorFlow that runs many graphs, and may die of one: TensorFlow is this side, serve() the other."""

import json
import os
import pathlib
import signal
import subprocess
import sys


class TensorFlow:
    def __init__(self):
        self.process = None

    def run(self, graph, script, out, seconds):
        """[message of the import or "", messages of the steps, "" for one that ran]; None if the process died of it.

        What step s fetches is then in out/<s>_<i>.npy.
        """
        if self.process is None or self.process.poll() is not None:
            environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
            self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, env=environment, text=True)
            self.process.stdout.readline()
        try:
            self.process.stdin.write(json.dumps([str(graph), str(script), str(out), seconds]) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:  # it died when it came up, or after its last answer
            line = ""
        if not line:
            self.process.wait()
            self.process = None
            return None
        return json.loads(line)


def text_of(error):
    lines = [line for line in str(getattr(error, "message", "") or error).split("\n") if line.strip()]
    # "Graph execution error:" and a trace of where the node was made come before what is wrong.
    begin = max((i + 1 for i, line in enumerate(lines) if line.startswith("Detected at node")), default=0)
    told = [line for line in lines[begin:] if not line.startswith(("Graph execution error", "Node: '", "  File", "    "))]
    first = (told or lines or [''])[0]
    if first.startswith("Cannot parse tensor"):  # of which type
        first += next((line[3:] for line in lines if line.startswith("    dtype: ")), "")
    return f"{type(error).__name__}: {first}"[:400]


def serve():
    import numpy
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, allow_soft_placement=True,
                            operation_timeout_in_ms=5000)
    feeds = {}
    print("ready", flush=True)
    for line in sys.stdin:
        graph_file, script_file, out, seconds = json.loads(line)
        signal.alarm(seconds)  # ends this process
        script = json.loads(pathlib.Path(script_file).read_text())
        out = pathlib.Path(out)
        answer = ["", []]
        graph = tf.Graph()
        try:
            definition = tf.GraphDef()
            definition.ParseFromString(pathlib.Path(graph_file).read_bytes())
            with graph.as_default():
                tf.import_graph_def(definition, name="")
        except Exception as error:  # of whatever kind: it is refused
            answer[0] = text_of(error)
        if not answer[0]:
            with tf.Session(graph=graph, config=config) as session:
                for index, step in enumerate(script["steps"]):
                    try:
                        for file in step.get("feeds", {}).values():
                            if (script_file, file) not in feeds:
                                feeds[script_file, file] = numpy.load(pathlib.Path(script_file).parent / file)
                        given = {name: feeds[script_file, file] for name, file in step.get("feeds", {}).items()}
                        fetched, _ = session.run([step.get("fetches", []), step.get("targets", [])], given)
                        for i, value in enumerate(fetched):
                            numpy.save(out / f"{index}_{i}.npy", numpy.asarray(value), allow_pickle=True)
                        answer[1].append("")
                    except Exception as error:
                        answer[1].append(text_of(error))
        signal.alarm(0)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
