// Which errors of sockets and of UCX count as a loss, after which a job goes on by itself: those by
// which a network or a peer ends a connection, and no others.
#include <gtest/gtest.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>

#include "train/monitored_training_session.h"
#include "transport/control/asio_status.h"
#include "transport/ucx/ucx_status.h"

namespace monograph {
namespace {

using boost::system::error_code;
namespace asio_errors = boost::asio::error;

Status OfSystem(int error) {
  return control::FromAsio({error, boost::system::system_category()}, "reading");
}

TEST(ALoss, IsEveryErrorByWhichANetworkEndsAConnection) {
  for (const int error :
       {ECONNREFUSED, ECONNRESET, ECONNABORTED, ETIMEDOUT, EHOSTUNREACH, EHOSTDOWN, ENETUNREACH,
        ENETDOWN, ENETRESET, EPIPE, ENOTCONN, ESHUTDOWN, EADDRNOTAVAIL, EPROTO, EIO, ENODEV}) {
    EXPECT_TRUE(IsLoss(OfSystem(error))) << OfSystem(error);
  }
  for (const error_code error : {make_error_code(asio_errors::eof),
                                 make_error_code(boost::asio::ssl::error::stream_truncated),
                                 make_error_code(asio_errors::host_not_found_try_again)}) {
    EXPECT_TRUE(IsLoss(control::FromAsio(error, "reading"))) << error.message();
  }
}

TEST(ALoss, IsNoErrorOfThisProcessOrOfTheDescriptionOfTheCluster) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRINUSE, ECANCELED})
    EXPECT_FALSE(IsLoss(OfSystem(error))) << OfSystem(error);
  EXPECT_FALSE(
      IsLoss(control::FromAsio(make_error_code(asio_errors::host_not_found), "resolving")));
  for (const Status& status :
       {Cancelled("closed"), DeadlineExceeded("the caller's own"), Unauthenticated("another key"),
        FailedPrecondition("another version"), DataLoss("a damaged checkpoint"),
        ResourceExhausted("no memory"), InvalidArgument("a wrong shape"), Internal("a bug")}) {
    EXPECT_FALSE(IsLoss(status)) << status;
  }
}

TEST(ALoss, IsEveryErrorOfUcxByWhichAPeerOrItsMemoryIsGone) {
  for (const ucs_status_t error :
       {UCS_ERR_UNREACHABLE, UCS_ERR_CONNECTION_RESET, UCS_ERR_NOT_CONNECTED, UCS_ERR_REJECTED,
        UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_TIMED_OUT, UCS_ERR_IO_ERROR, UCS_ERR_NO_DEVICE,
        UCS_ERR_SHMEM_SEGMENT}) {
    EXPECT_TRUE(IsLoss(FromUcx(error, "sending"))) << ucs_status_string(error);
  }
  for (const ucs_status_t error : {UCS_ERR_NO_MEMORY, UCS_ERR_CANCELED, UCS_ERR_UNSUPPORTED,
                                   UCS_ERR_INVALID_PARAM, UCS_ERR_MESSAGE_TRUNCATED})
    EXPECT_FALSE(IsLoss(FromUcx(error, "sending"))) << ucs_status_string(error);
}

TEST(ALoss, IsWhateverNamesALostTaskAlsoInTheWordsOfOthers) {
  const Status waited(Code::kDeadlineExceeded, "waited 30 s", "/job:worker/replica:0/task:1");
  EXPECT_TRUE(IsLoss(waited));
  EXPECT_TRUE(IsLoss(waited.WithContext("all-reduce").WithMessage("more")));
  EXPECT_TRUE(IsLoss(TaskLost("/job:ps/replica:0/task:0", "it shuts down").AsDerived()));
  EXPECT_TRUE(IsLoss(Aborted("replica 1 has come back")));
  EXPECT_FALSE(IsLoss(Status()));
}

}  // namespace
}  // namespace monograph
