// One round of a reduction, gather or broadcast, as this task sees it: it cuts the tensors into
// pieces, knows which inputs have come, merges them and assembles the output. It sends nothing; the
// manager does (rounds.cc). Inputs are always merged in the order of ranks, right into the output
// and a block at a time, so that the result does not depend on which input came first.
#include "executor/collective/operation.h"

#include <algorithm>
#include <cstring>

namespace monograph::collective {
namespace {

// Bytes that are merged at a time, so that the partial sum of many ranks stays in the nearest
// cache.
constexpr int64_t kBlockBytes = 64 << 10;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdull;
}

uint64_t MixShape(uint64_t hash, const Shape& shape, int first) {
  hash = Mix(hash, static_cast<uint64_t>(shape.rank()));
  for (int i = first; i < shape.rank(); ++i) hash = Mix(hash, static_cast<uint64_t>(shape.dim(i)));
  return hash;
}

Payload PartOf(const Tensor& tensor, size_t offset, size_t bytes) {
  return {tensor.buffer(), tensor.offset() + offset, bytes};
}

}  // namespace

uint64_t SignatureOf(const CollectiveRequest& request) {
  uint64_t hash = Mix(static_cast<uint64_t>(request.kind), static_cast<uint64_t>(request.dtype));
  hash = Mix(hash, request.merge_op);
  hash = Mix(hash, request.final != nullptr ? 1 : 0);
  if (request.kind == CollectiveKind::kBroadcast) {
    return MixShape(hash, request.inputs.empty() ? request.shape : request.inputs[0].shape(), 0);
  }
  const int first = request.kind == CollectiveKind::kGather ? 1 : 0;
  for (const Tensor& input : request.inputs) hash = MixShape(hash, input.shape(), first);
  return hash;
}

Status Operation::Begin(const Request& request, std::shared_ptr<const CollectiveMembers> group,
                        int self_task, const std::function<std::vector<uint64_t>()>& hosts) {
  started = true;
  members = std::move(group);
  self = self_task;
  spec.kind = request->kind;
  spec.op = request->op;
  spec.dtype = request->dtype;
  spec.merge = request->merge;
  spec.final = request->final;
  spec.session = request->session;
  spec.group_key = request->group_key;
  spec.instance_key = request->instance_key;
  spec.timeout = request->timeout;
  signature = SignatureOf(*request);
  const auto count = static_cast<size_t>(ranks());
  local.resize(count);
  heard.resize(count);
  whole.resize(count);
  shapes.resize(count);
  local_missing =
      static_cast<int>(std::count(members->task_of.begin(), members->task_of.end(), self));
  if (spec.kind != CollectiveKind::kReduce) {
    outputs.resize(1);
    return Status();
  }
  for (const Tensor& input : request->inputs) {
    tensors.push_back(input.shape());
    MG_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(spec.dtype, input.shape()));
    outputs.push_back(std::move(output));
  }
  size_t total = 0;
  for (const Tensor& output : outputs) total += output.bytes();
  route = ChooseRoute(*members, self, total, hosts);
  for (const Lane& lane : route.lanes) {
    const auto found = std::find_if(lane.stations.begin(), lane.stations.end(),
                                    [&](const Station& station) { return station.task == self; });
    my_stations_.push_back(
        found == lane.stations.end() ? -1 : static_cast<int>(found - lane.stations.begin()));
  }
  CutPieces();
  return Status();
}

void Operation::CutPieces() {
  const size_t size = DTypeSize(spec.dtype);
  size_t total = 0;
  for (const Tensor& output : outputs) total += output.bytes();
  const size_t lanes = route.lanes.size();
  // All tensors have one type, so that every multiple of this many bytes is an element's end.
  const size_t step = std::max<size_t>(kBufferAlignment, size);
  const size_t largest = small() ? total : std::max(step, route.piece_bytes / step * step);
  const auto share_end = [&](size_t lane) {
    return lane + 1 == lanes ? total : total * (lane + 1) / lanes / step * step;
  };
  size_t at = 0, lane = 0;
  for (uint32_t t = 0; t < outputs.size(); ++t) {
    const size_t bytes = outputs[t].bytes();
    for (size_t offset = 0; offset < bytes;) {
      while (share_end(lane) <= at) ++lane;
      const size_t length = std::min({bytes - offset, share_end(lane) - at, largest});
      pieces.push_back({.tensor = t, .offset = offset, .bytes = length, .at = at, .lane = lane});
      if (const Station* station = mine(pieces.back())) pieces.back().merged = station->begin;
      offset += length;
      at += length;
    }
  }
  pieces_left = pieces.size();
  summed.resize(pieces.size());
  outgoing.resize(members->tasks.size());
  if (!small()) slots.resize(pieces.size() * static_cast<size_t>(ranks()));
  prefixes.resize(pieces.size());
}

const Station* Operation::Beside(const Piece& piece, int step) const {
  const auto& stations = lane(piece).stations;
  const int station = my_stations_[piece.lane] + step;
  return station < 0 || station >= static_cast<int>(stations.size())
             ? nullptr
             : &stations[static_cast<size_t>(station)];
}

