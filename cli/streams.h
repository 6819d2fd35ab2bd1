#pragma once

namespace rapt::cli {

/// Call first. Standard streams that the caller has closed are opened on /dev/null, or else the
/// first file of a command would take their place and receive its messages. Writing a result to a
/// closed standard output still fails. SIGPIPE and SIGXFSZ become errors of the write that meets
/// them.
void prepare_streams();

}  // namespace rapt::cli
