#include "tools/inspect_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/descriptor.h"
#include "tensorferry/wire/descriptor_kind.h"
#include "tensorferry/wire/smg_descriptor.h"
#include "tools/hex.h"
#include "tools/output.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

using Json = nlohmann::ordered_json;

// What is printed, in both forms.
struct Inspected {
  std::string text;
  Json json;
};

Json WayJson(const wire::Way& way) {
  if (const auto* local = std::get_if<wire::LocalWay>(&way)) {
    return {{"transport", wire::TransportOf(way)},
            {"boot_id", BootIdText(local->boot_id)},
            {"socket_path", local->socket_path}};
  }
  const auto& net = std::get<wire::NetWay>(way);  // what else there is only stock handles name
  Json addresses = Json::array();
  for (const SocketAddress& address : net.addresses) addresses.push_back(address.ToString());
  Json json = {{"transport", wire::TransportOf(way)}, {"addresses", std::move(addresses)}};
  if (net.one_sided) json["get"] = true;
  return json;
}

absl::StatusOr<Inspected> InspectOurs(std::span<const std::byte> bytes) {
  const absl::StatusOr<wire::Descriptor> d = wire::DecodeDescriptor(bytes);
  if (!d.ok()) return d.status();
  Json ways = Json::array();
  for (const wire::Way& way : d->ways) ways.push_back(WayJson(way));
  return Inspected{.text = wire::DescriptorText(*d),
                   .json = {{"kind", "tensorferry"},
                            {"instance", Hex(d->instance)},
                            {"lease", d->lease.id},
                            {"generation", d->lease.generation},
                            {"token", "redacted"},
                            {"key", d->key},
                            {"nbytes", d->nbytes},
                            {"checksum", d->checksum ? Json(*d->checksum) : Json(nullptr)},
                            {"wants_done", d->wants_done},
                            {"ways", std::move(ways)}}};
}

absl::StatusOr<Inspected> InspectSmg(std::span<const std::byte> bytes) {
  const absl::StatusOr<wire::SmgDescriptor> d = wire::ParseSmgDescriptor(bytes, std::nullopt);
  if (!d.ok()) return d.status();
  return Inspected{.text = wire::SmgDescriptorText(*d),
                   .json = {{"kind", "nixl"},
                            {"slot_addr", d->slot_addr},
                            {"generation", d->gen},
                            {"key", d->key},
                            {"port", d->port},
                            {"host", d->host}}};
}

absl::StatusOr<Inspected> InspectBytes(std::span<const std::byte> bytes) {
  switch (wire::SniffDescriptor(bytes)) {
    case wire::DescriptorKind::kTensorferry:
      return InspectOurs(bytes);
    case wire::DescriptorKind::kSmg:
      return InspectSmg(bytes);
    case wire::DescriptorKind::kSmgUnknown:
      return MakeError(
          Reason::kUnknownMagic,
          "starts like an SMG descriptor, but not with SMGRDMA1, the version known here");
    case wire::DescriptorKind::kLegacy:
      return MakeError(
          Reason::kLegacyNeedsKey,
          "may be a legacy SMG descriptor, which has no magic to tell it by and no key; "
          "the encoder that gets it knows its key");
    case wire::DescriptorKind::kNone:
      break;
  }
  return MakeError(
      Reason::kBadDescriptor,
      StrCat("these ", bytes.size(),
             " bytes start with neither TFERRY nor SMGRDMA1, so they are no descriptor"));
}

int Inspect(const std::string& hex, bool json) {
  const std::string bytes = *FromHex(hex);
  const absl::StatusOr<Inspected> inspected = InspectBytes(wire::AsBytes(bytes));
  if (!inspected.ok()) {
    if (json) PrintErrorJson(inspected.status());
    return Fail("inspect", inspected.status());
  }
  if (json) {
    PrintJson(inspected->json);
  } else {
    std::string_view text = inspected->text;
    while (text.ends_with('\n')) text.remove_suffix(1);
    PrintLine(text);
  }
  return kDone;
}

}  // namespace

void AddInspectCommand(CLI::App& app, int* exit_code) {
  struct Arguments {
    std::string hex;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("inspect", "Say what a descriptor says");
  verb->footer(
      "Example:\n  tensorferry inspect 54464552…\n\n"
      "Reads our own descriptors and SMG's. The token, which gives the right to read, is not "
      "shown.");
  verb->add_option("descriptor", arguments->hex, "the descriptor, in hexadecimal")
      ->required()
      ->check([](const std::string& text) { return UsageOf(FromHex(text).status()); });
  verb->add_flag("--json", arguments->json, "one JSON object");
  verb->callback([arguments, exit_code] { *exit_code = Inspect(arguments->hex, arguments->json); });
}

}  // namespace tensorferry::tools
