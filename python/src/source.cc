#include "python/src/source.h"

#include <optional>
#include <string_view>

#include "python/src/errors.h"
#include "python/src/process.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

// The dtype of an element that struct calls `format`; empty for one that does not travel under a name of its own.
std::string DtypeOfFormat(std::string_view format, uint64_t itemsize) {
  if (!format.empty() && (format[0] == '>' || format[0] == '!') && itemsize > 1) {
    ThrowError(Reason::kBadInput,
               "the array is big-endian, and tensors travel little-endian: convert it first");
  }
  if (!format.empty() && std::string_view("@=<>!").find(format[0]) != std::string_view::npos) {
    format.remove_prefix(1);
  }
  if (format.size() != 1) return "";
  switch (format[0]) {
    case 'f':
      return "float32";
    case 'e':
      return "float16";
    case 'B':
      return "uint8";
    case 'q':
    case 'l':
      return itemsize == 8 ? "int64" : "";
    case 'I':
    case 'L':
      return itemsize == 4 ? "uint32" : "";
    default:
      return "";
  }
}

std::string DtypeOfDlpack(const DLDataType& type) {
  if (type.lanes != 1) return "";
  switch (type.code) {
    case kDLFloat:
      return type.bits == 32 ? "float32" : type.bits == 16 ? "float16" : "";
    case kDLBfloat:
      return type.bits == 16 ? "bfloat16" : "";
    case kDLUInt:
      return type.bits == 8 ? "uint8" : type.bits == 32 ? "uint32" : "";
    case kDLInt:
      return type.bits == 64 ? "int64" : "";
    default:
      return "";
  }
}

// None: it does not take the argument, as objects of before DLPack 1.0.
std::optional<nb::object> VersionedCapsule(nb::handle object) {
  try {
    nb::dict named;
    named["max_version"] = nb::make_tuple(1, 0);
    return Call(object.attr("__dlpack__"), nb::tuple(), named);
  } catch (const nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    return std::nullopt;
  }
}

}  // namespace

Source::Source(nb::handle object, Use use) {
  const bool has_dlpack = nb::hasattr(object, "__dlpack__");
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    const int flags = use == Use::kWrite ? PyBUF_FULL : PyBUF_FULL_RO;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) == 0) {
      try {
        ReadBuffer();
      } catch (...) {
        PyBuffer_Release(&buffer_);
        throw;
      }
      return;
    }
    if (!has_dlpack) throw nb::python_error();
    PyErr_Clear();
  }
  if (!has_dlpack) {
    throw nb::type_error("a tensor must have __dlpack__ or the buffer protocol");
  }
  ReadDlpack(object, use);
}

Source::~Source() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void Source::ReadBuffer() {
  if (buffer_.suboffsets != nullptr) {
    ThrowError(Reason::kBadInput, "the buffer is made of pointers to its rows: copy it first");
  }
  data_ = static_cast<const std::byte*>(buffer_.buf);
  itemsize_ = static_cast<uint64_t>(buffer_.itemsize);
  for (int i = 0; i < buffer_.ndim; ++i) {
    shape_.push_back(buffer_.shape[i]);
    strides_.push_back(buffer_.strides[i]);
  }
  dtype_ = DtypeOfFormat(buffer_.format == nullptr ? "B" : buffer_.format, itemsize_);
  Measure();
}

void Source::ReadDlpack(nb::handle object, Use use) {
  if (nb::hasattr(object, "__dlpack_device__")) {
    const auto device = nb::cast<nb::tuple>(Call(object.attr("__dlpack_device__"), nb::tuple()));
    const int type = nb::cast<int>(nb::int_(device[0]));
    if (type != kDLCPU && type != kDLCUDAHost) {
      ThrowError(Reason::kBadInput, StrCat("the tensor is on a device (DLPack type ", type,
                                           "): move it to the host first"));
    }
  }
  const std::optional<nb::object> versioned = VersionedCapsule(object);
  capsule_ = versioned ? *versioned : Call(object.attr("__dlpack__"), nb::tuple());
  // It stays a capsule that nobody took, so that its own destructor gives the tensor back.
  const DLTensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule_.ptr(), kVersionedCapsule) != 0) {
    const auto* managed = static_cast<const DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule_.ptr(), kVersionedCapsule));
    if (managed->version.major != 1) {
      ThrowError(Reason::kBadInput, StrCat("the tensor's DLPack is version ",
                                           managed->version.major, ", and 1 is known here"));
    }
    if (use == Use::kWrite && (managed->flags & kDLReadOnly) != 0) {
      ThrowError(Reason::kBadInput, "the tensor is read-only, and was to be written to");
    }
    tensor = &managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule_.ptr(), kCapsule) != 0) {
    tensor = &static_cast<const DLManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), kCapsule))
                  ->dl_tensor;
  } else {
    throw nb::type_error("__dlpack__ did not return a DLPack capsule");
  }
  const uint64_t bits = uint64_t{tensor->dtype.bits} * tensor->dtype.lanes;
  if (bits % 8 != 0) {
    ThrowError(Reason::kBadInput,
               StrCat("the tensor's elements are of ", bits, " bits, which are no bytes"));
  }
  itemsize_ = bits / 8;
  data_ = static_cast<const std::byte*>(tensor->data) + tensor->byte_offset;
  shape_.assign(tensor->shape, tensor->shape + tensor->ndim);
  auto stride = static_cast<int64_t>(itemsize_);
  strides_.assign(shape_.size(), 0);
  for (size_t i = shape_.size(); i-- > 0;) {
    strides_[i] =
        tensor->strides == nullptr ? stride : tensor->strides[i] * static_cast<int64_t>(itemsize_);
    stride *= shape_[i];
  }
  dtype_ = DtypeOfDlpack(tensor->dtype);
  Measure();
}

void Source::Measure() {
  nbytes_ = itemsize_;
  for (const int64_t dim : shape_) nbytes_ *= static_cast<uint64_t>(dim);
}

StridedItems Source::items() const {
  return {.data = data_, .item_bytes = itemsize_, .shape = shape_, .strides = strides_};
}

}  // namespace tensorferry::python
