// SIGINT and its kin end the program at once, except while a result is being written: then after the file is complete
// and has its name. A second signal does not wait.
#pragma once

namespace convnorm::cli {

void install_interrupt_handler();

class UninterruptedWrite {
 public:
  UninterruptedWrite();
  ~UninterruptedWrite();
  UninterruptedWrite(const UninterruptedWrite&) = delete;
  UninterruptedWrite& operator=(const UninterruptedWrite&) = delete;
};

}  // namespace convnorm::cli
