// How coroutines of transport/ await an operation of Boost.Asio: they get its error code and its
// results as a tuple, and no exception.
//
//   const auto [error, bytes] = co_await socket.async_read_some(buffer, kToken);
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace monograph {

inline constexpr auto kToken = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace monograph
