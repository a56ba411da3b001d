// Monograph for programs that use it as a library, installed as <monograph/monograph.h>: building
// graphs, running them, training, and hosting an executor. Programs in this tree include what they
// use instead.
#pragma once

#include "client/all_reduce.h"                  // AllReduceGradients
#include "client/clip.h"                        // ClipByGlobalNorm, L2Regularizer, ...
#include "client/cluster.h"                     // ClusterSpec
#include "client/collections.h"                 // Collections
#include "client/container.h"                   // ContainerScope
#include "client/coordinator.h"                 // Coordinator, QueueRunner
#include "client/device_setter.h"               // ReplicaDeviceSetter
#include "client/embedding.h"                   // EmbeddingLookup
#include "client/flags.h"                       // Flags
#include "client/hooks.h"                       // CheckpointSaverHook, ...
#include "client/host.h"                        // HostTask
#include "client/learning_rate.h"               // ExponentialDecay, ...
#include "client/loss_scale.h"                  // LossScale
#include "client/monitored_training_session.h"  // MonitoredTrainingSession
#include "client/moving_average.h"              // ExponentialMovingAverage
#include "client/optimizer.h"                   // Adam, ...
#include "client/own_task.h"                    // FindOwnTask
#include "client/registries.h"                  // NewGraph, DefaultRegistries
#include "client/replication.h"                 // Replicate
#include "client/saver.h"                       // Saver
#include "client/session.h"                     // Session
#include "client/session_flags.h"               // SessionFlags
#include "client/strategy.h"                    // MirroredStrategy, ...
#include "client/summary_writer.h"              // SummaryWriter
#include "client/sync_replicas.h"               // SyncReplicas
#include "client/tower_gradients.h"             // AverageGradients
#include "client/trainer.h"                     // Trainer
#include "client/variable_scope.h"              // VariableScope
#include "executor/kernel.h"                    // Kernel, for ops of one's own
#include "executor/server.h"                    // Server
#include "graph/gradients.h"                    // AddGradients
#include "graph/graph_def.h"                    // import and export
#include "graph/op_def.h"                       // OpDef, for ops of one's own
#include "graph/scope.h"                        // Scope, Output, OpBuilder
#include "graph/shape_inference.h"              // shape functions
#include "ops/accumulator/accumulator.h"
#include "ops/activation/activation.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/input/input.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/queue/queue.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/softmax/softmax.h"
#include "ops/training/training.h"
#include "ops/transpose/transpose.h"
#include "ops/variable/variable.h"
