#!/usr/bin/env python3
"""Runs mutants of TensorFlow's own graphs (tests/golden/graphs) and looks for what must not be: a program that is ended
by a signal, one that does not end, and, with --tensorflow, an answer that TensorFlow refuses to give.

    tests/campaigns/mutated_graphs.py --count=1000 --seed=1
    tfvenv/bin/python tests/campaigns/mutated_graphs.py --count=1000 --tensorflow

Prints one line per finding, and a summary; the mutants stay in --keep. Exits with 1 if a program was ended by a signal
or did not end. With --tensorflow the interpreter needs the package; what it refuses and we run is listed by its
message.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import wire_mutator

ROOT = pathlib.Path(__file__).resolve().parents[2]


def small_graphs(limit):
    graphs = []
    for folder in sorted((ROOT / "tests/golden/graphs").iterdir()):
        script = json.loads((folder / "steps.json").read_text())
        graph = (folder / "graph.pb").read_bytes()
        if len(graph) <= limit and "cluster" not in script:
            graphs.append((folder.name, graph))
    return graphs


def run_ours(monograph, graph, script, out, seconds):
    command = [monograph, "run", str(graph), f"--script={script}", f"--out={out}", "--operation_timeout=5",
               "--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1", "--log_level=error"]
    # A tensor beyond memory is an error, not an end: the mutants may ask for whatever they like.
    limits = "ulimit -v 16000000; exec \"$@\""
    try:
        ran = subprocess.run(["bash", "-c", limits, "bash", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=seconds)
    except subprocess.TimeoutExpired:
        return "stuck", []
    if ran.returncode < 0 or ran.returncode >= 128 or ran.returncode not in (0, 1):
        return f"ended with {ran.returncode}: " + ran.stdout.decode(errors="replace")[-300:], []
    try:
        result = json.loads((pathlib.Path(out) / "result.json").read_text())
    except (OSError, ValueError):
        return "ok", None  # refused before anything ran
    if result["load"]["code"] != "OK":
        return "ok", None
    return "ok", [step["code"] for step in result["steps"]]


class TensorFlow:
    """A process of its own, which may die of a mutant."""

    def __init__(self):
        self.process = None

    def run(self, graph, script, seconds):
        if self.process is None or self.process.poll() is not None:
            environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
            self.process = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True)
            self.process.stdout.readline()
        self.process.stdin.write(json.dumps([str(graph), str(script), seconds]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process = None
            return None
        return json.loads(line)


def serve():
    """Answers lines [graph, script, seconds] with [message of the import or "", messages of the steps]."""
    import numpy
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    print("ready", flush=True)
    for line in sys.stdin:
        graph_file, script_file, seconds = json.loads(line)
        signal.alarm(seconds)  # ends this process
        script = json.loads(pathlib.Path(script_file).read_text())
        answer = ["", []]
        graph = tf.Graph()
        try:
            definition = tf.GraphDef()
            definition.ParseFromString(pathlib.Path(graph_file).read_bytes())
            with graph.as_default():
                tf.import_graph_def(definition, name="")
        except Exception as error:  # of whatever kind: it is refused
            answer[0] = f"{type(error).__name__}: {error}"[:300]
        if not answer[0]:
            config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1,
                                    allow_soft_placement=True, operation_timeout_in_ms=5000)
            with tf.Session(graph=graph, config=config) as session:
                for step in script["steps"]:
                    try:
                        feeds = {name: numpy.load(pathlib.Path(script_file).parent / file)
                                 for name, file in step.get("feeds", {}).items()}
                        session.run([*step.get("fetches", []), *step.get("targets", [])], feeds)
                        answer[1].append("")
                    except Exception as error:
                        answer[1].append(f"{type(error).__name__}: {error}"[:300])
        signal.alarm(0)
        print(json.dumps(answer), flush=True)


def kind_of(message):
    """A message without its names and numbers."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\{\{[^}]*\}\}|\[[^\]]*\]|<[^>]*>", "_", message.split("\n")[0])
    return re.sub(r"[0-9]+", "N", message)[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, default=60000, help="bytes of the graphs that are mutated")
    parser.add_argument("--timeout", type=int, default=30, help="seconds after which a program is stuck")
    parser.add_argument("--monograph", default=str(ROOT / "build/bin/monograph"))
    parser.add_argument("--keep", help="folder for the mutants of findings")
    parser.add_argument("--tensorflow", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))  # the summary is printed still
    graphs = small_graphs(args.largest)
    tensorflow = TensorFlow() if args.tensorflow else None
    counts = collections.Counter()
    kinds = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for i in range(args.count):
            if stopped:
                break
            numbers = random.Random(f"{args.seed}/{i}")
            name, graph = numbers.choice(graphs)
            try:
                mutant = wire_mutator.mutated(graph, numbers)
            except (ValueError, IndexError):
                continue
            (folder / "graph.pb").write_bytes(mutant)
            script = ROOT / "tests/golden/graphs" / name / "steps.json"
            how, codes = run_ours(args.monograph, folder / "graph.pb", script, folder / "out", args.timeout)
            found = ""
            if how != "ok":
                counts["stuck" if how == "stuck" else "ended by a signal"] += 1
                found = how
            else:
                counts["refused when loaded" if codes is None else
                       "every step ran" if all(code == "OK" for code in codes) else "a step failed"] += 1
            if tensorflow and how == "ok" and codes:
                answer = tensorflow.run(folder / "graph.pb", script, args.timeout)
                if answer is None:
                    counts["TensorFlow ended"] += 1
                else:
                    ours = next((step for step, code in enumerate(codes) if code != "OK"), len(codes))
                    theirs = 0 if answer[0] else next((step for step, text in enumerate(answer[1]) if text), len(answer[1]))
                    counts["compared"] += 1
                    if theirs < ours:
                        counts["TensorFlow refuses what we run"] += 1
                        text = answer[0] or answer[1][theirs]
                        kinds[kind_of(text)].append(f"{name} {i}: {text[:200]}")
                    elif ours < theirs:
                        counts["we refuse what TensorFlow runs"] += 1
            if found:
                print(f"{name}, mutant {args.seed}/{i}: {found}", flush=True)
                if args.keep:
                    pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
                    shutil.copy(folder / "graph.pb", pathlib.Path(args.keep) / f"{name}_{args.seed}_{i}.pb")
    for kind, examples in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(examples):5} {kind}\n      {examples[0]}")
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    return 1 if counts["stuck"] + counts["ended by a signal"] else 0


if __name__ == "__main__":
    sys.exit(main())
