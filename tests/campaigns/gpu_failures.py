#!/usr/bin/env python3
"""Lets each call of CUDA and NCCL of a step fail, one at a time, on emulated GPUs.

    gpu_failures.py --programs=build/bin [--parts=8] [--jobs=2] [--only=REGEX]

The tests are those that ctest runs with a sample of the calls: steps of a ResNet (the first, the
captured one, a replayed one, one that is captured anew) and steps with collectives between GPUs.
Each is run once for each part of the calls. Prints for each kind of step and error how many calls failed and what came of it; the
exit status says whether every step ended by name or had the right bits. What fails is printed.
docs/gpu.md has the results.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

TESTS = {
    "gpu_failures_test": "*GpuFailuresOfResNet.*",
    "gpu_training_test": "*GpuMembersFailures.*",
}
LINE = re.compile(r"^failing calls: (\d+), (.*): (\d+) steps failed, (\d+) lost the GPU$", re.MULTILINE)


def tests_of(program, pattern, env):
    """Names of the program's tests that the pattern selects."""
    listed = subprocess.run([program, "--gtest_list_tests", "--gtest_filter=" + pattern], env=env,
                            capture_output=True, text=True, check=True).stdout
    suite, names = "", []
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith(" "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def run(program, test, part, parts, env):
    """Returns the exit status and the output of one part of a test."""
    done = subprocess.run([program, "--gtest_filter=" + test], env={**env, "MG_FAILING_CALLS": f"{part}/{parts}"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=3600, check=False)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="tests whose names this regular expression finds")
    options = parser.parse_args()
    library = options.programs.resolve().parent / "lib/emulated_gpu"
    env = {**os.environ, "MONOGRAPH_CUDA_PLUGIN": str(library / "libmonograph_cuda.so"),
           "LD_LIBRARY_PATH": str(library), "MG_EMULATED_GPUS": "2"}
    work = []
    for name, pattern in TESTS.items():
        program = str(options.programs / name)
        for test in tests_of(program, pattern, env):
            if re.search(options.only, test):
                work += [(program, test, part) for part in range(1, options.parts + 1)]
    totals = collections.defaultdict(lambda: [0, 0, 0])
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run, program, test, part, options.parts, env): (test, part) for program, test, part in work}
        for future in concurrent.futures.as_completed(runs):
            test, part = runs[future]
            status, output = future.result()
            if status != 0:
                bad += 1
                print(f"{test}, part {part} of {options.parts}: exit status {status}\n{output[-6000:]}", flush=True)
            for failed, what, ended, lost in LINE.findall(output):
                for i, count in enumerate((failed, ended, lost)):
                    totals[what][i] += int(count)
    for what, (failed, ended, lost) in sorted(totals.items()):
        print(f"{what}: {failed} calls, {ended} steps failed, {lost} lost the GPU")
    print(f"{sum(t[0] for t in totals.values())} calls; {bad} of {len(work)} runs failed")
    return 1 if bad or not work else 0


if __name__ == "__main__":
    sys.exit(main())
