// A stack that many threads push and one at a time empties: what is to be sent, on its way to the
// thread that drives a transport.
#pragma once

#include <atomic>

namespace monograph {

// `Item` has a member `Item* next`, which is the stack's while the item is in it. The items are the
// caller's.
template <typename Item>
class Submissions {
 public:
  // From any thread.
  void Push(Item* item) {
    Item* head = head_.load(std::memory_order_relaxed);
    do {
      item->next = head;
    } while (!head_.compare_exchange_weak(head, item));
  }
  bool empty() const { return head_.load() == nullptr; }
  // All that is in it, linked by `next`, oldest first.
  Item* TakeAll() {
    Item* newest = head_.exchange(nullptr);
    Item* oldest = nullptr;
    while (newest != nullptr) {
      Item* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

 private:
  // Sequentially consistent: a sender pushes and then tries the transport's lock, its holder gives
  // the lock back and then looks here. The relaxed load is a first guess.
  std::atomic<Item*> head_{nullptr};
};

}  // namespace monograph
