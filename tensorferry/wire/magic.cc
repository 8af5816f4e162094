#include "tensorferry/wire/magic.h"

#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::wire {

absl::Status CheckMagic(Reader* in, std::string_view magic, std::string_view what) {
  const std::string_view got = AsText(in->Take(magic.size()));
  if (got == magic) return absl::OkStatus();
  const std::string_view family = magic.substr(0, magic.size() - 1);
  if (got.starts_with(family) && got.back() >= '0' && got.back() <= '9') {
    return MakeError(Reason::kUnknownVersion,
                     StrCat(what, " of version ", got.substr(family.size()),
                            ", this side speaks version ", magic.substr(family.size())));
  }
  return MakeError(
      Reason::kProtocol,
      StrCat(what, " begins with \"", absl::CHexEscape(AbslView(got)), "\", not with ", magic));
}

}  // namespace tensorferry::wire
