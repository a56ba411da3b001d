// Threads of the runtime: each has a name, and no signal reaches them: signals are the program's
// business.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace monograph {

// Starts a thread of that name (`ps -T` shows 15 characters of it).
std::thread StartThread(const std::string& name, std::function<void()> body);

// Gives the calling thread, which a library started, a name and blocks its signals, as StartThread
// does.
void AdoptThread(const std::string& name);

}  // namespace monograph
