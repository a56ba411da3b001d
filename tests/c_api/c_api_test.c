/* Calls every function of <monograph/c_api.h>, as a program in C does: steps in this process and on
 * a cluster of one task that it hosts itself. Exits with 1 after the first check that fails. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <monograph/c_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      fprintf(stderr, "status: %s\n", status ? MG_Message(status) : ""); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)
#define CHECK_OK() CHECK(MG_GetCode(status) == MG_OK)

static MG_Status* status = NULL;
static int freed = 0;

static void CountFree(void* data, size_t len, void* arg) {
  (void)data;
  CHECK(len == 3 * sizeof(float));
  ++*(int*)arg;
}

static MG_Tensor* Floats(float* values, int64_t count) {
  MG_Tensor* tensor = MG_NewTensor(MG_FLOAT, &count, 1, values, (size_t)count * sizeof(float),
                                   count == 3 ? CountFree : NULL, &freed, status);
  CHECK_OK();
  return tensor;
}

static void TestStatus(void) {
  CHECK(strlen(MG_Version()) >= 5);
  status = MG_NewStatus();
  CHECK_OK();
  CHECK(strcmp(MG_Message(status), "") == 0);
  MG_SetStatus(status, MG_DATA_LOSS, "gone");
  CHECK(MG_GetCode(status) == MG_DATA_LOSS && strcmp(MG_Message(status), "gone") == 0);
  CHECK(strcmp(MG_LostTask(status), "") == 0);
  CHECK(strcmp(MG_CodeName(MG_DATA_LOSS), "DATA_LOSS") == 0);
  MG_SetStatus(status, MG_OK, NULL);
  CHECK_OK();
}

static void TestTensors(void) {
  CHECK(MG_DataTypeSize(MG_FLOAT) == 4 && MG_DataTypeSize(MG_STRING) == 0);
  CHECK(strcmp(MG_DataTypeName(MG_HALF), "half") == 0);
  float values[3] = {1, 2, 3};
  MG_Tensor* tensor = Floats(values, 3);
  CHECK(MG_TensorType(tensor) == MG_FLOAT && MG_NumDims(tensor) == 1);
  CHECK(MG_Dim(tensor, 0) == 3 && MG_Dim(tensor, 1) == -1 && MG_TensorElements(tensor) == 3);
  CHECK(MG_TensorData(tensor) == values && MG_TensorBytes(tensor) == sizeof values);
  CHECK(MG_TensorIsExclusive(tensor) && MG_TensorString(tensor, 0, NULL) == NULL);
  CHECK(!MG_TensorIsConstant(tensor));
  freed = 0;
  MG_DeleteTensor(tensor);
  CHECK(freed == 1);

  const int64_t two = 2;
  CHECK(MG_NewTensor(MG_FLOAT, &two, 1, values, 4, NULL, NULL, status) == NULL);
  CHECK(strstr(MG_Message(status), "float[2] does not have 4 bytes") != NULL);
  CHECK(MG_NewTensor(MG_FLOAT, &two, 1, (char*)values + 1, 8, NULL, NULL, status) == NULL);
  CHECK(strstr(MG_Message(status), "aligned to 4 bytes") != NULL);
  tensor = MG_AllocateTensor(MG_INT64, NULL, 0, status);
  CHECK_OK();
  *(int64_t*)MG_TensorData(tensor) = 7;
  MG_DeleteTensor(tensor);

  const char* texts[2] = {"one", "a\0b"};
  const size_t lengths[2] = {3, 3};
  tensor = MG_NewStringTensor(&two, 1, texts, lengths, status);
  CHECK_OK();
  size_t length = 0;
  CHECK(memcmp(MG_TensorString(tensor, 1, &length), "a\0b", 3) == 0 && length == 3);
  CHECK(MG_TensorString(tensor, 2, NULL) == NULL && MG_TensorData(tensor) == NULL);
  MG_DeleteTensor(tensor);
  MG_DeleteTensor(NULL);
}

/* A GraphDef with the node z = -y. */
static const unsigned char kNegative[] = {0x0a, 20,   0x0a, 1,   'z',  0x12, 3,    'N', 'e',
                                          'g',  0x1a, 1,    'y', 0x2a, 7,    0x0a, 1,   'T',
                                          0x12, 2,    0x30, 1,   0x22, 2,    0x08, 27};

