#include "python/src/memory.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "python/src/dlpack.h"
#include "python/src/errors.h"
#include "python/src/process.h"
#include "tensorferry/base/text.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

constexpr size_t kAlignment = 64;

// struct's character for one element. bfloat16 has none: its 16 bits.
const char* BufferFormat(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "f";
    case Dtype::kBfloat16:
      return "H";
    case Dtype::kFloat16:
      return "e";
    case Dtype::kUint8:
      return "B";
    case Dtype::kInt64:
      return "q";
    case Dtype::kUint32:
      return "I";
  }
  return "B";
}

DLDataType DlpackType(Dtype dtype) {
  const auto bits = static_cast<uint8_t>(ItemBytes(dtype) * 8);
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kFloat16:
      return {kDLFloat, bits, 1};
    case Dtype::kBfloat16:
      return {kDLBfloat, bits, 1};
    case Dtype::kInt64:
      return {kDLInt, bits, 1};
    case Dtype::kUint8:
    case Dtype::kUint32:
      break;
  }
  return {kDLUInt, bits, 1};
}

// A tensor that is handed out, with all that it points to.
template <typename Managed>
struct Exported {
  Managed managed = {};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::shared_ptr<const void> hold;

  static void Delete(Managed* self) { delete static_cast<Exported*>(self->manager_ctx); }
};

