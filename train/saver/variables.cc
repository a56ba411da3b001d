#include "train/saver/variables.h"

#include <algorithm>
#include <charconv>

#include "graph/names.h"

namespace monograph {
namespace {

constexpr size_t kMostNames = 10;  // in one error

// "emb" and 2 of "emb/part_2"; "emb/Adam" and 2 of "emb/part_2/Adam".
struct PartName {
  std::string whole;
  int64_t part = -1;  // no part of anything
};
PartName ParsePart(const std::string& name) {
  constexpr std::string_view kPart = "/part_";
  const size_t at = name.find(kPart);
  if (at == std::string::npos) return {name};
  const char* digits = name.data() + at + kPart.size();
  const char* end = name.data() + name.size();
  int64_t part = -1;
  const auto [after, error] = std::from_chars(digits, end, part);
  if (error != std::errc() || part < 0 || (after != end && *after != '/')) return {name};
  return {name.substr(0, at) + std::string(after, end), part};
}

// Whether the parts, in order, are the rows of one tensor.
bool FollowEachOther(const std::map<int64_t, GraphVariable>& parts) {
  const GraphVariable& first = parts.begin()->second;
  int64_t next = 0;
  for (const auto& [part, variable] : parts) {
    if (part != next++ || variable.dtype != first.dtype || !variable.shape.fully_known() ||
        variable.shape.rank() < 1 || variable.shape.rank() != first.shape.rank() ||
        !std::equal(variable.shape.dims().begin() + 1, variable.shape.dims().end(),
                    first.shape.dims().begin() + 1))
      return false;
  }
  return true;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kMostNames)
    text += " and " + std::to_string(words.size() - kMostNames) + " more";
  return text;
}

}  // namespace

SavedTensors JoinParts(const std::map<std::string, GraphVariable>& variables) {
  std::map<std::string, std::map<int64_t, GraphVariable>> parts;
  for (const auto& [name, variable] : variables) {
    const PartName parsed = ParsePart(name);
    if (parsed.part >= 0) parts[parsed.whole].emplace(parsed.part, variable);
  }
  SavedTensors tensors;
  for (const auto& [name, variable] : variables) {
    const PartName parsed = ParsePart(name);
    const auto found = parts.find(parsed.whole);
    if (parsed.part < 0 || variables.contains(parsed.whole) || !FollowEachOther(found->second)) {
      tensors[name] = {variable};
    } else if (parsed.part == 0) {
      for (const auto& [part, one] : found->second) tensors[parsed.whole].push_back(one);
    }
  }
  return tensors;
}

PartialShape WholeShape(const std::vector<GraphVariable>& parts) {
  PartialShape shape = parts[0].shape;
  for (size_t i = 1; i < parts.size(); ++i) shape.set_dim(0, shape.dim(0) + parts[i].shape.dim(0));
  return shape;
}

RowRange RowsOfPart(const std::vector<GraphVariable>& parts, size_t i) {
  RowRange rows;
  for (size_t before = 0; before < i; ++before) rows.begin += parts[before].shape.dim(0);
  rows.end = rows.begin + parts[i].shape.dim(0);
  return rows;
}

std::string SourceOf(const CheckpointReader& reader, const std::string& name,
                     const std::vector<GraphVariable>& parts) {
  const std::string& same = parts[0].same_value;
  return parts.size() == 1 && !reader.Has(name) && reader.Has(same) ? same : name;
}

Status CheckHasAll(CheckpointReader* reader, const std::string& prefix,
                   const SavedTensors& tensors) {
  std::vector<std::string> missing;
  std::string hint;
  for (const auto& [name, parts] : tensors) {
    const std::string source = SourceOf(*reader, name, parts);
    if (!reader->Has(source)) {
      if (missing.empty()) {
        NearNames near(name);
        for (const std::string& known : reader->names()) near.Offer(known);
        hint = near.Hint();
      }
      missing.push_back(name);
      continue;
    }
    MG_ASSIGN_OR_RETURN(const CheckpointReader::Entry entry, reader->Find(source));
    const PartialShape wanted = WholeShape(parts);
    if (entry.dtype != parts[0].dtype || !wanted.Accepts(entry.shape)) {
      return InvalidArgument("variable '" + name + "' is " +
                             std::string(DTypeName(parts[0].dtype)) + wanted.ToString() +
                             ", but in checkpoint '" + prefix + "' it is " +
                             std::string(DTypeName(entry.dtype)) + entry.shape.ToString());
    }
  }
  if (missing.empty()) return Status();
  return NotFound("Key " + Joined(missing) + " not found in checkpoint '" + prefix +
                  "', which has " + std::to_string(reader->names().size()) + " variables" + hint);
}

}  // namespace monograph
