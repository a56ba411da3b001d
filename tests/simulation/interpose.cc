// The functions of the system by which the program locks, waits, starts threads, reads clocks and
// gets random bytes. Defined here, they stand before those of the C library for the whole process,
// the standard library included. On a thread of a schedule they ask the scheduler; on any other
// thread, and outside of schedules, they call the C library's.
#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simulation/draw.h"
#include "tests/simulation/threads.h"

namespace monograph::simulation {
namespace {

// The C library's function of that name.
template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

constexpr uint64_t kSecond = 1'000'000'000;

uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

timespec TimeOf(uint64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / kSecond), static_cast<long>(nanoseconds % kSecond)};
}

// The wall clock is so far ahead of the steady one: a day in 2026.
constexpr uint64_t kWallClock = 1'790'000'000 * kSecond;

uint64_t SteadyOf(clockid_t clock, const timespec& time) {
  const uint64_t nanoseconds = Nanoseconds(time);
  if (clock != CLOCK_REALTIME) return nanoseconds;
  return nanoseconds < kWallClock ? 0 : nanoseconds - kWallClock;
}

Thread* ThreadOf(pthread_t thread) { return reinterpret_cast<Thread*>(thread); }
pthread_t HandleOf(Thread* thread) { return reinterpret_cast<pthread_t>(thread); }

// A call of the kernel, as syscall(2).
long CallKernel(long number, const long (&a)[6]) {
  long result;
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

long Futex(const long (&a)[6]) {
  const auto* address = reinterpret_cast<const void*>(a[0]);
  const int operation = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
  if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET)
    return WakeFutex(address, static_cast<int>(a[2]));
  if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET) {
    errno = ENOSYS;
    return -1;
  }
  uint64_t deadline = kNever;
  if (const auto* time = reinterpret_cast<const timespec*>(a[3]); time != nullptr) {
    const bool wall = (static_cast<int>(a[1]) & FUTEX_CLOCK_REALTIME) != 0;
    deadline = operation == FUTEX_WAIT ? NowNanoseconds() + Nanoseconds(*time)
                                       : SteadyOf(wall ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time);
  }
  const int error = WaitFutex(address, static_cast<uint32_t>(a[2]), deadline);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Where the code of OpenSSL's libraries lies.
const std::vector<std::pair<const char*, const char*>>& OpenSslCode() {
  static const auto* const code = [] {
    auto* found = new std::vector<std::pair<const char*, const char*>>;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* result) {
          const std::string_view name = info->dlpi_name;
          if (name.find("/libcrypto.so") == name.npos && name.find("/libssl.so") == name.npos)
            return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
            const auto* begin = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
            static_cast<decltype(found)>(result)->emplace_back(begin, begin + segment.p_memsz);
          }
          return 0;
        },
        found);
    return found;
  }();
  return *code;
}

// What OpenSSL locks is the process's, and so is how often it looks at the clock: neither is a
// decision, or what it has from earlier schedules would change later ones.
bool OfOpenSsl(const void* caller) {
  for (const auto& [begin, end] : OpenSslCode()) {
    if (caller >= begin && caller < end) return true;
  }
  return false;
}
#define MG_OF_OPENSSL OfOpenSsl(__builtin_return_address(0))

// What thread-specific values are destroyed by, by their keys.
std::vector<void (*)(void*)>& KeyDestructors() {
  static auto* const all = new std::vector<void (*)(void*)>;
  return *all;
}

}  // namespace

void DestroySpecific(unsigned key, void* value) {
  if (key < KeyDestructors().size() && KeyDestructors()[key] != nullptr)
    KeyDestructors()[key](value);
}

}  // namespace monograph::simulation

using namespace monograph::simulation;  // NOLINT: each function below is one call of it

#define MG_REAL(name) static auto* const real = Real(&::name, #name)