static MG_Graph* TestGraphs(const char* path) {
  MG_Graph* graph = MG_NewGraph();
  MG_GraphImport(graph, kNegative, sizeof kNegative, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT); /* its input is not there yet */
  MG_GraphImportFile(graph, "/nowhere.pb", status);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND && strstr(MG_Message(status), "/nowhere.pb") != NULL);
  MG_GraphImportFile(graph, path, status);
  CHECK_OK();
  MG_Table* nodes = MG_GraphNodes(graph);
  const int count = MG_TableRows(nodes);
  CHECK(count == 12 && strcmp(MG_TableText(nodes, 2, 0), "y") == 0);
  CHECK(strcmp(MG_TableText(nodes, 2, 1), "Mul") == 0);
  CHECK(strcmp(MG_TableText(nodes, count, 0), "") == 0);
  MG_DeleteTable(nodes);
  MG_DataType type = MG_STRING;
  int64_t dims[2] = {0, 0};
  int num_dims = 0;
  MG_GraphTensor(graph, "y:0", &type, dims, 2, &num_dims, status);
  CHECK_OK();
  CHECK(type == MG_FLOAT && num_dims == 1 && dims[0] == -1);
  MG_GraphTensor(graph, "yy", &type, dims, 2, &num_dims, status);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND);
  return graph;
}

static const char* const kX[] = {"x"};

static void Run(MG_Session* session, float* value, int64_t count, const char* fetch,
                const char* target, MG_Tensor** fetched) {
  MG_Tensor* feed = Floats(value, count);
  MG_SessionRun(session, NULL, kX, &feed, 1, fetch ? &fetch : NULL, fetched, fetch != NULL,
                target ? &target : NULL, target != NULL, status);
  MG_DeleteTensor(feed);
}

static void TestSession(MG_Session* session, MG_Graph* graph) {
  float values[3] = {1, 2, 3};
  MG_Tensor* fetched = NULL;
  freed = 0;
  Run(session, values, 3, "y:0", NULL, &fetched);
  CHECK_OK();
  CHECK(freed == 1 && ((float*)MG_TensorData(fetched))[2] == 6);
  MG_DeleteTensor(fetched);

  /* What a variable or a queue keeps is not the caller's memory. */
  Run(session, values, 3, NULL, "keep", NULL);
  CHECK_OK();
  Run(session, values, 3, NULL, "put", NULL);
  CHECK_OK();
  CHECK(freed == 3);
  values[0] = 100;
  const char* fetch = "kept";
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK_OK();
  CHECK(((float*)MG_TensorData(fetched))[0] == 1 && !MG_TensorIsExclusive(fetched));
  MG_DeleteTensor(fetched);
  fetch = "take";
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK_OK();
  CHECK(((float*)MG_TensorData(fetched))[0] == 1);
  MG_DeleteTensor(fetched);

  Run(session, values, 3, "nothing_of_that_name", NULL, &fetched);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND && fetched == NULL);

  /* The graph grows under the session. */
  MG_GraphImport(graph, kNegative, sizeof kNegative, status);
  CHECK_OK();
  MG_GraphImport(graph, kNegative, sizeof kNegative, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT && strstr(MG_Message(status), "'z'") != NULL);
  fetch = "z";
  MG_Callable* callable = MG_MakeCallable(session, kX, 1, &fetch, 1, NULL, 0, status);
  CHECK_OK();
  MG_Tensor* feed = Floats(values, 2);
  MG_RunCallable(callable, NULL, &feed, 1, &fetched, 1, status);
  CHECK_OK();
  CHECK(((float*)MG_TensorData(fetched))[1] == -4 && MG_TensorIsExclusive(fetched));
  MG_DeleteTensor(fetched);
  MG_RunCallable(callable, NULL, NULL, 0, &fetched, 1, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT);
  MG_DeleteTensor(feed);
  MG_DeleteCallable(callable);

  MG_RunMetadata* metadata = MG_NewRunMetadata();
  CHECK(strcmp(MG_TraceJson(metadata), "") == 0);
  MG_RunOptions* traced = MG_NewRunOptions();
  MG_SetRunMetadata(traced, metadata);
  feed = Floats(values, 2);
  MG_SessionRun(session, traced, kX, &feed, 1, &fetch, &fetched, 1, NULL, 0, status);
  CHECK_OK();
  MG_DeleteTensor(feed);
  MG_DeleteTensor(fetched);
  CHECK(strstr(MG_TraceJson(metadata), "\"name\":\"z\",\"cat\":\"Neg\"") != NULL);
  CHECK(strcmp(MG_TraceError(metadata), "") == 0);
  MG_DeleteRunOptions(traced);
  MG_DeleteRunMetadata(metadata);

  const char* const containers[] = {"another"};
  MG_ResetSession(session, containers, 1, status);
  CHECK_OK();
  MG_ResetSession(session, NULL, 0, status);
  CHECK_OK();
  fetch = "kept";
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_FAILED_PRECONDITION);
}

