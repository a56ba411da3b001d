#!/usr/bin/env python3
"""Runs mutants of TensorFlow's own graphs (tests/golden/graphs) and looks for what must not be: a program that is ended
by a signal, one that does not end, and, with --tensorflow, an answer that is not TensorFlow's.

    tests/campaigns/mutated_graphs.py --count=1000 --seed=1
    tfvenv/bin/python tests/campaigns/mutated_graphs.py --count=1000 --tensorflow
    tests/campaigns/mutated_graphs.py --count=1000 --daemon

With --daemon the graphs run in a daemon, which all mutants share; a daemon that ends, that does not run a good graph
after a mutant, or that does not end when it is asked to, is a finding, too.

Prints one line per finding, and a summary; the mutants stay in --keep. With --tensorflow the interpreter needs the
package; step by step, what one of the two refuses and the other runs, and values that differ, are listed by the
message. Differences with a reason (known_differences.py) are counted by reason. Exits with 1 if a program was ended by
a signal or did not end, or if a difference has no reason.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import known_differences
import tensorflow_server
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


class Daemon:
    """A daemon that hosts the only task of a cluster; started anew once it has ended."""

    def __init__(self, program, folder):
        self.program = program
        self.cluster = folder / "cluster.json"
        self.log = folder / "daemon.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.cluster.write_text(json.dumps({"worker": [f"127.0.0.1:{port}"]}))
        self.start()

    def start(self):
        command = [self.program, f"--cluster={self.cluster}", "--job=worker", "--task=0", "--say_ready", "--log_level=error",
                   "--memory_limit=4GiB", "--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        if not self.process.stdout.readline():
            sys.exit("error: the daemon does not start: " + self.log.read_text(errors="replace"))

    def wrong(self, run_good, deep):
        """What is wrong with it after a mutant, "" if nothing is; then another one is there. `run_good` runs a good
        graph, if `deep`, and says how that was."""
        found = ""
        if self.process.poll() is not None:
            found = f"the daemon ended with {self.process.returncode}: " + self.log.read_text(errors="replace")[-300:]
        elif deep and (how := run_good()) != "ok":
            found = f"a good graph after it: {how}"
        if found:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.start()
        return found

    def end(self, seconds):
        """What is wrong with how it ends when it is asked to."""
        self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "the daemon stays when it is asked to end"
        finally:
            self.process.stdout.close()
        return "" if code == 0 else f"the daemon, asked to end, ended with {code}"


def run_ours(monograph, graph, script, out, seconds, cluster=None):
    """How it ended, "ok" or not, and its result.json."""
    command = [monograph, "run", str(graph), f"--script={script}", f"--out={out}", "--operation_timeout=5",
               "--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1", "--log_level=error"]
    if cluster:
        command += [f"--cluster={cluster}", "--start_timeout=5"]
    # A tensor beyond memory is an error, not an end: the mutants may ask for whatever they like.
    limits = "ulimit -v 16000000; exec \"$@\""
    shutil.rmtree(out, ignore_errors=True)
    try:
        ran = subprocess.run(["bash", "-c", limits, "bash", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=seconds)
    except subprocess.TimeoutExpired:
        return "stuck", None
    if ran.returncode not in (0, 1):
        return f"ended with {ran.returncode}: " + ran.stdout.decode(errors="replace")[-300:], None
    try:
        return "ok", json.loads((pathlib.Path(out) / "result.json").read_text())
    except (OSError, ValueError):
        return "ok", {"load": {"code": "UNKNOWN", "message": ran.stdout.decode(errors="replace")[:300]}, "steps": []}


def differing_values(ours, theirs, step):
    """What differs among the values that step `step` has fetched; "" if nothing does."""
    import numpy
    for file in sorted(ours.glob(f"{step}_*.npy")):
        try:
            a, b = numpy.load(file), numpy.load(theirs / file.name, allow_pickle=True)
        except (OSError, ValueError) as error:
            return f"fetch {file.stem} cannot be read: {error}"
        if b.dtype == object:  # strings
            a, b = a.astype(object), numpy.asarray(b)
            same = a.shape == b.shape and all(bytes(x) == bytes(y) for x, y in zip(a.flat, b.flat))
            if not same:
                return f"fetch {file.stem}: strings differ"
            continue
        if a.shape != b.shape or (a.dtype != b.dtype and b.dtype.kind != "V"):
            return f"fetch {file.stem} is {a.dtype}{list(a.shape)}, TensorFlow's {b.dtype}{list(b.shape)}"
        if a.dtype.kind in "fc":
            a, b = a.astype(numpy.float64), b.astype(numpy.float64)
            finite = b[numpy.isfinite(b)]
            room = 1e-3 * (abs(finite).max() if finite.size else 1) + 1e-6
            if not numpy.allclose(a, b, rtol=1e-3, atol=room, equal_nan=True):
                return f"fetch {file.stem}: {a.flat[:4].tolist()}, TensorFlow's {b.flat[:4].tolist()}"
        elif a.dtype.kind in "iub" and not numpy.array_equal(a, b):
            return f"fetch {file.stem}: {a.flat[:4].tolist()}, TensorFlow's {b.flat[:4].tolist()}"
    return ""


def difference(ours, theirs, our_values, their_values, script):
    """The first one, as (what, message); None if there is none."""
    load = ours["load"]
    we_load, they_load = load["code"] == "OK", theirs[0] == ""
    if we_load and not they_load:
        # What TensorFlow finds in a graph as a whole may show here in the step that needs it.
        if any(step["code"] != "OK" and "error" not in meant for step, meant in zip(ours["steps"], script["steps"])):
            return None
    compared = True
    for step, their_text in enumerate(theirs[1] if they_load else [theirs[0]] * len(ours["steps"])):
        ours_at = ours["steps"][step] if we_load else load
        if ours_at["code"] == "OK" and their_text:
            return known_differences.THEY_REFUSE, their_text
        if ours_at["code"] != "OK" and not their_text:
            return known_differences.WE_REFUSE, f"{ours_at['code']}: {ours_at['message']}"[:400]
        if ours_at["code"] != "OK":
            compared = False  # which variables a step that fails has updated before is not promised
        elif compared:
            values = differing_values(our_values, their_values, step)
            if values:
                return known_differences.VALUES, f"step {step}, {values}"
    return None


def kind_of(message):
    """A message without its names and numbers."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\{\{[^}]*\}\}|\[[^\]]*\]|<[^>]*>", "_", message.split("\n")[0])
    return re.sub(r"[0-9]+", "N", message)[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--largest", type=int, default=60000, help="bytes of the graphs that are mutated")
    parser.add_argument("--timeout", type=int, default=30, help="seconds after which a program is stuck")
    parser.add_argument("--monograph", default=str(ROOT / "build/bin/monograph"))
    parser.add_argument("--keep", help="folder for the mutants of findings")
    parser.add_argument("--tensorflow", action="store_true")
    parser.add_argument("--daemon", action="store_true", help="the graphs run in a daemon, monograph-executor beside --monograph")
    args = parser.parse_args()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))  # the summary is printed still
    graphs = small_graphs(args.largest)
    tensorflow = tensorflow_server.TensorFlow() if args.tensorflow else None
    counts = collections.Counter()
    kinds = collections.defaultdict(list)  # of differences without a reason
    reasons = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        daemon = Daemon(pathlib.Path(args.monograph).with_name("monograph-executor"), folder) if args.daemon else None

        def run_good():
            # Without variables: those that mutants made stay in the daemon, and may have the same names.
            golden = [ROOT / "tests/golden/graphs" / graph[0] for graph in graphs]
            good = next(graph for graph in golden if b"Var" not in (graph / "graph.pb").read_bytes())
            how, result = run_ours(args.monograph, good / "graph.pb", good / "steps.json", folder / "good", args.timeout, daemon.cluster)
            meant = json.loads((good / "steps.json").read_text())["steps"]
            if how != "ok" or result["load"]["code"] != "OK":
                return how if how != "ok" else result["load"]["message"]
            wrong = [step["message"] or "no error" for step, as_meant in zip(result["steps"], meant) if step["code"] != as_meant.get("error", "OK")]
            return wrong[0] if wrong else "ok"

        for i in range(args.first, args.first + args.count):
            if stopped:
                break
            numbers = random.Random(f"{args.seed}/{i}")
            name, graph = numbers.choice(graphs)
            try:
                mutant = wire_mutator.mutated(graph, numbers)
            except (ValueError, IndexError):
                continue
            file = folder / "graph.pb"
            file.write_bytes(mutant)
            script = ROOT / "tests/golden/graphs" / name / "steps.json"
            how, result = run_ours(args.monograph, file, script, folder / "ours", args.timeout, daemon and daemon.cluster)
            found = ""
            wrong = daemon.wrong(run_good, i % 10 == 9) if daemon else ""
            if how != "ok":
                counts["stuck" if how == "stuck" else "ended by a signal"] += 1
                found = how
            else:
                counts["refused when loaded" if result["load"]["code"] != "OK" else
                       "every step ran" if all(step["code"] == "OK" for step in result["steps"]) else
                       "a step failed"] += 1
            if tensorflow and how == "ok":
                shutil.rmtree(folder / "theirs", ignore_errors=True)
                (folder / "theirs").mkdir()
                answer = tensorflow.run(file, script, folder / "theirs", args.timeout)
                counts["TensorFlow ended" if answer is None else "compared"] += 1
                differs = answer and difference(result, answer, folder / "ours", folder / "theirs",
                                                  json.loads(script.read_text()))
                if differs:
                    counts[differs[0]] += 1
                    reason = known_differences.reason(*differs)
                    if reason:
                        reasons[differs[0], reason] += 1
                    else:
                        found = f"{differs[0]}: {differs[1]}"
                        kinds[differs[0], kind_of(differs[1])].append(f"{name} {args.seed}/{i}: {differs[1][:300]}")
            if wrong:
                counts["the daemon suffered"] += 1
                found = wrong
            if found:
                if how != "ok" or wrong:
                    print(f"{name}, mutant {args.seed}/{i}: {found}", flush=True)
                if args.keep:
                    pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, pathlib.Path(args.keep) / f"{name}_{args.seed}_{i}.pb")
        wrong = daemon.end(args.timeout) if daemon else ""
        if wrong:
            counts["the daemon suffered"] += 1
            print(wrong, flush=True)
    for (what, kind), examples in sorted(kinds.items(), key=lambda item: (item[0][0], -len(item[1]))):
        print(f"{len(examples):5} {what}: {kind}")
        for example in examples[:3]:
            print(f"      {example}")
    for (what, reason), count in sorted(reasons.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{count:6} {what}, with a reason: {reason}")
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    return 1 if counts["stuck"] + counts["ended by a signal"] + counts["the daemon suffered"] or kinds else 0


if __name__ == "__main__":
    sys.exit(main())
