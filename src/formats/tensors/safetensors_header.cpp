#include "formats/tensors/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/io/check_input.h"
#include "formats/config/json.h"

namespace rapt::detail {
namespace {

constexpr std::size_t max_tensors = 1'000'000;
constexpr std::size_t max_axes = 8;
constexpr Index max_metadata_bytes = 10'000'000;

struct StoredType {
  const char* name;
  Index bits;
};
constexpr StoredType stored_types[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64},
};

/// The header as a machine of few states: it keeps nothing but the entries, so that a hostile
/// header costs little more memory than its own length.
class HeaderEvents : public JsonEvents {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}

  void open_object() override {
    check_input(!in_list_ && ++depth_ <= 2, "an object where none belongs");
  }
  void open_array() override {
    check_input(depth_ > 0, "the header is a list, expected an object");
    check_input(depth_ == 2 && !in_metadata_ && !in_list_ && (field_ == "shape" || offsets()),
                "a list where none belongs");
    in_list_ = true;
    if (offsets()) offsets_.clear();
  }
  void key(std::string name) override {
    if (depth_ == 1)
      begin_entry(std::move(name));
    else if (in_metadata_)
      begin_metadata(std::move(name));
    else
      begin_field(std::move(name));
  }
  void scalar(Json value) override {
    check_input(depth_ > 0, "the header is ", value.type_name(), ", expected an object");
    if (in_list_) return item(value);
    if (in_metadata_ && depth_ == 2) {
      check_input(value.is_string(), "__metadata__ ", printable(field_), " is not text");
      header_.metadata[field_] = value.get<std::string>();
      metadata_bytes_ += static_cast<Index>(header_.metadata[field_].size());
      return check_input(metadata_bytes_ <= max_metadata_bytes, "__metadata__ has more than ",
                         max_metadata_bytes, " bytes");
    }
    check_input(depth_ == 2, "entry ", printable(field_), " is not an object");
    check_input(field_ == "dtype", "tensor ", name(), ": ", field_, " is not a list");
    check_input(value.is_string(), "tensor ", name(), ": dtype is not text");
    entry().type = value.get<std::string>();
  }
  void close() override {
    if (std::exchange(in_list_, false)) return;
    --depth_;
    if (depth_ == 1 && !std::exchange(in_metadata_, false)) end_entry();
  }

  /// Begin and end of each tensor's bytes, in the order of header.tensors.
  const std::vector<std::pair<Index, Index>>& places() const { return places_; }

 private:
  bool offsets() const { return field_ == "data_offsets"; }
  StoredTensor& entry() { return header_.tensors.back(); }
  Printable name() { return printable(entry().name); }

  void begin_entry(std::string name) {
    field_ = name;
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) {
      check_input(!std::exchange(had_metadata_, true), "__metadata__ occurs twice");
      return;
    }
    check_input(header_.tensors.size() < max_tensors, "more than ", max_tensors, " tensors");
    header_.tensors.push_back({.name = std::move(name), .type = {}, .shape = {}});
    seen_.clear();
  }
  void begin_metadata(std::string name) {
    field_ = std::move(name);
    check_input(header_.metadata.try_emplace(field_).second, "__metadata__ ", printable(field_),
                " occurs twice");
    metadata_bytes_ += static_cast<Index>(field_.size()) + 100;
  }
  void begin_field(std::string name) {
    field_ = std::move(name);
    check_input(field_ == "dtype" || field_ == "shape" || offsets(), "tensor ", this->name(),
                ": unknown key ", printable(field_));
    check_input(std::find(seen_.begin(), seen_.end(), field_) == seen_.end(), "tensor ",
                this->name(), ": ", field_, " occurs twice");
    seen_.push_back(field_);
  }
  void item(const Json& value) {
    if (!value.is_number_unsigned() || !std::in_range<Index>(value.get<std::uint64_t>()))
      fail_input("tensor ", name(), ": ", field_, " has the entry ", shown(value),
                 ", expected a whole number from 0 to 2^63 - 1");
    std::vector<Index>& list = offsets() ? offsets_ : entry().shape;
    list.push_back(value.get<Index>());
    check_input(list.size() <= (offsets() ? 2 : max_axes), "tensor ", name(), ": ", field_,
                " has more than ", offsets() ? 2 : max_axes, " entries");
  }
  static std::string shown(const Json& value) {
    return value.is_string() ? printable(value.get_ref<const std::string&>()).text() : value.dump();
  }
  void end_entry() {
    check_input(seen_.size() == 3, "tensor ", name(), ": expected dtype, shape and data_offsets");
    check_input(offsets_.size() == 2, "tensor ", name(), ": data_offsets has ", offsets_.size(),
                " entries, expected 2");
    places_.emplace_back(offsets_[0], offsets_[1]);
  }

  SafetensorsHeader& header_;
  std::vector<std::pair<Index, Index>> places_;
  std::vector<std::string> seen_;
  std::vector<Index> offsets_;
  std::string field_;
  int depth_ = 0;
  bool in_list_ = false, in_metadata_ = false, had_metadata_ = false;
  Index metadata_bytes_ = 0;
};