/* The function 'twice' of nodes PyFunc: two times its input, which it deletes. */
static void CallFunction(void* arg, const char* token, int eager, MG_Tensor* const* inputs,
                         int num_inputs, const MG_DataType* types, MG_Tensor** outputs,
                         int num_outputs, MG_Status* failure) {
  ++*(int*)arg;
  for (int i = 0; i < num_inputs; ++i) {
    if (strcmp(token, "twice") == 0 && i < num_outputs && types[i] == MG_FLOAT) {
      outputs[i] = MG_AllocateTensor(MG_FLOAT, NULL, 0, failure);
      *(float*)MG_TensorData(outputs[i]) = 2 * *(float*)MG_TensorData(inputs[i]);
    }
    MG_DeleteTensor(inputs[i]);
  }
  if (strcmp(token, "twice") != 0 || eager) MG_SetStatus(failure, MG_NOT_FOUND, token);
}

/* A GraphDef with the node f = PyFunc(two), whose token has `length` letters. */
static size_t FunctionNode(const char* name, const char* token, unsigned char* def) {
  unsigned char body[128];
  size_t size = 0;
  const size_t length = strlen(token);
#define PUT(...)                                 \
  do {                                           \
    const unsigned char bytes[] = {__VA_ARGS__}; \
    memcpy(body + size, bytes, sizeof bytes);    \
    size += sizeof bytes;                        \
  } while (0)
  PUT(0x0a, 1, (unsigned char)name[0], 0x12, 6, 'P', 'y', 'F', 'u', 'n', 'c');
  PUT(0x1a, 3, 't', 'w', 'o');
  PUT(0x2a, (unsigned char)(11 + length), 0x0a, 5, 't', 'o', 'k', 'e', 'n');
  PUT(0x12, (unsigned char)(2 + length), 0x12, (unsigned char)length);
  memcpy(body + size, token, length);
  size += length;
  PUT(0x2a, 12, 0x0a, 3, 'T', 'i', 'n', 0x12, 5, 0x0a, 3, 0x32, 1, 1);
  PUT(0x2a, 13, 0x0a, 4, 'T', 'o', 'u', 't', 0x12, 5, 0x0a, 3, 0x32, 1, 1);
#undef PUT
  def[0] = 0x0a;
  def[1] = (unsigned char)size;
  memcpy(def + 2, body, size);
  return size + 2;
}

static void TestFunctions(MG_Session* session, MG_Graph* graph) {
  unsigned char def[160];
  MG_GraphImport(graph, def, FunctionNode("f", "twice", def), status);
  CHECK_OK();
  MG_GraphImport(graph, def, FunctionNode("g", "other", def), status);
  CHECK_OK();
  const char* fetch = "f";
  MG_Tensor* fetched = NULL;
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_FAILED_PRECONDITION);
  static int calls = 0;
  MG_SetPyFuncHandler(CallFunction, &calls);
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK_OK();
  CHECK(calls == 1 && *(float*)MG_TensorData(fetched) == 4);
  MG_DeleteTensor(fetched);
  fetch = "g";
  MG_SessionRun(session, NULL, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND && strstr(MG_Message(status), "'g'") != NULL);
}

