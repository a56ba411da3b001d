#!/usr/bin/env python3
"""Shows that the simulation finds faults: plants each of tests/simulation/faults/ in the product.

    planted_faults.py --build=build [--schedules=1000] [--seed=1] [--scenario=S] [NAME...]
    planted_faults.py --check

Each fault is a patch of one source, which names the scenario that finds it. The source is compiled
with it, the program `simulation` is linked with that object before the libraries, which have the
right one too, and runs schedules of that scenario, or of the one that --scenario names. Prints for
each fault how many of them failed, the first one's seed and what failed there; the exit status says
whether all were found. --check only sees whether every patch fits the tree. docs/simulation.md.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = ROOT / "tests/simulation/faults"


def source_of(patch):
    """The path of the source that the patch changes."""
    return re.search(r"^--- a/(\S+)", patch.read_text(encoding="utf-8"), re.MULTILINE).group(1)


def planted(patch, folder):
    """Writes the patched source to the folder; returns its path."""
    source = source_of(patch)
    result = folder / source
    result.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["patch", "--silent", "--output", str(result), str(ROOT / source)],
        input=patch.read_bytes(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{patch.name} does not fit {source} any more: {done.stdout.decode()}{done.stderr.decode()}")
    return result


def scenario_of(patch):
    """The scenario that the patch names."""
    return re.search(r"^Scenario: (\S+)$", patch.read_text(encoding="utf-8"), re.MULTILINE).group(1)


class Build:
    """A build tree in which `simulation` was built."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.entries = json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8"))

    def compile(self, source, changed, folder):
        """Compiles the changed source, by itself, with the flags of its original; returns the object."""
        original = str(ROOT / source)
        for entry in self.entries:
            unit = pathlib.Path(entry["directory"], entry["file"])
            if str(unit) != original:
                if unit.suffix != ".cxx" or "/mg_" not in str(unit) or not unit.exists():
                    continue
                if f'"{original}"' not in unit.read_text(encoding="utf-8"):
                    continue
            result = folder / "fault.o"
            words = shlex.split(entry["command"])
            words[words.index("-o") + 1] = str(result)
            words[words.index("-c") + 1] = str(changed)
            subprocess.run(words, cwd=entry["directory"], check=True)
            return result
        sys.exit(f"{self.folder} has no command for {source}")

    def link(self, fault, folder):
        commands = subprocess.run(["ninja", "-C", str(self.folder), "-t", "commands", "simulation"],
                                  capture_output=True, text=True, check=True).stdout
        command = [line for line in commands.splitlines() if " -o bin/simulation " in line][-1]
        result = folder / "simulation"
        # The libraries have the right one too; of two definitions the first counts.
        command = command.replace(" -o bin/simulation ", f" {fault} -Wl,-z,muldefs -o {result} ")
        subprocess.run(command, shell=True, cwd=self.folder, check=True)
        return result


def search(program, scenario, first, schedules):
    """Runs schedules: the seeds of those that failed, and what failed in the first of these."""
    done = subprocess.run(
        [str(program), f"--scenario={scenario}", f"--schedules={schedules}", f"--seed={first}",
         f"--failures={schedules + first}"], capture_output=True, text=True, check=False)
    seeds, why, told = [], "", ""
    for line in done.stderr.splitlines():
        if text := re.match(r"seed (\d+): (.*)$", line):
            told = text.group(2)
        if failed := re.match(r"FAILED: simulation .*--seed=(\d+)$", line):
            if int(failed.group(1)) >= first:  # earlier ones are those that every run begins with
                why = why or told
                seeds.append(int(failed.group(1)))
            told = ""
    return seeds, why


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="a build tree with the program simulation")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", help="instead of the one that a patch names")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    patches = [patch for patch in sorted(FAULTS.glob("*.patch")) if not options.names or patch.stem in options.names]
    if options.check:
        with tempfile.TemporaryDirectory() as folder:
            for patch in patches:
                planted(patch, pathlib.Path(folder))
                scenario_of(patch)
        print(f"{len(patches)} faults fit the tree")
        return 0 if len(patches) >= 20 else 1
    if not options.build:
        parser.error("--build= names the build tree")
    build = Build(options.build)
    missed = 0
    for patch in patches:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            program = build.link(build.compile(source_of(patch), planted(patch, folder), folder), folder)
            began = time.monotonic()
            scenario = options.scenario or scenario_of(patch)
            seeds, why = search(program, scenario, options.seed, options.schedules)
        took = time.monotonic() - began
        missed += not seeds
        first = f"first seed {seeds[0]}: {why[:160]}" if seeds else "NOT FOUND"
        print(f"{patch.stem}: {scenario}: {len(seeds)} of {options.schedules} schedules, {first} ({took:.0f} s)",
              flush=True)
    print(f"{len(patches) - missed} of {len(patches)} faults were found")
    return 0 if missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
