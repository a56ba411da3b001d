// Evaluates the integers that shapes are made of (Shape, Pack, StridedSlice, arithmetic) as far as
// they are known before a step runs. A recursion from the asked tensor back to constants and
// shapes, with a bound on the work of each question: it is asked for every node that is added to a
// graph.
#include "graph/partial_eval.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "graph/shape_inference.h"

namespace monograph {
namespace {

// A diamond of shape arithmetic must not cost exponential time: bounds of one evaluation, all nodes
// together.
constexpr int kMaxDepth = 16;
constexpr int kMaxVisits = 256;
constexpr int64_t kMaxElements = 1 << 16;

using Value = std::optional<PartialInts>;

class PartialEvaluator {
 public:
  explicit PartialEvaluator(const Graph& graph) : graph_(graph) {}

  Value Evaluate(Endpoint source, int depth) {
    if (depth > kMaxDepth || ++visits_ > kMaxVisits || graph_.dtype(source) == DT_INVALID)
      return std::nullopt;
    const auto found = Handlers().find(graph_.op(source.node).name());
    if (found == Handlers().end()) return std::nullopt;
    Value value = (this->*found->second)(source, depth + 1);
    if (value && !Pay(static_cast<int64_t>(value->values.size()))) return std::nullopt;
    return value;
  }

 private:
  using Handler = Value (PartialEvaluator::*)(Endpoint, int);

  static const std::map<std::string, Handler, std::less<>>& Handlers() {
    static const auto* const kHandlers = new std::map<std::string, Handler, std::less<>>{
        {"Const", &PartialEvaluator::Const},
        {"Identity", &PartialEvaluator::Same},
        {"StopGradient", &PartialEvaluator::Same},
        {"Cast", &PartialEvaluator::Cast},
        {"Shape", &PartialEvaluator::ShapeOf},
        {"ShapeN", &PartialEvaluator::ShapeOf},
        {"Rank", &PartialEvaluator::RankOf},
        {"Size", &PartialEvaluator::SizeOf},
        {"Pack", &PartialEvaluator::Pack},
        {"ConcatV2", &PartialEvaluator::Concat},
        {"StridedSlice", &PartialEvaluator::StridedSlice},
        {"Slice", &PartialEvaluator::Slice},
        {"ExpandDims", &PartialEvaluator::ToVector},
        {"Squeeze", &PartialEvaluator::ToScalar},
        {"Prod", &PartialEvaluator::Prod},
        {"Add", &PartialEvaluator::Arithmetic},
        {"AddV2", &PartialEvaluator::Arithmetic},
        {"Sub", &PartialEvaluator::Arithmetic},
        {"Mul", &PartialEvaluator::Arithmetic},
        {"FloorDiv", &PartialEvaluator::Arithmetic},
        {"Maximum", &PartialEvaluator::Arithmetic},
        {"Minimum", &PartialEvaluator::Arithmetic},
    };
    return *kHandlers;
  }

  // Whether so many elements more may be looked at.
  bool Pay(int64_t elements) {
    if (elements > left_) return false;
    left_ -= elements;
    return true;
  }

  // Imported graphs may hold nodes without inputs where they were fed.
  Value Input(Endpoint node, size_t i, int depth) {
    const auto inputs = graph_.inputs(node.node);
    return i < inputs.size() ? Evaluate(inputs[i], depth) : std::nullopt;
  }
  Value KnownInput(Endpoint node, size_t i, int depth) {
    Value value = Input(node, i, depth);
    if (!value || std::count(value->values.begin(), value->values.end(), kUnknownInt) > 0)
      return std::nullopt;
    return value;
  }

