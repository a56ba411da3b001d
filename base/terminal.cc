#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace monograph {

bool IsTerminal(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

bool UsesColour(int descriptor) {
  const char* const forbidden = std::getenv("NO_COLOR");
  return (forbidden == nullptr || *forbidden == '\0') && IsTerminal(descriptor);
}

int TerminalColumns(int descriptor, int otherwise) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return size.ws_col;
}

}  // namespace monograph
