// What the interposed functions of the system ask of the scheduler. A mutex, a condition or a
// futex is known by its address; its state is the program's own memory, so that an object that
// nobody holds looks the same to the system's own functions.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace monograph::simulation {

struct Thread;

inline constexpr uint64_t kNever = ~uint64_t{0};  // a deadline, in nanoseconds

// Whether the caller is a thread of a schedule. The other functions require it.
bool Simulated();

uint64_t NowNanoseconds();   // of the steady clock; each look takes a moment
uint64_t PeekNanoseconds();  // takes none

void LockMutex(pthread_mutex_t* mutex);
bool TryLockMutex(pthread_mutex_t* mutex);
void UnlockMutex(pthread_mutex_t* mutex);

// Of a lock with one writer or many readers; false: it is held, and `wait` is false.
// `decides`: it is a decision, as all others are.
bool LockReaders(pthread_rwlock_t* lock, bool write, bool wait, bool decides = true);
void UnlockReaders(pthread_rwlock_t* lock, bool decides = true);

// False: the deadline has passed.
bool WaitCondition(pthread_cond_t* condition, pthread_mutex_t* mutex, uint64_t deadline);
void Notify(pthread_cond_t* condition, bool all);
void DestroyCondition(pthread_cond_t* condition);

void CallOnce(pthread_once_t* once, void (*routine)(), bool decides = true);

// As futex(2): 0, EAGAIN or ETIMEDOUT; and how many were woken.
int WaitFutex(const void* address, uint32_t expected, uint64_t deadline);
int WakeFutex(const void* address, int most);

Thread* StartSimulated(void* (*routine)(void*), void* argument);
void* JoinSimulated(Thread* thread);
void DetachSimulated(Thread* thread);
Thread* CurrentThread();
void NameSimulated(Thread* thread, const char* name);
// A thread's value of a key of pthread_key_create. When the thread ends, DestroySpecific is called
// for those that are not null.
void* GetSpecific(unsigned key);
void SetSpecific(unsigned key, void* value);
void DestroySpecific(unsigned key, void* value);  // in interpose.cc

void AtThreadExit(void (*destroy)(void*), void* object);

void SleepUntil(uint64_t deadline);
void YieldThread();

}  // namespace monograph::simulation
