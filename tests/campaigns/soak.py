#!/usr/bin/env python3
"""Soak: jobs, sessions, kills, saves and cuts of links against daemons that live all the time.

A round runs a few of them, drawn by --seed, waits until the daemons are at rest, and then writes what
each daemon has: memory of its own (anonymous and shared; not the pages of programs), descriptors,
threads, sessions, and how fast a job is that is the same in each round: its steps per second, as a
part of those of the same training in one process, measured right before and after it. So other work
on the machine slows down both. --out gets a line per daemon and round (CSV), --picture draws it (SVG).

Fails, with 1, if a daemon that nobody killed ends, a process takes longer than --limit, a job fails that
nothing disturbed, a session stays behind, or a daemon grows: what it has in the last third of the time
is compared with what it had in the second third, medians of both; the first third is for warming up.

  tests/campaigns/soak.py --programs=build/bin --cuts --duration=14400 --seed=3 --out=soak.csv --picture=soak.svg
  tests/campaigns/soak.py ... --append      a further run, with daemons of its own, behind what --out has
  tests/campaigns/soak.py --judge=soak.csv  only says which daemon has grown in the last run of a table

--cuts puts every task into a network namespace of its own, so that tensors travel by TLS, and cuts its
cable now and then; that needs root and `ip`. Without them the program ends with 77.
"""
import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import soak_picture

JOBS = {
    'in_graph': ['--replication=in_graph'],
    'async': ['--replication=between_graph'],
    'sync': ['--replication=between_graph', '--sync'],
    'replicated': ['--replication=between_graph', '--variable_update=replicated'],
}
TASKS = ['ps/0', 'worker/0', 'worker/1', 'worker/2']
VICTIM = 'worker/2'  # the daemon that is killed now and then; jobs use the other workers
COUNTS = ['jobs', 'jobs_that_saved', 'sessions_run', 'clients_killed', 'clients_stopped', 'daemons_killed', 'cuts']
FIELDS = ['run', 'seconds', 'task', 'process', 'own_bytes', 'resident_bytes', 'descriptors', 'threads', 'sessions',
          'graphs', 'variable_bytes', 'steps_done', 'speed', 'alone', *COUNTS]
GRAPH = '''
node { name: "a" op: "Const" device: "/job:worker/task:0" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 2 } } } }
node { name: "b" op: "Square" device: "/job:worker/task:1" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
'''


class Failed(Exception):
    pass


class Unable(Exception):
    pass


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f'{" ".join(words)}: {done.stderr.strip()}')


class Loopback:
    """All tasks in this network namespace."""
    cuts = False

    def address(self, _):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            return f'127.0.0.1:{free.getsockname()[1]}'

    def inside(self, _):
        return []

    def close(self):
        pass


class Namespaces:
    """A namespace for each task and one for the clients, joined by a bridge in one more."""
    cuts = True

    def __init__(self):
        self.base = f'mgsoak{os.getpid()}'
        self.hosts = TASKS + ['client']
        self.made = []
        try:
            self.make()
        except (OSError, Failed) as failure:
            self.close()
            raise Unable(f'there are no network namespaces: {failure}') from failure

    def make(self):
        self.netns(f'{self.base}h')
        hub = ['ip', '-n', f'{self.base}h', 'link']
        command(*hub, 'add', 'br0', 'type', 'bridge')
        command(*hub, 'set', 'br0', 'up')
        for i, host in enumerate(self.hosts):
            name = self.netns(self.name(host))
            command('ip', '-n', name, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', f'p{i}', 'netns',
                    f'{self.base}h')
            command('ip', '-n', name, 'addr', 'add', f'{self.ip(host)}/24', 'dev', 'eth0')
            command('ip', '-n', name, 'link', 'set', 'eth0', 'up')
            command(*hub, 'set', f'p{i}', 'master', 'br0')
            command(*hub, 'set', f'p{i}', 'up')

    def netns(self, name):
        command('ip', 'netns', 'add', name)
        self.made.append(name)
        command('ip', '-n', name, 'link', 'set', 'lo', 'up')
        return name

    def name(self, host):
        return f'{self.base}{self.hosts.index(host)}'

    def ip(self, host):
        return f'10.87.0.{self.hosts.index(host) + 1}'

    def address(self, task):
        return f'{self.ip(task)}:2222'

    def inside(self, host):
        return ['ip', 'netns', 'exec', self.name(host)]

    def cut(self, task, seconds):
        link = ['ip', '-n', self.name(task), 'link', 'set', 'eth0']
        command(*link, 'down')
        time.sleep(seconds)
        command(*link, 'up')

    def close(self):
        for name in reversed(self.made):
            subprocess.run(['ip', 'netns', 'del', name], check=False)


