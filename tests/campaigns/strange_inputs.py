#!/usr/bin/env python3
"""Gives programs flags and files that make no sense, as a user or an attacker might: each flag of each program with
strange values, and changed clusters, scripts, graphs, texts of graphs, .npy files and data sets.

    tests/campaigns/strange_inputs.py --count=2000 --seed=1

A program may end with 0, or with 1 or 2 and a text; it must not be ended by a signal, take more than
five seconds of a processor, or stay when it is asked to end. Prints what did otherwise, and exits with 1 then. What was
still at work after --timeout seconds and ended when it was told to is counted: a job of 10^18 steps takes its time.
"""

import argparse
import collections
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_SECONDS = 5  # of a processor
TEXTS = ["", " ", "0", "-1", "1", "7", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
         "18446744073709551616", "1e999", "-1e999", "nan", "inf", "1e-320", "0x10", "1_000", "1.5", "true", "none", "auto", "all",
         "\udcff\udcfe", "\x01\x1b[31m", "a" * 70000, "a\nb", "%s%n%n", "/", "/dev/zero", "/dev/null", "/proc/self/mem",
         "/nowhere/x", "PIPE", "FOLDER", "LINK", "{}", "[]", "[" * 60000, "{\"ps\":" * 20000, "{\"ps\": [\"a:1\"], \"ps\": []}",
         "{\"worker\": [\"localhost:0\"]}", "{\"worker\": [1e300]}", "localhost", "localhost:0", ":::", "[::1]:99999", "a,b,,c", "1,2,3",
         "1GiB", "-1GiB", "1e30GiB", "10.0.0.0/33", "fd00::/200", "x:0", "x:0=", "x:0=[[[[", "x:0=" + "[" * 10000, "x:-1", "x:99999999999",
         "^x", "=", "--", "--help", "PATH", "ßäø", "float", "NaN=1"]


class Programs:
    def __init__(self, args, folder):
        self.folder = folder
        self.bin = pathlib.Path(args.programs)
        self.timeout = args.timeout
        self.names = self.files()

    def files(self):
        """Good ones, from which strange ones are made."""
        folder = self.folder
        os.mkfifo(folder / "pipe")
        (folder / "folder").mkdir()
        (folder / "link").symlink_to("link")
        graphs = ROOT / "tests/golden/graphs"
        shutil.copytree(graphs / "variables", folder / "variables")
        subprocess.run([self.bin / "monograph", "graph", "export", graphs / "linear_regression/graph.pb",
                        f"--out={folder}/graph.pbtxt"], check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(graphs / "linear_regression", folder / "regression")
        (folder / "cluster.json").write_text('{"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}')
        data = folder / "data"
        data.mkdir()
        for part in ("train", "t10k"):
            (data / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 20, 28, 28) + bytes(20 * 28 * 28))
            (data / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 20) + bytes(20))
        feeds = sorted(folder.glob("*/feeds/*.npy"))
        return {"npy": feeds, "idx": sorted(data.iterdir()), "cluster": [folder / "cluster.json"],
                "script": [folder / "regression/steps.json"], "pbtxt": [folder / "graph.pbtxt"],
                "pb": [folder / "regression/graph.pb"]}

    def command(self, kind):
        """Of a good run; it takes a moment."""
        graph = "graph.pbtxt" if kind == "pbtxt" else "regression/graph.pb"
        return {
            "mnist_replica": [self.bin / "mnist_replica", "--fc=8", "--batch_size=10", "--num_batches=2",
                              "--num_warmup_batches=0", "--eval_batch_size=20", f"--data_dir={self.folder}/data"],
            "run": [self.bin / "monograph", "run", self.folder / graph, f"--script={self.folder}/regression/steps.json",
                    f"--out={self.folder}/out"],
            "fetch": [self.bin / "monograph", "run", self.folder / "variables/graph.pb", "--targets=init"],
            "status": [self.bin / "monograph", "status", f"--cluster={self.folder}/cluster.json", "--start_timeout=0.2"],
            "executor": [self.bin / "monograph-executor", f"--cluster={self.folder}/cluster.json", "--job=worker", "--task=0"],
            "devices": [self.bin / "monograph", "devices"],
            "check": [self.bin / "monograph", "graph", "check", self.folder / "graph.pbtxt"],
            "export": [self.bin / "monograph", "graph", "export", self.folder / "graph.pbtxt", f"--out={self.folder}/exported.pbtxt"],
            "dot": [self.bin / "monograph", "graph", "export", self.folder / "regression/graph.pb", f"--out={self.folder}/exported.dot"],
            "partitions": [self.bin / "monograph", "graph", "export", self.folder / "variables/graph.pb", f"--out={self.folder}/part.pb",
                           "--partitions", "--targets=init"],
            "keygen": [self.bin / "monograph", "keygen", self.folder / "new.key"],
            "launch": [self.bin / "monograph", "launch", "--ps=0", "--workers=1", f"--executor={self.bin}/monograph-executor",
                       "--", "true"],
        }[kind]

    def flags(self, command):
        """Names of its flags, as --help has them."""
        words = [str(word) for word in command[:3] if not str(word).startswith("-") and "/" not in str(word)]
        text = subprocess.run([command[0], *words, "--help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        return re.findall(r"^  --(?:\[no\])?([a-z_0-9]+)", text, re.MULTILINE)

    def run(self, command):
        """What is wrong with how it ended ("" if nothing is), and how that was."""
        start_of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = dict(os.environ, MONOGRAPH_LOG_LEVEL="error")
        process = subprocess.Popen([os.fsencode(str(word)) for word in command], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder, env=environment,
                                   start_new_session=True,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30)))
        long = False
        try:
            said = process.communicate(timeout=self.timeout)[0]
        except subprocess.TimeoutExpired:
            long = True
            process.terminate()
            try:
                said = process.communicate(timeout=self.timeout)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "it stays when it is asked to end", "stuck"
        try:
            os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.1)
        except ProcessLookupError:
            pass
        said = said.decode(errors="replace")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = used.ru_utime + used.ru_stime - start_of_children.ru_utime - start_of_children.ru_stime
        if long:
            return "", "took its time, and ended when it was asked to"
        if process.returncode not in (0, 1, 2):
            return f"exit code {process.returncode}: {said[-400:]}", "crash"
        if seconds > MOST_SECONDS:
            return f"{seconds:.1f} s of a processor", "slow"
        if process.returncode != 0 and not said.strip():
            return f"exit code {process.returncode} without a word", "silent"
        return "", f"exit code {process.returncode}"


