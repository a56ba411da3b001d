// Threads of the runtime: each has a name, and no signal reaches them: signals are the program's
// business.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace monograph {

// Starts a thread of that name (`ps -T` shows 15 characters of it).
std::thread StartThread(const std::string& name, std::function<void()> body);

// Makes the calling thread, which a library started, like those of StartThread.
void AdoptThread(const std::string& name);

}  // namespace monograph
