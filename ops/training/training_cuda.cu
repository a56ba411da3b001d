// Each update is one pass over variable, slots and gradient: the same bits as on a CPU. UpdateBody
// holds as many updates as fit into the arguments of a launch, and a thread handles 16 bytes of one
// of them; _MultiResourceApply so updates many variables by few launches. A variable that comes
// twice waits for the launch before.
#include <algorithm>
#include <unordered_set>

#include "ops/gpu/vectors.h"
#include "ops/training/multi_update.h"
#include "ops/training/update_cuda.h"

namespace monograph::ops::training {
namespace {

// One variable with its slots, and its gradient.
template <typename T, int kN>
struct UpdateOf {
  const T* before[kN];
  T* after[kN];
  const void* gradient;
  int64_t n;

  bool packs() const {  // all are aligned for whole packs
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
    return aligned(gradient) && std::all_of(before, before + kN, aligned) &&
           std::all_of(after, after + kN, aligned);
  }
};

// How many updates fit into the arguments of one launch, which may have 32764 bytes.
template <typename T, int kN>
inline constexpr int kMostUpdates = static_cast<int>(31'700 / (sizeof(UpdateOf<T, kN>) +
                                                               sizeof(int64_t) + sizeof(uint8_t)));
// Of a model with few variables: less to pass.
inline constexpr int kFewUpdates = 32;

// Several updates in one launch; a thread handles a pack of one of them.
template <typename T, template <typename> typename FormulaOf, int kMost>
struct UpdateBody {
  using A = Accumulator<T>;
  using Formula = FormulaOf<A>;
  static constexpr int kN = Formula::kVariables, kPack = 16 / static_cast<int>(sizeof(T));

  DeviceFormula<T, FormulaOf> formula;
  int count;
  UpdateOf<T, kN> updates[kMost];
  int64_t begin[kMost + 1];  // of each update, in packs
  uint8_t types[kMost];      // DType of each gradient: T, or what a cast to T would widen
  bool packs;

  MG_HD void operator()(int64_t at) const {
    int low = 0, high = count;  // begin[low] <= at < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= at ? low : high) = middle;
    }
    const UpdateOf<T, kN>& u = updates[low];
    const Formula update = formula.Make();
    const int64_t first = (at - begin[low]) * kPack;
    if (packs && first + kPack <= u.n) {
      ElementPack<T, kPack> values[kN];
      MG_UNROLL
      for (int v = 0; v < kN; ++v) values[v] = LoadPack<T, kPack>(u.before[v] + first);
      A g[kPack];
      Gradients<kPack>(low, first, g);
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) {
        A old[kN], fresh[kN];
        MG_UNROLL
        for (int v = 0; v < kN; ++v) old[v] = Widen(values[v].values[k]);
        update(old, g[k], fresh);
        MG_UNROLL
        for (int v = 0; v < kN; ++v) values[v].values[k] = Narrow<T>(fresh[v]);
      }
      MG_UNROLL
      for (int v = 0; v < kN; ++v) StorePack<T, kPack>(u.after[v] + first, values[v]);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < u.n; ++i) {
      A old[kN], fresh[kN];
      MG_UNROLL
      for (int v = 0; v < kN; ++v) old[v] = Widen(u.before[v][i]);
      A g;
      Gradients<1>(low, i, &g);
      update(old, g, fresh);
      MG_UNROLL
      for (int v = 0; v < kN; ++v) u.after[v][i] = Narrow<T>(fresh[v]);
    }
  }

  // N gradients of an update, from `first` on.
  template <int N>
  MG_HD void Gradients(int which, int64_t first, A* g) const {
    const void* from = updates[which].gradient;
    if constexpr (std::is_same_v<T, float>) {
      if (types[which] == DT_HALF) return Widened<half, N>(from, first, g);
      if (types[which] == DT_BFLOAT16) return Widened<bfloat16, N>(from, first, g);
    }
    Widened<T, N>(from, first, g);
  }
  template <typename G, int N>
  MG_HD static void Widened(const void* from, int64_t first, A* g) {
    const auto pack = LoadPack<G, N>(static_cast<const G*>(from) + first);
    MG_UNROLL
    for (int k = 0; k < N; ++k) g[k] = Widen(pack.values[k]);
  }

  void Add(const UpdateOf<T, kN>& update, DType gradient) {
    if (count == 0) begin[0] = 0, packs = true;
    updates[count] = update;
    types[count] = static_cast<uint8_t>(gradient);
    packs = packs && update.packs();
    begin[count + 1] = begin[count] + (update.n + kPack - 1) / kPack;
    ++count;
  }
  // Launches what was added, and forgets it.
  Status Flush(KernelContext& c) {
    const int64_t n = count == 0 ? 0 : begin[count];
    const Status status = ForEach(c, n, *this);
    count = 0;
    return status;
  }
};

template <typename T, int kN>
UpdateOf<T, kN> Describe(Locked& locked, const Tensor& gradient) {
  UpdateOf<T, kN> update;
  update.gradient = gradient.raw();
  update.n = gradient.elements();
  for (int i = 0; i < kN; ++i) {
    update.before[i] = locked[i].before<T>();
    update.after[i] = locked[i].after<T>();
  }
  return update;
}

