#!/usr/bin/env python3
"""scripts/gpu_check over a folder that is laid out as a bundle and whose programs are stubs: what hangs, dies, or goes a slower
way is named, costs no more than its time, and nothing that was done before is lost."""
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'gpu_check'

PROGRAMS = {
    'monograph': 'echo "/device:GPU:0  Stub"',
    'mnist_replica': '''
for word in "$@"; do case $word in --train_dir=*) dir=${word#--train_dir=} ;; esac; done
mkdir -p "$dir" && echo weights >"$dir/model.ckpt-50.safetensors"''',
    'cnn_benchmarks': '''
for word in "$@"; do case $word in --train_dir=*) dir=${word#--train_dir=} ;; esac; done
mkdir -p "$dir" && echo "weights of a ResNet" >"$dir/model.ckpt-50.safetensors"''',
    'gpu_bench': '''
case "$*" in
  --list) printf '%s\\n' "CNN, batch 64, float32" "ResNet-50, batch 64, bfloat16" "ResNet-50, batch 64, deterministic bfloat16" "copy to the GPU, 64 MiB" "losses, CNN" "trace, ResNet-50" "algorithms of products, ResNet-50" ;;
  *) echo "libraries: $LD_LIBRARY_PATH"; for word in "$@"; do case $word in --torch=*) "${word#--torch=}" -c 'import torch' || exit 1 ;; esac; done ;;
esac''',
}
GOOD = 'echo "[       OK ] Good.Test (0 ms)"; echo "[  PASSED  ] 1 test."'


