// A tensor that Python hands in, to be read or to be written to: an object with the buffer protocol or with DLPack.
//
//   Source source(object);                       // holds the object's memory
//   source.CopyTo(staged.bytes());               // gathers it if it is not contiguous()
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
#include "tensorferry/base/pack.h"

namespace tensorferry::python {

class Source {
 public:
  enum class Use { kRead, kWrite };
  // TypeError for what is neither; kBadInput for what is not in host memory, not little-endian, or read-only although
  // it is to be written to.
  explicit Source(nanobind::handle object, Use use = Use::kRead);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  uint64_t nbytes() const { return nbytes_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  // One of the names that travel, or empty for any other element type.
  const std::string& dtype() const { return dtype_; }
  bool contiguous() const { return items().contiguous(); }
  // Of one that is contiguous, and was taken to be written to.
  std::span<std::byte> bytes() const { return {const_cast<std::byte*>(data_), nbytes_}; }
  // Row by row, whatever the strides are; `out` is nbytes() long.
  void CopyTo(std::span<std::byte> out) const { PackItems(items(), out.data()); }

 private:
  void ReadBuffer();
  void ReadDlpack(nanobind::handle object, Use use);
  void Measure();
  StridedItems items() const;

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
