// Marks what a shared library shows of a class or function; all else is hidden.
//
//   class TENSORFERRY_EXPORT Exporter { ... };
//   TENSORFERRY_EXPORT std::string_view ReasonName(Reason reason);
//
// For what programs call, not for what rooms call of each other. Static builds are the same with
// and without it.
#ifndef TENSORFERRY_BASE_EXPORT_H_
#define TENSORFERRY_BASE_EXPORT_H_

#define TENSORFERRY_EXPORT __attribute__((visibility("default")))

#endif  // TENSORFERRY_BASE_EXPORT_H_
