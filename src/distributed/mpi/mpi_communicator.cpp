#include <cstdio>
#include <limits>

#include "distributed/mpi/mpi_call.h"
#include "distributed/mpi/mpi_message.h"
#include "distributed/mpi/mpi_session.h"
#include "rapt/distributed/mpi.h"

namespace rapt::distributed {
namespace {

/// A duplicate, so that no message of anybody else is taken for one of rapt, whose errors return.
class OwnComm {
 public:
  explicit OwnComm(MPI_Comm other) {
    check_mpi(MPI_Comm_dup(other, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  OwnComm(const OwnComm&) = delete;
  OwnComm& operator=(const OwnComm&) = delete;
  ~OwnComm() {
    int finalized = 0;  // by a program that does so itself
    MPI_Finalized(&finalized);
    if (finalized == 0 && std::uncaught_exceptions() <= exceptions_) MPI_Comm_free(&comm_);
  }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int exceptions_ = std::uncaught_exceptions();
};

Index number_of(MPI_Comm comm, int (*question)(MPI_Comm, int*), const char* name) {
  int answer = 0;
  check_mpi(question(comm, &answer), name);
  return answer;
}

/// The standard promises tags up to 32,767 only; all libraries of today have more.
void check_tags(MPI_Comm comm) {
  int* most = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&most), &found), "MPI_TAG_UB");
  detail::check_input(found != 0 && *most >= Communicator::transport_tags - 1,
                      "mpi: this library has tags up to ", found != 0 ? *most : 0, ", expected ",
                      Communicator::transport_tags - 1,
                      "; choose another transport or version of it");
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const MpiOptions& options)
      : comm_(options.communicator ? MPI_Comm_f2c(*options.communicator) : MPI_COMM_WORLD),
        rank_(number_of(comm_.get(), MPI_Comm_rank, "MPI_Comm_rank")),
        size_(number_of(comm_.get(), MPI_Comm_size, "MPI_Comm_size")),
        part_bytes_(options.part_bytes),
        timeout_(options.timeout) {
    check_tags(comm_.get());
  }

  Index rank() const override { return rank_; }
  Index size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  std::unique_ptr<Message> send(Index to, Index tag, std::span<const std::byte> bytes) override {
    return post({MessageEnd::Kind::send, rank_, to, tag, bytes.size()}, bytes);
  }
  std::unique_ptr<Message> receive(Index from, Index tag, std::span<std::byte> bytes) override {
    return post({MessageEnd::Kind::receive, rank_, from, tag, bytes.size()}, bytes);
  }

  void abort(std::string_view why) noexcept override {
    std::fprintf(stderr, "rank %d failed: %.*s\n", static_cast<int>(rank_),
                 static_cast<int>(why.size()), why.data());
    std::fflush(stderr);
    MPI_Abort(comm_.get(), 1);
  }

 private:
  template <class Bytes>
  std::unique_ptr<Message> post(const MessageEnd& end, Bytes bytes) {
    check_message(end, size_);
    auto message = std::make_unique<MpiMessage>(*this, end, part_bytes_);
    message->post(comm_.get(), bytes);
    return message;
  }

  std::shared_ptr<MpiSession> session_ = MpiSession::shared();  // before what needs it
  OwnComm comm_;
  Index rank_;
  Index size_;
  Index part_bytes_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options) {
  constexpr Index most = std::numeric_limits<int>::max();
  detail::check(options.part_bytes >= 1 && options.part_bytes <= most, "mpi: part_bytes ",
                options.part_bytes, " given, expected 1 to ", most);
  return std::make_unique<MpiCommunicator>(options);
}

void run_mpi_rank(const std::function<void(Communicator&)>& rank_main, const MpiOptions& options) {
  const auto communicator = mpi_communicator(options);
  try {
    rank_main(*communicator);
  } catch (const std::exception& error) {
    communicator->abort(error.what());
  } catch (...) {
    communicator->abort("an exception without a text");
  }
}

}  // namespace rapt::distributed