template <typename Managed>
nb::object Capsule(Exported<Managed>* exported, const char* name, PyCapsule_Destructor destructor) {
  PyObject* capsule = PyCapsule_New(&exported->managed, name, destructor);
  if (capsule == nullptr) {
    delete exported;
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

template <typename Managed>
void DeleteUnused(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // its consumer deletes it
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

std::shared_ptr<void> Copied(std::span<const std::byte> bytes) {
  const size_t size = (bytes.size() + kAlignment) / kAlignment * kAlignment;
  std::shared_ptr<void> copy(std::aligned_alloc(kAlignment, size), std::free);
  if (!copy) throw std::bad_alloc();
  const NoGil nogil;
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

struct BufferHold {
  Py_buffer buffer = {};
  ~BufferHold() {
    WithGil([this] { PyBuffer_Release(&buffer); });
  }
};

}  // namespace

Memory::Memory(std::span<const std::byte> bytes, bool readonly, std::shared_ptr<const void> hold)
    : bytes_(bytes),
      shape_{static_cast<int64_t>(bytes.size())},
      strides_{1},
      readonly_(readonly),
      hold_(std::move(hold)) {}

Memory::Memory(const Memory& other)
    : bytes_(other.bytes_),
      dtype_(other.dtype_),
      shape_(other.shape_),
      strides_(other.strides_),
      readonly_(other.readonly_),
      borrowed_(other.borrowed_),
      released_(other.released_),
      transport_(other.transport_),
      hold_(other.hold_) {}

Memory Memory::OfView(const View& view) {
  Memory out(view.bytes(), view.borrowed(), OwnedHere(view.hold()));
  out.borrowed_ = view.borrowed();
  out.transport_ = view.transport();
  return out;
}

Memory Memory::OfBuffer(nb::handle object, const std::string& transport) {
  RequireOwnProcess();
  auto hold = std::make_unique<BufferHold>();
  if (PyObject_GetBuffer(object.ptr(), &hold->buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const std::span bytes(static_cast<const std::byte*>(hold->buffer.buf),
                        static_cast<size_t>(hold->buffer.len));
  Memory out(bytes, /*readonly=*/true, std::shared_ptr<const BufferHold>(std::move(hold)));
  out.transport_ = transport;
  return out;
}

Memory Memory::As(Dtype dtype, const std::vector<uint32_t>& shape) const {
  ThrowIfError(CheckTensorBytes(shape, dtype, bytes_.size()));
  Memory out(*this);
  out.dtype_ = dtype;
  out.SetShape(shape);
  return out;
}

void Memory::SetShape(const std::vector<uint32_t>& shape) {
  shape_.assign(shape.begin(), shape.end());
  strides_.assign(shape.size(), 0);
  // Of an empty tensor the product of the other dimensions may be anything, and no stride is ever used.
  auto stride = static_cast<int64_t>(ItemBytes(dtype_));
  for (size_t i = shape.size(); i-- > 0;) {
    strides_[i] = stride;
    if (!bytes_.empty()) stride *= shape_[i];
  }
}

bool Memory::OneColumn() const {
  return bytes_.empty() ||
         std::count_if(shape_.begin(), shape_.end(), [](int64_t dim) { return dim > 1; }) <= 1;
}

void Memory::Release() {
  if (buffers_.load() > 0) {
    throw nb::builtin_exception(nb::exception_type::buffer_error,
                                "arrays or memoryviews of this view are still in use");
  }
  released_ = true;
  hold_.reset();
}

int Memory::GetBuffer(PyObject* self, Py_buffer* out, int flags) {
  out->obj = nullptr;
  auto* memory = nb::inst_ptr<Memory>(self);
  if (IsForked()) {
    PyErr_SetString(PyExc_BufferError, "tensorferry was imported before this process was forked");
    return -1;
  }
  if (memory->released_) {
    PyErr_SetString(PyExc_BufferError, "this view was released");
    return -1;
  }
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && memory->readonly_) {
    PyErr_SetString(PyExc_BufferError, "this view is read-only: copy it to write to it");
    return -1;
  }
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !memory->OneColumn()) {
    PyErr_SetString(PyExc_BufferError, "this tensor is row-major, and column-major was asked for");
    return -1;
  }
  static std::byte nothing;
  const std::byte* data = memory->bytes_.empty() ? &nothing : memory->bytes_.data();
  out->buf = const_cast<std::byte*>(data);
  out->len = static_cast<Py_ssize_t>(memory->bytes_.size());
  out->itemsize = static_cast<Py_ssize_t>(ItemBytes(memory->dtype_));
  out->readonly = memory->readonly_ ? 1 : 0;
  out->format =
      (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(BufferFormat(memory->dtype_)) : nullptr;
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  const bool shaped = (flags & PyBUF_ND) == PyBUF_ND;
  out->ndim = shaped ? static_cast<int>(memory->shape_.size()) : 1;
  out->shape = shaped ? reinterpret_cast<Py_ssize_t*>(memory->shape_.data()) : nullptr;
  out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                     ? reinterpret_cast<Py_ssize_t*>(memory->strides_.data())
                     : nullptr;
  out->suboffsets = nullptr;
  out->internal = nullptr;
  out->obj = Py_NewRef(self);
  ++memory->buffers_;
  return 0;
}

void Memory::ReleaseBuffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<Memory>(self)->buffers_; }

PyType_Slot* Memory::slots() {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&GetBuffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(&ReleaseBuffer)},
                                {0, nullptr}};
  return slots;
}

nb::object Memory::ToDlpack(bool versioned, bool copy) const {
  RequireOwnProcess();
  const auto fail = [](const char* why) {
    throw nb::builtin_exception(nb::exception_type::buffer_error, why);
  };
  if (released_) fail("this view was released");
  if (readonly_ && !versioned && !copy) {
    fail(
        "this view is read-only, which DLPack can say from version 1.0 on, and its consumer takes "
        "none: copy the view "
        "first, or update the consumer");
  }
  std::shared_ptr<const void> hold = hold_;
  void* data = const_cast<std::byte*>(bytes_.data());
  if (copy) {
    std::shared_ptr<void> copied = Copied(bytes_);
    data = copied.get();
    hold = std::move(copied);
  }
  const auto fill = [&](auto* exported) {
    exported->shape = shape_;
    for (const int64_t stride : strides_) {
      exported->strides.push_back(stride / static_cast<int64_t>(ItemBytes(dtype_)));
    }
    exported->hold = std::move(hold);
    exported->managed.manager_ctx = exported;
    exported->managed.deleter = &exported->Delete;
    exported->managed.dl_tensor = {.data = data,
                                   .device = {kDLCPU, 0},
                                   .ndim = static_cast<int32_t>(shape_.size()),
                                   .dtype = DlpackType(dtype_),
                                   .shape = exported->shape.data(),
                                   .strides = exported->strides.data(),
                                   .byte_offset = 0};
  };
  if (versioned) {
    auto* exported = new Exported<DLManagedTensorVersioned>();
    fill(exported);
    exported->managed.version = {1, 0};
    exported->managed.flags = (copy ? kDLIsCopied : 0) | (readonly_ && !copy ? kDLReadOnly : 0);
    return Capsule(exported, kVersionedCapsule, [](PyObject* capsule) {
      DeleteUnused<DLManagedTensorVersioned>(capsule, kVersionedCapsule);
    });
  }
  auto* exported = new Exported<DLManagedTensor>();
  fill(exported);
  return Capsule(exported, kCapsule,
                 [](PyObject* capsule) { DeleteUnused<DLManagedTensor>(capsule, kCapsule); });
}

void BindMemory(nb::module_& module) {
  nb::class_<Memory>(module, "Memory", nb::type_slots(Memory::slots()), nb::is_weak_referenceable())
      .def(nb::init<const Memory&>(), nb::arg("memory"))
      .def_static("_of_buffer", &Memory::OfBuffer, nb::arg("source"), nb::arg("transport"))
      .def(
          "_typed",
          [](const Memory& self, const std::string& dtype, const std::vector<uint32_t>& shape) {
            return self.As(ValueOrThrow(ParseDtype(dtype)), shape);
          },
          nb::arg("dtype"), nb::arg("shape"))
      .def("_release", &Memory::Release)
      .def("_dlpack", &Memory::ToDlpack, nb::arg("versioned"), nb::arg("copy"))
      .def_prop_ro("_dtype", [](const Memory& m) { return std::string(DtypeName(m.dtype())); })
      .def_prop_ro("_shape", [](const Memory& m) { return nb::tuple(nb::cast(m.shape())); })
      .def_prop_ro("_nbytes", [](const Memory& m) { return m.bytes().size(); })
      .def_prop_ro("_readonly", &Memory::readonly)
      .def_prop_ro("_borrowed", &Memory::borrowed)
      .def_prop_ro("_released", &Memory::released)
      .def_prop_ro("_transport", &Memory::transport);
  module.def(
      "item_bytes",
      [](const std::string& dtype) { return ItemBytes(ValueOrThrow(ParseDtype(dtype))); },
      nb::arg("dtype"));
  module.def(
      "check_tensor",
      [](const std::string& dtype, const std::vector<uint32_t>& shape, uint64_t nbytes) {
        ThrowIfError(CheckTensorBytes(shape, ValueOrThrow(ParseDtype(dtype)), nbytes));
      },
      nb::arg("dtype"), nb::arg("shape"), nb::arg("nbytes"));
}

}  // namespace tensorferry::python
