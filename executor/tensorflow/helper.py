# The process that executor/tensorflow/helper.cc asks; it says there what is said. The build makes
# a string of this file.
import ctypes, importlib.util, os, select, struct, sys

channel = os.dup(0)
os.dup2(2, 1)

def say(kind, data):
    data = kind + struct.pack('<I', len(data)) + data
    while data:
        data = data[os.write(channel, data):]

def read(count):
    data = b''
    while len(data) < count:
        if not select.select([channel], [], [], 60)[0]:
            sys.exit(0)
        piece = os.read(channel, count - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data

class Buffer(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('length', ctypes.c_size_t), ('free', ctypes.c_void_p)]

class Output(ctypes.Structure):
    _fields_ = [('op', ctypes.c_void_p), ('index', ctypes.c_int)]

def open_library():
    spec = importlib.util.find_spec('tensorflow')
    if spec is None:
        raise Exception('it has no package tensorflow')
    path = os.path.join(spec.submodule_search_locations[0], 'libtensorflow_cc.so.2')
    if not os.path.exists(path):
        raise Exception('its package tensorflow has no ' + path + ', as versions from 2.9 on have')
    return path, ctypes.CDLL(path, mode=os.RTLD_LAZY)

try:
    path, tf = open_library()
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in [
            ('TF_Version', text, []), ('TF_GetAllOpList', ctypes.POINTER(Buffer), []),
            ('TF_GetAllRegisteredKernels', ctypes.POINTER(Buffer), [pointer]), ('TF_NewStatus', pointer, []), ('TF_GetCode', number, [pointer]), ('TF_Message', text, [pointer]),
            ('TF_NewGraph', pointer, []), ('TF_DeleteGraph', None, [pointer]),
            ('TF_NewImportGraphDefOptions', pointer, []), ('TF_NewBufferFromString', pointer, [text, ctypes.c_size_t]),
            ('TF_DeleteBuffer', None, [pointer]), ('TF_GraphImportGraphDef', None, [pointer] * 4),
            ('TF_GraphOperationByName', pointer, [pointer, text]), ('TF_OperationNumOutputs', number, [pointer]),
            ('TF_GraphGetTensorNumDims', number, [pointer, Output, pointer]),
            ('TF_GraphGetTensorShape', None, [pointer, Output, pointer, number, pointer])]:
        function = getattr(tf, name)
        function.restype, function.argtypes = result, arguments
    status, options = tf.TF_NewStatus(), tf.TF_NewImportGraphDefOptions()
    say(b'+', path.encode())
    say(b'+', tf.TF_Version())
    for buffer in tf.TF_GetAllOpList(), tf.TF_GetAllRegisteredKernels(status):
        say(b'+', ctypes.string_at(buffer.contents.data, buffer.contents.length))
except Exception as error:
    say(b'-', str(error).encode())
    sys.exit(1)

def shapes(graph):
    operation = tf.TF_GraphOperationByName(graph, b'node')
    count = tf.TF_OperationNumOutputs(operation)
    answer = struct.pack('<i', count)
    for index in range(count):
        output = Output(operation, index)
        rank = tf.TF_GraphGetTensorNumDims(graph, output, status)
        dims = (ctypes.c_int64 * max(rank, 1))()
        if rank > 0:
            tf.TF_GraphGetTensorShape(graph, output, dims, rank, status)
        answer += struct.pack('<i', rank) + struct.pack('<%dq' % max(rank, 0), *dims[:max(rank, 0)])
    return answer

while True:
    question = read(struct.unpack('<I', read(4))[0])
    graph, buffer = tf.TF_NewGraph(), tf.TF_NewBufferFromString(question, len(question))
    tf.TF_GraphImportGraphDef(graph, buffer, options, status)
    code = tf.TF_GetCode(status)
    if code == 0:
        say(b'+', shapes(graph))
    else:
        say(b'!' if code == 3 else b'-', tf.TF_Message(status))
    tf.TF_DeleteGraph(graph)
    tf.TF_DeleteBuffer(buffer)
