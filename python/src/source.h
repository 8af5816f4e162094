// A tensor that Python hands in: an object with the buffer protocol or with DLPack.
//
//   Source source(object);                       // holds the object's memory
//   source.RequireContiguous();                  // or let CopyTo gather it
//   source.CopyTo(staged.bytes());
//
// Thread-safety: made and destroyed with the GIL; CopyTo needs none.
#ifndef TENSORFERRY_PYTHON_SRC_SOURCE_H_
#define TENSORFERRY_PYTHON_SRC_SOURCE_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "python/src/dlpack.h"

namespace tensorferry::python {

class Source {
 public:
  // TypeError for what is neither; kBadInput for what is not in host memory or not little-endian.
  explicit Source(nanobind::handle object);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  uint64_t nbytes() const { return nbytes_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  // One of the names that travel, or empty for any other element type.
  const std::string& dtype() const { return dtype_; }
  bool contiguous() const;
  // Row by row, whatever the strides are.
  void CopyTo(std::span<std::byte> out) const;

 private:
  void ReadBuffer();
  void ReadDlpack(nanobind::handle object);
  void Measure();

  Py_buffer buffer_ = {};
  nanobind::object capsule_;
  const std::byte* data_ = nullptr;
  uint64_t itemsize_ = 1;
  uint64_t nbytes_ = 0;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;  // in bytes
  std::string dtype_;
};

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_SOURCE_H_
