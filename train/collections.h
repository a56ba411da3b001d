// Collections of a graph: what belongs together, by name, in the order in which it was added:
// variables to be trained, losses to be added up, updates to be run with a step.
//
//   Collections collections;
//   collections.Add(GraphKeys::kUpdateOps, update);
//   for (const Operation& op : collections.Get<Operation>(GraphKeys::kUpdateOps)) ...
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

// TensorFlow's names. A program may use names of its own, too.
struct GraphKeys {
  static constexpr char kGlobalVariables[] = "variables";
  static constexpr char kLocalVariables[] = "local_variables";
  static constexpr char kTrainableVariables[] = "trainable_variables";
  static constexpr char kMovingAverageVariables[] = "moving_average_variables";
  static constexpr char kGlobalStep[] = "global_step";
  static constexpr char kRegularizationLosses[] = "regularization_losses";
  static constexpr char kLosses[] = "losses";
  static constexpr char kUpdateOps[] = "update_ops";
  static constexpr char kSummaries[] = "summaries";
  static constexpr char kQueueRunners[] = "queue_runners";
};

// A value, not thread-safe; the graph that its items belong to outlives it.
class Collections {
 public:
  // Queue runners and other objects of the client are kept by name.
  using Item = std::variant<Output, Operation, ModelVariable, std::string>;

  void Add(std::string_view collection, Item item);
  // The items of type T of a collection, empty if there is none. `scope` keeps those whose name
  // begins with it.
  template <typename T>
  std::vector<T> Get(std::string_view collection, std::string_view scope = "") const {
    std::vector<T> found;
    for (const Item& item : Items(collection)) {
      const T* value = std::get_if<T>(&item);
      if (value != nullptr && NameOf(item).starts_with(scope)) found.push_back(*value);
    }
    return found;
  }
  // All items, of whatever type.
  const std::vector<Item>& Items(std::string_view collection) const;
  // Names of the collections that are not empty, sorted.
  std::vector<std::string> Names() const;
  void Clear(std::string_view collection);

  // The node's, the tensor's or the variable's name.
  static std::string NameOf(const Item& item);

 private:
  std::map<std::string, std::vector<Item>, std::less<>> items_;
};

std::vector<ModelVariable> GlobalVariables(const Collections& collections);
std::vector<ModelVariable> TrainableVariables(const Collections& collections,
                                              std::string_view scope = "");
// Runs the initializers of all global variables that the graph has by now: those of the collection,
// and those that are in no collection, as global_step, the slots of optimizers and moving averages
// are. So it comes last. Of a variable that was made without MakeVariable the first assignment is
// the initializer.
Operation GlobalVariablesInitializer(const Scope& scope, const Collections& collections);
// The sum of the regularisation losses; a zero if there are none.
Output RegularizationLoss(const Scope& scope, const Collections& collections);

}  // namespace monograph
