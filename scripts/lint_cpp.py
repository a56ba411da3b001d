#!/usr/bin/env python3
"""scripts/lint_cpp.py BUILD [SOURCE...]: clang-tidy, and with it clang's own warnings, on the sources that BUILD/compile_commands.json names.

Nearly all of the time goes into headers. So sources are read together, in batches with one parse each: those that have the same flags, as far as flags tell anything to
a reader, and no name at file scope that would mean two things. These names are found by regular expressions, which need not be right: where something is found in a
batch, the sources where it stands are read apart from the others. What is found in single sources counts.
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

BATCH = 32
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
CACHE = os.path.join(ROOT, ".cache", "lint")
FINDING = re.compile(r"^/\S+?:\d+:\d+: (?:warning|error): .*\[[\w.,-]+\]$|^error: ")
# A function or variable at file scope, as clang-format lays it out.
DECLARATION = re.compile(r"(?!using |namespace |extern |int main\()[A-Za-z][\w:<>,*&\[\] ]*[ *&](\w+)(?:\[.*?\])*(\(| =|{|;)")


def run(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


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


@functools.lru_cache(maxsize=None)
def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@functools.lru_cache(maxsize=None)
def words_of(path):
    """The words of a source or header that are code."""
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r'//.*|"(?:[^"\\\n]|\\.)*"', "", read(path))))


@functools.lru_cache(maxsize=None)
def headers_of(path):
    """Those of ours that it includes, directly or not."""
    names = re.findall(r'^#include ["<]([^">]+)', read(path), re.MULTILINE)
    direct = [header for name in names for header in (os.path.join(ROOT, name), os.path.join(ROOT, "include", name)) if os.path.isfile(header)]
    return set(direct).union(*map(headers_of, direct))


class Source:
    """One way in which a source is compiled: its flags; what names stand for in it (macros of -D that it or a header of ours reads, None where not defined, and
    aliases at file scope); and what else it declares at file scope, as clang-format lays it out: functions with their namespaces, and types, variables and macros."""

    def __init__(self, path, flags, macros):
        self.path, self.flags, self.macros = path, flags, macros
        self.words, self.functions, self.names = words_of(path), set(), set()
        self.aliases = dict(re.findall(r"^using (\w+) = (.*)", read(path), re.MULTILINE))
        self.aliases |= {name: scope + name for scope, name in re.findall(r"^using ([\w:]+::)(\w+);", read(path), re.MULTILINE)}
        self.scopes, self.headers, scope, goes_on = set(), headers_of(path), [], False
        ours = any("namespace monograph::testing {" in read(file) for file in (path, *self.headers))
        if ours or "testing" in self.words or re.search("^using namespace monograph;", read(path), re.MULTILINE):
            self.aliases["testing"] = ours  # else GoogleTest's
        for line in read(path).splitlines():
            if match := re.match(r"(?:inline )?namespace ?([\w:]*) {$", line):
                scope.append(match[1])
                self.scopes.add("::".join(filter(None, scope)))
            elif line.startswith("}  // namespace"):
                scope.pop()
            elif match := re.match(r"TEST(?:_[FP])?\((\w+), (\w+)\)", line):
                self.names.add(f"{match[1]}_{match[2]}_Test")
            elif match := re.match(r"GTEST_ALLOW_\w+\((\w+)\)", line):
                self.functions.add(("::".join(filter(None, scope)), "Allow" + match[1]))
            elif match := re.match(r"#undef (\w+)", line):
                self.names.discard(match[1])
            elif match := re.match(r"#define (\w+)|(?:class|struct|union|enum(?: class)?) (?:MG_\w+(?:\([^)]*\))? )?(\w+)\b(?!::|;)", line):
                self.names.add(match[1] or match[2])
            elif match := re.match(r"(?:class|struct) (\w+::\w+)", line):
                self.functions.add(("::".join(filter(None, scope)), match[1]))
            elif goes_on:  # further constants of a declaration
                self.names.update(re.findall(r"(?:^ +|, )(k[A-Z]\w*)(?:{| =)", line))
                goes_on = not line.endswith(";")
            elif match := DECLARATION.match(line):
                if match[2] == "(":
                    self.functions.add(("::".join(filter(None, scope)), match[1]))
                else:
                    self.names.update([match[1], *re.findall(r", (\w+) =", line)])
                    goes_on = line.startswith("constexpr ") and line.endswith(",")
        self.called = {name for _, name in self.functions}

    def add_strangers(self, mentions, declared, constants):
        """Notes the headers that mention a name of it, declare a function or an alias of it, or a constant of any word in it, and that it does not include: there
        that is something else."""
        self.strangers = set().union(*(mentions[name] for name in self.names), *(declared[name] for name in self.called | self.aliases.keys()),
                                     *(constants[word] for word in self.words & constants.keys()))
        self.strangers -= self.headers

    def key(self):
        return self.path, self.flags, json.dumps(self.macros, sort_keys=True)


def read_database(build):
    """The sources, each once for every way of compiling it that a reader can tell from the others; generated ones are left out."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    commands, folders, machine = [], set(), set()
    for entry in entries:
        path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        words = shlex.split(entry["command"])
        first = next(i for i, word in enumerate(words) if word.startswith("-"))
        if words[first - 1].endswith("nvcc") or path.startswith(os.path.realpath(build) + os.sep):
            continue
        flags, warnings, defined = set(), [], {}
        for before, word in zip(words[first - 1:], words[first:words.index("-o")]):
            if before == "-isystem" or word.startswith("-I"):
                folder = os.path.realpath(os.path.join(entry["directory"], word.removeprefix("-I")))
                folders.add(("-isystem" if before == "-isystem" else "-I") + folder)
            elif word.startswith("-D"):
                name, _, value = word[2:].partition("=")
                defined[name] = value
            elif word.startswith("-W"):
                warnings.append(word)
            elif word.startswith("-m"):
                machine.add(word)
            elif word.startswith("-std"):  # others, as -O, -f and -g, are for the code that comes out
                flags.add(word)
        commands.append((path, (*sorted(flags), *warnings), defined))
    # What some are compiled for (-march) is as good for the others: they do not ask. A macro makes no difference where neither the source nor a header of it names it.
    macros = {name for _, _, defined in commands for name in defined}
    sources = {}
    for path, flags, defined in commands:
        read_ones = macros.intersection(words_of(path).union(*map(words_of, headers_of(path))))
        source = Source(path, (*flags, *sorted(machine | folders)), {name: defined.get(name) for name in read_ones})
        sources[source.key()] = source
    mentions, declared, constants = (collections.defaultdict(set) for _ in range(3))
    for header in set().union(*(source.headers for source in sources.values())):
        for word in words_of(header):
            mentions[word].add(header)
        for line in read(header).splitlines():
            if match := re.match(r"(?:class|struct|using|enum(?: class)?) (\w+) [{:=]", line) or DECLARATION.match(line):
                declared[match[1]].add(header)
            if match := re.match(r"inline constexpr .*?\b(k[A-Z]\w*)\b(?:\[.*?\])*(?:{| =|;)", line):
                constants[match[1]].add(header)
    for source in sources.values():
        source.add_strangers(mentions, declared, constants)
    return sorted(sources.values(), key=Source.key)