/* Parts of one step: y = 2 x, then z = -y. */
static void TestPartialRun(MG_Session* session) {
  const char* const fetches[] = {"y", "same_text"};
  const char* const feeds[] = {"x", "text:0"};
  const char* const targets[] = {"nothing"};
  const char* const unknown[] = {"no_such"};
  CHECK(MG_PartialRunSetup(session, feeds, 2, unknown, 1, NULL, 0, status) == NULL);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND);
  MG_PartialRun* partial = MG_PartialRunSetup(session, feeds, 2, fetches, 2, targets, 1, status);
  CHECK_OK();
  MG_Tensor* fetched[1] = {NULL};
  MG_RunPart(partial, NULL, NULL, NULL, 0, &fetches[0], fetched, 1, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT && strstr(MG_Message(status), "'x:0'") != NULL);
  float values[2] = {1, 2};
  MG_Tensor* feed = Floats(values, 2);
  MG_RunPart(partial, NULL, feeds, &feed, 1, fetches, fetched, 1, status);
  CHECK_OK();
  CHECK(((float*)MG_TensorData(fetched[0]))[1] == 4);
  MG_DeleteTensor(fetched[0]);
  MG_RunPart(partial, NULL, feeds, &feed, 1, NULL, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT); /* again */
  MG_DeleteTensor(feed);
  const char* text = "ab";
  const size_t length = 2;
  feed = MG_NewStringTensor(NULL, 0, &text, &length, status);
  CHECK_OK();
  MG_RunPart(partial, NULL, &feeds[1], &feed, 1, &fetches[1], fetched, 1, status);
  CHECK_OK();
  CHECK(memcmp(MG_TensorString(fetched[0], 0, NULL), "ab", 2) == 0);
  MG_DeleteTensor(feed);
  MG_DeleteTensor(fetched[0]);
  MG_RunPart(partial, NULL, NULL, NULL, 0, NULL, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT); /* it has ended */
  MG_DeletePartialRun(partial);
  /* Those that are given up leave room. */
  for (int i = 0; i < 20; ++i) {
    partial = MG_PartialRunSetup(session, feeds, 2, fetches, 2, NULL, 0, status);
    CHECK_OK();
    MG_DeletePartialRun(partial);
  }
  MG_DeletePartialRun(NULL);
}

static void* CancelSoon(void* cancellation) {
  const struct timespec pause = {0, 100000000};
  nanosleep(&pause, NULL);
  MG_Cancel(cancellation);
  return NULL;
}

static int CountDown(void* left) { return --*(int*)left == 0; }

/* A step that waits for an empty queue ends by its deadline, by another thread, and by what its own
 * thread is asked; the session then goes on. */
static void TestCancellation(MG_Session* session) {
  const char* fetch = "take";
  MG_Tensor* fetched = NULL;
  MG_RunOptions* options = MG_NewRunOptions();
  MG_SetTimeout(options, 50);
  MG_SessionRun(session, options, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_DEADLINE_EXCEEDED);
  MG_SetTimeout(options, 0);

  MG_Cancellation* cancellation = MG_NewCancellation();
  MG_SetCancellation(options, cancellation);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, CancelSoon, cancellation) == 0);
  MG_SessionRun(session, options, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_CANCELLED && fetched == NULL);
  CHECK(pthread_join(thread, NULL) == 0);
  MG_SessionRun(session, options, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_CANCELLED);
  MG_SetCancellation(options, NULL);
  MG_DeleteCancellation(cancellation);

  int left = 2;
  MG_SetPoll(options, CountDown, &left);
  MG_SessionRun(session, options, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK(MG_GetCode(status) == MG_CANCELLED && left == 0);
  MG_SetPoll(options, NULL, NULL);

  float value = 5;
  Run(session, &value, 1, NULL, "put", NULL);
  CHECK_OK();
  MG_SessionRun(session, options, NULL, NULL, 0, &fetch, &fetched, 1, NULL, 0, status);
  CHECK_OK();
  CHECK(*(float*)MG_TensorData(fetched) == 5);
  MG_DeleteTensor(fetched);
  MG_DeleteRunOptions(options);
}

static void TestLocal(const char* path) {
  MG_Graph* graph = TestGraphs(path);
  MG_SessionOptions* options = MG_NewSessionOptions();
  MG_SetSessionOption(options, "cpu_devices", "2", status);
  CHECK_OK();
  MG_SetSessionOption(options, "cpu_devices", "two", status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT && strstr(MG_Message(status), "'two'") != NULL);
  MG_SetSessionOption(options, "cpus", "2", status);
  CHECK(strstr(MG_Message(status), "operation_timeout") != NULL);
  MG_Session* session = MG_NewSession(graph, options, status);
  CHECK_OK();
  MG_DeleteSessionOptions(options);
  MG_Table* devices = MG_SessionDevices(session);
  CHECK(MG_TableRows(devices) >= 2);
  CHECK(strcmp(MG_TableText(devices, 1, 0), "/job:localhost/replica:0/task:0/device:CPU:1") == 0);
  MG_DeleteTable(devices);
  TestSession(session, graph);
  TestPartialRun(session);
  TestFunctions(session, graph);
  TestCancellation(session);
  MG_DeleteGraph(graph); /* the session has its own share */
  MG_Tensor* fetched = NULL;
  float value = 1;
  Run(session, &value, 1, "y", NULL, &fetched);
  CHECK_OK();
  MG_DeleteTensor(fetched);
  MG_CloseSession(session, status);
  CHECK_OK();
  Run(session, &value, 1, "y", NULL, &fetched);
  CHECK(MG_GetCode(status) == MG_FAILED_PRECONDITION);
  MG_DeleteSession(session);
}

