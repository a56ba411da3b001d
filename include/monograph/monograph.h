// Monograph for programs that use it as a library, installed as <monograph/monograph.h>: building
// graphs, running them, training, and hosting an executor. Programs in this tree include what they
// use instead.
#pragma once

#include "client/cluster.h"          // ClusterSpec
#include "client/container.h"        // ContainerScope
#include "client/host.h"             // HostTask
#include "client/registries.h"       // NewGraph, DefaultRegistries
#include "client/saved_model.h"      // SavedModel
#include "client/session.h"          // Session
#include "client/target.h"           // ClusterOfTarget
#include "executor/kernel.h"         // Kernel, for ops of one's own
#include "executor/worker/server.h"  // Server
#include "graph/dot.h"               // GraphToDot
#include "graph/gradients.h"         // AddGradients
#include "graph/graph_def.h"         // import and export
#include "graph/graph_file.h"        // ReadGraph, WriteGraph
#include "graph/op_def.h"            // OpDef, for ops of one's own
#include "graph/scope.h"             // Scope, Output, OpBuilder
#include "graph/shape_inference.h"   // shape functions
#include "ops/accumulator/accumulator.h"
#include "ops/activation/activation.h"
#include "ops/array/array.h"
#include "ops/attention/attention.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/bias/bias.h"
#include "ops/candidate_sampler/candidate_sampler.h"
#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/conv/conv.h"
#include "ops/diag/diag.h"
#include "ops/dilation/dilation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/example/example.h"
#include "ops/gather/gather.h"
#include "ops/image/image.h"
#include "ops/image_codec/image_codec.h"
#include "ops/input/input.h"
#include "ops/lookup/lookup.h"
#include "ops/loss/loss.h"
#include "ops/lrn/lrn.h"
#include "ops/matmul/matmul.h"
#include "ops/optional/optional.h"
#include "ops/order/order.h"
#include "ops/pool/pool.h"
#include "ops/py_func/py_func.h"
#include "ops/queue/queue.h"
#include "ops/random/random.h"
#include "ops/reader/reader.h"
#include "ops/rearrange/rearrange.h"
#include "ops/reduce/reduce.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "ops/segment/segment.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/softmax/softmax.h"
#include "ops/sparse/sparse.h"
#include "ops/stack/stack.h"
#include "ops/stateless_random/stateless_random.h"
#include "ops/string/string.h"
#include "ops/summary/summary.h"
#include "ops/tensor_array/tensor_array.h"
#include "ops/tensor_list/tensor_list.h"
#include "ops/training/training.h"
#include "ops/transpose/transpose.h"
#include "ops/variable/variable.h"
#include "tools/flags.h"                       // Flags
#include "tools/own_task.h"                    // FindOwnTask
#include "tools/session_flags.h"               // SessionFlags
#include "train/all_reduce.h"                  // AllReduceGradients
#include "train/clip.h"                        // ClipByGlobalNorm, L2Regularizer, ...
#include "train/collections.h"                 // Collections
#include "train/coordinator.h"                 // Coordinator, QueueRunner
#include "train/device_setter.h"               // ReplicaDeviceSetter
#include "train/embedding.h"                   // EmbeddingLookup
#include "train/hooks.h"                       // CheckpointSaverHook, ...
#include "train/learning_rate.h"               // ExponentialDecay, ...
#include "train/loss_scale.h"                  // LossScale
#include "train/model_variable.h"              // MakeVariable, ...
#include "train/monitored_training_session.h"  // MonitoredTrainingSession
#include "train/moving_average.h"              // ExponentialMovingAverage
#include "train/optimizer.h"                   // Adam, ...
#include "train/replication.h"                 // Replicate
#include "train/saver.h"                       // Saver
#include "train/strategy.h"                    // MirroredStrategy, ...
#include "train/summary_writer.h"              // SummaryWriter
#include "train/sync_replicas.h"               // SyncReplicas
#include "train/tower_gradients.h"             // AverageGradients
#include "train/trainer.h"                     // Trainer
#include "train/variable_scope.h"              // VariableScope
