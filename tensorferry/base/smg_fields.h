// The two fields of SMG's messages whose C++ accessors are not called what the .proto says.
//
//   SetDescriptor(data->mutable_remote(), std::move(bytes));
//   MutableInline(data)->assign(...);
//
// `inline` is a keyword, so that protoc appends an underscore. `descriptor` clashes with a static
// function of every message: newer protocs append an underscore, older ones keep the name and need
// `option no_standard_descriptor_accessor = true` in the message.
//
// Thread-safety: as the messages'.
#ifndef TENSORFERRY_BASE_SMG_FIELDS_H_
#define TENSORFERRY_BASE_SMG_FIELDS_H_

#include <string>
#include <utility>

namespace tensorferry {

template <class RemoteTensorHandle>
void SetDescriptor(RemoteTensorHandle* handle, std::string bytes) {
  if constexpr (requires { handle->set_descriptor_(std::move(bytes)); }) {
    handle->set_descriptor_(std::move(bytes));
  } else {
    handle->set_descriptor(std::move(bytes));
  }
}

template <class RemoteTensorHandle>
const std::string& GetDescriptor(const RemoteTensorHandle& handle) {
  if constexpr (requires(RemoteTensorHandle * h) { h->set_descriptor_(std::string()); }) {
    return handle.descriptor_();
  } else {
    return handle.descriptor();
  }
}

template <class TensorData>
std::string* MutableInline(TensorData* data) {
  return data->mutable_inline_();
}

template <class TensorData>
const std::string& GetInline(const TensorData& data) {
  return data.inline_();
}

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_SMG_FIELDS_H_
