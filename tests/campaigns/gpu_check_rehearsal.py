#!/usr/bin/env python3
"""Rehearses the three calls of scripts/gpu_check where no GPU is, as they are typed on a machine that has one.

    gpu_check_rehearsal.py [--archive=FILE] [--call=N]... [--faults] [--cap=N] [--reports=DIR]

The machine is a root of its own: bash, the small tools that gpu_check runs, glibc, and what a machine
with a GPU has besides: cuDNN and cuBLASLt (the real ones, of /usr/local/cuda) and a driver, in whose
place the emulated GPU stands (tests/gpu/emulated). No C++ library, no Python, no compiler, no network.
What travels to it is what git does not ignore, and the archive of `scripts/bundle --gpu`, which is made
unless --archive names one of this build: 62 MiB together at most. Each call finds the folder of reports
empty, and the report of the call before among what travelled. Calls 1 and 2 find a bare machine and
unpack the archive; the third finds that of the second.

Then each call has to be below nine and a half minutes, its report has to have every item and what came
of it, what failed has to be named, files have to be few and small, and the last 12,000 characters
printed have to hold the summary. On the emulated GPU items may reach their limit, but nothing may fail.
In call 3 there are a compute-sanitizer and an ncu that only run the program, and no torch.
Before call 1 is made it is made once and killed: the report that it leaves is read.

The emulated GPU is slow, so call 1 trains with 2 images of a data set of 24 (--train), a model of one
layer in place of ResNet-50 (--resnet), and multiplies and copies little (--bench); no item has more
than --cap seconds, and in call 2 kernels compute nothing (MG_EMULATED_GPU_COMPUTE=0).

--faults has programs in the bundle's place that go a slower way, do not capture, write other bits (one
only on memory full of NaN), hang
through a SIGTERM, crash, print without end, or miss a library, on a disk for reports that is full for a
while. Without --call and --faults all is rehearsed. Needs root, for namespaces and chroot.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / 'build-bundle-gpu'
HERE = ROOT / 'build-rehearsal'
MACHINE = HERE / 'machine'
CUDA = pathlib.Path('/usr/local/cuda/lib').resolve()
DRIVER = 'usr/local/nvidia/lib64'
# What gpu_check may need, and no more: a call of anything else is a "command not found".
TOOLS = ('awk basename bash cat chmod cksum cmp comm cp cut date dirname env find grep gzip head ldconfig ldd ln ls mkdir mktemp mv nproc realpath rm sed seq sleep sort '
         'stat tail tar tee timeout touch tr uname uniq wc xz').split()
PARTS = {1: 'ceilings bits losses tests', 2: 'figures nodes', 3: 'profile sanitize torch'}
TITLES = {'^launch|^copy|^product': 'Launches, copies, products', '^trace': 'Traced steps', '^algorithms': 'Algorithms of products', 'batch 64': 'Training steps', '^programmatic': 'Programmatic dependent launch', '^allocations': 'Allocations',
          '^kernel': "Our own kernels against cuDNN's"}
CALL_SECONDS = 570  # nine minutes, and the end of what was running
FAULTY = {
    'monograph': 'echo "/device:GPU:0  Stub"',
    'cnn_benchmarks': '''
for word in "$@"; do case $word in --train_dir=*) dir=${word#--train_dir=} ;; esac; done
mkdir -p "$dir"; echo weights >"$dir/model.ckpt-50.safetensors"
[ "$MONOGRAPH_GPU_POISON" = 0 ] || echo nan >"$dir/model.ckpt-50.safetensors"''',
    'mnist_replica': '''
for word in "$@"; do case $word in --train_dir=*) dir=${word#--train_dir=} ;; esac; done
mkdir -p "$dir"; echo weights >"$dir/model.ckpt-50.safetensors"
case "$*" in *nocuda_graphs*) echo other >"$dir/model.ckpt-50.safetensors" ;; esac
case "$*" in *programmatic*) echo "GPU 0: 3 nodes are not captured as a CUDA graph (cudaErrorStreamCaptureInvalidated)" ;; esac''',
    'gpu_ops_test': 'echo "cuBLASLt has no algorithm for MatMul; a slower way takes its place"; echo "[  PASSED  ] 1 test."',
    'cuda_driver_test': 'trap "" TERM; while :; do sleep 1; done',
    'nccl_test': 'kill -SEGV $$',
    'gpu_kernels_test': 'yes "a line without end" | head -c 30000000; echo "[  PASSED  ] 1 test."; rm -f /out/filler',
    'gpu_training_test': 'echo "[  PASSED  ] 1 test."',
}
FAULTS_NAMED = [  # in the report's "What failed"
    r'- training CNN, float, without CUDA graphs: the bits of the weights differ from those with CUDA graphs',
    r'- training ResNet-50, bfloat16, on memory full of NaN: the bits of the weights differ from those with CUDA graphs',
    r'- training CNN, bfloat16, with programmatic dependent launch: not captured as a CUDA graph \(1 times\): GPU 0: 3 nodes',
    r'- gpu_ops_test: a slower way takes its place \(1 times\): cuBLASLt has no algorithm',
    r'- cuda_driver_test: did not end in 5 s',
    r'- nccl_test: killed by signal 11',
    r'- cudnn_graph_test: SKIPPED . all tests \(1 times\): .*libcu[a-zA-Z]+\.so\.\d+: cannot open shared object file',
    r'- Launches, copies, products: launch, replayed: nothing is measured \(1 times\): .*libcu[a-zA-Z]+\.so\.\d+: cannot open shared object file',
    r'- the report could not be written before .*No space left on device',
]

problems = []


def check(holds, what):
    if not holds:
        problems.append(what)
        print(f'  WRONG: {what}', flush=True)


def output_of(*command, **keywords):
    return subprocess.run(command, check=True, capture_output=True, text=True, **keywords).stdout


def libraries_of(file):
    return re.findall(r'(/\S+) \(0x', output_of('ldd', str(file)))


def copy(file, into):
    """A file of this machine at the same path, or in the folder `into` of the other one."""
    to = MACHINE / into / pathlib.Path(file).name
    to.parent.mkdir(parents=True, exist_ok=True)
    if not to.exists():
        shutil.copy2(file, to)


def real_libraries():
    """Names of cuDNN, cuBLASLt and what cuDNN loads; NCCL is emulated, too."""
    names = [file.name for pattern in ('libcudnn*.so.9', 'libcublas*.so.13', 'libnvrtc*.so.13*') for file in CUDA.glob(pattern)]
    if 'libcudnn.so.9' not in names or 'libcublasLt.so.13' not in names:
        sys.exit(f'cuDNN 9 or cuBLASLt 13 is not in {CUDA}')
    return names


def make_machine():
    """A root with bash, tools, glibc, the emulated driver, and nothing else."""
    shutil.rmtree(MACHINE, ignore_errors=True)
    for folder in ('usr/bin', 'usr/lib/x86_64-linux-gnu', 'usr/lib64', 'etc', 'proc', 'dev', 'sys', 'tmp', 'root', 'out', 'data', DRIVER, 'usr/local/cuda/lib'):
        (MACHINE / folder).mkdir(parents=True)
    for name in ('bin', 'lib', 'lib64', 'sbin'):
        (MACHINE / name).symlink_to('usr/' + ('bin' if name == 'sbin' else name))
    (MACHINE / 'tmp').chmod(0o1777)
    (MACHINE / 'etc/passwd').write_text('root:x:0:0:root:/root:/bin/bash\n')
    (MACHINE / 'etc/hosts').write_text('127.0.0.1 localhost\n')
    wanted = []
    for tool in TOOLS:
        found = shutil.which(tool, path='/usr/sbin:/usr/bin:/sbin:/bin')
        if not found:
            sys.exit(f'this machine has no {tool}')
        copy(pathlib.Path(found).resolve() if tool == 'awk' else found, 'usr/bin')
        if tool == 'awk':
            (MACHINE / 'usr/bin' / pathlib.Path(found).resolve().name).rename(MACHINE / 'usr/bin/awk')
        if pathlib.Path(found).read_bytes()[:4] == b'\x7fELF':
            wanted += libraries_of(found)
    (MACHINE / 'usr/bin/sh').symlink_to('bash')
    for library in sorted(set(wanted)):
        copy(library, 'usr/lib64' if 'ld-linux' in library else 'usr/lib/x86_64-linux-gnu')
    for name in 'c m dl pthread rt resolv util'.split():  # glibc's own, whether a tool needs them or not
        copy(next(pathlib.Path('/lib/x86_64-linux-gnu').glob(f'lib{name}.so.[0-9]*')), 'usr/lib/x86_64-linux-gnu')
    for library in ('libz.so.1', 'libstdc++.so.6', 'libgcc_s.so.1', 'libfmt.so.9', 'libtbb.so.12'):
        check(not list(MACHINE.rglob(library)), f'the bare root has {library}')
    # The emulated driver, and in a folder that only it looks into what it needs itself.
    emulated = BUILD / 'lib/emulated_gpu'
    for file in sorted(emulated.glob('*.so*')):
        copy(file, DRIVER)
        for library in libraries_of(file):
            if pathlib.Path(library).parent != emulated and not (MACHINE / library.lstrip('/')).exists():
                copy(library, 'usr/local/nvidia/lib')
    zstd = pathlib.Path('/lib/x86_64-linux-gnu/libzstd.so.1')
    if zstd.exists():  # it is opened, for machine code that is packed
        copy(zstd, 'usr/local/nvidia/lib')
    # MNIST's files with few images: the training in `bits` ends with all those of the test.
    for name, count in (('train', 20), ('t10k', 4)):
        pixels = bytes(i * 7919 % 251 for i in range(count * 784))
        (MACHINE / f'data/{name}-images-idx3-ubyte').write_bytes(struct.pack('>4i', 2051, count, 28, 28) + pixels)
        (MACHINE / f'data/{name}-labels-idx1-ubyte').write_bytes(struct.pack('>2i', 2049, count) + bytes(i % 10 for i in range(count)))


def send_tree(archive, kept):
    """What travels, onto a machine that has nothing yet: the tree, the archive, and earlier reports."""
    project = MACHINE / 'project'
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    listed = output_of('git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard', cwd=ROOT).split('\0')
    for name in filter(None, listed):
        source = ROOT / name
        if source.is_file():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, project / name)
    shutil.copy2(archive, project / 'bundle.tar.xz')
    if kept.exists():
        shutil.copytree(kept, project / 'kept')
    carried = sum(file.stat().st_size for file in project.rglob('*') if file.is_file())
    print(f'  carried: {carried / 2**20:.1f} MiB')
    check(carried <= 62 << 20, f'{carried} bytes are carried, more than 62 MiB')


def empty_out():
    shutil.rmtree(MACHINE / 'out')
    (MACHINE / 'out').mkdir()


def inside(command, environment, log, cuda=True, full_out=False, kill_after=None):
    """Runs it in the machine; returns its exit status, or None if it was killed, and its seconds."""
    mounts = ['mount -t proc proc "$0/proc"', 'mount --rbind /dev "$0/dev"', 'ip link set lo up']
    shutil.rmtree(MACHINE / 'usr/local/cuda/lib')
    (MACHINE / 'usr/local/cuda/lib').mkdir()
    if cuda:
        for name in real_libraries():
            (MACHINE / 'usr/local/cuda/lib' / name).touch()
        mounts += [f'mount --bind {CUDA / name} "$0/usr/local/cuda/lib/{name}"' for name in real_libraries()]
    if full_out:
        mounts.append('mount -t tmpfs -o size=256k none "$0/out"')
    variables = ['HOME=/root', 'PATH=/usr/bin:/bin', *(f'{name}={value}' for name, value in environment.items())]
    script = ' && '.join(mounts) + ' && exec chroot "$0" /usr/bin/env -i "${@:2}" bash -c "cd /project && $1"'
    began = time.monotonic()
    with open(log, 'w', encoding='utf-8') as file:
        child = subprocess.Popen(['unshare', '--mount', '--pid', '--net', '--fork', '--kill-child', 'bash', '-c', script, str(MACHINE), command, *variables],
                                 stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(timeout=kill_after or 900)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            status = None
    return status, time.monotonic() - began


EMULATED = {'MONOGRAPH_CUDA_PLUGIN': f'/{DRIVER}/libmonograph_cuda.so'}


def typed(call, options):
    flags = f'--archive bundle.tar.xz --call {call} --out /out/report.md --cap {options.cap} --quick'
    if call == 1:
        flags += ' --train=--batch_size=2 --train=--fc=16 --train=--data_name=mnist --train=--data_dir=/data --bench=--small'
        flags += ' --resnet=--model=trivial --resnet=--image_size=32 --resnet=--batch_size=2 --resnet=--num_batches=5'
    else:
        flags += ' --append=kept/report.md'
    return 'scripts/gpu_check ' + flags


def expected_items(call):
    """Names of what a call runs, but for tests that run alone."""
    bundle = MACHINE / 'project/monograph'
    names = ['monograph devices']
    if call == 1:
        ways = ['with CUDA graphs', 'with CUDA graphs, again', 'with programmatic dependent launch', 'on memory full of NaN', 'without CUDA graphs']
        each = ['each tensor on memory full of NaN']
        for run, its in (('CNN, float', ways + each), ('CNN, bfloat16', ways + each), ('ResNet-50, bfloat16', ways)):
            names += [f'training {run}, {way}' for way in its]
        names += [line.split()[0] for line in (bundle / 'tests/programs.txt').read_text().splitlines() if line.endswith(' gpu')]
    if call == 3:
        names += [f'memcheck {program}' for program in ('cuda_driver_test', 'gpu_ops_test')] + ['racecheck gpu_ops_test', 'ncu ResNet-50']
    cases = output_of(str(BUILD / 'bin/gpu_bench'), '--list').splitlines()
    for pattern, title in TITLES.items():
        if (title == 'Launches, copies, products') == (call == 1) and call < 3:
            names += [f'{title}: list'] + [f'{title}: {case}' for case in cases if re.search(pattern, case)]
    return names


def read_items(logs):
    with tarfile.open(logs) as archive:
        names = archive.getnames()
        lines = archive.extractfile('logs/items.txt').read().decode().splitlines()
    return [line.split('\t') for line in lines], names


def check_files(out):
    files = sorted(file.name for file in out.iterdir())
    check(files == ['report.logs.tar.gz', 'report.md'], f'the folder of reports has {files}')
    for file in out.iterdir():
        check(file.stat().st_size < 16 << 20, f'{file.name} has {file.stat().st_size} bytes')


def check_printed(text, what):
    tail = text[-12000:]
    check('== gpu_check: ' in tail and tail.rstrip().splitlines()[-1].startswith('gpu_check: the report is '), f'{what}: the last 12,000 characters lack the summary')
    for line in re.findall(r'^.*(?:command not found|No such file or directory|unbound variable|syntax error).*$', text, re.M):
        if 'libc' not in line and 'lib/' not in line:
            check(False, f'{what} printed: {line}')
    return tail


def rehearse_call(call, archive, options):
    print(f'== Call {call}', flush=True)
    kept = HERE / f'kept_{call - 1}'  # what came back from the call before
    if call > 1 and not kept.exists():
        sys.exit(f'call {call} goes on from call {call - 1}, which has left no report in {kept}')
    earlier = len(read_items(kept / 'report.logs.tar.gz')[0]) if call > 1 else 0
    if call < 3 or not (MACHINE / 'project/monograph/BUNDLE').exists():
        make_machine()
        send_tree(archive, kept)
    else:
        shutil.rmtree(MACHINE / 'project/kept', ignore_errors=True)
        shutil.copytree(kept, MACHINE / 'project/kept')
    if call == 3:
        # What ncu looks at are the true shapes.
        for name, how in (('compute-sanitizer', 'exec'), ('ncu', 'MG_EMULATED_GPU_COMPUTE=0 exec')):
            tool = MACHINE / 'usr/bin' / name
            tool.write_text(f'#!/usr/bin/env bash\nuntil [ -x "$1" ]; do shift; done\n{how} "$@"\n')
            tool.chmod(0o755)
    out = MACHINE / 'out'
    environment = dict(EMULATED, **({'MG_EMULATED_GPU_COMPUTE': '0'} if call == 2 else {}))
    if call == 1:
        empty_out()
        status, _ = inside(typed(call, options), environment, options.reports / 'killed.txt', kill_after=options.kill)
        check(status is None, f'the first call ended before it was killed, after {options.kill} s')
        report = (out / 'report.md').read_text() if (out / 'report.md').exists() else ''
        (options.reports / 'killed.md').write_text(report)
        check(re.search('^While this was written there ran: ', report, re.M) and '/device:GPU:0' in report, 'a call that was killed left no report')
        shutil.rmtree(MACHINE / 'project/monograph')  # the machine is another one
    empty_out()
    status, seconds = inside(typed(call, options), environment, options.reports / f'call_{call}.txt')
    print(f'  ended with {status} after {seconds:.0f} s')
    check(status in (0, 1), f'call {call} ended with {status}')
    check(seconds <= CALL_SECONDS, f'call {call} took {seconds:.0f} s')
    check_files(out)
    shutil.rmtree(HERE / f'kept_{call}', ignore_errors=True)
    shutil.copytree(out, HERE / f'kept_{call}')
    for file in out.iterdir():
        shutil.copy2(file, options.reports / file.name.replace('report', f'call_{call}', 1))
    tail = check_printed((options.reports / f'call_{call}.txt').read_text(errors='replace'), f'call {call}')
    report = (out / 'report.md').read_text(errors='replace')
    check(max(map(len, report.splitlines())) < 1000, 'a line of the report is longer than 1,000 characters')
    for before in range(1, call + 1):
        check(report.count(f': {PARTS[before]}\n') == 1, f'the report lacks the heading of call {before}, or has it twice')
    if call == 1:
        check('No losses: python3 does not have torch.' in report, 'the report does not say that there are no losses')
    if call == 3:
        check('No torch: python3 does not have it.' in report, 'the report does not say that there is no torch')
    # Every item, once, with what came of it.
    items, names = read_items(out / 'report.logs.tar.gz')
    items = items[earlier:]
    expected = expected_items(call)
    found = [name for name, _, _ in items]
    for name in expected:
        check(found.count(name) == 1, f'"{name}" is {found.count(name)} times among the items')
    counts = {'ok': 0, 'cut off': 0, 'not run': 0, 'failed': 0}
    for name, outcome, _ in items:
        check(name in expected or name.split()[0] in expected, f'"{name}" is no item of call {call}')
        check('logs/' + re.sub(r'[^A-Za-z0-9._-]', '_', name) + '.log' in names, f'"{name}" has no output')
        how = next((word for word, text in (('cut off', 'did not end'), ('not run', 'not run')) if outcome.startswith(text)), 'ok' if outcome == 'ok' else 'failed')
        counts[how] += 1
        if how == 'ok':
            continue
        named = report if call == 3 and how == 'cut off' else report[report.rfind('## What failed'):]  # the sanitizer's limit is no failure
        check(f'- {name}: ' in named, f'"{name}: {outcome}" is not among what failed')
        if how != 'failed':
            print(f'  {name}: {outcome}')
        else:
            check(False, f'{name}: {outcome}')
    check(re.search(r'== gpu_check: .*: {} items in .*: {ok} ok, {failed} failed, {cut off} cut off, {not run} not run'.format(len(items), **counts), tail), 'the summary counts other items')
    print(f'  {len(items)} items: {counts}')


def rehearse_faults(archive, options):
    print('== Faults', flush=True)
    make_machine()
    send_tree(archive, HERE / 'none')
    bundle = MACHINE / 'project/monograph'
    with tarfile.open(archive) as packed:
        packed.extractall(MACHINE / 'project')
    for name, body in FAULTY.items():
        (bundle / 'bin' / name).unlink()
        (bundle / 'bin' / name).write_text(f'#!/usr/bin/env bash\n{body}\n')
        (bundle / 'bin' / name).chmod(0o755)
    (bundle / 'BUNDLE').touch()
    # The report is for a disk that a file fills until gpu_kernels_test takes it away; then it is copied to where it stays.
    command = ('head -c 1000000 /dev/zero >/out/filler; scripts/gpu_check --archive bundle.tar.xz --call 1 --cap 5 --out /out/report.md; status=$?; '
               'mkdir -p kept && cp /out/* kept; exit $status')
    status, seconds = inside(command, {}, options.reports / 'faults.txt', cuda=False, full_out=True)
    print(f'  ended with {status} after {seconds:.0f} s')
    check(status == 1, f'with faults it ended with {status}')
    kept = MACHINE / 'project/kept'
    kept.mkdir(exist_ok=True)
    check_files(kept)
    report = (kept / 'report.md').read_text(errors='replace') if (kept / 'report.md').exists() else ''
    (options.reports / 'faults.md').write_text(report)
    check_printed((options.reports / 'faults.txt').read_text(errors='replace'), 'the check with faults')
    failed = report[report.rfind('## What failed'):]
    for pattern in FAULTS_NAMED:
        found = re.search('^' + pattern, failed, re.M)
        check(found, f'what failed lacks "{pattern}"')
        if found:
            print('  ' + found.group(0)[:150])
    for line in ('| gpu_kernels_test | ok | 1 |', '| gpu_training_test | ok | 1 |', '- CNN, bfloat16, with CUDA graphs, again: ok'):
        check(line in report, f'the report lacks "{line}": it did not go on')
    shutil.rmtree(bundle)  # call 3 by itself shall not find it


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--archive', type=pathlib.Path)
    parser.add_argument('--call', type=int, action='append', choices=(1, 2, 3), help='one of the calls; the reports of those before lie in build-rehearsal')
    parser.add_argument('--faults', action='store_true')
    parser.add_argument('--cap', type=int, default=90, help='the most seconds of an item')
    parser.add_argument('--kill', type=int, default=25, help='seconds after which the call that is killed is')
    parser.add_argument('--reports', type=pathlib.Path, default=HERE / 'reports')
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit('only root makes a root')
    archive = options.archive
    if archive is None:
        subprocess.run([ROOT / 'scripts/bundle', '--gpu'], check=True)
        archive = BUILD / 'monograph-bundle.tar.xz'
    subprocess.run(['cmake', '--build', BUILD, '--target', 'emulated_gpu_check', 'gpu_bench'], check=True, stdout=subprocess.DEVNULL)
    options.reports.mkdir(parents=True, exist_ok=True)
    everything = not options.call and not options.faults
    for call in (1, 2, 3) if everything else options.call or ():
        rehearse_call(call, archive, options)
    if options.faults or everything:
        rehearse_faults(archive, options)
    print(f'== {len(problems)} problems; the reports are in {options.reports}')
    for problem in problems:
        print(f'- {problem}')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
