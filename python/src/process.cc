#include "python/src/process.h"

#include <nanobind/nanobind.h>
#include <pthread.h>

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
  const nanobind::gil_scoped_acquire gil;
  what();
}

PyHold::~PyHold() {
  WithGil([this] { Py_DECREF(object_); });
}

}  // namespace tensorferry::python
