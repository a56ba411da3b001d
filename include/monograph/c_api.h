/* Monograph for programs in C and for other languages' bindings: libmonograph_c.so.
 *
 *   MG_Status* status = MG_NewStatus();
 *   MG_Graph* graph = MG_NewGraph();
 *   MG_GraphImportFile(graph, "graph.pb", status);
 *   MG_Session* session = MG_NewSession(graph, NULL, status);
 *   const char* fetch = "loss:0";
 *   MG_Tensor* loss = NULL;
 *   MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &loss, 1, NULL, 0, status);
 *   if (MG_GetCode(status) != MG_OK) puts(MG_Message(status));
 *
 * Status. What can fail takes an MG_Status* last and sets it, to MG_OK too; the codes are
 * TensorFlow's. A function that returns a handle returns NULL if it fails. No exception leaves the
 * library.
 *
 * Ownership. What MG_New..., MG_Make... and MG_Allocate... return belongs to the caller, who ends
 * it with the MG_Delete... of its kind, which takes NULL, too. Arguments stay the caller's, and
 * are not needed after the call, unless a function says otherwise. A `const char*` that a function
 * returns lives as long as the handle that it came from, and until that is changed.
 *
 * Threads. A function may be called from any thread. Of MG_Graph, MG_Session, MG_Callable,
 * MG_Cancellation and MG_Server several calls may run at once; of the others a handle is one
 * thread's at a time. No handle may be deleted while a call with it runs. A process that has
 * forked uses the library in one of the two only.
 *
 * Symbols have the version MONOGRAPH_1: what stands here keeps its meaning; what is added gets
 * another version. The enumerations may grow. */
#ifndef MONOGRAPH_C_API_H_
#define MONOGRAPH_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.2.0"; a constant. */
const char* MG_Version(void);

/* ---- Status ---------------------------------------------------------------------------------- */

/* C has no namespaces. NOLINTNEXTLINE(readability-identifier-naming) */
typedef enum MG_Code {
  MG_OK = 0,
  MG_CANCELLED = 1,
  MG_UNKNOWN = 2,
  MG_INVALID_ARGUMENT = 3,
  MG_DEADLINE_EXCEEDED = 4,
  MG_NOT_FOUND = 5,
  MG_ALREADY_EXISTS = 6,
  MG_PERMISSION_DENIED = 7,
  MG_RESOURCE_EXHAUSTED = 8,
  MG_FAILED_PRECONDITION = 9,
  MG_ABORTED = 10,
  MG_OUT_OF_RANGE = 11,
  MG_UNIMPLEMENTED = 12,
  MG_INTERNAL = 13,
  MG_UNAVAILABLE = 14,
  MG_DATA_LOSS = 15,
  MG_UNAUTHENTICATED = 16
} MG_Code;

typedef struct MG_Status MG_Status;

MG_Status* MG_NewStatus(void); /* MG_OK */
void MG_DeleteStatus(MG_Status* status);
void MG_SetStatus(MG_Status* status, MG_Code code, const char* message);
MG_Code MG_GetCode(const MG_Status* status);
/* What was wrong, with its value, and what would be right; "" if OK. */
const char* MG_Message(const MG_Status* status);
/* The task whose loss the failure is or follows from, "/job:worker/replica:0/task:1"; else "". */
const char* MG_LostTask(const MG_Status* status);
/* "INVALID_ARGUMENT"; a constant. */
const char* MG_CodeName(MG_Code code);

/* ---- Tables: rows of texts ---------------------------------------------------------------------
 */

typedef struct MG_Table MG_Table;

void MG_DeleteTable(MG_Table* table);
int MG_TableRows(const MG_Table* table);
/* "" beyond the last row or column. */
const char* MG_TableText(const MG_Table* table, int row, int column);

/* ---- Tensors -----------------------------------------------------------------------------------
 */

/* With TensorFlow's numbers. */
/* NOLINTNEXTLINE(readability-identifier-naming) */
typedef enum MG_DataType {
  MG_FLOAT = 1,
  MG_DOUBLE = 2,
  MG_INT32 = 3,
  MG_UINT8 = 4,
  MG_INT16 = 5,
  MG_INT8 = 6,
  MG_STRING = 7,
  MG_COMPLEX64 = 8, /* two floats, the real part first */
  MG_INT64 = 9,
  MG_BOOL = 10,
  MG_QINT8 = 11, /* of quantized types: the integers */
  MG_QUINT8 = 12,
  MG_QINT32 = 13,
  MG_BFLOAT16 = 14,
  MG_QINT16 = 15,
  MG_QUINT16 = 16,
  MG_UINT16 = 17,
  MG_COMPLEX128 = 18,
  MG_HALF = 19,
  MG_RESOURCE = 20,
  MG_UINT32 = 22,
  MG_UINT64 = 23
} MG_DataType;

