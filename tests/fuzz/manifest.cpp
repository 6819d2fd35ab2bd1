#include "train/run/manifest.h"

#include <span>

#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

/// Without the hash around it: otherwise no input would get past it.
std::vector<std::string> seeds() {
  const std::string whole = text_of({.step = 3,
                                     .files = {{"a.safetensors", {.bytes = 10, .hash = {1, 2}}}},
                                     .state = {{"seed", 1}}});
  return {whole.substr(54, whole.size() - 56)};
}

std::vector<std::string> words() {
  return json_words({"step", "files", "state", "bytes", "hash", "version"});
}

std::function<void()> open(std::string_view input) {
  const std::string hash = hash_of(std::as_bytes(std::span(input))).text();
  const std::string file = "{\"hash\":\"" + hash + "\",\"manifest\":" + std::string(input) + "}\n";
  expect(parse_manifest(file, "fuzz").step >= 0, "a negative step");
  return nothing_more();
}

}  // namespace

const Target manifest_target = {"manifest", seeds, words, open};

}  // namespace rapt::fuzz
