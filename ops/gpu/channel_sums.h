// SumPerChannel: sums over all elements of each channel, on a GPU, in a fixed order. What is summed
// is a term:
//
//   struct Term {
//     static constexpr int kSums = 2;              // sums per channel
//     struct Channel { ... };                      // what a thread keeps of a channel
//     template <int N> struct Item { ElementPack<T, N> x; };
//     MG_HD Channel channel(int64_t k) const;
//     template <int N> MG_HD Item<N> load(int64_t offset) const;   // N channels beside each other
//     template <int N> MG_HD void add(const Channel&, const Item<N>&, int v, float* sums) const;
//     // Optional. Once for each item before it is added; may change it, and store at its offset.
//     template <int N> MG_HD void settle(int64_t offset, Item<N>& item) const;
//     static constexpr int kAhead = 2;             // optional: items that a thread has loaded; 4
//   };
//
// Chunks of rows are summed in float, side by side; the chunks in double: every kGroups-th is of
// one group, and the groups are added in order. Channels last, the block that comes last in its
// group sums the group's chunks, and the one whose group comes last the groups
// (ops/gpu/arrivals.h). Channels first a second launch does that. Who has a channel's sums hands
// them to `finish`:
//
//   struct Finish { MG_HD void operator()(int64_t channel, const double* sums) const; };
//
// The split into chunks follows from the shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "executor/kernel.h"
#include "ops/channels.h"
#include "ops/gpu/arrivals.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops {

namespace channel_sums {

inline constexpr int kThreads = 256, kMostLanes = 32, kGroups = 32;

template <typename Term>
consteval int Ahead() {
  if constexpr (requires { Term::kAhead; }) return Term::kAhead;
  return 4;
}

template <int N, typename Term>
MG_HD inline void Settle(const Term& term, int64_t offset, typename Term::template Item<N>& item) {
  if constexpr (requires { term.template settle<N>(offset, item); })
    term.template settle<N>(offset, item);
}

// Channels last: `lanes` threads side by side along the channels, N channels each; the rest of the
// block takes every (kThreads / lanes)-th row of the chunk.
template <typename Term, int N, typename Finish>
struct RowChunks {
  static constexpr int kThreads = channel_sums::kThreads, kPhases = 6, kResident = 3;
  static constexpr int kSums = Term::kSums;
  struct Shared {
    float sums[kSums * N * (kThreads + kMostLanes)];
    bool last_of_group, last_of_tile;
  };
  Term term;
  int64_t rows, channels, chunk_rows, tiles;
  int lanes;           // a power of two, at most kMostLanes
  float* partial;      // [chunk][sum][channel]; nullptr: there is but one chunk
  double* grouped;     // [group][sum][channel]
  uint32_t* arrivals;  // [tile][group], of its chunks; [tile][groups], of its groups
  int chunks, groups;
  Finish finish;

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t chunk = block / tiles, tile = block - chunk * tiles;
    const int lane = thread % lanes, first = thread / lanes, step = kThreads / lanes;
    const int64_t k = (tile * lanes + lane) * N;
    const int pitch = kThreads + lanes;
    if (phase == 0) {
      float sums[kSums * N];
      MG_UNROLL
      for (int i = 0; i < kSums * N; ++i) sums[i] = 0;
      if (k < channels) {
        const int64_t begin = chunk * chunk_rows, left = rows - begin;
        Sum(k, begin * channels + k, first, static_cast<int>(left < chunk_rows ? left : chunk_rows),
            step, sums);
      }
      MG_UNROLL
      for (int i = 0; i < kSums * N; ++i) shared.sums[i * pitch + thread] = sums[i];
      return;
    }
    if (phase == 5) {
      if (partial == nullptr || shared.last_of_tile) Finished(tile, thread, shared);
      return;
    }
    if (phase > 1) {
      if (partial == nullptr) return;
      const int group = static_cast<int>(chunk % kGroups);
      uint32_t* const counters = arrivals + tile * (groups + 1);
      if (phase == 3) {
        if (shared.last_of_group) SumGroup(tile, group, thread);
      } else if (thread == 0) {
        if (phase == 2) {
          const int of_group = (chunks - group + kGroups - 1) / kGroups;
          shared.last_of_group = ArriveLast(counters + group, static_cast<uint32_t>(of_group));
        } else {
          shared.last_of_tile =
              shared.last_of_group && ArriveLast(counters + groups, static_cast<uint32_t>(groups));
        }
      }
      return;
    }
    // Each thread adds up what several have of one sum of one lane. With this pitch neighbours read
    // neighbouring words.
    for (int at = thread; at < kSums * N * lanes; at += kThreads) {
      const int i = at / lanes, of = at - i * lanes;
      const int64_t channel = (tile * lanes + of) * N + i % N;
      if (channel >= channels) continue;
      float sum = 0;
      MG_UNROLL_BY(8)
      for (int t = of; t < kThreads; t += lanes) sum += shared.sums[i * pitch + t];
      if (partial == nullptr) {
        shared.sums[i * pitch + of] = sum;  // which only this thread reads
      } else {
        partial[(chunk * kSums + i / N) * channels + channel] = sum;
      }
    }
    if (partial != nullptr) Publish();
  }