/* Bytes of an element; 0 for strings, resources and types that the library lacks. */
size_t MG_DataTypeSize(MG_DataType type);
/* "float", "int32", ...; a constant. */
const char* MG_DataTypeName(MG_DataType type);

/* Row-major and dense. The handle holds a share of the tensor's memory; so do a step that is fed
 * it, and, of what is fetched, the variable that it was read from. */
typedef struct MG_Tensor MG_Tensor;

/* A tensor in memory of the caller's, without a copy. `len` is its size in bytes, `data` aligned
 * to an element. `deallocator` (or NULL) is called once, with `data`, `len` and `arg`, when nobody
 * needs the memory any more: in MG_DeleteTensor or, if a step that failed still reads it, later and
 * on another thread. Until then the memory must stay, and must not change while a step that was
 * given the tensor runs. Afterwards it may be written to: what a step keeps, in a variable or a
 * queue, is its own copy. If this fails, `deallocator` is not called. */
MG_Tensor* MG_NewTensor(MG_DataType type, const int64_t* dims, int num_dims, void* data, size_t len,
                        void (*deallocator)(void* data, size_t len, void* arg), void* arg,
                        MG_Status* status);
/* A tensor in the library's memory, to be filled through MG_TensorData. */
MG_Tensor* MG_AllocateTensor(MG_DataType type, const int64_t* dims, int num_dims,
                             MG_Status* status);
/* Copies as many byte strings as the shape has elements. */
MG_Tensor* MG_NewStringTensor(const int64_t* dims, int num_dims, const char* const* values,
                              const size_t* lengths, MG_Status* status);
void MG_DeleteTensor(MG_Tensor* tensor);
MG_DataType MG_TensorType(const MG_Tensor* tensor);
int MG_NumDims(const MG_Tensor* tensor);
int64_t MG_Dim(const MG_Tensor* tensor, int index); /* -1 for an index that it has not */
int64_t MG_TensorElements(const MG_Tensor* tensor);
size_t MG_TensorBytes(const MG_Tensor* tensor); /* 0 for strings and resources */
/* NULL for strings and resources. Write only to a tensor that is exclusive. */
void* MG_TensorData(const MG_Tensor* tensor);
/* 1 if only this handle has a share of the memory: nobody else reads or writes it. */
int MG_TensorIsExclusive(const MG_Tensor* tensor);
/* 1 if the tensor lies in a daemon's memory, where this process can only read (the lane
 * `reference`): a write ends the process. It does not change as long as the handle is there, which
 * keeps that memory. */
int MG_TensorIsConstant(const MG_Tensor* tensor);
/* An element of a tensor of strings, which may have zeros in it; `*length` gets its bytes. NULL
 * for other tensors and for an index that it has not. */
const char* MG_TensorString(const MG_Tensor* tensor, int64_t index, size_t* length);

/* ---- Graphs ------------------------------------------------------------------------------------
 */

/* A graph may grow, also while steps of its sessions run; a session sees what was added with the
 * next signature that it prepares. It stays as long as one of its sessions does. */
typedef struct MG_Graph MG_Graph;

MG_Graph* MG_NewGraph(void); /* empty */
void MG_DeleteGraph(MG_Graph* graph);
/* Adds the nodes of a serialised GraphDef; their inputs may be nodes that are in the graph. A
 * function whose name the graph knows is not read again. All or nothing is added. Nodes of ops that
 * the library lacks are kept; a step that needs one fails. */
void MG_GraphImport(MG_Graph* graph, const void* graph_def, size_t len, MG_Status* status);
/* The same from a file, .pb or .pbtxt. */
void MG_GraphImportFile(MG_Graph* graph, const char* path, MG_Status* status);
/* A row per node: name, op, requested device. */
MG_Table* MG_GraphNodes(const MG_Graph* graph);
/* Type and static shape of "name:1" or "name" (output 0). `*num_dims` is -1 if the rank is not
 * known; an unknown dimension is -1. At most `max_dims` are written to `dims`. */
void MG_GraphTensor(const MG_Graph* graph, const char* name, MG_DataType* type, int64_t* dims,
                    int max_dims, int* num_dims, MG_Status* status);

/* ---- Sessions ----------------------------------------------------------------------------------
 */

typedef struct MG_SessionOptions MG_SessionOptions;

