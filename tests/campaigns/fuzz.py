#!/usr/bin/env python3
"""Runs the fuzz targets of tests/fuzz until each has had so many executions, and prints what came of it.

  cmake --preset fuzz && cmake --build --preset fuzz
  tests/campaigns/fuzz.py --runs=10000000 --found=found

Each target searches from tests/fuzz/corpus/NAME and keeps what it finds in FOUND/NAME; another call goes on from there. An input that crashes
a target, takes two seconds of the processor, --timeout seconds of the clock or 2 GB ends the search of this target and is left in FOUND as NAME-crash-..., NAME-timeout-... or
NAME-oom-...; then the exit code is 1. --minimise leaves in FOUND/NAME only what is needed for the edges that were found.
"""
import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
# Stacks of allocations and a long quarantine cost half of the time of short runs. Of a build with joined sources some classes are in two objects.
SANITIZERS = {
    "ASAN_OPTIONS": "malloc_context_size=0:quarantine_size_mb=4:detect_stack_use_after_return=0:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def fuzz(program, name, options):
    """Executions, seconds of the processor, edges, features and whether an input was found that fails."""
    found = options.found / name
    found.mkdir(parents=True, exist_ok=True)
    command = [program, f"-runs={options.runs}", f"-seed={options.seed}", f"-max_len={options.largest}",
               f"-timeout={options.timeout}", "-close_fd_mask=3", "-detect_leaks=0", "-print_final_stats=1",
               f"-artifact_prefix={options.found}/{name}-", found, CORPUS / name]
    if options.seconds:
        command.append(f"-max_total_time={options.seconds}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, env=dict(os.environ, **SANITIZERS), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                           errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (options.found / f"{name}.log").write_text(ended.stderr)
    runs = re.findall(r"^(?:stat::number_of_executed_units: |#)(\d+)", ended.stderr, re.M)
    edges = re.findall(r"cov: (\d+) ft: (\d+)", ended.stderr)
    return int(runs[-1]) if runs else 0, seconds, *(edges[-1] if edges else ("0", "0")), ended.returncode != 0


def minimise(program, name, options):
    """Keeps, of what was found, the smallest inputs that reach all edges."""
    found, kept = options.found / name, options.found / f"{name}.minimised"
    kept.mkdir(exist_ok=True)
    subprocess.run([program, "-merge=1", "-close_fd_mask=3", kept, CORPUS / name, found], env=dict(os.environ, **SANITIZERS), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(found)
    kept.rename(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build-fuzz", help="where the programs are (default: build-fuzz)")
    parser.add_argument("--found", type=Path, default=Path("found"), help="where inputs are kept (default: found)")
    parser.add_argument("--targets", default="", help="names between commas (default: all)")
    parser.add_argument("--runs", type=int, default=10_000_000, help="executions of each target (default: 10,000,000)")
    parser.add_argument("--seconds", type=int, default=0, help="at most so long for each target (default: no limit)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, default=1024, help="bytes of an input (default: 1024)")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of the clock for one execution (default: 300)")
    parser.add_argument("--minimise", action="store_true", help="afterwards, keep only what is needed")
    options = parser.parse_args()
    names = options.targets.split(",") if options.targets else sorted(folder.name for folder in CORPUS.iterdir())
    options.found.mkdir(parents=True, exist_ok=True)
    failed = False
    print(f"{'target':<20} {'executions':>11} {'seconds':>8} {'per second':>10} {'edges':>6} {'features':>8} failed", flush=True)
    for name in names:
        program = options.build / "bin" / f"fuzz_{name}"
        if not program.exists():
            sys.exit(f"error: there is no {program}; build it with: cmake --preset fuzz && cmake --build --preset fuzz")
        runs, seconds, edges, features, broken = fuzz(program, name, options)
        failed = failed or broken
        print(f"{name:<20} {runs:>11} {seconds:>8.0f} {runs / max(seconds, 0.01):>10.0f} {edges:>6} {features:>8} {'YES' if broken else 'no'}", flush=True)
        if options.minimise and not broken:
            minimise(program, name, options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
