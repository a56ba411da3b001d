// The functions of TensorFlow's C API that are used here, as pointers into an opened library. The
// declarations are of our own: TensorFlow's headers need not be there to build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace monograph::tensorflow {

struct TF_Status;
struct TF_Tensor;
struct TFE_CancellationManager;
struct TFE_Context;
struct TFE_ContextOptions;
struct TFE_Op;
struct TFE_OpAttrs;
struct TFE_TensorHandle;

// A string of a tensor of strings; what it holds is the library's business.
struct TfString {
  alignas(8) unsigned char bytes[24];
};

using Deallocator = void (*)(void* data, size_t bytes, void* argument);

// Name, result, parameters.
#define MG_TENSORFLOW_API(M)                                                                      \
  M(TF_NewStatus, TF_Status*, ())                                                                 \
  M(TF_DeleteStatus, void, (TF_Status*))                                                          \
  M(TF_GetCode, int, (const TF_Status*))                                                          \
  M(TF_Message, const char*, (const TF_Status*))                                                  \
  M(TF_NewTensor, TF_Tensor*, (int, const int64_t*, int, void*, size_t, Deallocator, void*))      \
  M(TF_DeleteTensor, void, (TF_Tensor*))                                                          \
  M(TF_TensorMaybeMove, TF_Tensor*, (TF_Tensor*))                                                 \
  M(TF_TensorData, void*, (const TF_Tensor*))                                                     \
  M(TF_TensorByteSize, size_t, (const TF_Tensor*))                                                \
  M(TF_TensorType, int, (const TF_Tensor*))                                                       \
  M(TF_NumDims, int, (const TF_Tensor*))                                                          \
  M(TF_Dim, int64_t, (const TF_Tensor*, int))                                                     \
  M(TF_StringInit, void, (TfString*))                                                             \
  M(TF_StringAssignView, void, (TfString*, const char*, size_t))                                  \
  M(TF_StringDealloc, void, (TfString*))                                                          \
  M(TF_StringGetDataPointer, const char*, (const TfString*))                                      \
  M(TF_StringGetSize, size_t, (const TfString*))                                                  \
  M(TFE_NewContextOptions, TFE_ContextOptions*, ())                                               \
  M(TFE_ContextOptionsSetConfig, void, (TFE_ContextOptions*, const void*, size_t, TF_Status*))    \
  M(TFE_DeleteContextOptions, void, (TFE_ContextOptions*))                                        \
  M(TFE_NewContext, TFE_Context*, (const TFE_ContextOptions*, TF_Status*))                        \
  M(TFE_ContextAddFunctionDef, void, (TFE_Context*, const char*, size_t, TF_Status*))             \
  M(TFE_ContextHasFunction, unsigned char, (TFE_Context*, const char*))                           \
  M(TFE_NewOp, TFE_Op*, (TFE_Context*, const char*, TF_Status*))                                  \
  M(TFE_DeleteOp, void, (TFE_Op*))                                                                \
  M(TFE_OpGetAttrs, const TFE_OpAttrs*, (const TFE_Op*))                                          \
  M(TFE_OpAddAttrs, void, (TFE_Op*, const TFE_OpAttrs*))                                          \
  M(TFE_OpSetAttrString, void, (TFE_Op*, const char*, const void*, size_t))                       \
  M(TFE_OpSetAttrValueProto, void, (const TFE_Op*, const char*, const void*, size_t, TF_Status*)) \
  M(TFE_OpAddInput, void, (TFE_Op*, TFE_TensorHandle*, TF_Status*))                               \
  M(TFE_OpSetCancellationManager, void, (TFE_Op*, TFE_CancellationManager*, TF_Status*))          \
  M(TFE_Execute, void, (TFE_Op*, TFE_TensorHandle**, int*, TF_Status*))                           \
  M(TFE_NewTensorHandle, TFE_TensorHandle*, (const TF_Tensor*, TF_Status*))                       \
  M(TFE_DeleteTensorHandle, void, (TFE_TensorHandle*))                                            \
  M(TFE_TensorHandleResolve, TF_Tensor*, (TFE_TensorHandle*, TF_Status*))                         \
  M(TFE_TensorHandleNumElements, int64_t, (TFE_TensorHandle*, TF_Status*))                        \
  M(TFE_TensorHandleNumDims, int, (TFE_TensorHandle*, TF_Status*))                                \
  M(TFE_TensorHandleDim, int64_t, (TFE_TensorHandle*, int, TF_Status*))                           \
  M(TFE_NewCancellationManager, TFE_CancellationManager*, ())                                     \
  M(TFE_CancellationManagerStartCancel, void, (TFE_CancellationManager*))                         \
  M(TFE_DeleteCancellationManager, void, (TFE_CancellationManager*))

struct Api {
#define MG_POINTER(name, result, parameters) result(*name) parameters = nullptr;
  MG_TENSORFLOW_API(MG_POINTER)
#undef MG_POINTER
};

}  // namespace monograph::tensorflow
