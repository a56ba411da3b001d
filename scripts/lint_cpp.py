#!/usr/bin/env python3
"""scripts/lint_cpp.py BUILD [SOURCE...]: clang-tidy, and with it clang's own warnings, on the sources that BUILD/compile_commands.json names.

Nearly all of the time goes into headers. So sources that have the same flags are read together, in batches with one parse each, at most one with a `main` in a batch.
Where something is found in a batch, its halves are read: what is found in single sources counts, since two need not go together (each may have a function `Split`).
A batch in which nothing was found is noted in .cache/lint with the digests of its sources and of our headers that they include, and is read again when one changes.
Prints each finding once; ends with 1 if there is one.
"""
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

BATCH = 20
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
CACHE = os.path.join(ROOT, ".cache", "lint")
FINDING = re.compile(r"^/\S+?:\d+:\d+: (?:warning|error): .*\[[\w.,-]+\]$|^error: ")


def run(command, folder):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def tool(name):
    """The program of LLVM 14, which .clang-format and .clang-tidy are written for, or else the system's."""
    for folder in os.environ["PATH"].split(":"):
        if os.access(os.path.join(folder, name + "-14"), os.X_OK):
            return name + "-14"
    return name


@functools.lru_cache(maxsize=None)
def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_database(build):
    """{(build folder, flags): sources}. A source that several targets compile with the same flags is there once; generated ones are left out."""
    groups, seen = collections.defaultdict(list), set()
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        words = shlex.split(entry["command"])
        source = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        first, last = next(i for i, word in enumerate(words) if word.startswith("-")), words.index("-o")
        flags = tuple(words[first:last])
        if words[first - 1].endswith("nvcc") or source.startswith(os.path.realpath(build) + os.sep) or (source, flags) in seen:
            continue
        seen.add((source, flags))
        groups[(entry["directory"], flags)].append(source)
    return groups


def has_main(source):
    with open(source, encoding="utf-8") as file:
        return re.search(r"^int main\(", file.read(), re.MULTILINE) is not None


def batches(groups, wanted):
    for (folder, flags), sources in sorted(groups.items()):
        chosen = sorted(source for source in sources if not wanted or source in wanted)
        programs = [source for source in chosen if has_main(source)]
        others = [source for source in chosen if source not in programs]
        count = max(len(programs), -(-len(chosen) // BATCH))
        for i in range(count):
            yield folder, flags, others[i * len(others) // count:(i + 1) * len(others) // count] + programs[i:i + 1]


def findings(output):
    """The parts of clang-tidy's output, each with the notes that belong to it."""
    parts = []
    for line in output.splitlines():
        if FINDING.match(line):
            parts.append(line)
        elif parts:
            parts[-1] += "\n" + line
    return parts


class Linter:
    def __init__(self, build):
        self.tidy = tool("clang-tidy")
        generated = (os.path.join(folder, name) for folder, _, names in os.walk(build) for name in names if name.endswith(".pb.h"))
        self.setting = [run([self.tidy, "--version"], ROOT).stdout, digest(os.path.join(ROOT, ".clang-tidy")), *map(digest, sorted(generated))]

    def lint(self, folder, flags, sources):
        """What is found in `sources`, read together."""
        note = os.path.join(CACHE, hashlib.sha256(json.dumps([self.setting, flags, sources]).encode()).hexdigest())
        if self.is_unchanged(note):
            return []
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            unit, headers = sources[0], os.path.join(work, "headers")
            if len(sources) > 1:
                unit = os.path.join(work, "batch.cc")
                with open(unit, "w", encoding="utf-8") as file:
                    file.writelines(f'#include "{source}"\n' for source in sources)
            done = run([self.tidy, "--quiet", unit, "--", *flags, "-Xclang", "-header-include-file", "-Xclang", headers], folder)
            found = findings(done.stdout)
            if not found and done.returncode != 0:
                found = [f"error: clang-tidy ended with {done.returncode} on {', '.join(sources)}:\n{done.stdout}{done.stderr}"]
            if found and len(sources) > 1:
                print("read in halves, because together:", found[0].splitlines()[0], file=sys.stderr, flush=True)
                middle = len(sources) // 2
                found = self.lint(folder, flags, sources[:middle]) + self.lint(folder, flags, sources[middle:])
            if not found:
                self.write_note(note, folder, sources, headers)
        return found

    @staticmethod
    def is_unchanged(note):
        if not os.path.exists(note):
            return False
        with open(note, encoding="utf-8") as file:
            files = json.load(file)
        return all(os.path.exists(path) and digest(path) == value for path, value in files.items())

    @staticmethod
    def write_note(note, folder, sources, headers):
        paths = set(sources)
        if os.path.exists(headers):
            with open(headers, encoding="utf-8") as file:
                paths.update(os.path.realpath(os.path.join(folder, line.strip())) for line in file)
        with open(note, "w", encoding="utf-8") as file:
            json.dump({path: digest(path) for path in sorted(paths)}, file)


def sources_of(paths, groups):
    """Sources among `paths`, and for each header the source of the same name or else one that includes it."""
    known = {source for sources in groups.values() for source in sources}
    wanted = set()
    for path in map(os.path.realpath, paths):
        stem = os.path.splitext(path)[0]
        if path in known:
            wanted.add(path)
        elif path.endswith(".h"):
            include = f'#include "{os.path.relpath(path, ROOT)}"'
            users = [stem + ".cc"] if stem + ".cc" in known else sorted(known)
            wanted.update([user for user in users if user == stem + ".cc" or include in open(user, encoding="utf-8").read()][:1])
    return wanted


def main(build, *paths):
    os.makedirs(CACHE, exist_ok=True)
    groups = read_database(build)
    wanted = sources_of(paths, groups)
    if paths and not wanted:
        return 0
    linter = Linter(build)
    shown = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(linter.lint, *batch) for batch in batches(groups, wanted)]
        for job in concurrent.futures.as_completed(jobs):
            for finding in job.result():
                if finding not in shown:
                    shown.add(finding)
                    print(finding, flush=True)
    return 1 if shown else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