/// Bytes of a tensor by its shape and type.
Index needed_bytes(const StoredTensor& tensor, const std::string& source) {
  const auto* type = std::find_if(std::begin(stored_types), std::end(stored_types),
                                  [&](const StoredType& t) { return tensor.type == t.name; });
  check_input(type != std::end(stored_types), source, ": tensor ", printable(tensor.name),
              " has the unknown dtype ", printable(tensor.type));
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  Index bits = type->bits;
  for (const Index size : tensor.shape)
    check_input(!__builtin_mul_overflow(bits, size, &bits), source, ": tensor ",
                printable(tensor.name), " is so large that its size overflows 64 bits");
  check_input(bits % 8 == 0, source, ": tensor ", printable(tensor.name), " has ", bits,
              " bits, which are no whole bytes");
  return bits / 8;
}

void check_place(const StoredTensor& tensor, std::pair<Index, Index> place, Index data_bytes,
                 const std::string& source) {
  const auto [begin, end] = place;
  check_input(begin <= end && end <= data_bytes, source, ": tensor ", printable(tensor.name),
              " has data_offsets ", begin, " to ", end, " of ", data_bytes, " bytes");
  const Index needed = needed_bytes(tensor, source);
  check_input(end - begin == needed, source, ": tensor ", printable(tensor.name), " has ",
              end - begin, " bytes, its dtype and shape need ", needed);
}

/// Sorts by name; no name comes twice.
void sort_by_name(std::vector<StoredTensor>& tensors, const std::string& source) {
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
  if (twice != tensors.end())
    fail_input(source, ": tensor ", printable(twice->name), " occurs twice");
}

/// Every byte belongs to exactly one tensor.
void check_coverage(const std::vector<StoredTensor>& tensors, Index data_offset, Index data_bytes,
                    const std::string& source) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  Index covered = data_offset;
  for (const StoredTensor* tensor : order) {
    check_input(tensor->offset >= covered, source, ": tensor ", printable(tensor->name),
                " overlaps the one before it at byte ", tensor->offset);
    check_input(tensor->offset == covered, source, ": bytes ", covered, " to ", tensor->offset,
                " before tensor ", printable(tensor->name), " belong to no tensor");
    covered += tensor->bytes;
  }
  check_input(covered == data_offset + data_bytes, source, ": the bytes after ", covered,
              " belong to no tensor");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source,
                                           Index data_offset, Index data_bytes) {
  SafetensorsHeader header;
  HeaderEvents events(header);
  visit_json(text, source, events);
  std::vector<StoredTensor>& tensors = header.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_place(tensors[i], events.places()[i], data_bytes, source);
    tensors[i].offset = data_offset + events.places()[i].first;
    tensors[i].bytes = events.places()[i].second - events.places()[i].first;
  }
  sort_by_name(tensors, source);
  check_coverage(tensors, data_offset, data_bytes, source);
  return header;
}

}  // namespace rapt::detail
