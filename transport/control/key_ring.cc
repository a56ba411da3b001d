#include "transport/control/key_ring.h"

#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace monograph::control {

struct KeyRing::State {
  State(std::string of_file, const Keys& now)
      : file(std::move(of_file)), keys(std::make_shared<const Keys>(now)) {}

  const std::string file;  // empty: fixed keys
  Mutex mutex;
  std::shared_ptr<const Keys> keys MG_GUARDED_BY(mutex);
  std::string said MG_GUARDED_BY(mutex);  // why the file could not be read last time
};

KeyRing::KeyRing(const Keys& keys) : state_(std::make_shared<State>("", keys)) {}

Result<KeyRing> KeyRing::FromFile(const std::string& path) {
  MG_ASSIGN_OR_RETURN(const Keys keys, ReadKeyFile(path));
  return KeyRing(std::make_shared<State>(path, keys));
}

std::shared_ptr<const Keys> KeyRing::Current() const {
  MutexLock lock(state_->mutex);
  if (state_->file.empty()) return state_->keys;
  const Result<Keys> read = ReadKeyFile(state_->file);
  const std::string why = read.ok() ? "" : read.status().message();
  if (why != std::exchange(state_->said, why) && !why.empty())
    LogWarning(why + "; the keys that it held before go on to count");
  if (read.ok() && !(*read == *state_->keys)) {
    state_->keys = std::make_shared<const Keys>(*read);
    LogInfo("key file '" + state_->file + "' has changed: " + KeyIds(*read));
  }
  return state_->keys;
}

}  // namespace monograph::control