def lists(then):
    """A test program whose one test does `then`."""
    return f'if [ "$1" = --gtest_list_tests ]; then printf "Suite.\\n  Test\\n"; exit; fi\n{then}'


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bundle = self.folder / 'monograph'
        for name in ('scripts', 'tests', 'bin'):
            (self.bundle / name).mkdir(parents=True)
        shutil.copy(SCRIPT, self.bundle / 'scripts')
        (self.bundle / 'BUNDLE').write_text('stubs\n')
        for name, body in PROGRAMS.items():
            self.stub(self.bundle / 'bin' / name, body)
        self.programs({'good_test': GOOD})
        # Neither the loader nor a real Python says what is on this machine.
        self.tools = self.folder / 'tools'
        self.tools.mkdir()
        self.stub(self.tools / 'ldconfig', '')
        self.stub(self.tools / 'python3', 'exit 1')
        self.environment = dict(os.environ, PATH=f'{self.tools}:{os.environ["PATH"]}')
        self.out = self.folder / 'report.md'

    def stub(self, path, body):
        path.write_text('#!/usr/bin/env bash\n' + body + '\n')
        path.chmod(0o755)

    def programs(self, programs):
        for name, body in programs.items():
            self.stub(self.bundle / 'bin' / name, body)
        (self.bundle / 'tests' / 'programs.txt').write_text(''.join(f'{name} 100 gpu\n' for name in programs))

    def command(self, *flags):
        return [str(self.bundle / 'scripts' / 'gpu_check'), '--bundle', f'--out={self.out}', *flags]

    def check(self, *flags, code):
        ran = subprocess.run(self.command(*flags), env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return self.out.read_text()

    def test_what_hangs_dies_or_goes_a_slower_way_is_named_and_the_rest_runs(self):
        self.programs({
            'hanging_test': lists('sleep 1000'),
            'slower_test': f'echo "cuBLASLt has no algorithm; a slower way takes its place" >&2; {GOOD}',
            'graph_test': f'echo "GPU:0: 3 nodes are not captured as a CUDA graph (why)" >&2; {GOOD}',
            'killed_test': lists('kill -9 $$'),
            'failing_test': lists('exit 3'),
            'good_test': GOOD,
        })
        begun = time.monotonic()
        report = self.check('--part', 'tests', '--cap', '2', code=1)
        self.assertLess(time.monotonic() - begun, 30)
        for row in (
            '| hanging_test | did not end in 2 s |',
            '| slower_test | failed: a slower way takes its place | 1 |',
            '| graph_test | failed: not captured as a CUDA graph | 1 |',
            '| killed_test | killed by signal 9 |',
            '| failing_test | failed (exit 3) |',
            '| good_test | ok | 1 |',
        ):
            self.assertIn(row, report)
        failed = report[report.index('## What failed'):]
        for line in (
            '- hanging_test: did not end in 2 s',
            '- slower_test: a slower way takes its place (1 times): cuBLASLt has no algorithm',
            '- graph_test: not captured as a CUDA graph (1 times): GPU:0',
            '- killed_test: killed by signal 9',
            '- killed_test Suite.Test: killed by signal 9',
            '- failing_test: failed (exit 3)',
        ):
            self.assertIn(line, failed)
        self.assertNotIn('good_test', failed)

    def test_all_is_well_where_nothing_fails(self):
        report = self.check(code=0)
        self.assertNotIn('What failed', report)
        self.assertIn('| good_test | ok | 1 |', report)

    def test_the_report_on_disk_has_what_is_done_and_names_what_runs(self):
        self.programs({'good_test': GOOD, 'hanging_test': 'sleep 1000'})
        check = subprocess.Popen(self.command('--part=tests'), env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True)
        logs = self.folder / 'report.logs.tar.gz'

        def has_log():  # the archive is written after the report
            if not logs.exists():
                return False
            with tarfile.open(logs) as archive:
                return 'logs/good_test.log' in archive.getnames()

        try:
            until = time.monotonic() + 60
            while not (self.out.exists() and 'there ran: hanging_test' in self.out.read_text() and has_log()):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
        finally:
            os.killpg(check.pid, signal.SIGKILL)
            check.wait()
        self.assertIn('| good_test | ok | 1 |', self.out.read_text())

    def test_bits_that_differ_without_cuda_graphs_are_named(self):
        self.stub(self.bundle / 'bin' / 'mnist_replica', PROGRAMS['mnist_replica'] +
                  '\ncase "$*" in *nocuda_graphs*) echo other >"$dir/model.ckpt-50.safetensors" ;; esac')
        report = self.check('--part=bits', code=1)
        self.assertIn('- training CNN, float, without CUDA graphs: the bits of the weights differ', report)
        self.assertNotIn('again: the bits', report)

    def test_bits_that_differ_with_programmatic_dependent_launch_are_named(self):
        self.stub(self.bundle / 'bin' / 'mnist_replica', PROGRAMS['mnist_replica'] +
                  '\ncase "$*" in *programmatic_dependent_launch*) echo "GPU 0 has no programmatic dependent launch"; echo other >"$dir/model.ckpt-50.safetensors" ;; esac')
        report = self.check('--part=bits', code=1)
        self.assertIn('- training CNN, float, with programmatic dependent launch: the bits of the weights differ', report)
        self.assertIn('- training CNN, float, with programmatic dependent launch: has no programmatic dependent launch (1 times)', report)
        self.assertNotIn('without CUDA graphs: the bits', report)

    def test_bits_of_a_resnet_that_differ_and_a_kernel_that_reads_what_nothing_wrote_are_named(self):
        self.stub(self.bundle / 'bin' / 'cnn_benchmarks', PROGRAMS['cnn_benchmarks'] + '\n[ ! -e again ] || echo other >"$dir/model.ckpt-50.safetensors"; touch again')
        self.stub(self.bundle / 'bin' / 'mnist_replica', PROGRAMS['mnist_replica'] +
                  '\n[ "$MONOGRAPH_GPU_POISON $MONOGRAPH_GPU_SEPARATE_BLOCKS" != "1 1" ] || echo nan >"$dir/model.ckpt-50.safetensors"')
        report = self.check('--part=bits', code=1)
        self.assertIn('- training ResNet-50, bfloat16, with CUDA graphs, again: the bits of the weights differ', report)
        self.assertIn('- training CNN, bfloat16, each tensor on memory full of NaN: the bits of the weights differ', report)
        self.assertNotIn('- training CNN, float, on memory full of NaN: ', report)

    def test_losses_that_differ_from_torchs_fail(self):
        self.stub(self.tools / 'python3', 'case "$*" in *torch*) echo 2.0 ;; *) exit 1 ;; esac')
        self.stub(self.bundle / 'bin' / 'gpu_bench', PROGRAMS['gpu_bench'] + '\n[ "$*" = --list ] || { echo "error: losses, CNN: the losses differ"; exit 1; }')
        self.assertIn('- Losses against torch 2.0: losses, CNN: failed (exit 1)', self.check('--part=losses', code=1))
        os.remove(self.tools / 'python3')
        self.stub(self.tools / 'python3', 'exit 1')
        self.assertIn('No losses: python3 does not have torch.', self.check('--part=losses', code=0))

    def test_a_product_that_is_refused_fails(self):
        self.stub(self.bundle / 'bin' / 'gpu_bench', PROGRAMS['gpu_bench'] +
                  '\ncase "$*" in *algorithms*) echo "| 3 x 4 x 5 | 1 | | cuBLASLt refuses it; a slower way takes its place |" ;; esac')
        report = self.check('--part=nodes', code=1)
        self.assertIn('- Algorithms of products: algorithms of products, ResNet-50: a slower way takes its place (1 times)', report)
        self.assertIn('## Traced steps', report)

    def test_goals_are_listed_those_of_earlier_calls_too(self):
        rows = ('{"bench":"gpu","case":"%s","value":1,"unit":"images/s","reference":"%s","reference_version":null,"reference_value":1,"ratio":%s,"goal":%s,"goal_is":%s,"low":1}',)
        def writes(*of):
            lines = ''.join(f"echo '{rows[0] % row}' >>\"${{word#--json=}}\"; " for row in of)
            self.stub(self.bundle / 'bin' / 'gpu_bench', PROGRAMS['gpu_bench'] + f'\nfor word in "$@"; do case $word in --json=*) case "$*" in *"copy to"*|*trace*) {lines};; esac ;; esac; done')
        writes(('copy', 'memcpy', '0.95', '0.9', '"min"'), ('launch', 'bare', '1.0e+01', '1.3', '"max"'), ('losses', 'none', '1', 'null', 'null'))
        report = self.check('--part=ceilings', code=0)
        self.assertTrue(report.endswith('## Goals\n\n| | case | against | ratio | goal |\n| --- | --- | --- | --- | --- |\n'
                                        '| MISSED | launch | bare | 1.0e+01 | at most 1.3 |\n| met | copy | memcpy | 0.95 | at least 0.9 |\n'), report)
        writes(('trace', 'copy', '0.8', '0.85', '"min"'))
        ran = subprocess.run(self.command('--part=nodes', '--append'), env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertIn('Goals, of all calls: 1 met, 2 missed\n- launch, bare: 1.0e+01, at most 1.3\n- trace, copy: 0.8, at least 0.85\n', ran.stdout)
        self.assertEqual(self.out.read_text().count('## Goals'), 1)

    def test_kernels_are_profiled_where_ncu_is(self):
        self.assertIn('ncu is not there.', self.check('--part=profile', code=0))
        self.stub(self.tools / 'ncu', 'echo "  Normalize (1, 1, 1)x(256, 1, 1), $*"')
        self.assertRegex(self.check('--part=profile', code=0), r'Normalize .* --launch-count 12 ')
        self.stub(self.tools / 'ncu', 'echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1')
        self.assertIn('- ncu ResNet-50: failed (exit 1)', self.check('--part=profile', code=1))

    def test_weights_that_were_not_written_are_not_compared(self):
        self.stub(self.bundle / 'bin' / 'mnist_replica', f'[ ! -e {self.folder}/ran ] && touch {self.folder}/ran && exit 3' + PROGRAMS['mnist_replica'])
        report = self.check('--part=bits', code=1)
        self.assertIn('- CNN, float, with CUDA graphs: failed (exit 3), checksum none', report)
        self.assertNotIn('differ', report)

    def test_a_benchmark_that_measures_nothing_fails(self):
        self.stub(self.bundle / 'bin' / 'gpu_bench', PROGRAMS['gpu_bench'] + '\n[ "$*" = --list ] || echo "gpu: nothing is measured: no libcublasLt.so.13"')
        report = self.check('--part=ceilings', code=1)
        self.assertIn('- Launches, copies, products: copy to the GPU, 64 MiB: nothing is measured (1 times): gpu: nothing is measured: no libcublasLt.so.13', report)

    def test_a_program_that_skips_all_its_tests_fails(self):
        self.programs({'cuda_driver_test': 'echo "[  SKIPPED ] all tests: libcublasLt.so.13: no such file"'})
        self.assertIn('[  SKIPPED ] all tests: libcublasLt.so.13', self.check('--part=tests', code=1))

    def test_a_listing_of_devices_that_hangs_ends_the_check_and_is_named(self):
        self.stub(self.bundle / 'bin' / 'monograph', 'sleep 1000')
        begun = time.monotonic()
        self.assertIn('- monograph devices: did not end in 1 s', self.check('--cap=1', code=1))
        self.assertLess(time.monotonic() - begun, 15)

    def test_without_a_gpu_it_says_so(self):
        self.stub(self.bundle / 'bin' / 'monograph', 'echo "no GPU: this machine has no NVIDIA driver"')
        report = self.check(code=3)
        self.assertIn('this machine has no NVIDIA driver', report)
        self.assertNotIn('good_test', report)

    def test_three_calls_make_one_report(self):
        self.check('--call=1', code=0)
        kept = self.folder / 'kept.md'
        shutil.move(self.out, kept)  # where reports lie is emptied between two calls
        self.check('--call=2', f'--append={kept}', code=0)
        report = self.check('--call=3', code=0)
        for part in ('## Tests for GPUs', '## Bits of weights', '## Training steps', '## compute-sanitizer', 'No torch'):
            self.assertEqual(report.count(part), 1, report)

    def test_what_is_printed_last_is_short_and_counts_items(self):
        self.programs({f'failing_{i}_test': f'printf "%05000d\\n" 1; {lists("exit 3")}' for i in range(11)})
        ran = subprocess.run(self.command('--part=tests'), env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertLess(len(ran.stdout), 11000, ran.stdout)
        self.assertIn('== gpu_check: tests: 34 items', ran.stdout)
        summary = ran.stdout[ran.stdout.index('== gpu_check: tests: 34 items'):]
        self.assertIn(': 12 ok, 22 failed, 0 cut off, 0 not run\n', summary)  # monograph devices, and each list of tests
        self.assertIn('... and 4 more in the report\n', summary)
        self.assertLess(max(map(len, self.out.read_text().splitlines())), 1000)

    def test_of_tests_that_run_alone_those_that_fail_are_named_and_the_others_counted(self):
        self.programs({'lost_test': """
case $1 in
  --gtest_list_tests) printf 'Suite.\\n'; printf '  Test%s\\n' $(seq 100 160) ;;
  --gtest_filter=Suite.Test1[0-3]*) ;;
  --gtest_filter=*) exit 3 ;;
  *) echo '[       OK ] Suite.Test100 (0 ms)'; echo '[  FAILED  ] Suite.Test101 (0 ms)'; kill -9 $$ ;;
esac"""})
        report = self.check('--part=tests', code=1)
        for line in ('- Suite.Test101: passes alone\n', '- 38 that did not come to run there: pass alone\n', '- Suite.Test140: failed (exit 3)\n',
                     '- Suite.Test159: failed (exit 3)\n', '- 1: not run alone, after 20 that failed\n'):
            self.assertIn(line, report)
        for name in ('Suite.Test100', 'Suite.Test102', 'Suite.Test160'):
            self.assertNotIn(name, report)

    def test_a_report_that_cannot_be_written_is_named_and_the_rest_runs(self):
        self.out = self.folder / 'reports' / 'report.md'
        self.programs({
            'full_test': f'rm -rf {self.out.parent}; touch {self.out.parent}; {GOOD}',  # as a disk that is full
            'good_test': GOOD,
            'freeing_test': f'rm {self.out.parent}; mkdir {self.out.parent}; {GOOD}',
        })
        report = self.check('--part=tests', code=1)
        self.assertIn('- the report could not be written before good_test: ', report)
        for name in ('full_test', 'good_test', 'freeing_test'):
            self.assertIn(f'| {name} | ok | 1 |', report)
        self.programs({'full_test': f'rm -rf {self.out.parent}; touch {self.out.parent}; {GOOD}', 'good_test': GOOD})
        ran = subprocess.run(self.command('--part=tests'), env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertIn('| good_test | ok | 1 |', ran.stdout)  # where it was not written, it is read here

    def test_output_without_end_is_cut_and_flags_of_training_are_passed_on(self):
        self.stub(self.bundle / 'bin' / 'mnist_replica', PROGRAMS['mnist_replica'] + '\necho "flags: $*"; yes | head -c 9000000')
        self.assertNotIn('What failed', self.check('--part=bits', '--train=--batch_size=2', '--train', '--fc=16', code=0))
        with tarfile.open(self.folder / 'report.logs.tar.gz') as archive:
            log = archive.extractfile('logs/training_CNN__float__with_CUDA_graphs.log').read()
            items = archive.extractfile('logs/items.txt').read().decode().splitlines()
        self.assertRegex(log[:400].decode(), r'flags: .*--batch_size=2 --fc=16')
        self.assertIn(b'... (cut) ...', log)
        self.assertLess(len(log), 3 << 20)
        self.assertEqual([line.rsplit('\t', 1)[0] for line in items[:2]], ['monograph devices\tok', 'training CNN, float, with CUDA graphs\tok'])
        self.assertEqual(len(items), 18)

    def test_an_earlier_report_is_read_before_anything_is_run(self):
        self.out.write_text('what was there\n')
        self.stub(self.bundle / 'bin' / 'monograph', f'rm -f {self.out}; echo "/device:GPU:0  Stub"')
        self.assertTrue(self.check('--part=tests', '--append', code=0).startswith('what was there\n'))

    def test_what_has_no_time_left_is_named(self):
        report = self.check('--part=tests', '--minutes=0', code=1)
        self.assertIn('monograph devices: not run: no time was left', report)

    def test_torch_runs_with_the_libraries_of_its_own(self):
        packages = self.folder / 'packages'
        (packages / 'nvidia' / 'lib').mkdir(parents=True)
        (packages / 'torch').mkdir()
        for library in ('libcudnn.so.9', 'libcublasLt.so.13'):
            (packages / 'nvidia' / 'lib' / library).write_text('')
        # As torch does where it finds other libraries than those that it was built with.
        (packages / 'torch' / '__init__.py').write_text(
            'import os\n__version__ = "2.0"\nassert os.environ.get("LD_LIBRARY_PATH") == "/saved", "the libraries of others"\n')
        os.remove(self.tools / 'python3')
        self.environment.update(PYTHONPATH=str(packages), LD_LIBRARY_PATH='/saved')
        report = self.check('--part=torch', code=0)
        self.assertIn('against torch 2.0', report)
        self.assertRegex(report, 'libraries: /saved:/.+\n')  # what is named goes before what is found
        self.assertEqual(report.count('libraries: '), 2, 'the steps that are not deterministic')

    def test_libraries_in_the_drivers_folder_are_found(self):
        self.stub(self.tools / 'find', 'case "$*" in *"/usr/local/nvidia/lib64 "*libcudnn.so.9*) echo /usr/local/nvidia/lib64/libcudnn.so.9 ;; esac')
        self.environment.pop('LD_LIBRARY_PATH', None)
        self.stub(self.bundle / 'bin' / 'monograph', 'echo "/device:GPU:0  Stub, libraries: $LD_LIBRARY_PATH."')
        self.assertIn('libraries: /usr/local/nvidia/lib64.', self.check('--part=tests', code=0))

    def test_tests_that_lose_the_gpu_are_left_out_under_the_sanitizer(self):
        self.programs({'cuda_driver_test': GOOD, 'gpu_ops_test': GOOD})
        self.stub(self.tools / 'compute-sanitizer', 'case "$MONOGRAPH_GPU_SEPARATE_BLOCKS $*" in "1 "*"--gtest_filter="*"Softmax"*"-*DeathTest*"*) ;; *) exit 99 ;; esac')
        report = self.check('--part=sanitize', code=0)
        self.assertIn('- memcheck cuda_driver_test: ok', report)
        self.stub(self.tools / 'compute-sanitizer', 'sleep 1000')
        report = self.check('--part=sanitize', '--cap=1', code=0)
        self.assertIn('- memcheck cuda_driver_test: did not end in 1 s', report)
        self.stub(self.tools / 'compute-sanitizer', 'exit 99')
        self.assertIn('- memcheck cuda_driver_test: failed (exit 99)', self.check('--part=sanitize', code=1))

    def test_an_archive_is_unpacked_without_xz_or_it_is_said_that_it_cannot_be(self):
        with tarfile.open(self.folder / 'bundle.tar.xz', 'w:xz') as archive:
            archive.add(self.bundle, 'monograph')
        for path in os.environ['PATH'].split(':'):
            for program in pathlib.Path(path).glob('*') if os.path.isdir(path) else ():
                if program.name not in ('xz', 'python3') and not (self.tools / program.name).exists():
                    (self.tools / program.name).symlink_to(program)
        self.environment['PATH'] = str(self.tools)
        shutil.rmtree(self.bundle)
        command = [str(SCRIPT), f'--archive={self.folder / "bundle.tar.xz"}', '--part=tests', f'--out={self.out}']
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn('there is no xz', ran.stderr)
        self.stub(self.tools / 'python3', f'exec {shutil.which("python3")} "$@"')
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=100)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn('python3 unpacks', ran.stderr)
        self.assertIn('| good_test | ok | 1 |', self.out.read_text())

    def test_a_bundle_that_is_too_large_beside_the_tree_is_refused(self):
        tree = self.folder / 'tree'
        (tree / 'scripts').mkdir(parents=True)
        shutil.copy(SCRIPT.parent / 'lib.sh', tree / 'scripts')
        (tree / '.gitignore').write_text('/build*/\n')
        (tree / 'build').mkdir()
        bundle = tree / 'build' / 'bundle.tar.xz'
        subprocess.run(['git', 'init', '-q', tree], check=True)
        for name, mebibytes, code in (('kept', 8, 0), ('another', 8, 1)):
            with open(tree / name, 'wb') as file:
                file.truncate(mebibytes << 20)
            with open(bundle, 'wb') as file:
                file.truncate(50 << 20)
            ran = subprocess.run(['bash', '-c', f'source {tree}/scripts/lib.sh; check_carried {bundle}'], capture_output=True, text=True)
            self.assertEqual(ran.returncode, code, ran.stderr)
        self.assertIn('larger than 62 MiB', ran.stderr)

    def test_a_bundle_for_gpus_has_what_is_run_here(self):
        listed = self.folder / 'test_programs.txt'
        listed.write_text('some_test 120 unit\ngpu_ops_test 120 gpu\n')
        lib = SCRIPT.parent / 'lib.sh'
        ran = subprocess.run(['bash', '-c', f'source {lib}; gpu_check_programs {listed}'], capture_output=True, text=True, check=True)
        self.assertEqual(set(ran.stdout.split()), set(PROGRAMS) | {'gpu_ops_test', 'monograph-executor'})


if __name__ == '__main__':
    unittest.main()
