#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/sizes.h"
#include "formats/config/json.h"
#include "formats/tensors/safetensors_file.h"

namespace rapt::detail {
namespace {

constexpr Index alignment = 64;

std::string stored_name(Type type) {
  return type == Type::f32 ? "F32" : type == Type::bf16 ? "BF16" : "F16";
}

Index bytes_of(const AnyView& numbers) {
  return checked_product({numbers.shape().elements(), static_cast<Index>(size_of(numbers.type()))});
}

void check_tensors(std::span<const NamedTensor> tensors) {
  std::set<std::string> names;
  for (const auto& [name, numbers] : tensors) {
    check(name != "__metadata__", "write_safetensors: no tensor can be called __metadata__");
    check(names.insert(name).second, "write_safetensors: tensor ", printable(name), " comes twice");
    check(numbers.shape().rank() > 0, "write_safetensors: tensor ", printable(name),
          " has no axes");
    check(numbers.shape().elements() == 0 || numbers.strides() == numbers.shape().row_major(),
          "write_safetensors: tensor ", printable(name), " has strides ", numbers.strides(),
          ", expected ", numbers.shape().row_major(), " (row-major)");
  }
}

/// Four-byte numbers first, so that every tensor is aligned to the size of its numbers.
std::vector<const NamedTensor*> order_of(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_partition(order.begin(), order.end(), [](const NamedTensor* tensor) {
    return tensor->numbers.type() == Type::f32;
  });
  return order;
}

std::string header_of(const std::vector<const NamedTensor*>& order,
                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump() + ",";
  Index begin = 0;
  for (const NamedTensor* tensor : order) {
    const AnyView& numbers = tensor->numbers;
    const Index end = checked_sum({begin, bytes_of(numbers)});
    Json shape = Json::array();
    for (Index axis = 0; axis < numbers.shape().rank(); ++axis) shape.push_back(numbers.size(axis));
    const Json entry{{"dtype", stored_name(numbers.type())},
                     {"shape", std::move(shape)},
                     {"data_offsets", {begin, end}}};
    text += Json(tensor->name).dump() + ":" + entry.dump() + ",";
    begin = end;
  }
  if (text.back() == ',') text.pop_back();
  text += "}";
  const auto length = static_cast<Index>(text.size());
  text.append(to_size(round_up(8 + length, alignment) - 8 - length), ' ');
  return text;
}

}  // namespace

FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  check_tensors(tensors);
  const std::vector<const NamedTensor*> order = order_of(tensors);
  const std::string header = header_of(order, metadata);
  check(static_cast<Index>(header.size()) <= JsonLimits{}.bytes, "write_safetensors: a header of ",
        header.size(), " bytes, the limit is ", JsonLimits{}.bytes);
  OutputFile file(path);
  const std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const NamedTensor* tensor : order)
    file.write({static_cast<const std::byte*>(tensor->numbers.data()),
                to_size(bytes_of(tensor->numbers))});
  return file.finish();
}

}  // namespace rapt::detail
