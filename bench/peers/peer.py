"""What the peers share: arguments, the repetition loop, child processes. Imported, not run.

A peer has named cases. Alone it runs every case --repetitions times and prints one JSON line for each:
    {"bench": "null_step/tensorflow", "case": "K=2", "value": 912.4, "unit": "us"}
With --serve it first prints {"bench": ..., "ready": true, "cases": [...], "version": "2.21.0"}, the version being the
peer's package's; then each line on standard input names a case (an empty line: the first) and gets one repetition and
one such JSON line, or {"bench", "case", "error"}. So a driver can interleave several programs. End of input, SIGTERM or
SIGINT end the peer and every process that it started.

Exit codes: 0 done, 2 wrong arguments, 3 the peer's package is not installed (the reason is on standard error)."""

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

MISSING = 3

# Memory that is kept and backed by huge pages: without it TensorFlow and torch touch fresh pages in every step.
MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


peer_module = None


def require(*modules):
    """Ends with code 3 unless all of them are installed. They are found, not loaded. The first one is the peer."""
    global peer_module
    peer_module = modules[0]
    for m in modules:
        if importlib.util.find_spec(m) is None:
            print(
                "%s: the Python package %s is not installed for %s"
                % (os.path.basename(sys.argv[0]), m, sys.executable),
                file=sys.stderr,
            )
            sys.exit(MISSING)


def version():
    """Of the package that holds the peer's module; the two may have different names (tensorflow-cpu)."""
    packages = importlib.metadata.packages_distributions().get(peer_module, [])
    return importlib.metadata.version(packages[0]) if packages else "unknown"


def load(module, wanted_by):
    try:
        return importlib.import_module(module)
    except Exception as e:  # a package may be there and still not load: a missing library, another processor
        print("%s: cannot import %s: %s" % (wanted_by, module, e), file=sys.stderr)
        sys.exit(MISSING)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def spawn(cmd, core=None, env=None):
    """A child with pipes on both ends, on one core where given, that does not outlive this process."""

    def prepare():
        die_with_parent()
        if core is not None:
            os.sched_setaffinity(0, {core})

    return subprocess.Popen(
        cmd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
        env=dict(os.environ, **(env or {})),
    )


def cores():
    return sorted(os.sched_getaffinity(0))


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def descendants():
    """Process ids below this one, children before grandchildren."""
    children = {}
    for d in os.listdir("/proc"):
        if d.isdigit():
            try:
                with open("/proc/%s/stat" % d) as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(d))
    out, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(0), [])
        out += below
        todo += below
    return out


def end(code=0):
    """Ends at once, with all descendants: neither TensorFlow's servers nor Ray's daemons end in order when asked."""
    sys.stdout.flush()
    sys.stderr.flush()
    for pid in reversed(descendants()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(code)


def median_seconds(call, seconds, at_least=5):
    """Median time of one call over a window of so many seconds."""
    times, stop = [], time.perf_counter() + seconds
    while len(times) < at_least or time.perf_counter() < stop:
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def rate(call, seconds, at_least=5):
    """Calls per second over a window."""
    n, start = 0, time.perf_counter()
    while n < at_least or time.perf_counter() - start < seconds:
        call()
        n += 1
    return n / (time.perf_counter() - start)


class Isolated:
    """A case that runs in a process of its own: this program again with --serve --case, by `python -m module` where
    one is given."""

    def __init__(self, case, args, core=None, env=None, module=None):
        by = ["-m", module] if module else []
        cmd = [sys.executable, *by, os.path.abspath(sys.argv[0])] + args + ["--serve", "--case", case]
        self.case, self.process = case, spawn(cmd, core, env)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            if code == MISSING:
                end(MISSING)
            raise RuntimeError("the process of case %s ended with code %d" % (self.case, code))
        return json.loads(line)

    def __call__(self, seconds):
        self.process.stdin.write(self.case + "\n")
        self.process.stdin.flush()
        answer = self.read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return {k: v for k, v in answer.items() if k not in ("bench", "case", "unit")}


class Group:
    """Processes that train together, started by these (command, core) pairs; each runs serve_steps. Called with a
    number of steps it has all of them run so many and returns the sum of their images per second."""

    def __init__(self, commands, env=None):
        self.processes = [spawn(command, core, env) for command, core in commands]
        if not all(p.stdout.readline().strip() == "ready" for p in self.processes):
            raise RuntimeError("a training process did not start")

    def __call__(self, steps):
        for p in self.processes:
            p.stdin.write("%d\n" % steps)
            p.stdin.flush()
        lines = [p.stdout.readline() for p in self.processes]
        if not all(lines):
            raise RuntimeError("a training process has ended")
        return sum(map(float, lines))


def serve_steps(step, images):
    """What a process of a Group does once it can train; step() trains on so many images."""
    print("ready", flush=True)
    for line in sys.stdin:
        steps, start = int(line), time.perf_counter()
        for _ in range(steps):
            step()
        print(steps * images / (time.perf_counter() - start), flush=True)


def parser(doc):
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--repetitions", type=int, default=5, help="per case, where not serving")
    ap.add_argument("--seconds", type=float, default=0.5, help="length of one repetition")
    ap.add_argument(
        "--serve", action="store_true", help="one repetition per line on standard input, which names the case"
    )
    ap.add_argument("--case", action="append", help="only this case (may be repeated)")
    return ap


def main(bench, unit, cases, args):
    """cases: name -> function(seconds) that runs one repetition and returns a number, or a dict with `value` and
    more."""

    def repeat(case):
        r = cases[case](args.seconds)
        return dict(bench=bench, case=case, **(r if isinstance(r, dict) else dict(value=r)), unit=unit)

    def say(row):
        print(json.dumps(row), flush=True)

    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda n, _: end(128 + n))
    try:
        if not args.serve:
            for _ in range(args.repetitions):
                for case in cases:
                    say(repeat(case))
            end(0)
        say(dict(bench=bench, ready=True, cases=list(cases), version=version()))
        for line in sys.stdin:
            case = line.strip() or next(iter(cases))
            try:
                say(
                    repeat(case)
                    if case in cases
                    else dict(bench=bench, case=case, error="no such case; there are: " + ", ".join(cases))
                )
            except Exception as e:
                say(dict(bench=bench, case=case, error="%s: %s" % (type(e).__name__, " ".join(str(e).split())[:300])))
        end(0)
    except BrokenPipeError:
        end(0)


def choose(args, names):
    """The cases that --case asks for, all where it does not."""
    for c in args.case or []:
        if c not in names:
            print("no case %r; there are: %s" % (c, ", ".join(names)), file=sys.stderr)
            sys.exit(2)
    return [n for n in names if not args.case or n in args.case]
