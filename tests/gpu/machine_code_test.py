#!/usr/bin/env python3
"""machine_code_test.py OBJECT...: what nvcc made for sm_90 of our kernels, read from their objects. Those that only move memory: loads and
stores of 16 bytes, so few registers that the blocks named here fit on a multiprocessor, nothing spilled to local memory. All: nothing is
touched before the kernel has waited for the one before (AwaitKernelBefore in ops/gpu/launch.h).

cuobjdump and nvdisasm come from CUDA's folder, from PATH or from PyPI (tests/python/requirements.txt); without them nothing is tested."""
import collections
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import unittest

# Blocks: of 256 threads, on one multiprocessor at once. Narrow: whether the kernel has loads and stores of less than 16 bytes, too, for
# what is left over or cannot be moved so; else every access to global memory is of 16 bytes.
Row = collections.namedtuple('Row', 'kernel loads stores blocks narrow')
T16 = '(bfloat16|half)'
TABLE = {
    'batch_norm': [
        Row(f'ChannelRows<batch_norm::Normalize<{T16}>, 8>', 7, 2, 4, False),
        Row('ChannelRows<batch_norm::Normalize<float>, 4>', 5, 2, 4, False),
        Row(f'ChannelRows<batch_norm::Differentiate<{T16}, false>, 8>', 10, 2, 4, False),
        Row('ChannelRows<batch_norm::Differentiate<float, false>, 4>', 8, 2, 4, False),
        Row(f'ChannelRows<batch_norm::Differentiate<{T16}, true>, 8>', 14, 2, 3, False),
        Row('ChannelRows<batch_norm::Differentiate<float, true>, 4>', 10, 2, 3, False),
        Row(f'RowChunks<batch_norm::Moments<{T16}>, 8,', 4, 0, 3, True),
        Row('RowChunks<batch_norm::Moments<float>, 4,', 4, 0, 3, True),
        Row(f'RowChunks<batch_norm::GradientTerms<{T16}>, 8,', 8, 0, 3, True),
        Row('RowChunks<batch_norm::GradientTerms<float>, 4,', 8, 0, 3, True),
        Row(rf'RowChunks<batch_norm::JoinTerms<({T16}>, 8|float>, 4),', 8, 2, 3, True),
    ],
    'bias': [Row(r'RowChunks<bias::SumTerm<\w+>, [48],', 4, 0, 3, True)],
    'training': [
        Row(rf'UpdateBody<{T16}, training::\w+Formula, ', 2, 1, 4, True),
        Row(r'UpdateBody<float, training::MomentumFormula, ', 3, 2, 4, True),
        Row(r'UpdateBody<float, training::AdamFormula, ', 4, 3, 4, True),
    ],
    'cast': [
        Row(f'CastBody<(float|{T16})>', 2, 3, 4, True),
    ],
    'multi_cast': [Row('multi_cast::Body', 8, 8, 4, True)],
    'moves': [
        Row('TileBody<unsigned (char|short)>', 1, 1, 4, True),
        Row('TileBody<unsigned (int|long)>', 4, 4, 4, True),
    ],
    'pool': [
        Row(rf'Forward<({T16}, 8, (true|false)|float, 4, true)>', 1, 1, 4, False),
        Row(rf'AverageBackward<({T16}, 8|float, 4)>', 1, 1, 3, False),
        Row(rf'MaxBackward<({T16}, 8|float, 4)>', 4, 1, 3, False),
    ],
    'activation': [
        Row(rf'Apply<({T16}, 8|float, 4), activation::ReluFn>', 1, 1, 4, True),
        Row(rf'ApplyGradient<({T16}, 8|float, 4), activation::ReluGradFn>', 2, 1, 4, True),
    ],
    'layer_norm': [
        Row(f'RowBlocks<layer_norm::Normalize<({T16}>, 8|float>, 4)>', 2, 1, 4, True),
        Row(f'RowBlocks<layer_norm::Differentiate<({T16}>, 8|float>, 4)>', 4, 1, 4, True),
        Row(f'RowChunks<layer_norm::Terms<({T16}>, 8|float>, 4),', 4, 0, 3, True),
    ],
    'arithmetic': [
        Row(rf'AddNBody<({T16}|float)>', 2, 1, 4, True),
    ],
}

OBJECTS = {}  # by the source's name


def tool(name):
    """Where CUDA's tool is, or None. PyPI's wheels put it beside the interpreter's packages."""
    folders = [os.environ.get('MG_CUDA_BIN', '')] + os.environ['PATH'].split(os.pathsep)
    folders += sorted(str(path) for path in pathlib.Path(sysconfig.get_path('purelib')).glob('nvidia/*/bin'))
    return shutil.which(name, path=os.pathsep.join(folders))