  // The chunks of a group, in order.
  MG_HD void SumGroup(int64_t tile, int group, int thread) const {
    const int width = lanes * N;
    for (int at = thread; at < kSums * width; at += kThreads) {
      const int s = at / width;
      const int64_t channel = tile * width + at - s * width;
      if (channel >= channels) continue;
      double sum = 0;
      MG_UNROLL_BY(8)  // loads in flight
      for (int chunk = group; chunk < chunks; chunk += kGroups)
        sum += static_cast<double>(partial[(int64_t{chunk} * kSums + s) * channels + channel]);
      grouped[(int64_t{group} * kSums + s) * channels + channel] = sum;
    }
    Publish();
  }

  MG_HD void Finished(int64_t tile, int thread, const Shared& shared) const {
    for (int at = thread; at < lanes * N; at += kThreads) {
      const int of = at / N, v = at - of * N;
      const int64_t channel = (tile * lanes + of) * N + v;
      if (channel >= channels) continue;
      double sums[kSums];
      if (partial == nullptr) {
        MG_UNROLL
        for (int s = 0; s < kSums; ++s)
          sums[s] = static_cast<double>(shared.sums[(s * N + v) * (kThreads + lanes) + of]);
      } else {
        MG_UNROLL
        for (int s = 0; s < kSums; ++s) sums[s] = 0;
        MG_UNROLL_BY(8)
        for (int group = 0; group < groups; ++group) {
          MG_UNROLL
          for (int s = 0; s < kSums; ++s)
            sums[s] += grouped[(int64_t{group} * kSums + s) * channels + channel];
        }
      }
      finish(channel, sums);
    }
  }

  // Every step-th of `count` rows, of which the first lies at `base`. Fewer than 2^31 fit into
  // memory, with as many channels as leave so many to a chunk.
  MG_HD void Sum(int64_t k, int64_t base, int row, int count, int step, float* sums) const {
    typename Term::Channel of[N];
    MG_UNROLL
    for (int v = 0; v < N; ++v) of[v] = term.channel(k + v);
    // Several loads in flight; the additions keep their order. Behind the end the batch's first row
    // is loaded again, and not added.
    constexpr int kAhead = Ahead<Term>();
    for (; row < count; row += kAhead * step) {
      typename Term::template Item<N> items[kAhead];
      MG_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int ahead = row + a * step;
        items[a] = term.template load<N>(base + (ahead < count ? ahead : row) * channels);
      }
      MG_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int at = row + a * step;
        if (at >= count) break;
        Settle<N>(term, base + at * channels, items[a]);
        MG_UNROLL
        for (int v = 0; v < N; ++v) Add(of[v], items[a], v, sums);
      }
    }
  }

  MG_HD void Add(const typename Term::Channel& of, const typename Term::template Item<N>& item,
                 int v, float* sums) const {
    float added[kSums];
    MG_UNROLL
    for (int s = 0; s < kSums; ++s) added[s] = sums[s * N + v];
    term.template add<N>(of, item, v, added);
    MG_UNROLL
    for (int s = 0; s < kSums; ++s) sums[s * N + v] = added[s];
  }
};

