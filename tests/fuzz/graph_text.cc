#include "graph/graph.pb.h"
#include "graph/graph_file.h"
#include "tests/fuzz/known_ops.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void graph_text(std::string_view bytes) {
  GraphDef def;
  if (!ParseMessageText(std::string(bytes), "x.pbtxt", &def).ok()) return;
  (void)GraphFromDef(def, &KnownOps(), kSmallGraphs);
}

}  // namespace monograph::fuzz
