#include "python/src/process.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace tensorferry::python {
namespace {

std::atomic<bool> forked = false;

bool InterpreterIsEnding() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

// The main thread is ending the process, and this one is being unwound, which may not go on.
struct StopsForGood {
  bool done = false;
  ~StopsForGood() {
    while (!done) ::pause();
  }
};

// Calls what takes the GIL, or may take it again. A destructor stops it, since nothing may catch this unwinding where
// another exception is being handled; a function of its own, since a caller that is noexcept might do without it.
template <typename What>
[[gnu::noinline]] auto OrStop(const What& what) {
  StopsForGood unless;
  const auto result = what();
  unless.done = true;
  return result;
}

}  // namespace

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
}

bool IsForked() { return forked.load(std::memory_order_relaxed); }

void RequireOwnProcess() {
  if (!IsForked()) return;
  throw nanobind::builtin_exception(nanobind::exception_type::runtime_error,
                                    "tensorferry was imported before this process was forked, and "
                                    "neither its threads nor its shared memory survive "
                                    "that: import it in the child, or start children with "
                                    "multiprocessing's \"spawn\" or \"forkserver\" method");
}

void WithGil(const std::function<void()>& what) {
  if (IsForked() || InterpreterIsEnding()) return;
  const PyGILState_STATE state = OrStop(&PyGILState_Ensure);
  what();
  PyGILState_Release(state);
}

NoGil::~NoGil() {
  OrStop([this] {
    PyEval_RestoreThread(state_);
    return true;
  });
}

nanobind::object Call(nanobind::handle callable, const nanobind::tuple& arguments,
                      const nanobind::dict& named) {
  PyObject* const result =
      OrStop([&] { return PyObject_Call(callable.ptr(), arguments.ptr(), named.ptr()); });
  if (result == nullptr) throw nanobind::python_error();
  return nanobind::steal(result);
}

bool InterruptedBySignal() {
  bool raised = false;
  WithGil([&] { raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0; });
  return raised;
}

PyHold::~PyHold() {
  WithGil([this] { Py_DECREF(object_); });
}

}  // namespace tensorferry::python
