// The images that cnn_benchmarks trains on, as nodes beside the replicas: made up once, or read
// from ImageNet's TFRecords, decoded, cropped, flipped and resized on the CPU of each task.
//
// What they keep in a task (queues, made-up images) is in a container of this client's own, which
// Start empties of what an earlier run has left, and Stop of everything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/session.h"
#include "examples/cnn_benchmarks/settings.h"
#include "graph/scope.h"
#include "train/coordinator.h"

namespace monograph::examples {

class Images {
 public:
  // Adds the nodes. What is wrong with them stays in the scope.
  Images(const Scope& root, const CnnSettings& settings, const Layout& layout);

  // By replica of this client: images [batch_size, side, side, 3], uint8 if they are read, else
  // float; labels [batch_size], int32.
  const std::vector<Outputs>& shards() const { return shards_; }

  // Of all variables and queues that this adds, and of nothing else.
  const std::string& container() const { return container_; }

  // Makes them up, or begins to read on threads of the coordinator; where those fail or are
  // stopped, steps that wait for images get OutOfRange. NotFound names a task that sees no file.
  // The session outlives the threads.
  Status Start(Session* session, Coordinator* coordinator) const;
  // REQUIRES: the coordinator was joined.
  Status Stop(Session* session) const { return session->Reset({container_}); }

 private:
  // What a task that reads needs.
  struct Reading {
    std::string task;
    Output file_count, names_left;
    Operation put_names;
  };

  Outputs MakeUp(const Scope& root, const CnnSettings& settings, const std::string& device);
  // The queue of images of a task, which `replicas` replicas take.
  Output Read(const Scope& root, const CnnSettings& settings, const std::string& cpu,
              int64_t replicas);
  Status KeepNames(Session* session, const Coordinator& coordinator) const;

  const std::string container_, scope_name_, pattern_;
  std::vector<Outputs> shards_;
  std::vector<Operation> make_up_;
  std::vector<Reading> readings_;
  std::vector<Operation> put_images_, close_, cancel_;  // by task that reads
  Operation all_made_up_, all_put_images_, all_close_, all_cancel_;
};

}  // namespace monograph::examples