template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs>
class DeviceUpdateKernel : public Kernel {
 public:
  explicit DeviceUpdateKernel(const KernelConstruction& k) : flag_(FlagOf(k, kInputs)) {}
  Status Compute(KernelContext& c) override {
    UpdateBody<T, FormulaOf, kFewUpdates> body{};
    MG_ASSIGN_OR_RETURN(body.formula,
                        (DeviceFormula<T, FormulaOf>::Of(c, kInputs.coefficients, flag_)));
    const Tensor& gradient = c.input(kInputs.gradient);
    MG_ASSIGN_OR_RETURN(Locked locked, Locked::Make(c, body.kN, kDTypeOf<T>, gradient.shape(), 0));
    body.Add(Describe<T, body.kN>(locked, gradient), gradient.dtype());
    MG_RETURN_IF_ERROR(body.Flush(c));
    locked.Commit();
    return Status();
  }

 private:
  const bool flag_;
};

// _MultiResourceApply. Every variable has the memory for its new value before the first launch, and
// a new value takes its place only when the launch that writes it is enqueued: so a failure leaves
// no variable with memory that no kernel wrote. One thread enqueues all work of a device, so that
// no lock need be held until the launch.
template <typename T, template <typename> typename FormulaOf>
class DeviceMultiUpdateKernel : public Kernel {
 public:
  explicit DeviceMultiUpdateKernel(const KernelConstruction& k) : inputs_(k) {}
  Status Compute(KernelContext& c) override {
    if (inputs_.updates <= kFewUpdates) return Run<kFewUpdates>(c);
    return Run<kMostUpdates<T, FormulaOf<Accumulator<T>>::kVariables>>(c);
  }

 private:
  template <int kMost>
  Status Run(KernelContext& c) const {
    using Body = UpdateBody<T, FormulaOf, kMost>;
    constexpr int kN = Body::kN;
    auto body = std::make_unique<Body>();
    MG_ASSIGN_OR_RETURN(body->formula, (DeviceFormula<T, FormulaOf>::Of(
                                           c, inputs_.coefficients.data(), inputs_.flag)));
    std::vector<Locked> ready;
    ready.reserve(static_cast<size_t>(inputs_.updates));
    int first = 0;                                  // of the updates that are ready
    std::unordered_set<const Variable*> variables;  // of these
    for (int i = 0; i < inputs_.updates; ++i) {
      MG_ASSIGN_OR_RETURN(Locked locked, Locked::Find(c, kN, kDTypeOf<T>, i * kN));
      bool twice = false;
      for (int v = 0; v < kN; ++v) twice = twice || variables.contains(&locked.variable(v));
      if (twice) {
        MG_RETURN_IF_ERROR(Launch(c, body.get(), first, &ready));
        variables.clear();
        first = i;
      }
      MG_RETURN_IF_ERROR(locked.Lock(c, c.input(inputs_.gradient + i).shape()));
      for (int v = 0; v < kN; ++v) variables.insert(&locked.variable(v));
      locked.Unlock();
      ready.push_back(std::move(locked));
    }
    return Launch(c, body.get(), first, &ready);
  }

  // Launches and commits the updates that are ready, of which `first` is the first.
  template <int kMost>
  Status Launch(KernelContext& c, UpdateBody<T, FormulaOf, kMost>* body, int first,
                std::vector<Locked>* ready) const {
    constexpr int kN = UpdateBody<T, FormulaOf, kMost>::kN;
    for (size_t begin = 0; begin < ready->size(); begin += kMost) {
      const size_t end = std::min(begin + kMost, ready->size());
      for (size_t i = begin; i < end; ++i) {
        const Tensor& gradient = c.input(inputs_.gradient + first + static_cast<int>(i));
        body->Add(Describe<T, kN>((*ready)[i], gradient), gradient.dtype());
      }
      MG_RETURN_IF_ERROR(body->Flush(c));
      for (size_t i = begin; i < end; ++i) (*ready)[i].CommitUnlocked();
    }
    ready->clear();
    return Status();
  }

  const MultiInputs inputs_;
};

template <typename T>
Result<std::unique_ptr<Kernel>> MakeDeviceMulti(const KernelConstruction& k) {
  return MakeMultiUpdate(k, [&]<template <typename> typename FormulaOf>() {
    return std::make_unique<DeviceMultiUpdateKernel<T, FormulaOf>>(k);
  });
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  ForEachUpdate([&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
                    const char* op, std::initializer_list<const char*> variables) {
    const std::vector<std::string> host_args(variables.begin(), variables.end());
#define ADD(T)                                              \
  registry->Add<DeviceUpdateKernel<T, FormulaOf, kInputs>>( \
      {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}, .host_args = host_args});
    MG_FLOAT_TYPES(ADD)
#undef ADD
  });
#define ADD(T)                                  \
  registry->Add({.op = "_MultiResourceApply",   \
                 .device = kGpu,                \
                 .types = {{"T", kDTypeOf<T>}}, \
                 .host_args = {"variables"}},   \
                &MakeDeviceMulti<T>);
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::training
