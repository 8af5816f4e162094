#include "python/src/errors.h"

#include <nanobind/stl/string.h>

#include <string>

#include "python/src/process.h"
#include "tensorferry/base/text.h"

namespace nb = nanobind;

namespace tensorferry::python {
namespace {

// tensorferry._errors.make, for as long as the process lives.
nb::handle the_maker;

// What SMG's workers answer with INVALID_ARGUMENT, their ValueError. A dtype that they do not know is none to them.
bool IsBadInput(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && ReasonOf(status) != Reason::kUnknownDtype;
}

}  // namespace

nb::object ErrorObject(const absl::Status& status) {
  return Call(the_maker, nb::make_tuple(std::string(ReasonNameOf(status)),
                                        std::string(StdView(status.message())), IsRetryable(status),
                                        IsBadInput(status)));
}

void RegisterErrors() {
  the_maker = nb::getattr(nb::module_::import_("tensorferry._errors"), "make").release();
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const StatusError& e) {
      try {
        const nb::object error = ErrorObject(e.status());
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
      } catch (nb::python_error& failed) {
        failed.restore();
      }
    }
  });
}

}  // namespace tensorferry::python
