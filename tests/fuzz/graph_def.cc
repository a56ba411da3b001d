// The two readers of a GraphDef: the one by way of messages and the fast one, which ParseGraph
// tries first. They have to agree.
#include <google/protobuf/stubs/logging.h>

#include "graph/graph.pb.h"
#include "tests/fuzz/known_ops.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void graph_def(std::string_view bytes) {
  const google::protobuf::LogSilencer silence;
  const Result<Graph> fast = ParseGraph(bytes, &KnownOps(), kSmallGraphs);
  GraphDef def;
  const bool is_message = def.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  MG_CHECK(is_message || !fast.ok());
  if (!is_message) return;
  const Result<Graph> slow = GraphFromDef(def, &KnownOps(), kSmallGraphs);
  MG_CHECK(fast.ok() == slow.ok());
  if (!fast.ok()) return;
  const std::string text = SerializeGraph(*slow);
  MG_CHECK(SerializeGraph(*fast) == text);
  // What we write we read.
  const Result<Graph> again = ParseGraph(text, &KnownOps(), kSmallGraphs);
  MG_CHECK(again.ok() && SerializeGraph(*again) == text);
}

}  // namespace monograph::fuzz
