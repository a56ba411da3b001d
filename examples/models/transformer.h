// An encoder of A. Vaswani and others, "Attention Is All You Need" (2017), with normalisation in
// front of each part (R. Xiong and others, "On Layer Normalization in the Transformer
// Architecture", 2020), and a task for it that needs no files: tokens that are hidden are to be
// told, as in BERT's training.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "train/model.h"

namespace monograph::examples {

struct Transformer {
  int64_t vocabulary = 64;  // the last token stands where one is hidden
  int64_t length = 32;      // of a sequence; even
  int64_t layers = 2, heads = 4;
  int64_t width = 64;            // of a token between layers, a multiple of heads
  int64_t inner = 256;           // units of the dense part of a layer
  DType compute = DT_FLOAT;      // of products, attention and what is added up between layers;
                                 // DT_BFLOAT16 keeps float variables, norms and loss
  bool fused_attention = false;  // as one op (ops/attention/attention.h), else of plain ops

  // Builds a replica from MaskedSequences. Results are the mean loss and the share of right answers
  // over hidden tokens.
  ModelFn Training() const;

  int64_t hidden() const;  // tokens of a sequence

  // Logits of every token, float [n * length, vocabulary], for tokens [n, length].
  Output Logits(const Scope& scope, const Output& tokens, ModelVariables& variables) const;
};

// Placeholders for a batch of `rows`: {tokens int32, what they are int32, 1 where one is hidden
// float}, all [rows, length].
Outputs MaskedPlaceholders(const Scope& scope, const Transformer& net, int64_t rows);

// A batch for them: a sequence is random tokens and then the same ones again; one of two that are
// the same may be hidden. A seed gives the same batch everywhere. ResourceExhausted if there is no
// memory for it.
Result<std::vector<Tensor>> MaskedSequences(const Transformer& net, int64_t rows, uint64_t seed);

}  // namespace monograph::examples
