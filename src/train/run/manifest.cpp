#include "train/run/manifest.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "formats/config/fields.h"

namespace rapt::detail {
namespace {

constexpr Index format_version = 1;
constexpr std::string_view before_hash = "{\"hash\":\"";
constexpr std::string_view after_hash = "\",\"manifest\":";
constexpr std::string_view after_content = "}\n";
constexpr std::size_t hash_letters = 32;
constexpr std::size_t content_begin = before_hash.size() + hash_letters + after_hash.size();

std::string hash_text(std::string_view text) {
  return hash_of(std::as_bytes(std::span(text))).text();
}

/// The manifest proper, once the hash before it has been found right.
std::string_view checked_impl(std::string_view text, const std::string& source) {
  const bool framed = text.size() >= content_begin + after_content.size() &&
                      text.starts_with(before_hash) && text.ends_with(after_content) &&
                      text.substr(before_hash.size() + hash_letters).starts_with(after_hash);
  check_input(framed, source, ": is not a manifest");
  const std::string_view content =
      text.substr(content_begin, text.size() - content_begin - after_content.size());
  check_input(text.substr(before_hash.size(), hash_letters) == hash_text(content), source,
              ": does not match its own hash");
  return content;
}

Json entry_of(const Manifest::File& file) {
  return {{"name", file.name}, {"bytes", file.digest.bytes}, {"hash", file.digest.hash.text()}};
}

Manifest::File file_of(const Json& entry, const std::string& source) {
  Fields fields(entry, source, "files");
  Manifest::File file{fields.text("name"), {fields.integer("bytes", {.lowest = 0}), {}}};
  const bool plain = !file.name.empty() && file.name != manifest_name &&
                     file.name.find('/') == std::string::npos && file.name.front() != '.';
  check_input(plain, source, ": lists the file ", printable(file.name));
  const std::string hash = fields.text("hash");
  check_input(hash.size() == hash_letters &&
                  hash.find_first_not_of("0123456789abcdef") == std::string::npos,
              source, ": files.hash is ", printable(hash));
  file.digest.hash.high = std::stoull(hash.substr(0, 16), nullptr, 16);
  file.digest.hash.low = std::stoull(hash.substr(16), nullptr, 16);
  return file;
}

/// JSON has no NaN and no text that is not UTF-8, and our reader has limits: better now than when
/// the state is needed.
void check_state(const Json& state) {
  std::string problem = "it comes back differently";
  try {
    if (parse_json(state.dump(), "state") == state) return;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  fail("checkpoint: the state cannot be written as JSON: ", problem);
}

}  // namespace

std::string text_of(const Manifest& manifest) {
  check_state(manifest.state);
  Json files = Json::array();
  for (const Manifest::File& file : manifest.files) files.push_back(entry_of(file));
  const std::string content = Json{
      {"format", "rapt checkpoint"},
      {"version", format_version},
      {"step", manifest.step},
      {"files", std::move(files)},
      {"state", manifest.state}}.dump();
  return std::string(before_hash) + hash_text(content) + std::string(after_hash) + content +
         std::string(after_content);
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  Fields fields(parse_json(checked_impl(text, source), source), source);
  fields.choice("format", {"rapt checkpoint"});
  const Index written = fields.integer("version", {.lowest = 1});
  if (written > format_version)
    throw NewerManifest(source + ": has version " + std::to_string(written) +
                        ", this rapt knows versions up to " + std::to_string(format_version));
  Manifest manifest{.step = fields.integer("step", {.lowest = 0}), .files = {}, .state = {}};
  const Json& files = fields.value("files");
  check_input(files.is_array(), source, ": files is not a list");
  for (const Json& entry : files) manifest.files.push_back(file_of(entry, source));
  manifest.state = fields.value("state");
  fields.done();
  return manifest;
}

Manifest verified_manifest(const std::string& folder, Index step) {
  const std::string source = folder + "/" + manifest_name;
  Manifest manifest = parse_manifest(read_file(source, JsonLimits{}.bytes), source);
  check_input(manifest.step == step, source, ": is of step ", manifest.step, ", expected ", step);
  for (const auto& [name, digest] : manifest.files) {
    const std::string path = folder + "/" + name;
    const Index bytes = InputFile(path).size();
    check_input(bytes == digest.bytes, path, ": has ", bytes, " bytes, the manifest says ",
                digest.bytes);
    check_input(digest_of(path) == digest, path, ": does not match the hash in the manifest");
  }
  for (const std::string& name : names_in(folder)) {
    const bool listed = name == manifest_name ||
                        std::any_of(manifest.files.begin(), manifest.files.end(),
                                    [&](const Manifest::File& file) { return file.name == name; });
    check_input(listed, folder, "/", name, ": is not in the manifest");
  }
  return manifest;
}

}  // namespace rapt::detail