  Value Const(Endpoint source, int) {
    const AttrValue* value = graph_.attrs(source.node).Find("value");
    const Tensor* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    return tensor == nullptr || tensor->elements() > left_ ? std::nullopt : IntsOfTensor(*tensor);
  }
  Value Same(Endpoint source, int depth) { return Input(source, 0, depth); }
  Value Cast(Endpoint source, int depth) {
    const DType to = graph_.dtype(source);
    if (to != DT_INT32 && to != DT_INT64) return std::nullopt;
    Value value = Input(source, 0, depth);
    if (value && to == DT_INT32) {
      for (int64_t& x : value->values) {
        if (x != kUnknownInt && x != static_cast<int32_t>(x)) x = kUnknownInt;
      }
    }
    return value;
  }
  const PartialShape* InputShape(Endpoint source, size_t i) {
    const auto inputs = graph_.inputs(source.node);
    return i < inputs.size() && graph_.shape(inputs[i]).known_rank() ? &graph_.shape(inputs[i])
                                                                     : nullptr;
  }
  Value ShapeOf(Endpoint source, int) {
    const PartialShape* shape = InputShape(source, static_cast<size_t>(source.index));
    if (shape == nullptr) return std::nullopt;
    PartialInts value;
    for (int64_t dim : shape->dims()) value.values.push_back(dim < 0 ? kUnknownInt : dim);
    return value;
  }
  Value RankOf(Endpoint source, int) {
    const PartialShape* shape = InputShape(source, 0);
    if (shape == nullptr) return std::nullopt;
    return PartialInts{true, {shape->rank()}};
  }
  Value SizeOf(Endpoint source, int) {
    const PartialShape* shape = InputShape(source, 0);
    return PartialInts{
        true, {shape != nullptr && shape->fully_known() ? shape->elements() : kUnknownInt}};
  }
  Value Pack(Endpoint source, int depth) {
    PartialInts value;
    const auto inputs = graph_.inputs(source.node);
    if (inputs.empty()) return std::nullopt;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const PartialShape& shape = graph_.shape(inputs[i]);
      if (shape.known_rank() && shape.rank() != 0) return std::nullopt;
      const Value element = Evaluate(inputs[i], depth);
      if (element && (!element->scalar || element->values.size() != 1)) return std::nullopt;
      if (!element && !shape.known_rank()) return std::nullopt;
      value.values.push_back(element ? element->values[0] : kUnknownInt);
    }
    return value;
  }
  Value Concat(Endpoint source, int depth) {
    PartialInts value;
    const auto inputs = graph_.inputs(source.node);
    for (size_t i = 0; i + 1 < inputs.size(); ++i) {
      const PartialShape& shape = graph_.shape(inputs[i]);
      Value part = Evaluate(inputs[i], depth);
      if (!part && shape.rank() == 1 && shape.fully_known() && Pay(shape.dim(0))) {
        part = PartialInts{false,
                           std::vector<int64_t>(static_cast<size_t>(shape.dim(0)), kUnknownInt)};
      }
      if (!part || part->scalar) return std::nullopt;
      value.values.insert(value.values.end(), part->values.begin(), part->values.end());
    }
    return value;
  }
  Value StridedSlice(Endpoint source, int depth) {
    const Attrs& attrs = graph_.attrs(source.node);
    const Value input = Input(source, 0, depth), begin = KnownInput(source, 1, depth),
                end = KnownInput(source, 2, depth), strides = KnownInput(source, 3, depth);
    if (!input || input->scalar || !begin || !end || !strides) return std::nullopt;
    if (begin->values.size() != 1 || end->values.size() != 1 || strides->values.size() != 1)
      return std::nullopt;
    if (attrs.GetOr<int64_t>("ellipsis_mask", 0) != 0 ||
        attrs.GetOr<int64_t>("new_axis_mask", 0) != 0) {
      return std::nullopt;
    }
    const auto size = static_cast<int64_t>(input->values.size());
    int64_t first = begin->values[0], last = end->values[0];
    const int64_t step = strides->values[0];
    if (step == 0) return std::nullopt;
    if (attrs.GetOr<int64_t>("shrink_axis_mask", 0) & 1) {
      if (first < 0) first += size;
      if (first < 0 || first >= size) return std::nullopt;
      return PartialInts{true, {input->values[static_cast<size_t>(first)]}};
    }
    const auto clamp = [&](int64_t x) {
      if (x < 0) x += size;
      return step > 0 ? std::clamp<int64_t>(x, 0, size) : std::clamp<int64_t>(x, -1, size - 1);
    };
    first = attrs.GetOr<int64_t>("begin_mask", 0) & 1 ? (step > 0 ? 0 : size - 1) : clamp(first);
    last = attrs.GetOr<int64_t>("end_mask", 0) & 1 ? (step > 0 ? size : -1) : clamp(last);
    PartialInts value;
    // Steps larger than the vector take one element; bounding them keeps the sum in range.
    const int64_t bounded = std::clamp<int64_t>(step, -size - 1, size + 1);
    for (int64_t i = first; step > 0 ? i < last : i > last; i += bounded) {
      value.values.push_back(input->values[static_cast<size_t>(i)]);
    }
    return value;
  }
  Value Slice(Endpoint source, int depth) {
    const Value input = Input(source, 0, depth), begin = KnownInput(source, 1, depth),
                size = KnownInput(source, 2, depth);
    if (!input || input->scalar || !begin || !size || begin->values.size() != 1 ||
        size->values.size() != 1) {
      return std::nullopt;
    }
    const auto total = static_cast<int64_t>(input->values.size());
    const int64_t first = begin->values[0],
                  count = size->values[0] == -1 ? total - first : size->values[0];
    if (first < 0 || first > total || count < 0 || count > total - first) return std::nullopt;
    PartialInts value;
    value.values.assign(input->values.begin() + first, input->values.begin() + first + count);
    return value;
  }
  Value ToVector(Endpoint source, int depth) {
    Value value = Input(source, 0, depth);
    if (!value || !value->scalar) return std::nullopt;
    value->scalar = false;
    return value;
  }
  Value ToScalar(Endpoint source, int depth) {
    Value value = Input(source, 0, depth);
    if (!value || value->scalar || value->values.size() != 1) return std::nullopt;
    value->scalar = true;
    return value;
  }
  Value Prod(Endpoint source, int depth) {
    const Value value = Input(source, 0, depth);
    if (!value || value->scalar || graph_.shape(source).rank() != 0) return std::nullopt;
    int64_t product = 1;
    for (int64_t x : value->values) {
      if (x == kUnknownInt || __builtin_mul_overflow(product, x, &product))
        return PartialInts{true, {kUnknownInt}};
    }
    return PartialInts{true, {product}};
  }
  Value Arithmetic(Endpoint source, int depth) {
    const Value a = Input(source, 0, depth), b = Input(source, 1, depth);
    if (!a || !b) return std::nullopt;
    const size_t size = a->scalar || a->values.size() == 1 ? b->values.size() : a->values.size();
    const bool fits = (a->values.size() == size || a->values.size() == 1) &&
                      (b->values.size() == size || b->values.size() == 1);
    if (!fits || size == 0) return std::nullopt;
    const std::string& op = graph_.op(source.node).name();
    PartialInts value{a->scalar && b->scalar, {}};
    for (size_t i = 0; i < size; ++i) {
      const int64_t x = a->values[a->values.size() == 1 ? 0 : i],
                    y = b->values[b->values.size() == 1 ? 0 : i];
      value.values.push_back(x == kUnknownInt || y == kUnknownInt ? kUnknownInt : Apply(op, x, y));
    }
    return value;
  }
  static int64_t Apply(const std::string& op, int64_t x, int64_t y) {
    int64_t result = 0;
    bool overflow = false;
    if (op == "Add" || op == "AddV2") {
      overflow = __builtin_add_overflow(x, y, &result);
    } else if (op == "Sub") {
      overflow = __builtin_sub_overflow(x, y, &result);
    } else if (op == "Mul") {
      overflow = __builtin_mul_overflow(x, y, &result);
    } else if (op == "Maximum") {
      result = std::max(x, y);
    } else if (op == "Minimum") {
      result = std::min(x, y);
    } else {  // FloorDiv
      if (y == 0 || y == -1) return y == 0 ? kUnknownInt : -x;
      result = x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
    }
    return overflow ? kUnknownInt : result;
  }

