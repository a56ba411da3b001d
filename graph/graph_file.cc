#include "graph/graph_file.h"

#include <fmt/core.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/input_file.h"
#include "base/nesting.h"
#include "graph/dot.h"
#include "graph/graph.pb.h"

namespace monograph {
namespace {

// Keeps the first mistake in a text, with its line.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
  }
  void AddWarning(int, int, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool IsText(const std::string& path) { return path.ends_with(".pbtxt"); }

Status CheckEnding(const std::string& path, bool dot) {
  if (path.ends_with(".pb") || IsText(path) || (dot && path.ends_with(".dot"))) return Status();
  return InvalidArgument(fmt::format("graph file '{}' must end in .pb (binary){}.pbtxt (text){}",
                                     path, dot ? ", " : " or ", dot ? " or .dot (Graphviz)" : ""));
}

Result<std::string> ReadFile(const std::string& path) {
  return ReadInputFile("graph file", path, kMostGraphBytes);
}

}  // namespace

Status ParseMessageText(const std::string& text, const std::string& source,
                        google::protobuf::Message* message) {
  MG_RETURN_IF_ERROR(CheckNesting(text, source));  // the parser recurses
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    return InvalidArgument(source + ", " + PlaceInText(text, zero) + ": a zero byte is no text");
  const google::protobuf::LogSilencer silence;  // of warnings about unknown fields
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(static_cast<int>(kMostNesting));
  parser.AllowUnknownField(true);  // TensorFlow has fields that mean nothing here
  if (parser.ParseFromString(text, message)) return Status();
  return InvalidArgument(source + ":" + error.text());
}

Status ReadGraphDef(const std::string& path, GraphDef* def) {
  MG_RETURN_IF_ERROR(CheckEnding(path, false));
  MG_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  if (IsText(path)) return ParseMessageText(bytes, path, def);
  const google::protobuf::LogSilencer silence;  // the error that we return is enough
  if (bytes.size() <= INT32_MAX && def->ParseFromString(bytes)) return Status();
  return InvalidArgument(
      fmt::format("graph file '{}': these {} bytes are no GraphDef", path, bytes.size()));
}

Result<Graph> ReadGraph(const std::string& path, const OpRegistry* registry) {
  MG_RETURN_IF_ERROR(CheckEnding(path, false));
  MG_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  GraphDef def;
  if (IsText(path)) MG_RETURN_IF_ERROR(ParseMessageText(bytes, path, &def));
  auto graph = IsText(path) ? GraphFromDef(def, registry) : ParseGraph(bytes, registry);
  if (!graph.ok()) return graph.status().WithContext("graph file '" + path + "'");
  return graph;
}

Status WriteGraph(const Graph& graph, const std::string& path) {
  MG_RETURN_IF_ERROR(CheckEnding(path, true));
  std::string bytes;
  if (path.ends_with(".dot")) {
    bytes = GraphToDot(graph);
  } else if (IsText(path)) {
    GraphDef def;
    GraphToDef(graph, &def);
    google::protobuf::TextFormat::PrintToString(def, &bytes);
  } else {
    bytes = SerializeGraph(graph);
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    return FailedPrecondition(
        fmt::format("graph file '{}' cannot be written: {}", path, std::strerror(errno)));
  return Status();
}

}  // namespace monograph