MG_SessionOptions* MG_NewSessionOptions(void);
void MG_DeleteSessionOptions(MG_SessionOptions* options);
/* Sets an option by name; values are texts, of booleans "true" and "false". INVALID_ARGUMENT lists
 * the names, or says what the value should be.
 *   target                        where the session runs: "" in this process (the default),
 *                                 "grpc://host:port" the cluster that this daemon belongs to
 *   cluster                       the same by the cluster's description, {"worker": ["host:port"]},
 *                                 as JSON or a path; "" for none
 *   key_file                      the cluster's key; default: MONOGRAPH_KEY_FILE of the environment
 *   start_timeout                 seconds to wait for daemons; default 30
 *   operation_timeout             seconds a step may take; default 0: no limit
 *   allow_soft_placement          a node may run where its device lacks a kernel
 *   log_device_placement          none, full, summary, json or dot: on standard error
 *   device_filters                only these tasks: "/job:ps,/job:worker/task:0"
 *   inter_op_parallelism_threads, intra_op_parallelism_threads     of this process; 0: one per core
 *   cpu_devices, gpu_devices      of a session in this process; default 1, and all that there are
 *   optimizer_level               0 or 1 (default): constants are folded, equal nodes merged
 *   tensorflow_random_streams     random ops with seeds draw TensorFlow's numbers, on CPUs
 *   container                     what it holds is dropped when the session ends
 *   lanes, trusted_network        of the data plane, as the flags of monograph-executor */
void MG_SetSessionOption(MG_SessionOptions* options, const char* name, const char* value,
                         MG_Status* status);

typedef struct MG_Session MG_Session;

/* `options` may be NULL. Waits for every task of a cluster; UNAVAILABLE lists those that are
 * missing. */
MG_Session* MG_NewSession(MG_Graph* graph, const MG_SessionOptions* options, MG_Status* status);
/* Ends running steps, with CANCELLED, and frees what daemons hold of the session; variables stay
 * with their tasks. Later calls fail. Idempotent. */
void MG_CloseSession(MG_Session* session, MG_Status* status);
void MG_DeleteSession(MG_Session* session); /* closes it */
/* Drops variables and other resources of these containers, of all if there are none. */
void MG_ResetSession(MG_Session* session, const char* const* containers, int num_containers,
                     MG_Status* status);
/* A row per device: name, description (of GPUs), bytes of memory. */
MG_Table* MG_SessionDevices(const MG_Session* session);

/* Ends steps from another thread. */
typedef struct MG_Cancellation MG_Cancellation;

MG_Cancellation* MG_NewCancellation(void);
void MG_DeleteCancellation(MG_Cancellation* cancellation);
/* Every step that was or will be started with it ends with CANCELLED, a running one within about
 * 50 ms or when its kernels let it; the session goes on. */
void MG_Cancel(MG_Cancellation* cancellation);

/* What a step tells beside its results. */
typedef struct MG_RunMetadata MG_RunMetadata;

MG_RunMetadata* MG_NewRunMetadata(void);
void MG_DeleteRunMetadata(MG_RunMetadata* metadata);
/* What each node did, in Chrome's trace format (chrome://tracing, Perfetto): all tasks on one
 * clock, times in microseconds. "" before a recorded step has succeeded. */
const char* MG_TraceJson(const MG_RunMetadata* metadata);
/* The tasks whose records could not be had, and why; "" if the trace is complete. */
const char* MG_TraceError(const MG_RunMetadata* metadata);

typedef struct MG_RunOptions MG_RunOptions;

MG_RunOptions* MG_NewRunOptions(void);
void MG_DeleteRunOptions(MG_RunOptions* options);
/* DEADLINE_EXCEEDED after so many milliseconds; 0: no limit; -1: operation_timeout. */
void MG_SetTimeout(MG_RunOptions* options, int64_t milliseconds);
/* Not owned; outlives every run with these options. NULL: none. */
void MG_SetCancellation(MG_RunOptions* options, const MG_Cancellation* cancellation);
/* Called with `arg` about every 50 ms by the thread that waits for the step, which ends with
 * CANCELLED once it returns other than 0: for signals that this thread must look at. NULL: none. */
void MG_SetPoll(MG_RunOptions* options, int (*poll)(void* arg), void* arg);
/* Records the step in `metadata`, which is not owned and is one run's at a time. NULL: none. */
void MG_SetRunMetadata(MG_RunOptions* options, MG_RunMetadata* metadata);

/* Runs one step. Tensors are named "node:1", or "node" (output 0), operations "node". `fetched`
 * gets `num_fetches` tensors, the caller's; NULLs on failure. `options` may be NULL, so may be
 * arrays of which the number is 0. The status is the root cause, with node, device and task; a lost
 * task is UNAVAILABLE and named (MG_LostTask). */
void MG_SessionRun(MG_Session* session, const MG_RunOptions* options, const char* const* feed_names,
                   MG_Tensor* const* feeds, int num_feeds, const char* const* fetch_names,
                   MG_Tensor** fetched, int num_fetches, const char* const* target_names,
                   int num_targets, MG_Status* status);

/* A signature that was prepared once. Holds its session; of a closed one it is of no use. */
typedef struct MG_Callable MG_Callable;

