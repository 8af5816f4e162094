// What must not happen in a child made by fork(), nor while the interpreter ends.
//
//   RequireOwnProcess();                     // at the start of every call
//   auto hold = OwnedHere(view.hold());      // forgotten, not released, in a child
//   { const NoGil nogil; puller->Pull(...); }
//
// Threads do not survive a fork, but memory that is shared with a gateway does: a child that released a view would
// release its parent's. Thread-safety: from any thread, with or without the GIL.
#ifndef TENSORFERRY_PYTHON_SRC_PROCESS_H_
#define TENSORFERRY_PYTHON_SRC_PROCESS_H_

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <utility>

namespace tensorferry::python {

// Once, when the module is imported.
void WatchForks();
// This process is a child of the one that imported the module.
bool IsForked();
// Throws a RuntimeError that says what to do instead.
void RequireOwnProcess();

// Runs `what` with the GIL; not at all when the interpreter is ending, or in a child.
void WithGil(const std::function<void()>& what);

// Lets other threads run Python until its end. A thread that comes back while the interpreter ends stops there for good:
// Python before 3.14 unwinds it instead, through destructors that need the GIL and functions that are noexcept.
class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Calls what may be written in Python, where a thread may have to stop likewise. python_error.
nanobind::object Call(nanobind::handle callable, const nanobind::tuple& arguments,
                      const nanobind::dict& named = nanobind::dict());

// Runs the handlers of signals that have come, in the main thread; true when one of them has raised, which is then the
// error that is set. Without the GIL.
bool InterruptedBySignal();

// As `hold`, but in a child its end has no effect.
template <typename T>
std::shared_ptr<T> OwnedHere(std::shared_ptr<T> hold) {
  T* const object = hold.get();
  return std::shared_ptr<T>(object, [hold = std::move(hold)](T*) mutable {
    if (IsForked()) new std::shared_ptr<T>(std::move(hold));
  });
}

// A Python object that C++ threads may hold and drop.
class PyHold {
 public:
  // Takes over a reference.
  explicit PyHold(PyObject* object) : object_(object) {}
  ~PyHold();
  PyHold(const PyHold&) = delete;
  PyHold& operator=(const PyHold&) = delete;
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_PROCESS_H_
