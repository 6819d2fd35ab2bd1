#pragma once

namespace rapt::cli {

/// Call first. Opens closed standard streams on /dev/null: otherwise the first file of a command
/// would take their descriptor and receive its messages. Writing a result to a closed standard
/// output still fails. SIGPIPE and SIGXFSZ become errors of the failing write.
void prepare_streams();

}  // namespace rapt::cli
