#pragma once

#include <functional>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/console/output.h"

namespace rapt::cli {

/// Results of a benchmark: a row of a table as soon as each is known, or JSON at the end.
class BenchReport {
 public:
  using PrintRow = std::function<void(const Json& row)>;

  BenchReport(const BenchOptions& options, std::function<void()> print_header, PrintRow print_row)
      : json_(options.json),
        print_header_(std::move(print_header)),
        print_row_(std::move(print_row)) {}

  void add(Json row) {
    end_progress();
    rows_.push_back(std::move(row));
    if (json_) return;
    if (rows_.size() == 1) print_header_();
    print_row_(rows_.back());
    flush_result();
  }

  void finish() const {
    if (json_) print_cases(rows_);
  }

 private:
  bool json_;
  std::function<void()> print_header_;
  PrintRow print_row_;
  std::vector<Json> rows_;
};

}  // namespace rapt::cli
