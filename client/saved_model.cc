// Restoring is a step of the graph's own saver: the name of the checkpoint is fed, and its
// restoring op runs; so variables are restored wherever they are placed.
#include "client/saved_model.h"

#include <filesystem>

#include "client/registries.h"
#include "client/saved_model/quoted_list.h"
#include "client/session.h"
#include "graph/names.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

constexpr char kVariables[] = "variables/variables";

}  // namespace

Result<SavedModel> SavedModel::Read(const std::string& folder,
                                    const std::vector<std::string>& tags) {
  return Read(folder, DefaultRegistries().ops, tags);
}

Result<const SavedModel::Signature*> SavedModel::FindSignature(const std::string& name) const {
  const auto found = signatures_.find(name);
  if (found != signatures_.end()) return &found->second;
  std::vector<std::string> there;
  for (const auto& [known, signature] : signatures_) there.push_back(known);
  return NotFound("SavedModel " + Quoted(folder_) + " has no signature " + Quoted(name) +
                  "; it has " + QuotedList(there));
}

Status SavedModel::Initialize(Session* session) const {
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const auto& [tensor, file] : assets_) feeds.emplace_back(tensor, Tensor::String(file));
  const std::string prefix = (fs::path(folder_) / kVariables).string();
  std::error_code error;
  // A model without variables has no files of them, though it may have a saver.
  if (!restore_op_.empty() && fs::exists(prefix + ".index", error)) {
    auto fed = feeds;
    fed.emplace_back(filename_tensor_, Tensor::String(prefix));
    const Status restored = session->RunByName(fed, {}, {restore_op_}).status();
    if (!restored.ok())
      return restored.WithContext("SavedModel " + Quoted(folder_) + ": restoring its variables");
  }
  if (initializer_.empty()) return Status();
  return session->RunByName(feeds, {}, {initializer_})
      .status()
      .WithContext("SavedModel " + Quoted(folder_) + ": its initializer");
}

Result<std::map<std::string, Tensor>> SavedModel::Run(Session* session,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      const std::string& signature) const {
  MG_ASSIGN_OR_RETURN(const Signature* const called, FindSignature(signature));
  const auto wrong = [&](const std::string& key, const std::string& why) {
    return InvalidArgument("signature " + Quoted(signature) + ": input " + Quoted(key) + " " + why);
  };
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const auto& [key, info] : called->inputs) {
    const auto given = inputs.find(key);
    if (given == inputs.end()) return wrong(key, "is missing");
    if (given->second.dtype() != info.dtype) {
      return wrong(key, "is " + std::string(DTypeName(given->second.dtype())) + ", not " +
                            std::string(DTypeName(info.dtype)));
    }
    feeds.emplace_back(info.tensor, given->second);
  }
  std::vector<std::string> known, fetches;
  for (const auto& [key, info] : called->inputs) known.push_back(key);
  for (const auto& [key, value] : inputs) {
    if (!called->inputs.contains(key)) return wrong(key, "is not one of its: " + QuotedList(known));
  }
  for (const auto& [key, info] : called->outputs) fetches.push_back(info.tensor);
  MG_ASSIGN_OR_RETURN(std::vector<Tensor> values, session->RunByName(feeds, fetches));
  std::map<std::string, Tensor> outputs;
  size_t next = 0;
  for (const auto& [key, info] : called->outputs) outputs[key] = std::move(values[next++]);
  return outputs;
}

}  // namespace monograph