extern "C" {

// ---- mutexes

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (Simulated()) return LockMutex(mutex), 0;
  MG_REAL(pthread_mutex_lock);
  return real(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (Simulated()) return TryLockMutex(mutex) ? 0 : EBUSY;
  MG_REAL(pthread_mutex_trylock);
  return real(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (Simulated()) return UnlockMutex(mutex), 0;
  MG_REAL(pthread_mutex_unlock);
  return real(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  if (Simulated()) return LockReaders(lock, false, true, !MG_OF_OPENSSL), 0;
  MG_REAL(pthread_rwlock_rdlock);
  return real(lock);
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  if (Simulated()) return LockReaders(lock, false, false) ? 0 : EBUSY;
  MG_REAL(pthread_rwlock_tryrdlock);
  return real(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  if (Simulated()) return LockReaders(lock, true, true, !MG_OF_OPENSSL), 0;
  MG_REAL(pthread_rwlock_wrlock);
  return real(lock);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  if (Simulated()) return LockReaders(lock, true, false) ? 0 : EBUSY;
  MG_REAL(pthread_rwlock_trywrlock);
  return real(lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  if (Simulated()) return UnlockReaders(lock, !MG_OF_OPENSSL), 0;
  MG_REAL(pthread_rwlock_unlock);
  return real(lock);
}

// ---- conditions

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (Simulated()) return WaitCondition(condition, mutex, kNever), 0;
  MG_REAL(pthread_cond_wait);
  return real(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  if (Simulated()) {
    return WaitCondition(condition, mutex, SteadyOf(CLOCK_REALTIME, *until)) ? 0 : ETIMEDOUT;
  }
  MG_REAL(pthread_cond_timedwait);
  return real(condition, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  if (Simulated()) return WaitCondition(condition, mutex, SteadyOf(clock, *until)) ? 0 : ETIMEDOUT;
  MG_REAL(pthread_cond_clockwait);
  return real(condition, mutex, clock, until);
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (Simulated()) return Notify(condition, false), 0;
  MG_REAL(pthread_cond_signal);
  return real(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (Simulated()) return Notify(condition, true), 0;
  MG_REAL(pthread_cond_broadcast);
  return real(condition);
}

int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  if (Simulated()) return DestroyCondition(condition), 0;
  MG_REAL(pthread_cond_destroy);
  return real(condition);
}

// ---- threads

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) noexcept {
  if (Simulated()) {
    *thread = HandleOf(StartSimulated(routine, argument));
    return 0;
  }
  MG_REAL(pthread_create);
  return real(thread, attributes, routine, argument);
}

int pthread_join(pthread_t thread, void** result) {
  if (Simulated()) {
    void* const returned = JoinSimulated(ThreadOf(thread));
    if (result != nullptr) *result = returned;
    return 0;
  }
  MG_REAL(pthread_join);
  return real(thread, result);
}

int pthread_detach(pthread_t thread) noexcept {
  if (Simulated()) return DetachSimulated(ThreadOf(thread)), 0;
  MG_REAL(pthread_detach);
  return real(thread);
}

pthread_t pthread_self() noexcept {
  if (Simulated()) return HandleOf(CurrentThread());
  MG_REAL(pthread_self);
  return real();
}

int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  if (Simulated()) return NameSimulated(ThreadOf(thread), name), 0;
  MG_REAL(pthread_setname_np);
  return real(thread, name);
}

int pthread_once(pthread_once_t* once, void (*routine)()) {
  if (Simulated()) return CallOnce(once, routine, !MG_OF_OPENSSL), 0;
  MG_REAL(pthread_once);
  return real(once, routine);
}

int sched_yield() noexcept {
  if (Simulated()) return YieldThread(), 0;
  MG_REAL(sched_yield);
  return real();
}

// OpenSSL has its errors and generators of random numbers by these.
int pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) noexcept {
  MG_REAL(pthread_key_create);
  const int result = real(key, destroy);
  if (result != 0) return result;
  auto& destructors = KeyDestructors();
  if (destructors.size() <= *key) destructors.resize(*key + 1);
  destructors[*key] = destroy;
  return 0;
}

void* pthread_getspecific(pthread_key_t key) noexcept {
  if (Simulated()) return GetSpecific(key);
  MG_REAL(pthread_getspecific);
  return real(key);
}

int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
  if (Simulated()) return SetSpecific(key, const_cast<void*>(value)), 0;
  MG_REAL(pthread_setspecific);
  return real(key, value);
}

int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* library) noexcept {
  if (Simulated()) return AtThreadExit(destroy, object), 0;
  using Function = int(void (*)(void*), void*, void*);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "__cxa_thread_atexit"));
  return real(destroy, object, library);
}

// ---- clocks

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (Simulated()) {
    *time = TimeOf((MG_OF_OPENSSL ? PeekNanoseconds() : NowNanoseconds()) +
                   (clock == CLOCK_REALTIME ? kWallClock : 0));
    return 0;
  }
  MG_REAL(clock_gettime);
  return real(clock, time);
}

int gettimeofday(timeval* time, void* zone) noexcept {
  if (Simulated()) {
    const timespec now =
        TimeOf((MG_OF_OPENSSL ? PeekNanoseconds() : NowNanoseconds()) + kWallClock);
    *time = {now.tv_sec, now.tv_nsec / 1000};
    return 0;
  }
  using Function = int(timeval*, void*);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "gettimeofday"));
  return real(time, zone);
}

time_t time(time_t* result) noexcept {
  timespec now{};
  if (Simulated() && MG_OF_OPENSSL) {
    now = TimeOf(PeekNanoseconds() + kWallClock);
  } else {
    clock_gettime(CLOCK_REALTIME, &now);
  }
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

int nanosleep(const timespec* duration, timespec* left) {
  if (Simulated()) return SleepUntil(NowNanoseconds() + Nanoseconds(*duration)), 0;
  MG_REAL(nanosleep);
  return real(duration, left);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* duration, timespec* left) {
  if (Simulated()) {
    SleepUntil(flags == TIMER_ABSTIME ? SteadyOf(clock, *duration)
                                      : NowNanoseconds() + Nanoseconds(*duration));
    return 0;
  }
  MG_REAL(clock_nanosleep);
  return real(clock, flags, duration, left);
}

// ---- the kernel

// By this the standard library's atomic variables and futures wait.
long syscall(long number, ...) noexcept {
  long a[6];
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && Simulated()) return Futex(a);
  return CallKernel(number, a);
}

ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  if (Simulated()) {
    for (size_t i = 0; i < count; ++i)
      static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(Draw(256));
    return static_cast<ssize_t>(count);
  }
  MG_REAL(getrandom);
  return real(bytes, count, flags);
}

}  // extern "C"