// Channels first: a block for each plane; its image is the chunk.
template <typename Term>
struct Planes {
  static constexpr int kThreads = channel_sums::kThreads, kPhases = 2;
  static constexpr int kSums = Term::kSums;
  struct Shared {
    float sums[kSums * kThreads];
  };
  Term term;
  int64_t channels, inner;
  float* partial;  // [image][sum][channel]

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t image = block / channels, k = block - image * channels;
    if (phase == 0) {
      float sums[kSums];
      MG_UNROLL
      for (int s = 0; s < kSums; ++s) sums[s] = 0;
      const auto of = term.channel(k);
      for (int64_t i = thread; i < inner; i += kThreads) {
        auto item = term.template load<1>(block * inner + i);
        Settle<1>(term, block * inner + i, item);
        term.template add<1>(of, item, 0, sums);
      }
      MG_UNROLL
      for (int s = 0; s < kSums; ++s) shared.sums[s * kThreads + thread] = sums[s];
    } else if (thread < kSums) {
      float sum = 0;
      for (int t = 0; t < kThreads; ++t) sum += shared.sums[thread * kThreads + t];
      partial[(image * kSums + thread) * channels + k] = sum;
    }
  }
};

// The planes' sums in order: a few channels per block, the images shared out among its threads.
template <int kSums, typename Finish>
struct Total {
  static constexpr int kThreads = channel_sums::kThreads, kPhases = 2, kLanes = kThreads / kGroups;
  struct Shared {
    double sums[kSums * kThreads];
  };
  int64_t channels, chunks;
  const float* partial;
  Finish finish;

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int lane = thread % kLanes, first = thread / kLanes;
    const int64_t k = block * kLanes + lane;
    if (k >= channels) return;
    if (phase == 0) {
      double sums[kSums];
      MG_UNROLL
      for (int s = 0; s < kSums; ++s) sums[s] = 0;
      MG_UNROLL_BY(8)  // loads in flight
      for (int64_t chunk = first; chunk < chunks; chunk += kThreads / kLanes) {
        MG_UNROLL
        for (int s = 0; s < kSums; ++s)
          sums[s] += static_cast<double>(partial[(chunk * kSums + s) * channels + k]);
      }
      MG_UNROLL
      for (int s = 0; s < kSums; ++s) shared.sums[s * kThreads + thread] = sums[s];
    } else if (first == 0) {
      double sums[kSums];
      MG_UNROLL
      for (int s = 0; s < kSums; ++s) {
        sums[s] = 0;
        for (int t = lane; t < kThreads; t += kLanes) sums[s] += shared.sums[s * kThreads + t];
      }
      finish(k, sums);
    }
  }
};

template <typename Term, int N, typename Finish>
int64_t Chunk(const Channels& l, RowChunks<Term, N, Finish>* body) {
  constexpr int64_t kBlocks = 1024;  // some for each place of a large GPU, so that none idles long
  // Of several chunks there are at most kBlocks / tiles, and a tile has a counter of its own.
  static_assert(kBlocks + kBlocks / 2 <= cuda::kArrivals);
  body->rows = l.outer;
  body->channels = l.channels;
  body->lanes = 1;
  while (body->lanes < kMostLanes && body->lanes * N < l.channels) body->lanes *= 2;
  body->tiles = (l.channels + body->lanes * N - 1) / (body->lanes * N);
  // Rows that are worth a block.
  const int64_t least = std::max<int64_t>(64, 4 * (kThreads / body->lanes));
  const int64_t wanted = std::max<int64_t>(1, kBlocks / body->tiles);
  body->chunk_rows = std::max(least, (l.outer + wanted - 1) / wanted);
  return (l.outer + body->chunk_rows - 1) / body->chunk_rows;
}

}  // namespace channel_sums

