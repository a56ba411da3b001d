// TrainingCommand: what the command line of a training program says of its replication, for those
// that start the program and its daemons (`monograph launch`, `monograph compare`). The flags are
// those that mnist_replica has, and programs like it.
#pragma once

#include <string>
#include <vector>

namespace monograph {

struct TrainingCommand {
  // --replication: in_graph, between_graph or hybrid. Without the flag between_graph or hybrid if
  // the program's name ends so (cifar_hybrid); else empty.
  std::string replication;
  std::string variable_update;      // --variable_update, or empty
  std::string replicas_per_worker;  // --replicas_per_worker, or empty
  int num_gpus = 0;                 // --num_gpus, or 0
  bool async = false, sync = false;

  // The last of several equal flags counts; FLAG=X and FLAG X are the same. The first word is the
  // program's name, or empty.
  static TrainingCommand Read(const std::vector<std::string>& words);

  bool client_per_worker() const { return replication == "between_graph" || hybrid(); }
  bool hybrid() const { return replication == "hybrid"; }
  bool needs_ps() const { return variable_update != "replicated" && variable_update != "central"; }
};

}  // namespace monograph
