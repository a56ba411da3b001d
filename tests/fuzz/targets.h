// Fuzz targets: functions that hand any bytes to one of our parsers and check what it promises. A
// target ends the process where a promise is broken. With clang and -DMG_BUILD_FUZZERS=ON each is a
// program of libFuzzer's, fuzz_NAME; fuzz_corpus_test runs all of them over corpus/ in every build.
#pragma once

#include <string_view>

// One function, and one file NAME.cc, each.
#define MG_FUZZ_TARGETS(DO) \
  DO(checkpoint_index)      \
  DO(collective_message)    \
  DO(control_call)          \
  DO(control_frame)         \
  DO(csv)                   \
  DO(example)               \
  DO(flags)                 \
  DO(graph_def)             \
  DO(graph_text)            \
  DO(idx)                   \
  DO(image)                 \
  DO(json)                  \
  DO(lanes_offer)           \
  DO(names)                 \
  DO(npy)                   \
  DO(records)               \
  DO(regex)                 \
  DO(safetensors)           \
  DO(saved_model)           \
  DO(step_message)          \
  DO(tensor_bundle)         \
  DO(tls_connection)        \
  DO(tls_frame)             \
  DO(ucx_address)           \
  DO(ucx_header)            \
  DO(worker_messages)

namespace monograph::fuzz {

#define MG_DECLARE(name) void name(std::string_view bytes);
MG_FUZZ_TARGETS(MG_DECLARE)
#undef MG_DECLARE

}  // namespace monograph::fuzz
