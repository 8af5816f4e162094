// What the parts of the extension module add to it.
//
//   NB_MODULE(_core, module) { BindPuller(module); ... }
//
// Thread-safety: called once, at import.
#ifndef TENSORFERRY_PYTHON_SRC_BINDINGS_H_
#define TENSORFERRY_PYTHON_SRC_BINDINGS_H_

#include <nanobind/nanobind.h>

#include "tensorferry/base/log.h"

namespace tensorferry::python {

void BindPuller(nanobind::module_& module);
void BindExporter(nanobind::module_& module);
void BindDescriptors(nanobind::module_& module);
void BindSettings(nanobind::module_& module);
void BindLog(nanobind::module_& module);

// Keeps lines until next_log() fetches them, so that no thread of the library ever waits for the GIL to write one.
LogSink QueueLog();

}  // namespace tensorferry::python

#endif  // TENSORFERRY_PYTHON_SRC_BINDINGS_H_
