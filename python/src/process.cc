#include "python/src/process.h"

#include <cxxabi.h>
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

// Calls what takes the GIL.
template <typename Take>
auto TakeGil(const Take& take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    // It may neither be swallowed nor go on. The main thread is ending the process.
    while (true) ::pause();
  }
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
  const PyGILState_STATE state = TakeGil(&PyGILState_Ensure);
  what();
  PyGILState_Release(state);
}

NoGil::~NoGil() {
  TakeGil([this] { PyEval_RestoreThread(state_); });
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