// SumPerChannel where channels are last: what never has them elsewhere needs no other kernels.
template <int kWidth, typename Term, typename Finish>
Status SumPerColumn(KernelContext& c, const Channels& l, bool wide, const Term& term,
                    const Finish& finish) {
  using namespace channel_sums;  // NOLINT(build/namespaces)
  if (l.channels == 0) return Status();
  const auto allocate = [&](DType type, int64_t count) {
    return c.AllocateTemp(type, Shape{std::max<int64_t>(count, 1), Term::kSums, l.channels});
  };
  const auto rows = [&](auto body) -> Status {
    body.term = term;
    body.finish = finish;
    const int64_t count = std::max<int64_t>(1, Chunk(l, &body));
    Tensor partial, grouped;
    if (count > 1) {
      body.chunks = static_cast<int>(count);
      body.groups = std::min(body.chunks, kGroups);
      MG_ASSIGN_OR_RETURN(partial, allocate(DT_FLOAT, count));
      MG_ASSIGN_OR_RETURN(grouped, allocate(DT_DOUBLE, body.groups));
      body.partial = partial.template data<float>();
      body.grouped = grouped.template data<double>();
      body.arrivals = ArrivalsOf(c);
    }
    return ForBlocks(c, count * body.tiles, body);
  };
  return wide && l.channels % kWidth == 0 ? rows(RowChunks<Term, kWidth, Finish>())
                                          : rows(RowChunks<Term, 1, Finish>());
}

// REQUIRES: kWidth channels beside each other may be loaded at once wherever l.channels is divided
// by kWidth, if `wide`. Channels without elements have sums of 0.
template <int kWidth, typename Term, typename Finish>
Status SumPerChannel(KernelContext& c, const Channels& l, bool wide, const Term& term,
                     const Finish& finish) {
  using namespace channel_sums;  // NOLINT(build/namespaces)
  if (l.inner == 1) return SumPerColumn<kWidth>(c, l, wide, term, finish);
  if (l.channels == 0) return Status();
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(DT_FLOAT, Shape{std::max<int64_t>(l.outer, 1),
                                                                     Term::kSums, l.channels}));
  float* const sums = partial.data<float>();
  MG_RETURN_IF_ERROR(
      ForBlocks(c, l.outer * l.channels, Planes<Term>{term, l.channels, l.inner, sums}));
  using Last = Total<Term::kSums, Finish>;
  return ForBlocks(c, (l.channels + Last::kLanes - 1) / Last::kLanes,
                   Last{l.channels, l.outer, sums, finish});
}

// body(row, channel) for every N-th channel, kRows rows of one channel per thread, so that what is
// read of a channel serves them all. Body: `template <int N, int kRows> MG_HD void run(int64_t row,
// int64_t channel) const` for rows [row, row + kRows), and kResident (ops/gpu/launch.h).
template <typename Body, int N>
struct ChannelRows {
  static constexpr int kRows = 2, kResident = Body::kResident;
  Body body;
  Divisor packs;  // channels / N
  int64_t rows;

  MG_HD void operator()(int64_t i) const {
    const int64_t group = packs.Divide(i), k = (i - group * packs.divisor()) * N;
    int64_t row = group * kRows;
    if (row + kRows <= rows) return body.template run<N, kRows>(row, k);
    for (; row < rows; ++row) body.template run<N, 1>(row, k);
  }
};

}  // namespace monograph::ops
