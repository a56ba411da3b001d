#include "tests/simulation/host.h"

namespace monograph::simulation {
namespace {

thread_local int current_host = 0;

}  // namespace

int CurrentHost() { return current_host; }

OnHost::OnHost(int host) : before_(current_host) { current_host = host; }
OnHost::~OnHost() { current_host = before_; }

}  // namespace monograph::simulation
