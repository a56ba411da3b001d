// Saver: the values of variables to a file and back (TensorFlow's tf.train.Saver).
//
//   Saver saver(root);                                   // every variable of the graph so far
//   MG_RETURN_IF_ERROR(root.status());
//   ...
//   std::string path = saver.Save(session, "run1/model.ckpt", global_step).value();
//   ...
//   std::optional<std::string> latest = LatestCheckpoint("run1").value();
//   if (latest) MG_RETURN_IF_ERROR(saver.Restore(session, *latest));
//
// A checkpoint knows names and values, not where variables live: it is restored onto any number of
// tasks. The parts of a partitioned variable ("emb/part_0", ..., and their slots) are one tensor of
// the checkpoint ("emb"), so that they may be cut otherwise when they come back, if they are cut
// along the first dimension. The file is path + ".safetensors"; beside it the file "checkpoint"
// names the latest, as TensorFlow's does.
//
// Values pass through the client: Save reads all variables in one step, Restore assigns all in one.
// Not with SaverOptions::sharded: each task that holds variables writes a shard of its own, and
// reads the bytes that its variables need, and the client sees names. The folder is then one that
// every task and the client see by the same path (a relative one is taken from the client's
// current folder). A sharded checkpoint is shards and an index
// (ops/checkpoint_files/checkpoint_index.h); the part of a partitioned variable is a tensor of its
// shard, and the index says which parts are one tensor. Each kind of saver restores both kinds.
//
// The powers of Adam's betas are one pair per device, all the same: where a checkpoint was saved
// from fewer devices, those that it lacks get the value of the first.
//
// A checkpoint is there as a whole or not at all, also if the client or a task ends in the midst of
// a Save: what is written is durable before the file "checkpoint" names it, and what it replaces is
// removed after that. What is damaged is found when it is restored
// (ops/checkpoint_files/checkpoint_file.h). Between steps of other clients a Save is no snapshot of
// one moment; nor is TensorFlow's.
//
// Threads: one caller at a time; steps may run beside it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

class Session;

struct SaverOptions {
  // Older checkpoints that this saver wrote are removed. 0: all are kept.
  int max_to_keep = 5;
  // The tasks write and read the files (tf.train.Saver(sharded=True)). Which task a variable is on
  // is taken from the graph when the saver is made: from its device, or that of what it stands
  // beside. Variables without one are saved by the task that has nodes without a device.
  bool sharded = false;
};

struct RestoreLatestOptions {
  // The newest checkpoint or none: DataLoss if it is damaged.
  bool refuse_damaged = false;
  // Gets "Restoring parameters from run1/model.ckpt-300". Empty: the log.
  std::function<void(const std::string&)> say = {};
};

class Saver {
 public:
  // All variables of the scope's graph that are there now: those of the model, slots of optimizers,
  // the powers of Adam's betas, global_step. Make it after the optimizer. Mistakes are kept in the
  // scope.
  explicit Saver(const Scope& scope, const SaverOptions& options = {});
  // These variables, each under ModelVariable::name. To read a checkpoint under other names, change
  // the names: ExponentialMovingAverage::VariablesToRestore does so.
  Saver(const Scope& scope, std::span<const ModelVariable> variables,
        const SaverOptions& options = {});
  ~Saver();
  Saver(Saver&&) noexcept;
  Saver& operator=(Saver&&) noexcept;

  // Writes `path`-`global_step`, or `path` if global_step is negative, and gives that name. The
  // folder is made if it is not there. FailedPrecondition names a variable that has no value, or
  // the file that cannot be written, and the task that could not; ResourceExhausted if that is for
  // lack of room. Then nothing of this checkpoint is left, and the others are as they were.
  Result<std::string> Save(Session* session, const std::string& path, int64_t global_step = -1);
  // Gives every variable its value; initializers need not have run. Nothing is assigned if anything
  // is wrong: NotFound lists the variables that the checkpoint lacks, InvalidArgument names one of
  // another type or shape.
  // DataLoss says which file is damaged, or missing, and where.
  Status Restore(Session* session, const std::string& path) const;
  // Restores the newest checkpoint of `folder` that is whole, and gives its name; nothing if a
  // saver has written none there. Those that are newer and damaged are moved, as they are, to a
  // folder "damaged" beside them; a warning in the log says what is wrong with each, and where it
  // is. None is whole: DataLoss. The checkpoints that were there count for this saver's max_to_keep
  // from here on (tf.train.Saver.recover_last_checkpoints).
  Result<std::optional<std::string>> RestoreLatest(Session* session, const std::string& folder,
                                                   const RestoreLatestOptions& options = {});
  // Names in the checkpoint.
  std::vector<std::string> names() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The last checkpoint that a saver wrote into `folder`, for Restore; nothing if there is none.
Result<std::optional<std::string>> LatestCheckpoint(const std::string& folder);

// What a checkpoint holds (tf.train.list_variables), and one value of it (tf.train.load_variable).
struct SavedVariable {
  std::string name;
  DType dtype = DT_INVALID;
  Shape shape;
};
Result<std::vector<SavedVariable>> ListVariables(const std::string& path);
Result<Tensor> LoadVariable(const std::string& path, const std::string& name);

}  // namespace monograph
