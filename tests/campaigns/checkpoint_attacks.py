#!/usr/bin/env python3
"""Attacks the checkpoints of a real job: mnist_replica with --train_dir, in a folder of its own.

    tests/campaigns/checkpoint_attacks.py --kills=200 --damages=300 --seed=1

--kills: the job saves after every step and is killed (SIGKILL) at a moment chosen by chance, again and again, until it
has ended by itself; then another job begins. --damages: files of a folder with three checkpoints are changed, cut,
exchanged, removed, or replaced by what is no file, and the job is told to go on. Either it ends with an error of its
own, or with the very bytes of a job to which nothing happened. Prints what did neither, or took longer than --timeout,
and exits with 1 then. With --sharded the tasks write the checkpoints, not the client.
"""

import argparse
import collections
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 12


class Job:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.process = None

    def start(self, steps, save_steps):
        command = [self.args.mnist_replica, "--data_name=synthetic", "--fc=8", "--batch_size=10", "--num_warmup_batches=0",
                   f"--num_batches={steps}", f"--save_steps={save_steps}", f"--train_dir={self.folder}",
                   "--display_every=100", "--eval_batch_size=10000", "--save_summaries_steps=1000"]
        if self.args.sharded:
            command.append("--sharded_checkpoints")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, seconds):
        """The exit code, "stuck" for one that did not end, and what it said."""
        try:
            said = self.process.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "stuck", self.process.communicate()[0].decode(errors="replace")
        return self.process.returncode, said

    def run(self, steps, save_steps):
        self.start(steps, save_steps)
        return self.end(self.args.timeout)


def last_checkpoint(folder):
    """Of each file of the checkpoint after the last step, its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"model.ckpt-{STEPS}*")) if path.is_file()}


def attack_by_kills(args, folder, reference, counts):
    numbers = random.Random(f"{args.seed}/kills")
    problems = []
    kills = 0
    target = folder / "kills"
    while kills < args.kills and time.time() < args.until - 30 * args.minutes:
        job = Job(args, target)
        job.start(STEPS, 1)
        try:
            job.process.wait(numbers.uniform(0.02, args.longest_life))
        except subprocess.TimeoutExpired:
            job.process.kill()
        code, said = job.end(args.timeout)
        if code == -9:
            kills += 1
            continue
        if code != 0 or "damaged" in said or last_checkpoint(target) != reference:
            problems.append(f"after {kills} kills: exit code {code}: {said[-600:]}")
        counts[f"jobs that ended after being killed, code {code}"] += 1
        shutil.rmtree(target, ignore_errors=True)
    counts["kills"] += kills
    return problems


def damage(folder, numbers):
    """Does something to one to three files, and says what."""
    done = []
    for _ in range(numbers.choice([1, 1, 1, 2, 3])):
        files = sorted(path for path in folder.iterdir() if "tfevents" not in path.name)
        path = numbers.choice(files)
        what = numbers.choice(["bytes", "bytes", "cut", "longer", "zeros", "exchange", "remove", "empty", "folder", "pipe",
                               "link to itself", "link to a device", "text", "rename", "no rights", "old time"])
        done.append(f"{what}: {path.name}")
        if not path.is_file():
            continue
        data = bytearray(path.read_bytes())
        at = numbers.randrange(len(data) + 1)
        if what == "bytes" and data:
            for _ in range(numbers.choice([1, 1, 4, 40])):
                place = numbers.randrange(min(len(data), 4000) if numbers.random() < 0.5 else len(data))
                data[place] = numbers.randrange(256)
            path.write_bytes(data)
        elif what == "cut":
            path.write_bytes(data[:at])
        elif what == "longer":
            path.write_bytes(data + bytes(numbers.randrange(1, 5000)))
        elif what == "zeros":
            path.write_bytes(data[:at] + bytes(len(data) - at))
        elif what == "exchange":
            other = numbers.choice([file for file in files if file.is_file()])
            shutil.copy(other, folder / "between")
            shutil.copy(path, other)
            os.replace(folder / "between", path)
        elif what == "rename":
            os.replace(path, folder / numbers.choice(["model.ckpt-99.safetensors", "model.ckpt-x.safetensors", "a b"]))
        elif what == "no rights":
            path.chmod(0)
        elif what == "old time":
            os.utime(path, (0, 0))
        else:
            path.unlink()
            if what == "empty":
                path.touch()
            elif what == "folder":
                path.mkdir()
            elif what == "pipe":
                os.mkfifo(path)
            elif what == "link to itself":
                path.symlink_to(path.name)
            elif what == "link to a device":
                path.symlink_to("/dev/zero")
            elif what == "text":
                path.write_text("model_checkpoint_path: \"model.ckpt-3\"\n")
    return ", ".join(done)


def attack_by_damage(args, folder, reference, counts):
    problems = []
    whole = folder / "whole"
    code, said = Job(args, whole).run(STEPS * 3 // 4, STEPS // 4)
    if code != 0:
        return [f"the job without damage ended with {code}: {said[-600:]}"]
    for i in range(args.damages):
        if time.time() > args.until:
            break
        numbers = random.Random(f"{args.seed}/{i}")
        target = folder / "damaged run"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(whole, target)
        done = damage(target, numbers)
        start = time.time()
        code, said = Job(args, target).run(STEPS, STEPS)
        lines = [line for line in said.split("\n") if line.startswith("mnist_replica: ")]
        if code == 0 and last_checkpoint(target) == reference:
            counts["went on" if "cannot be restored" not in said else "went on from an older one"] += 1
        elif code == 1 and len(lines) == 1:
            counts["refused: " + lines[0].split(":")[1].strip()] += 1
            if args.verbose:
                print(f"{done}\n      {lines[0]}")
        else:
            problems.append(f"{args.seed}/{i}: {done}: exit code {code} after {time.time() - start:.1f} s: {said[-600:]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damages", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a job is stuck")
    parser.add_argument("--longest_life", type=float, default=1.0, help="seconds after which a job is killed at the latest")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--mnist_replica", default=str(ROOT / "build/bin/mnist_replica"))
    parser.add_argument("--minutes", type=float, default=60, help="it stops after so long, with what it has by then")
    args = parser.parse_args()
    args.until = time.time() + 60 * args.minutes
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        code, said = Job(args, folder / "reference").run(STEPS, STEPS)
        reference = last_checkpoint(folder / "reference")
        if code != 0 or not reference:
            print(f"the job to which nothing happens ended with {code}: {said}")
            return 1
        problems = attack_by_kills(args, folder, reference, counts) + attack_by_damage(args, folder, reference, counts)
    for problem in problems:
        print(problem)
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    print(f"{len(problems):6} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