  const Graph& graph_;
  int visits_ = 0;
  int64_t left_ = kMaxElements;
};

}  // namespace

const Tensor* ConstantValue(const Graph& graph, Endpoint source) {
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    if (graph.is(source.node, "Const")) {
      const AttrValue* value = graph.attrs(source.node).Find("value");
      return value == nullptr ? nullptr : std::get_if<Tensor>(value);
    }
    if (!graph.is(source.node, "Identity") || graph.inputs(source.node).empty()) return nullptr;
    source = graph.inputs(source.node)[0];
  }
  return nullptr;
}

std::optional<PartialInts> IntsOfTensor(const Tensor& tensor) {
  if (tensor.shape().rank() > 1 || (tensor.dtype() != DT_INT32 && tensor.dtype() != DT_INT64))
    return std::nullopt;
  PartialInts value;
  value.scalar = tensor.shape().rank() == 0;
  if (tensor.dtype() == DT_INT32) {
    const auto values = tensor.values<int32_t>();
    value.values.assign(values.begin(), values.end());
  } else {
    const auto values = tensor.values<int64_t>();
    value.values.assign(values.begin(), values.end());
  }
  return value;
}

std::optional<PartialInts> EvaluatePartially(const Graph& graph, Endpoint source) {
  if (const Tensor* constant = ConstantValue(graph, source))
    return constant->elements() > kMaxElements ? std::nullopt : IntsOfTensor(*constant);
  return PartialEvaluator(graph).Evaluate(source, 0);
}

}  // namespace monograph