def strange_bytes(data, numbers):
    data = bytearray(data)
    what = numbers.randrange(6)
    if what == 0:
        return bytes(data[:numbers.randrange(len(data) + 1)])
    if what == 1:
        at = numbers.randrange(len(data) + 1)
        return bytes(data[:at] + numbers.choice([b"\x00", b"\xff" * 8, b"[" * 5000, b"{" * 5000, b"1e999", b"-1", b"\"", b"99999999999999999999"])
                     + data[at:])
    if what == 2:
        words = re.findall(rb"\d+|\"[^\"]*\"|true|false", bytes(data[:20000]))
        if words:
            old = numbers.choice(words)
            new = numbers.choice([b"1e300", b"-1", b"1e999", b"\"\"", b"[]", b"{}", b"null", b"\"\xff\"", b"99999999999999999999", b"true"])
            return bytes(data).replace(old, new, numbers.choice([1, 1, -1]))
    for _ in range(numbers.choice([1, 1, 4, 40])):
        if data:
            data[numbers.randrange(min(len(data), 200) if numbers.random() < 0.7 else len(data))] = numbers.randrange(256)
    return bytes(data)


def strange_run(programs, flags, numbers):
    """A command, and what undoes what was done to files."""
    if numbers.random() < 0.6:
        kind = numbers.choice(sorted(flags))
        command = list(programs.command(kind))
        at = len(command) - 2 if kind == "launch" else len(command)
        for _ in range(numbers.choice([1, 1, 2])):
            flag, text = numbers.choice(flags[kind]), numbers.choice(TEXTS)
            places = {"PIPE": "pipe", "FOLDER": "folder", "LINK": "link", "PATH": "new file"}
            text = str(programs.folder / places[text]) if text in places else text
            command.insert(at, f"--{flag}={text}" if numbers.random() < 0.9 else f"--{flag}")
        return command, lambda: None
    what = numbers.choice(sorted(programs.names))
    file = numbers.choice(programs.names[what])
    good = file.read_bytes()
    file.write_bytes(strange_bytes(good, numbers))
    command = programs.command({"npy": "run", "idx": "mnist_replica", "cluster": "status", "script": "run",
                                "pbtxt": numbers.choice(["run", "check", "export"]), "pb": numbers.choice(["run", "dot"])}[what])
    if what == "npy" and "variables" in str(file):
        command = [str(word).replace("regression", "variables") for word in command]
    return command, lambda: file.write_bytes(good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=10, help="seconds after which a program is asked to end")
    parser.add_argument("--minutes", type=float, default=60, help="it stops after so long, with what it has by then")
    parser.add_argument("--programs", default=str(ROOT / "build/bin"), help="folder of the programs")
    parser.add_argument("--keep", help="folder for the files of findings")
    args = parser.parse_args()
    counts = collections.Counter()
    problems = 0
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(args, pathlib.Path(folder))
        kinds = ["mnist_replica", "run", "fetch", "status", "executor", "devices", "check", "keygen", "launch", "export", "dot", "partitions"]
        flags = {kind: programs.flags(programs.command(kind)) for kind in kinds}
        for kind in [*kinds[:4], "export", "dot", "partitions"]:
            problem, how = programs.run(programs.command(kind))
            counts[f"good run of {kind}: {how}"] += 1
        until = time.time() + 60 * args.minutes
        for i in range(args.first, args.first + args.count):
            if time.time() > until:
                break
            numbers = random.Random(f"{args.seed}/{i}")
            command, undo = strange_run(programs, flags, numbers)
            problem, how = programs.run(command)
            counts[how] += 1
            if problem:
                problems += 1
                print(f"{args.seed}/{i}: {' '.join(str(word)[:200] for word in command)}: {problem}", flush=True)
                if args.keep:
                    shutil.copytree(programs.folder, pathlib.Path(args.keep) / str(i), symlinks=True, dirs_exist_ok=True,
                                    ignore=shutil.ignore_patterns("pipe"))
            undo()
            shutil.rmtree(programs.folder / "out", ignore_errors=True)
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    print(f"{problems:6} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
