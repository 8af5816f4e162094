#include "tools/serve/journal.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/input/safetensors.h"
#include "tools/output.h"

namespace tensorferry::tools {

absl::Status Journal::Prepare() const {
  if (options_.save.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(options_.save, error);
  if (error || ::access(options_.save.c_str(), W_OK) != 0) {
    return SystemError(error ? error.value() : errno, StrCat("--save ", options_.save));
  }
  return absl::OkStatus();
}

absl::Status Journal::Tensor(const ReceivedTensor& received) {
  if (absl::Status s = Save(received); !s.ok()) return Annotate(s, "--save");
  const tensorferry::Tensor& tensor = *received.tensor;
  const double seconds = std::chrono::duration<double>(received.took).count();
  if (options_.json) {
    PrintJson({{"event", "tensor"},
               {"request_id", received.request_id},
               {"item", received.name.item},
               {"role", TensorRoleName(received.name.role)},
               {"name", received.name.name},
               {"lane", LaneName(tensor.lane)},
               {"transport", tensor.transport},
               {"shape", tensor.shape},
               {"dtype", DtypeName(tensor.dtype)},
               {"nbytes", tensor.bytes.size()},
               {"sha256", Hex(received.sha256)},
               {"seconds", seconds}});
  } else {
    PrintLine(absl::StrFormat("%-6s %-6s %-18s %-9s %11d B %9.2f ms  sha256 %s",
                              AbslView(LaneName(tensor.lane)), AbslView(tensor.transport),
                              ShapeText(tensor.shape), AbslView(DtypeName(tensor.dtype)),
                              tensor.bytes.size(), seconds * 1e3, Hex(received.sha256)));
  }
  return absl::OkStatus();
}

absl::Status Journal::Save(const ReceivedTensor& received) {
  if (options_.save.empty()) return absl::OkStatus();
  // The sender's names are no file names to be trusted.
  const std::string path =
      StrCat(options_.save, "/", absl::StrFormat("tensor-%06d", ++saved_), ".safetensors");
  return SaveSafetensors(path, {.name = received.name.name,
                                .shape = received.tensor->shape,
                                .dtype = received.tensor->dtype,
                                .bytes = received.tensor->bytes});
}

void Journal::Failure(const std::string& request_id, const absl::Status& status) const {
  PrintError("worker", StrCat(request_id, ": ", status.message(), " (", ReasonNameOf(status), ")"));
}

void Journal::Generate(const Generated& generated) const {
  if (options_.json) {
    PrintJson({{"event", "generate"},
               {"request_id", generated.request_id},
               {"stream", generated.stream},
               {"tensors", generated.tensors},
               {"tokens", generated.tokens},
               {"outcome", OutcomeName(generated.outcome)}});
  } else {
    PrintLine(absl::StrFormat("generate %s: %d tensors, %d tokens, %s", generated.request_id,
                              generated.tensors, generated.tokens,
                              AbslView(OutcomeName(generated.outcome))));
  }
}

}  // namespace tensorferry::tools