def is_strange(one, other):
    """Whether a name at file scope of one is something else in the other, or in a header of it: another thing, a local one, or what an outer namespace has."""
    return (one.names & other.words or one.strangers & other.headers or one.called & other.aliases.keys()
            or any(other.aliases.get(name, type) != type for name, type in one.aliases.items())
            or any(function in other.functions or "::" in function[0] and function[0] in other.scopes and function[1] in other.words for function in one.functions))


def clash(one, other):
    """Whether they cannot be read together: they have other flags, or a macro of -D or a name at file scope means two things."""
    return (one.flags != other.flags or any(other.macros.get(name, value) != value for name, value in one.macros.items())
            or is_strange(one, other) or is_strange(other, one))


def batches(sources):
    """The sources in few batches, long ones first. Those that clash with most others choose first; the rest fills what they leave."""
    clashes = {source: {other for other in sources if other is not source and clash(source, other)} for source in sources}
    made = []
    for source in sorted(sources, key=lambda source: len(clashes[source]), reverse=True):
        batch = next((batch for batch in made if len(batch) < BATCH and clashes[source].isdisjoint(batch)), None)
        if batch is None:
            made.append(batch := [])
        batch.append(source)
    return sorted((sorted(batch, key=Source.key) for batch in made), key=len, reverse=True)


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
        self.setting = [run([self.tidy, "--version"]).stdout, digest(os.path.join(ROOT, ".clang-tidy")), *map(digest, sorted(generated))]

    def lint(self, sources):
        """What is found in `sources`, read together."""
        paths = [source.path for source in sources]
        macros = {name: value for source in sources for name, value in source.macros.items() if value is not None}
        flags = ["-x", "c++", *sources[0].flags, *(f"-D{name}={value}" for name, value in sorted(macros.items()))]
        note = os.path.join(CACHE, hashlib.sha256(json.dumps([self.setting, flags, paths]).encode()).hexdigest())
        if self.is_unchanged(note):
            return []
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            unit, headers = paths[0], os.path.join(work, "headers")
            if len(paths) > 1:
                unit = os.path.join(work, "batch.cc")
                with open(unit, "w", encoding="utf-8") as file:
                    file.writelines(f'#define main main_{i}\n#include "{path}"\n#undef main\n' for i, path in enumerate(paths))
            done = run([self.tidy, "--quiet", unit, "--", *flags, "-Xclang", "-header-include-file", "-Xclang", headers])
            found = findings(done.stdout)
            if not found and done.returncode != 0:
                found = [f"error: clang-tidy ended with {done.returncode} on {', '.join(paths)}:\n{done.stdout}{done.stderr}"]
            if found and len(sources) > 1:
                print("read in parts, because together:", found[0].splitlines()[0], file=sys.stderr, flush=True)
                parts = self.parts(sources, found)
                found = [finding for part in parts for finding in self.lint(part)]
            if not found:
                self.write_note(note, paths, headers)
        return found

    @staticmethod
    def parts(sources, found):
        """Those in which something was found and the others, or else halves."""
        places = {finding.split(":", 1)[0] for finding in found}
        named = [source for source in sources if source.path in places]
        others = [source for source in sources if source.path not in places]
        middle = len(sources) // 2
        return (named, others) if named and others else (sources[:middle], sources[middle:])

    @staticmethod
    def is_unchanged(note):
        if not os.path.exists(note):
            return False
        with open(note, encoding="utf-8") as file:
            files = json.load(file)
        return all(os.path.exists(path) and digest(path) == value for path, value in files.items())

    @staticmethod
    def write_note(note, sources, headers):
        paths = set(sources)
        if os.path.exists(headers):
            with open(headers, encoding="utf-8") as file:
                paths.update(os.path.realpath(line.strip()) for line in file)
        with open(note, "w", encoding="utf-8") as file:
            json.dump({path: digest(path) for path in sorted(paths)}, file)


def chosen(paths, sources):
    """Sources among `paths`, and for each header the source of the same name or else one that includes it; all for no paths."""
    known = {source.path for source in sources}
    wanted = set()
    for path in map(os.path.realpath, paths):
        stem = os.path.splitext(path)[0]
        if path in known:
            wanted.add(path)
        elif path.endswith(".h"):
            include = f'#include "{os.path.relpath(path, ROOT)}"'
            users = [stem + ".cc"] if stem + ".cc" in known else sorted(known)
            wanted.update([user for user in users if user == stem + ".cc" or include in read(user)][:1])
    return [source for source in sources if not paths or source.path in wanted]


def main(build, *paths):
    os.makedirs(CACHE, exist_ok=True)
    sources = chosen(paths, read_database(build))
    linter = Linter(build)
    shown = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(linter.lint, batch) for batch in batches(sources)]
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
