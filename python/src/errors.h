// absl::Status as Python's exceptions.
//
//   ThrowIfError(status);                          // becomes what tensorferry._errors makes of it
//   View view = ValueOrThrow(puller->Pull(...));
//   nb::object error = ErrorObject(status);        // not raised: for callbacks and lists
//
// Thread-safety: with the GIL, except that throwing needs none.
#ifndef TENSORFERRY_PYTHON_SRC_ERRORS_H_
#define TENSORFERRY_PYTHON_SRC_ERRORS_H_

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "absl/status/statusor.h"
#include "tensorferry/base/error.h"

namespace tensorferry::python {

class StatusError : public std::exception {
 public:
  explicit StatusError(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

[[noreturn]] inline void ThrowError(Reason reason, std::string_view message) {
  throw StatusError(MakeError(reason, message));
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw StatusError(value.status());
  return *std::move(value);
}

// An exception as an object. The GIL is held.
nanobind::object ErrorObject(const absl::Status& status);

void RegisterErrors();

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_ERRORS_H_