MG_Callable* MG_MakeCallable(MG_Session* session, const char* const* feed_names, int num_feeds,
                             const char* const* fetch_names, int num_fetches,
                             const char* const* target_names, int num_targets, MG_Status* status);
void MG_DeleteCallable(MG_Callable* callable);
/* As MG_SessionRun: as many feeds and fetches as it was made with, in that order. */
void MG_RunCallable(MG_Callable* callable, const MG_RunOptions* options, MG_Tensor* const* feeds,
                    int num_feeds, MG_Tensor** fetched, int num_fetches, MG_Status* status);

/* A step that takes its feeds and gives its fetches in parts. Each node runs once, as soon as what
 * it needs is there. */
typedef struct MG_PartialRun MG_PartialRun;

/* Begins it, with all that it is to be fed, to give and to run. RESOURCE_EXHAUSTED if 16 of the
 * session have not ended. */
MG_PartialRun* MG_PartialRunSetup(MG_Session* session, const char* const* feed_names, int num_feeds,
                                  const char* const* fetch_names, int num_fetches,
                                  const char* const* target_names, int num_targets,
                                  MG_Status* status);
/* Feeds some, and returns some fetches, each of them once in the step. INVALID_ARGUMENT, and the
 * step goes on, for a fetch that needs what has not been fed; NOT_FOUND for a name that the setup
 * had not. The call that leaves nothing to feed or fetch waits for the step's end. One that fails
 * because the step does, passes its deadline or is cancelled ends it. One call at a time. */
void MG_RunPart(MG_PartialRun* partial, const MG_RunOptions* options, const char* const* feed_names,
                MG_Tensor* const* feeds, int num_feeds, const char* const* fetch_names,
                MG_Tensor** fetched, int num_fetches, MG_Status* status);
/* A step that has not ended is cancelled. */
void MG_DeletePartialRun(MG_PartialRun* partial);

/* ---- Servers: tasks of a cluster in this process ------------------------------------------------
 */

typedef struct MG_ServerOptions MG_ServerOptions;

MG_ServerOptions* MG_NewServerOptions(void);
void MG_DeleteServerOptions(MG_ServerOptions* options);
/* As MG_SetSessionOption:
 *   bind                          address to listen on; default: by which the cluster names the task
 *   key_file                      the cluster's key; default: MONOGRAPH_KEY_FILE of the environment
 *   cpu_devices, gpu_devices      default 1, and all that there are
 *   inter_op_parallelism_threads, intra_op_parallelism_threads     0: one per core
 *   lanes, trusted_network        of the data plane, as the flags of monograph-executor */
void MG_SetServerOption(MG_ServerOptions* options, const char* name, const char* value,
                        MG_Status* status);

typedef struct MG_Server MG_Server;

/* Hosts task `task` of `job`. `cluster`: JSON or a path, as the option of sessions; `options` may
 * be NULL. It listens when this returns. */
MG_Server* MG_NewServer(const char* cluster, const char* job, int task,
                        const MG_ServerOptions* options, MG_Status* status);
/* "grpc://host:port". */
const char* MG_ServerTarget(const MG_Server* server);
/* Waits for MG_StopServer, at most so long. 1 if it was stopped. */
int MG_JoinServer(MG_Server* server, int64_t milliseconds);
/* Takes no new steps, lets running ones end for at most so long, then closes everything.
 * Idempotent. */
void MG_StopServer(MG_Server* server, int64_t drain_milliseconds);
void MG_DeleteServer(MG_Server* server); /* stops it */

/* ---- Functions of the program that nodes call: tf.py_func, tf.numpy_function, tf.py_function ----
 */

/* Calls the function that the program knows by `token`, the node's attribute; `eager` is 1 for
 * EagerPyFunc. `inputs` are the handler's, who deletes them. It sets `num_outputs` outputs, of
 * these types, which then are the library's, or `status`, which fails the step. Any thread, several
 * at once. */
/* NOLINTNEXTLINE(readability-identifier-naming) */
typedef void (*MG_PyFuncHandler)(void* arg, const char* token, int eager, MG_Tensor* const* inputs,
                                 int num_inputs, const MG_DataType* types, MG_Tensor** outputs,
                                 int num_outputs, MG_Status* status);
/* All nodes PyFunc, PyFuncStateless and EagerPyFunc that run in this process call `handler`, the
 * one set last; it and `arg` stay to the end of the process. Such a node without a device runs in
 * the client's process. Without a handler it fails with FAILED_PRECONDITION. */
void MG_SetPyFuncHandler(MG_PyFuncHandler handler, void* arg);

/* ---- What the library has ----------------------------------------------------------------------
 */

/* A row per op: name, "MatMul(a: T, b: T) -> (product: T); transpose_a: bool = false, ...". */
MG_Table* MG_Ops(void);

#ifdef __cplusplus
}
#endif

#endif /* MONOGRAPH_C_API_H_ */
