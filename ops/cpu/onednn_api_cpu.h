// One way to describe primitives to oneDNN 2 and oneDNN 3. Both take the same values in the same
// order; but 2 makes a `desc` of them first, and 3 takes them between engine and attributes. What
// differs beyond that has a function of its own here, so that no other file asks for the version.
//
// All of it throws dnnl::error, as oneDNN does (ops/cpu/onednn_cpu.h).
#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

namespace monograph::ops::onednn {

inline dnnl::memory::data_type TypeOf(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_data_type();
#else
  return desc.data_type();
#endif
}

// `args` are what oneDNN's reference lists for Primitive, without engine and attributes.
template <typename Primitive, typename... Args>
typename Primitive::primitive_desc Describe(const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attr, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, args..., attr};
#else
  return {typename Primitive::desc(args...), attr, engine};
#endif
}

// The same for a backward primitive, whose forward one is `forward`.
template <typename Primitive, typename Forward, typename... Args>
typename Primitive::primitive_desc DescribeBackward(const dnnl::engine& engine,
                                                    const dnnl::primitive_attr& attr,
                                                    const Forward& forward, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, args..., forward, attr};
#else
  return {typename Primitive::desc(args...), attr, engine, forward};
#endif
}

// oneDNN 2's filter gradients of bfloat16 by tiles (AMX) take three times as long as oneDNN
// 3's: 8.0 ms instead of 3.1 for the second convolution of the MNIST CNN, batch 100.
inline constexpr bool kQuickGradientsByTiles = DNNL_VERSION_MAJOR >= 3;

// False where a convolution of plain layout gives wrong numbers: oneDNN 3.7.2 with AVX-512, one
// input channel, a stride, and rows in which the filter has one place only.
inline bool PlainConvolutionIsRight([[maybe_unused]] int64_t input_channels,
                                    [[maybe_unused]] int64_t column_stride,
                                    [[maybe_unused]] int64_t output_columns) {
#if DNNL_VERSION_MAJOR >= 3
  return input_channels > 1 || column_stride == 1 || output_columns > 1;
#else
  return true;
#endif
}

// Windows of pooling, without dilation.
struct Windows {
  dnnl::memory::dims strides, size, before, after;
};

inline dnnl::pooling_forward::primitive_desc DescribePooling(
    const dnnl::engine& engine, const dnnl::primitive_attr& attr, dnnl::prop_kind kind,
    dnnl::algorithm algorithm, const dnnl::memory::desc& image, const dnnl::memory::desc& pooled,
    const Windows& w) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims dilation(w.size.size(), 0);
  return {engine, kind,     algorithm, image,   pooled, w.strides,
          w.size, dilation, w.before,  w.after, attr};
#else
  return {{kind, algorithm, image, pooled, w.strides, w.size, w.before, w.after}, attr, engine};
#endif
}

inline dnnl::pooling_backward::primitive_desc DescribePoolingBackward(
    const dnnl::engine& engine, const dnnl::primitive_attr& attr, dnnl::algorithm algorithm,
    const dnnl::memory::desc& image, const dnnl::memory::desc& pooled, const Windows& w,
    const dnnl::pooling_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims dilation(w.size.size(), 0);
  return {engine,   algorithm, image,   pooled,  w.strides, w.size,
          dilation, w.before,  w.after, forward, attr};
#else
  return {{algorithm, image, pooled, w.strides, w.size, w.before, w.after}, attr, engine, forward};
#endif
}

// The gradient through a ReLU, from what the ReLU gave; all of one layout.
inline dnnl::eltwise_backward::primitive_desc DescribeReluBackward(const dnnl::engine& engine,
                                                                   const dnnl::memory::desc& data) {
  const auto kind = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
  const auto training = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::eltwise_forward::primitive_desc forward(engine, training, kind, data, data, 0.f, 0.f);
  return {engine, kind, data, data, data, 0.f, 0.f, forward};
#else
  const dnnl::eltwise_forward::primitive_desc forward({training, kind, data, 0.f, 0.f}, engine);
  return {{kind, data, data, 0.f, 0.f}, engine, forward};
#endif
}

// Whatever the primitive gives passes through a ReLU.
inline void AppendRelu(dnnl::primitive_attr* attr) {
  dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
#else
  ops.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f);
#endif
  attr->set_post_ops(ops);
}

}  // namespace monograph::ops::onednn
