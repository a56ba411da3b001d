// ClientIo: the io thread "mg-control" that all channels of a process share. Private to this
// folder.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

#include "base/thread.h"
#include "transport/control/connection.h"

namespace monograph::control {

class ClientIo {
 public:
  // This process's. It lives as long as the process: channels may end in destructors of static
  // objects.
  static ClientIo& Get();

  ClientIo() : work_(asio::make_work_guard(context_)) {
    thread_ = StartThread("mg-control", [this] { context_.run(); });
  }
  // Waits until every channel has ended.
  ~ClientIo() {
    work_.reset();
    thread_.join();
  }
  ClientIo(const ClientIo&) = delete;
  ClientIo& operator=(const ClientIo&) = delete;

  asio::io_context& context() { return context_; }
  bool OnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace monograph::control
