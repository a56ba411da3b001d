// UCX catches signals when it is loaded: those of crashes, and SIGHUP, which then no longer ends a
// process whose terminal is closed. They are the program's own.
#pragma once

namespace monograph {

// Restores what each of these signals did before UCX was loaded; under nohup SIGHUP is ignored
// again. Leaves those alone that the user gave to UCX (UCX_HANDLE_ERRORS, UCX_DEBUG_SIGNO). Call it
// before a handler of your own is set.
void ReleaseUcxSignals();

}  // namespace monograph
