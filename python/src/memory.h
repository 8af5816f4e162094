// Bytes that Python sees as a tensor: by the buffer protocol and DLPack, without a copy.
//
//   nb::cast(Memory::OfView(*std::move(view)))            // a received tensor, flat
//   nb::cast(memory.As(Dtype::kBfloat16, {3, 448, 448}))   // the same bytes
//
// Every buffer and every DLPack capsule shares the ownership of the bytes: they are given back when the last of them
// has gone, whichever thread that is in. Thread-safety: const calls from any thread; Release() with the GIL.
#ifndef TENSORFERRY_PYTHON_SRC_MEMORY_H_
#define TENSORFERRY_PYTHON_SRC_MEMORY_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensorferry/base/dtype.h"
#include "tensorferry/puller/puller.h"

namespace tensorferry::python {

class Memory {
 public:
  // Flat bytes. `hold` keeps them.
  Memory(std::span<const std::byte> bytes, bool readonly, std::shared_ptr<const void> hold);
  Memory(const Memory& other);
  Memory& operator=(const Memory&) = delete;

  static Memory OfView(const View& view);
  // Of an object with the buffer protocol, whose bytes stay where they are. `transport`: what brought them.
  static Memory OfBuffer(nanobind::handle object, const std::string& transport);

  // The same bytes; kUnknownDtype, kBadShape, kSizeMismatch.
  Memory As(Dtype dtype, const std::vector<uint32_t>& shape) const;

  std::span<const std::byte> bytes() const { return bytes_; }
  Dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  bool readonly() const { return readonly_; }
  bool borrowed() const { return borrowed_; }
  const std::string& transport() const { return transport_; }
  bool released() const { return released_; }

  // Drops this object's part of the bytes. BufferError while buffers of it are in use.
  void Release();

  // The protocol's two forms; `versioned` when the consumer takes 1.0.
  nanobind::object ToDlpack(bool versioned, bool copy) const;

  static PyType_Slot* slots();

 private:
  static int GetBuffer(PyObject* self, Py_buffer* out, int flags);
  static void ReleaseBuffer(PyObject* self, Py_buffer* buffer);
  void SetShape(const std::vector<uint32_t>& shape);
  // Row-major and column-major are the same order.
  bool OneColumn() const;

  std::span<const std::byte> bytes_;
  Dtype dtype_ = Dtype::kUint8;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;  // in bytes
  bool readonly_ = true;
  bool borrowed_ = false;
  bool released_ = false;
  std::string transport_;
  std::shared_ptr<const void> hold_;
  std::atomic<int> buffers_ = 0;
};

void BindMemory(nanobind::module_& module);

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_MEMORY_H_