static int FreePort(void) {
  struct sockaddr_in address = {0};
  socklen_t size = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(fd, (struct sockaddr*)&address, sizeof address) == 0);
  CHECK(getsockname(fd, (struct sockaddr*)&address, &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

static void TestCluster(const char* path, const char* far_path) {
  char cluster[64];
  snprintf(cluster, sizeof cluster, "{\"worker\": [\"127.0.0.1:%d\"]}", FreePort());
  MG_ServerOptions* server_options = MG_NewServerOptions();
  MG_SetServerOption(server_options, "intra_op_parallelism_threads", "1", status);
  CHECK_OK();
  MG_SetServerOption(server_options, "target", "", status);
  CHECK(MG_GetCode(status) == MG_INVALID_ARGUMENT);
  CHECK(MG_NewServer(cluster, "worker", 1, NULL, status) == NULL);
  CHECK(MG_GetCode(status) == MG_NOT_FOUND);
  MG_Server* server = MG_NewServer(cluster, "worker", 0, server_options, status);
  CHECK_OK();
  MG_DeleteServerOptions(server_options);
  CHECK(strncmp(MG_ServerTarget(server), "grpc://127.0.0.1:", 17) == 0);
  CHECK(MG_JoinServer(server, 10) == 0);

  MG_Graph* graph = MG_NewGraph();
  MG_GraphImportFile(graph, path, status);
  CHECK_OK();
  MG_GraphImportFile(graph, far_path, status);
  CHECK_OK();
  MG_Table* nodes = MG_GraphNodes(graph);
  CHECK(strcmp(MG_TableText(nodes, 12, 2), "/job:worker/task:0") == 0);
  MG_DeleteTable(nodes);
  MG_SessionOptions* options = MG_NewSessionOptions();
  MG_SetSessionOption(options, "target", MG_ServerTarget(server), status);
  CHECK_OK();
  MG_Session* session = MG_NewSession(graph, options, status);
  CHECK_OK();
  MG_SetSessionOption(options, "cluster", cluster, status);
  CHECK(MG_NewSession(graph, options, status) == NULL); /* both */
  MG_SetSessionOption(options, "target", "", status);
  MG_Session* other = MG_NewSession(graph, options, status);
  CHECK_OK();
  MG_DeleteSessionOptions(options);

  float value = 4;
  MG_Tensor* fetched = NULL;
  Run(session, &value, 1, "far", NULL, &fetched);
  CHECK_OK();
  CHECK(*(float*)MG_TensorData(fetched) == 8 && MG_TensorIsExclusive(fetched));
  MG_DeleteTensor(fetched);
  TestCancellation(other);
  MG_DeleteSession(other);

  MG_StopServer(server, 100);
  CHECK(MG_JoinServer(server, 0) == 1);
  Run(session, &value, 1, "far", NULL, &fetched);
  CHECK(MG_GetCode(status) == MG_UNAVAILABLE);
  CHECK(strcmp(MG_LostTask(status), "/job:worker/replica:0/task:0") == 0);
  MG_DeleteSession(session);
  MG_DeleteServer(server);
  MG_DeleteGraph(graph);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: c_api_test GRAPH NODES\n");
    return 2;
  }
  TestStatus();
  TestTensors();
  TestLocal(argv[1]);
  TestCluster(argv[1], argv[2]);
  MG_Table* ops = MG_Ops();
  CHECK(MG_TableRows(ops) > 100 && strstr(MG_TableText(ops, 0, 1), MG_TableText(ops, 0, 0)));
  MG_DeleteTable(ops);
  MG_DeleteStatus(status);
  return 0;
}
