// Tensors on their way into TensorFlow's library and back.
#pragma once

#include <string_view>

#include "base/tensor.h"
#include "executor/resource_manager.h"
#include "executor/tensorflow/library.h"

namespace monograph::tensorflow {

// What a resource of TensorFlow's is here: its handle, by container and name.
class BorrowedResource : public Resource {
 public:
  // Takes `handle`. With `owned` what it names ends with this object.
  BorrowedResource(const Library& library, TFE_TensorHandle* handle, std::string op, bool owned);
  ~BorrowedResource() override;

  TFE_TensorHandle* handle() const { return handle_; }
  // What it names is another object's.
  void Disown() { owned_ = false; }
  std::string DebugString() const override { return "TensorFlow's " + op_; }

 private:
  const Library& library_;
  TFE_TensorHandle* const handle_;
  const std::string op_;
  bool owned_;
};

// What a tensor of variants of TensorFlow's is here: each element is the whole of it.
class BorrowedVariant : public VariantValue {
 public:
  BorrowedVariant(const Library& library, TFE_TensorHandle* handle)  // takes it
      : library_(library), handle_(handle) {}
  ~BorrowedVariant() override { library_->TFE_DeleteTensorHandle(handle_); }

  TFE_TensorHandle* handle() const { return handle_; }
  std::string_view type_name() const override { return "TensorFlow's own"; }

 private:
  const Library& library_;
  TFE_TensorHandle* const handle_;
};

// A handle of the library's for an input. It reads the tensor's own memory, which it holds, or a
// copy if that is not aligned. InvalidArgument for a resource or variant that is not the library's.
class InputHandle {
 public:
  static Result<InputHandle> Make(const Library& library, const Tensor& tensor,
                                  const ResourceManager& resources);
  InputHandle(InputHandle&& other) noexcept;
  ~InputHandle();
  InputHandle(const InputHandle&) = delete;
  InputHandle& operator=(const InputHandle&) = delete;

  TFE_TensorHandle* get() const { return handle_; }

 private:
  InputHandle(const Library& library, TFE_TensorHandle* handle)
      : library_(library), handle_(handle) {}

  const Library& library_;
  TFE_TensorHandle* handle_;
  bool lent_ = false;             // somebody else deletes it
  std::shared_ptr<void> holder_;  // of a lent handle
};

// The tensor behind `handle`, which it takes; of any type but DT_RESOURCE. Plain data stays where
// it is, but for what the library goes on to read, which is copied; a variant stays the
// library's.
Result<Tensor> TensorOf(const Library& library, TFE_TensorHandle* handle, DType dtype);

}  // namespace monograph::tensorflow
