// What the command takes from its environment: the only place that reads it.
//
//   const LocalSocket socket(options.local_socket);      // empty: a private one
//   exporter_options.local_socket = socket.path();
//
// Thread-safety: none.
#ifndef TENSORFERRY_TOOLS_SETTINGS_H_
#define TENSORFERRY_TOOLS_SETTINGS_H_

#include <string>

namespace tensorferry::tools {

// Where an exporter's unix socket goes. A private one lies in a directory of its own, of a random
// name that only this user may enter, under $XDG_RUNTIME_DIR or /tmp; it goes with this object.
class LocalSocket {
 public:
  explicit LocalSocket(const std::string& path_or_empty);
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  // Where no directory could be made, one that does not exist: listening there says so.
  const std::string& path() const { return path_; }

 private:
  std::string directory_;  // ours; empty when the path was given
  std::string path_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_SETTINGS_H_
