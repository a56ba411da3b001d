// A SavedModel's file, as saved_model.pb and as saved_model.pbtxt.
#include "client/saved_model.h"

#include "tests/fuzz/known_ops.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void saved_model(std::string_view bytes) {
  static MemoryFolder binary({"saved_model.pb"}), text({"saved_model.pbtxt"});
  for (MemoryFolder* folder : {&binary, &text}) {
    folder->Fill(bytes);
    const auto model = SavedModel::Read(folder->path(), KnownOps(), {SavedModel::kServe});
    if (!model.ok()) {
      MG_CHECK(!model.status().message().empty());
      continue;
    }
    for (const auto& [name, signature] : model->signatures()) {
      for (const auto& infos : {signature.inputs, signature.outputs}) {
        for (const auto& [key, info] : infos) {
          MG_CHECK(!info.tensor.empty() && !DTypeName(info.dtype).empty());
          MG_CHECK(!info.shape.ToString().empty());
        }
      }
    }
  }
}

}  // namespace monograph::fuzz
