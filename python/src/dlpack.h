// The C structures by which array libraries hand memory to each other, version 1.0 of DLPack's interface.
//
//   auto* managed = new DLManagedTensorVersioned{.version = {1, 0}, ...};
//   PyCapsule_New(managed, kVersionedCapsule, ...);
//
// Thread-safety: plain data.
#ifndef TENSORFERRY_PYTHON_SRC_DLPACK_H_
#define TENSORFERRY_PYTHON_SRC_DLPACK_H_

#include <cstdint>

namespace tensorferry::python {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
inline constexpr int32_t kDLCPU = 1;
inline constexpr int32_t kDLCUDAHost = 3;

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
inline constexpr uint8_t kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6;

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major and contiguous
  uint64_t byte_offset;
};

// What consumers that know no versions take.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
inline constexpr uint64_t kDLReadOnly = 1;
inline constexpr uint64_t kDLIsCopied = 2;

// A consumer renames the capsule of what it has taken.
inline constexpr char kCapsule[] = "dltensor";
inline constexpr char kUsedCapsule[] = "used_dltensor";
inline constexpr char kVersionedCapsule[] = "dltensor_versioned";
inline constexpr char kUsedVersionedCapsule[] = "used_dltensor_versioned";

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_DLPACK_H_
