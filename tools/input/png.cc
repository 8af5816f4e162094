#include "tools/input/png.h"

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::tools {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);

// A picture being read. libpng leaves by longjmp, over frames without destructors: so all memory is
// held here, and the functions that call libpng hold none.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::StatusOr<PictureSize> Header() {
    if (info_ == nullptr) return MakeError(Reason::kNoMemory, "no memory for a PNG decoder");
    if (!ReadInfo()) return Damaged();
    return PictureSize{png_get_image_width(png_, info_), png_get_image_height(png_, info_)};
  }

  // After Header().
  absl::Status Decode(PictureSize size, Dtype dtype, std::span<std::byte> out) {
    const bool wide = png_get_bit_depth(png_, info_) == 16;
    const bool interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    // An interlaced picture is complete only after the last of its passes.
    const size_t kept_rows = interlaced ? size.height : 1;
    const size_t row_items = size_t{3} * size.width;
    const std::unique_ptr<uint16_t[]> memory(
        new (std::nothrow) uint16_t[(kept_rows * row_items + 1) / (wide ? 1 : 2)]);
    if (memory == nullptr) {
      return MakeError(Reason::kNoMemory,
                       StrCat("no memory for ", kept_rows, " rows of ", row_items, " samples"));
    }
    PlanarWriter writer(dtype, size, out);
    const auto row_at = [&](size_t y) {
      const size_t offset = (interlaced ? y : 0) * row_items;
      return wide ? reinterpret_cast<png_bytep>(memory.get() + offset)
                  : reinterpret_cast<png_bytep>(memory.get()) + offset;
    };
    const auto write_row = [&](uint32_t y) {
      if (wide) {
        writer.Row16(y, reinterpret_cast<const uint16_t*>(row_at(y)));
      } else {
        writer.Row8(y, row_at(y));
      }
    };

    if (!StartRows()) return Damaged();
    if (png_get_rowbytes(png_, info_) != row_items * (wide ? 2 : 1)) return Damaged();
    for (int pass = interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1; pass > 0; --pass) {
      for (uint32_t y = 0; y < size.height; ++y) {
        if (!ReadRow(row_at(y))) return Damaged();
        if (pass == 1) write_row(y);
      }
    }
    return ReadEnd() ? absl::OkStatus() : Damaged();
  }

 private:
  // Every function with a setjmp is small and has no local variable.
  bool ReadInfo() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, OnRead);
    // The limit on sizes is ours, which an option lifts.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_read_info(png_, info_);
    return true;
  }

  bool StartRows() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);  // palette and fewer than 8 bits to 8 bits
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    png_set_swap(png_);  // 16 bits are big-endian in the file
    (void)png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool ReadRow(png_bytep row) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }

  bool ReadEnd() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_end(png_, nullptr);
    return true;
  }

  absl::Status Damaged() const {
    return MakeError(Reason::kBadInput, StrCat("a damaged PNG picture (", std::string_view(error_),
                                               "); fetch it again, or open and save it anew"));
  }

  static void OnRead(png_structp png, png_bytep to, size_t size) {
    PngReader* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->rest_.size()) png_error(png, "it ends early");
    std::memcpy(to, self->rest_.data(), size);
    self->rest_ = self->rest_.subspan(size);
  }

  static void OnError(png_structp png, png_const_charp message) {
    PngReader* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->error_, message, sizeof(self->error_) - 1);
    png_longjmp(png, 1);
  }

  // About chunks that do not touch the samples.
  static void OnWarning(png_structp, png_const_charp) {}

  std::span<const std::byte> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char error_[128] = "rows of an unexpected size";
};

}  // namespace

bool LooksLikePng(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

absl::StatusOr<PictureSize> ReadPngHeader(std::span<const std::byte> bytes, uint64_t max_pixels) {
  absl::StatusOr<PictureSize> size = PngReader(bytes).Header();
  if (!size.ok()) return size;
  if (absl::Status status = CheckPictureSize(*size, max_pixels); !status.ok()) return status;
  return size;
}

absl::Status DecodePng(std::span<const std::byte> bytes, PictureSize size, Dtype dtype,
                       std::span<std::byte> out) {
  PngReader reader(bytes);
  const absl::StatusOr<PictureSize> now = reader.Header();
  if (!now.ok()) return now.status();
  if (*now != size) return MakeError(Reason::kBadInput, "the file changed while it was being sent");
  return reader.Decode(size, dtype, out);
}

}  // namespace tensorferry::tools