class Soak:
    def __init__(self, flags):
        self.flags = flags
        self.random = random.Random(flags.seed)
        self.folder = tempfile.mkdtemp(prefix='monograph-soak-')
        self.begin = time.monotonic()
        self.network = Loopback()
        self.daemons = {}  # of each task
        self.clients = []  # that may run
        self.rows = read(flags.out) if flags.append and os.path.exists(flags.out) else []
        self.run = self.rows[-1]['run'] + 1 if self.rows else 1
        self.earlier = self.rows[-1]['seconds'] if self.rows else 0  # of all runs before this one
        self.counts = {name: self.rows[-1][name] if self.rows else 0 for name in COUNTS}

    # ---- processes

    def open(self):
        if self.flags.cuts:
            self.network = Namespaces()
        cluster = {}
        for task in TASKS:
            cluster.setdefault(task.split('/')[0], []).append(self.network.address(task))
        self.cluster = os.path.join(self.folder, 'cluster.json')
        self.key = os.path.join(self.folder, 'key')
        with open(self.cluster, 'w') as file:
            json.dump(cluster, file)
        command(self.program('monograph'), 'keygen', self.key)
        # Jobs do not see the victim: they train on the others.
        cluster['worker'].pop()
        self.for_jobs = os.path.join(self.folder, 'jobs.json')
        with open(self.for_jobs, 'w') as file:
            json.dump(cluster, file)
        self.graph = os.path.join(self.folder, 'graph.pbtxt')
        with open(self.graph, 'w') as file:
            file.write(GRAPH)
        for task in TASKS:
            self.start_daemon(task)
        command(*self.network.inside('client'), self.program('monograph'), 'status', f'--cluster={self.cluster}',
                f'--key_file={self.key}', '--start_timeout=60')

    def close(self):
        for process in [*self.clients, *self.daemons.values()]:
            process.kill()
            process.wait()
        self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def program(self, name):
        return os.path.join(self.flags.programs, name)

    def start_daemon(self, task):
        job, index = task.split('/')
        log = open(os.path.join(self.folder, f'{job}{index}.log'), 'a')
        self.daemons[task] = subprocess.Popen(
            [*self.network.inside(task), self.program('monograph-executor'), f'--cluster={self.cluster}',
             f'--job={job}', f'--task={index}', f'--key_file={self.key}', *self.flags.flags],
            stdout=log, stderr=log)

    def client(self, words):
        self.clients = [client for client in self.clients if client.poll() is None]
        self.clients.append(subprocess.Popen(
            [*self.network.inside('client'), *words, f'--key_file={self.key}', *self.flags.flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.clients[-1]

    def said(self, process):
        try:
            text, _ = process.communicate(timeout=self.flags.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            raise Failed(f'still running after {self.flags.limit} s: {" ".join(process.args)}\n{text[-2000:]}')
        return text

    def expect_success(self, process):
        text = self.said(process)
        if process.returncode != 0:
            raise Failed(f'exit code {process.returncode}: {" ".join(process.args)}\n{text[-2000:]}')
        return text

    # ---- what a round is made of

    def training(self, batches, more=()):
        return [self.program('mnist_replica'), '--data_name=synthetic', '--fc=32', '--batch_size=16',
                '--num_warmup_batches=2', '--display_every=10', f'--num_batches={batches}', *more]

    def job(self, mode, batches, more=()):
        words = [*self.training(batches, more), *JOBS[mode]]
        clients = 1 if mode == 'in_graph' else 2
        cluster = self.for_jobs
        if mode == 'replicated':
            cluster = os.path.join(self.folder, 'workers.json')
            with open(self.for_jobs) as jobs, open(cluster, 'w') as file:
                json.dump({'worker': json.load(jobs)['worker']}, file)
        task = (lambda rank: [f'--task_index={rank}']) if clients > 1 else (lambda rank: [])
        return [self.client([*words, f'--cluster={cluster}', *task(rank)]) for rank in range(clients)]

    @contextlib.contextmanager
    def some_job(self):
        """How to run a job that is drawn, and its flags."""
        mode = self.random.choice(list(JOBS))
        self.counts['jobs'] += 1
        if self.random.random() < 0.5:
            yield mode, []
            return
        self.counts['jobs_that_saved'] += 1
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            more = [f'--train_dir={folder}', '--save_steps=7']
            if mode in ('in_graph', 'sync') and self.random.random() < 0.5:
                more.append('--sharded_checkpoints')
            yield mode, more

    def plain_job(self):
        with self.some_job() as (mode, more):
            for client in self.job(mode, self.random.randint(10, 60), more):
                self.expect_success(client)

    def killed_clients(self):
        with self.some_job() as (mode, more):
            clients = self.job(mode, 1000000, more)
            time.sleep(self.random.uniform(0.1, 2.5))
            for client in clients:
                if self.random.random() < 0.5:
                    self.counts['clients_stopped'] += 1
                    client.send_signal(signal.SIGSTOP)
                    time.sleep(self.random.uniform(0, 0.5))
                self.counts['clients_killed'] += 1
                client.kill()
                self.said(client)

    def sessions(self):
        for _ in range(self.random.randint(3, 10)):
            self.counts['sessions_run'] += 1
            text = self.expect_success(self.client(
                [self.program('monograph'), 'run', self.graph, '--fetches=b:0', f'--cluster={self.for_jobs}']))
            if '4' not in text:
                raise Failed(f'a session gave {text}')

    def killed_daemon(self):
        daemon = self.daemons[VICTIM]
        daemon.kill()
        daemon.wait()
        self.counts['daemons_killed'] += 1
        self.plain_job()
        self.start_daemon(VICTIM)

    def cut(self):
        """A job whose task is cut off for a while; it ends or goes on, and the next one is undisturbed."""
        clients = self.job('in_graph', 1000000)
        time.sleep(self.random.uniform(0.5, 2))
        self.counts['cuts'] += 1
        self.network.cut(self.random.choice(['ps/0', 'worker/0', 'worker/1']), self.random.uniform(0.2, 6))
        time.sleep(1)
        for client in clients:
            client.kill()
            self.said(client)
        self.plain_job()

    # ---- what is measured

    def status(self):
        client = subprocess.run(
            [*self.network.inside('client'), self.program('monograph'), 'status', '--json',
             f'--cluster={self.cluster}', f'--key_file={self.key}'], capture_output=True, text=True,
            timeout=self.flags.limit)
        tasks = json.loads(client.stdout)['tasks']
        return {f"{task['task'].split('job:')[1].split('/')[0]}/{task['task'].split('task:')[1]}": task
                for task in tasks}

    def at_rest(self):
        """The status of every task when no session is left."""
        until = time.monotonic() + self.flags.limit
        while True:
            for task, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    with open(os.path.join(self.folder, task.replace('/', '') + '.log')) as log:
                        raise Failed(f'{task} has ended with {daemon.returncode}: {log.read()[-2000:]}')
            status = self.status()
            if all(task['up'] and task['sessions'] == 0 for task in status.values()):
                return status
            if time.monotonic() > until:
                raise Failed(f'a session stays behind: {status}')
            time.sleep(0.1)

    def alone(self):
        """Steps per second of the training in one process."""
        result = os.path.join(self.folder, 'alone.json')
        command(*self.training(self.flags.probe, [f'--result_file={result}']))
        return steps_per_second(result)

    def together(self):
        """Steps per second of the same training on the daemons."""
        result = os.path.join(self.folder, 'together.json')
        for client in self.job('in_graph', self.flags.probe, [f'--result_file={result}']):
            self.expect_success(client)
        return steps_per_second(result)

    def measure(self):
        alone = self.alone()
        together = self.together()
        alone = (alone + self.alone()) / 2
        for task, status in self.at_rest().items():
            process = status['process_id']
            row = {'run': self.run, 'seconds': round(self.earlier + time.monotonic() - self.begin, 1), 'task': task,
                   'process': process, 'own_bytes': own_bytes(process),
                   'descriptors': len(os.listdir(f'/proc/{process}/fd')),
                   'threads': fewest_threads(process),
                   'speed': round(together / alone, 4), 'alone': round(alone, 2), **self.counts}
            row.update({name: status[name] for name in FIELDS if name in status and name not in row})
            self.rows.append(row)

    def save(self):
        write(self.rows, self.flags.out)
        if self.flags.picture:
            soak_picture.draw(self.rows, self.flags.picture)

    def soak(self):
        self.open()
        actions = [self.plain_job, self.plain_job, self.killed_clients, self.killed_clients, self.sessions,
                   self.killed_daemon] + ([self.cut, self.cut] if self.network.cuts else [])
        for mode in JOBS:  # so that all code has run once
            for client in self.job(mode, 20):
                self.expect_success(client)
        rounds = 0
        while time.monotonic() - self.begin < self.flags.duration or rounds < 3:
            for _ in range(self.flags.actions):
                self.random.choice(actions)()
            self.measure()
            self.save()
            rounds += 1
        counts = ', '.join(f'{count} {name.replace("_", " ")}' for name, count in self.counts.items())
        print(f'seed {self.flags.seed}: {rounds} rounds in {time.monotonic() - self.begin:.0f} s; in all {counts}')
        return growth(self.rows, self.flags)


def own_bytes(process):
    """Memory that the process does not share with files: what a leak adds to."""
    with open(f'/proc/{process}/status') as status:
        return sum(int(line.split()[1]) << 10 for line in status if line.startswith(('RssAnon', 'RssShmem')))


def fewest_threads(process):
    """In half a second: one that has closed a session may have yet to end."""
    counts = []
    for _ in range(10):
        counts.append(len(os.listdir(f'/proc/{process}/task')))
        time.sleep(0.05)
    return min(counts)


def steps_per_second(result):
    with open(result) as file:
        steps = json.load(file)['steps']
    return 1e6 / statistics.median(steps['us'])


def write(rows, path):
    partial = f'{path}.partial'
    with open(partial, 'w', newline='') as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    os.replace(partial, path)


def read(path):
    """The rows of a table."""
    with open(path, newline='') as file:
        return [{name: text if name == 'task' else float(text) if '.' in text else int(text)
                 for name, text in row.items()} for row in csv.DictReader(file)]


def growth(rows, flags):
    """What grew in the last run of a table, as texts."""
    grown = []
    for task in TASKS:
        mine = [row for row in rows if row['task'] == task and row['run'] == rows[-1]['run']]
        if task == VICTIM:
            continue
        third = len(mine) // 3
        if third < 1:
            return ['there were too few rounds to tell whether anything grows']

        def medians(name):
            return (statistics.median(row[name] for row in mine[third:2 * third]),
                    statistics.median(row[name] for row in mine[-third:]))
        for name, most in [('own_bytes', flags.most_growth * 2**20), ('descriptors', 1), ('threads', 1)]:
            middle, end = medians(name)
            print(f'{task}: {name} {middle:.0f}, then {end:.0f}')
            if end > middle + most:
                grown.append(f'{task}: {name} grew from {middle:.0f} to {end:.0f}')
    middle, end = medians('speed')
    print(f'speed, to that of one process: {middle:.3f}, then {end:.3f}')
    if end < flags.least_speed * middle:
        grown.append(f'the speed, to that of one process, fell from {middle:.3f} to {end:.3f}')
    return grown


def ended(*_):
    raise Failed('it was told to end')


def main():
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--programs', default='build/bin', help='folder of monograph, monograph-executor and mnist_replica')
    parser.add_argument('--duration', type=float, default=600, help='seconds; at least three rounds are made')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--actions', type=int, default=4, help='jobs and others between two measurements')
    parser.add_argument('--probe', type=int, default=100, help='steps of the job that is measured')
    parser.add_argument('--limit', type=float, default=120, help='seconds after which a process hangs')
    parser.add_argument('--most_growth', type=float, default=4,
                        help='MiB of memory from the second third to the last; tensors get memory by 2 MiB')
    parser.add_argument('--least_speed', type=float, default=0.8, help='least speed in the last third, to the second')
    parser.add_argument('--cuts', action='store_true', help='a network namespace for each task, whose cable is cut')
    parser.add_argument('--flags', nargs='*', default=[], help='further flags of daemons and clients')
    parser.add_argument('--out', default='soak.csv')
    parser.add_argument('--append', action='store_true', help='keep the rows that --out has')
    parser.add_argument('--picture', default='')
    parser.add_argument('--judge', default='', help='a table: say what grew in its last run, and do nothing else')
    flags = parser.parse_args()
    if flags.judge:
        wrong = growth(read(flags.judge), flags)
    else:
        soak = Soak(flags)
        try:
            wrong = soak.soak()
        except Unable as why:
            print(f'soak: skipped: {why}')
            return 77
        except Failed as failure:
            wrong = [str(failure)]
        finally:
            soak.close()
    for text in wrong:
        print(f'soak: {text}', file=sys.stderr)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