const Station& Operation::StationOf(const Piece& piece, int rank) const {
  return *std::find_if(lane(piece).stations.begin(), lane(piece).stations.end(),
                       [&](const Station& station) { return rank < station.end; });
}

Payload Operation::LocalPiece(int rank, const Piece& piece) const {
  return PartOf(local[static_cast<size_t>(rank)]->inputs[piece.tensor], piece.offset, piece.bytes);
}

Payload Operation::LocalWhole(int rank) const {
  const std::vector<Tensor>& inputs = local[static_cast<size_t>(rank)]->inputs;
  if (inputs.size() == 1) return PartOf(inputs[0], 0, inputs[0].bytes());
  std::string packed;
  for (const Tensor& input : inputs)
    packed.append(static_cast<const char*>(input.raw()), input.bytes());
  return PayloadOf(std::move(packed));
}

Payload Operation::SumOf(const Piece& piece) const {
  return PartOf(outputs[piece.tensor], piece.offset, piece.bytes);
}

Payload Operation::PrefixFor(const Piece& piece) const {
  // The first input by itself needs no sum.
  return mine(piece)->end == 1 ? LocalPiece(0, piece) : SumOf(piece);
}

const char* Operation::Data(int rank, uint32_t piece) const {
  const auto r = static_cast<size_t>(rank);
  const Piece& p = pieces[piece];
  if (is_local(rank)) return static_cast<const char*>(local[r]->inputs[p.tensor].raw()) + p.offset;
  if (small()) return static_cast<const char*>(whole[r].data()) + p.at;
  return static_cast<const char*>(slots[piece * static_cast<size_t>(ranks()) + r].data());
}

int Operation::Available(uint32_t piece) const {
  int rank = pieces[piece].merged;
  for (const int end = mine(pieces[piece])->end; rank < end; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const bool here =
        is_local(rank) ? local[r] != nullptr
        : small()      ? static_cast<bool>(heard[r])
                       : static_cast<bool>(slots[piece * static_cast<size_t>(ranks()) + r].buffer);
    if (!here) break;
  }
  return rank;
}

void Operation::Merge(uint32_t index, int from, int to) const {
  const Piece& piece = pieces[index];
  Tensor output = outputs[piece.tensor];
  char* out = static_cast<char*>(output.raw()) + piece.offset;
  // Where the sum of the ranks before `from` is.
  const char* before = from == 0 ? Data(0, index)
                       : from == mine(piece)->begin
                           ? static_cast<const char*>(prefixes[index].data())
                           : out;
  const auto size = static_cast<int64_t>(DTypeSize(spec.dtype));
  const auto bytes = static_cast<int64_t>(piece.bytes);
  for (int64_t begin = 0; begin < bytes; begin += kBlockBytes) {
    const int64_t n = std::min(kBlockBytes, bytes - begin) / size;
    const char* sum = before + begin;
    for (int rank = std::max(from, 1); rank < to; ++rank) {
      spec.merge(sum, Data(rank, index) + begin, out + begin, n);
      sum = out + begin;
    }
    if (to == ranks() && spec.final != nullptr) spec.final(out + begin, n, ranks());
  }
}

Result<Tensor> Operation::Assemble() const {
  Shape shape;
  int64_t rows = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    const Shape& part = is_local(rank) ? local[r]->inputs[0].shape() : shapes[r];
    if (rank == 0) shape = part;
    rows += part.dim(0);
  }
  shape.set_dim(0, rows);
  MG_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(spec.dtype, shape));
  char* to = static_cast<char*>(output.raw());
  for (int rank = 0; rank < ranks(); ++rank) {
    const Payload part = is_local(rank) ? LocalWhole(rank) : whole[static_cast<size_t>(rank)];
    if (part.bytes > 0) std::memcpy(to, part.data(), part.bytes);
    to += part.bytes;
  }
  return output;
}

std::string Operation::Describe() const {
  return "collective '" + std::string(spec.op) + "' (group " + std::to_string(key.group) +
         ", instance " + std::to_string(key.instance) + ")";
}

std::string Operation::Missing(std::string* task) const {
  std::string text;
  const auto add = [&](const std::string& name, size_t of_task) {
    if (text.empty() && task != nullptr) *task = members->tasks[of_task];
    text += (text.empty() ? "" : ", ") + name;
  };
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!heard[static_cast<size_t>(rank)])
      add(members->Describe(rank),
          static_cast<size_t>(members->task_of[static_cast<size_t>(rank)]));
  }
  if (!text.empty()) return text;
  std::vector<bool> owes(members->tasks.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (summed[i]) continue;
    const Station* before = mine(pieces[i]) == nullptr ? nullptr : previous(pieces[i]);
    const bool waits = before != nullptr && pieces[i].merged == before->end && !prefixes[i].buffer;
    owes[static_cast<size_t>(waits ? before->task : lane(pieces[i]).stations.back().task)] = true;
  }
  for (size_t i = 0; i < owes.size(); ++i) {
    if (owes[i]) add("the sums of " + members->tasks[i], i);
  }
  return text;
}

void Operation::Clear() {
  parked.clear();
  local.clear();
  whole.clear();
  slots.clear();
  prefixes.clear();
  outgoing.clear();
  outputs.clear();
  ready.clear();
}

}  // namespace monograph::collective
