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
  int64_t length = 32;      // of the longest sequence; even
  int64_t min_length = 0;   // of the shortest; even. 0: all are equally long, and nothing is masked
  int64_t layers = 2, heads = 4;
  int64_t width = 64;            // of a token between layers, a multiple of heads
  int64_t inner = 256;           // units of the dense part of a layer
  DType compute = DT_FLOAT;      // of products, attention and what is added up between layers;
                                 // DT_BFLOAT16 keeps float variables, norms and loss
  bool fused_attention = false;  // as one op (ops/attention/attention.h), else of plain ops

  // Builds a replica from MaskedSequences. Results are the mean loss and the share of right answers
  // over hidden tokens, in which all sequences count alike.
  ModelFn Training() const;

  int64_t hidden(int64_t of_length) const;  // tokens of a sequence so long
  bool padded() const { return min_length != 0 && min_length < length; }

  // Logits of every token, float [n * length, vocabulary], for tokens [n, length]; those past
  // lengths, int32 [n], have no effect on those before. Without `lengths` all are there.
  Output Logits(const Scope& scope, const Output& tokens, const Output& lengths,
                ModelVariables& variables) const;
};

// Placeholders for a batch of `rows`: {tokens int32, what they are int32, the weights of those that
// are hidden float}, all [rows, length], and of a padded net the lengths int32, [rows]. Weights are
// 0 where none is hidden, and those of a sequence add up to the number that the longest one hides.
Outputs MaskedPlaceholders(const Scope& scope, const Transformer& net, int64_t rows);

// A batch for them: a sequence is random tokens and then the same ones again; one of two that are
// the same may be hidden. Lengths are random; behind them is token 0. A seed gives the same batch
// everywhere. ResourceExhausted if there is no memory for it.
Result<std::vector<Tensor>> MaskedSequences(const Transformer& net, int64_t rows, uint64_t seed);

}  // namespace monograph::examples