class Kernel:
    """A kernel's instructions by their names, as LDG.E.128, and what it takes of a multiprocessor."""
    def __init__(self, code, registers, stack, shared):
        found = re.findall(r'/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*(?:\.\w+)*)', code)
        self.count = collections.Counter()
        for name in found:
            parts = name.split('.')
            self.count[parts[0], '128' in parts] += 1
        self.registers, self.stack, self.shared = registers, stack, shared

    def blocks(self):
        """How many blocks of 256 threads a multiprocessor of sm_90 holds: 64 Ki registers, of which a warp takes 8 a thread at a time;
        227 KiB of shared memory, of which a block takes 1 KiB more; 2048 threads."""
        return min(65536 // (-(-self.registers // 8) * 8 * 256), 228 * 1024 // (self.shared + 1024), 8)


def kernels(cuobjdump, source):
    """The kernels of a source by their names in C++, without namespaces of ours and arguments."""
    def dump(option):
        run = subprocess.run([cuobjdump, option, '-arch', 'sm_90', OBJECTS[source]], text=True, capture_output=True, timeout=120)
        if run.returncode != 0:
            raise RuntimeError(f'{cuobjdump} {option} {OBJECTS[source]}: {run.stdout}{run.stderr}')
        return run.stdout

    usage = re.findall(r'Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)', dump('--dump-resource-usage'))
    code = dict(re.findall(r'Function : (\S+)\n(.*?)(?=Function : |\Z)', dump('-sass'), re.DOTALL))
    names = subprocess.run(['c++filt'], input='\n'.join(name for name, *_ in usage), text=True, capture_output=True, check=True).stdout.split('\n')
    plain = [re.sub(r'(monograph::(ops::)?)|\(anonymous namespace\)::', '', name).split('(')[0] for name in names]
    return {name: Kernel(code[mangled], *map(int, numbers)) for name, (mangled, *numbers) in zip(plain, usage)}


# Opcodes, the lowest 12 bits of an instruction's 16 bytes: ACQBULK and PREEXIT, which are griddepcontrol.wait and griddepcontrol.launch_dependents;
# LDC and VIADD, of a constant and of registers.
WAIT, LET_NEXT_START = 0x82e, 0x82d
TOUCH_NO_MEMORY = {0xb82, 0x836}


def opcodes(cuobjdump, source):
    """The opcodes of each kernel of a source, from the ELF file within its object: disassembling all of them takes half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, '-xelf', 'sm_90', os.path.abspath(OBJECTS[source])], cwd=folder, capture_output=True, check=True, timeout=120)
        files = [path.read_bytes() for path in pathlib.Path(folder).iterdir()]
    found = {}
    for elf in files:
        table, = struct.unpack_from('<Q', elf, 0x28)
        size, count, names = struct.unpack_from('<HHH', elf, 0x3a)
        sections = [struct.unpack_from('<IIQQQQ', elf, table + i * size) for i in range(count)]  # name, type, flags, address, offset, size
        for section in sections:
            start = sections[names][4] + section[0]
            name = elf[start:elf.index(b'\0', start)].decode()
            if name.startswith('.text.'):
                found[name[6:]] = [word & 0xfff for word, _ in struct.iter_unpack('<QQ', elf[section[4]:section[4] + section[5]])]
    return found


class MachineCode(unittest.TestCase):
    def setUp(self):
        self.cuobjdump, nvdisasm = tool('cuobjdump'), tool('nvdisasm')
        if self.cuobjdump is None or nvdisasm is None:
            self.skipTest('no cuobjdump and nvdisasm: neither in CUDA\'s folder nor in PATH, nor the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm')
        os.environ['PATH'] += os.pathsep + os.path.dirname(nvdisasm)

    def skip(self, source):
        self.skipTest(f'{OBJECTS[source]} has no machine code for sm_90: CMAKE_CUDA_ARCHITECTURES')

    def test_every_kernel_first_of_all_waits_for_the_one_before(self):
        for source in OBJECTS:
            found = opcodes(self.cuobjdump, source)
            if not found:
                self.skip(source)
            for name, code in found.items():
                with self.subTest(kernel=name):
                    self.assertIn(WAIT, code)
                    first = code.index(WAIT)
                    self.assertLessEqual(set(code[:first]), TOUCH_NO_MEMORY)
                    self.assertIn(LET_NEXT_START, code[first:])

    def test_memory_is_moved_16_bytes_at_a_time_by_as_many_threads_as_fit(self):
        for source, rows in TABLE.items():
            if source not in OBJECTS:
                self.fail(f'no object of {source}_cuda.cu among the arguments')
            found = kernels(self.cuobjdump, source)
            if not found:
                self.skip(source)
            for row in rows:
                matching = {name: kernel for name, kernel in found.items() if re.search(row.kernel, name)}
                self.assertTrue(matching, f'{source}: no kernel is named {row.kernel}')
                for name, kernel in matching.items():
                    with self.subTest(kernel=name):
                        self.check(row, kernel)

    def check(self, row, kernel):
        count, narrow = kernel.count, row.narrow
        self.assertGreaterEqual(count['LDG', True], row.loads, 'loads of 16 bytes')
        self.assertGreaterEqual(count['STG', True], row.stores, 'stores of 16 bytes')
        if not narrow:
            self.assertEqual(count['LDG', False], 0, 'loads of less than 16 bytes')
            self.assertEqual(count['STG', False], 0, 'stores of less than 16 bytes')
        self.assertGreaterEqual(kernel.blocks(), row.blocks, f'blocks at once, with {kernel.registers} registers and {kernel.shared} bytes of shared memory')
        self.assertEqual(count['STL', False] + count['STL', True] + count['LDL', False] + count['LDL', True], 0, 'accesses to local memory')
        self.assertEqual(kernel.stack, 0, 'bytes of stack')


if __name__ == '__main__':
    for argument in [a for a in sys.argv[1:] if not a.startswith('-')]:
        name = os.path.basename(argument)
        if re.fullmatch(r'\w+_cuda\.cu(\.o|bin)?', name) or name.endswith('_cuda.cubin'):
            OBJECTS[name.split('_cuda.')[0]] = argument
            sys.argv.remove(argument)
    unittest.main()
