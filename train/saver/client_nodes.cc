#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "ops/constant/constant.h"
#include "ops/variable/variable.h"
#include "train/saver/nodes.h"

namespace monograph {
namespace {

class ClientNodes : public SaverNodes {
 public:
  ClientNodes(const Scope& scope, const SavedTensors& tensors) : tensors_(tensors) {
    for (const auto& [name, parts] : tensors_) {
      for (const GraphVariable& part : parts) {
        const Scope beside = scope.ColocateWith(part.handle);
        reads_.push_back(ReadVariable(beside.WithOpName("read"), part.handle, part.dtype));
        fed_.push_back(Placeholder(beside.WithOpName("restored"), part.dtype, part.shape));
        assigns_.push_back(AssignVariable(beside.WithOpName("assign"), part.handle, fed_.back()));
      }
    }
  }

  Status Save(Session* session, const std::string& prefix, const std::string&) override {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session->Run({}, reads_));
    std::vector<CheckpointTensor> tensors;
    size_t next = 0;
    for (const auto& [name, parts] : tensors_) {
      CheckpointTensor& tensor =
          tensors.emplace_back(CheckpointTensor{name, parts[0].dtype, values[next].shape(), {}});
      int64_t rows = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        tensor.pieces.push_back(values[next++]);
        if (parts.size() > 1) rows += tensor.pieces.back().shape()[0];
      }
      if (parts.size() > 1) tensor.shape.set_dim(0, rows);
    }
    MG_RETURN_IF_ERROR(WriteCheckpointFile(CheckpointFileName(prefix), tensors));
    RemoveShards(prefix);
    RemoveBundle(prefix);
    return Status();
  }

  Status Restore(Session* session, const std::string&, CheckpointReader* reader) const override {
    std::vector<Feed> feeds;
    for (const auto& [name, parts] : tensors_) {
      MG_ASSIGN_OR_RETURN(const Tensor value, reader->Read(SourceOf(*reader, name, parts)));
      for (size_t i = 0; i < parts.size(); ++i) {
        const RowRange rows = parts.size() > 1 ? RowsOfPart(parts, i) : RowRange();
        feeds.emplace_back(fed_[feeds.size()],
                           parts.size() > 1 ? value.Slice(rows.begin, rows.end) : value);
      }
    }
    return session->Run(feeds, {}, assigns_).status();
  }

 private:
  const SavedTensors tensors_;
  Outputs reads_, fed_;  // of each variable, in order; fed_: what Restore assigns
  std::vector<Operation> assigns_;
};

}  // namespace

std::unique_ptr<SaverNodes> MakeClientNodes(const Scope& scope, const SavedTensors& tensors) {
  return std::make_unique<ClientNodes>(scope, tensors);
}

}  // namespace monograph
