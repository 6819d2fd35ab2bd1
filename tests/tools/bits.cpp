#include "tools/bits.h"

#include <cstdio>
#include <cstring>

namespace rapt::test {

void Bits::add(const Tensor& tensor) {
  if (tensor.empty()) return;
  const auto bytes = static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type());
  add(std::span(static_cast<const std::byte*>(tensor.memory()), bytes));
}

void Bits::add(const Attended& attended) {
  add(attended.out), add(attended.lse);
  add(attended.rows.max), add(attended.rows.sum);
  if (attended.rows.out != nullptr) add(*attended.rows.out);
  if (!attended.stats) return;
  const Stats& stats = *attended.stats;
  for (const Tensor* tensor : {&stats.entropy, &stats.largest, &stats.logit_variance,
                               &stats.jacobian_norm, &stats.reach, &stats.sink_mass})
    add(*tensor);
}

void Bits::add(const Gradients& g) {
  for (const Tensor* tensor : {&g.dq, &g.dk, &g.dv, &g.dslopes, &g.dkerple, &g.dtable,
                               &g.drelative_keys, &g.drelative_values, &g.ddense, &g.dsinks})
    add(*tensor);
}

namespace {

std::vector<Section> all_sections() {
  std::vector<Section> all;
  for (const auto* part :
       {&attention_sections(), &position_sections(), &model_sections(), &text_sections()})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

/// Prints the hash of a section, adds it to the hash of all and returns it.
std::string print_hash(const Section& section, const Context& context, Bits& all) {
  Bits bits;
  section.compute(bits, context);
  std::string where = section.name;
  if (section.needs_context)
    where += " " + context.isa() + " " + std::to_string(context.threads()) + " threads";
  std::printf("%s  %s\n", bits.text().c_str(), where.c_str());
  std::fflush(stdout);
  all.add(bits.text());  // without its name, which may change
  return bits.text();
}

int run(const std::string& filter) {
  Bits all;
  int different = 0, sections = 0;
  for (const Section& section : all_sections()) {
    if (section.name.find(filter) == std::string::npos) continue;
    ++sections;
    if (!section.needs_context) {
      print_hash(section, Context(1), all);
      continue;
    }
    for (const std::string& isa : supported_isas()) {
      const std::string one = print_hash(section, Context(1, isa), all);
      for (const Index threads : {2, 3, 7})
        if (print_hash(section, Context(threads, isa), all) != one) ++different;
    }
  }
  if (sections == 0) {
    std::fprintf(stderr, "no section has \"%s\" in its name\n", filter.c_str());
    return 2;
  }
  std::printf("%s  all\n", all.text().c_str());
  if (different == 0) return 0;
  std::fprintf(stderr, "%d hashes are not those of one thread\n", different);
  return 1;
}

}  // namespace
}  // namespace rapt::test

int main(int count, char** arguments) {
  if (count > 2 || (count == 2 && std::strcmp(arguments[1], "--help") == 0)) {
    std::puts(
        "usage: rapt_bits [SECTION]\n"
        "Prints a hash over the bits of what rapt computes, section by section, on every\n"
        "instruction set and with 1, 2, 3 and 7 threads. SECTION: only those whose name has it.\n"
        "Ends with 1 if bits depend on the number of threads.");
    return count > 2 ? 2 : 0;
  }
  return rapt::test::run(count == 2 ? arguments[1] : "");
}
