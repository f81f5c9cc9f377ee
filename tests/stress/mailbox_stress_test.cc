// SPDX-License-Identifier: Apache-2.0

// Many threads post to one loop that sleeps whenever its mailbox says nothing.

#include <poll.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "daemon/base/mailbox.h"
#include "tests/stress/rounds.h"

namespace {

constexpr size_t kPosters = 4;
constexpr size_t kCapacity = 64;
constexpr int kPatienceMs = 30000;  // Reached only if a wake-up was lost.

struct Item {
  size_t poster = 0;
  int number = 0;
};
using Mailbox = rueda::base::Mailbox<Item>;

// Posts 0 to count - 1, again and again while the mailbox is full, unless told to stop.
void post(Mailbox* mailbox, size_t poster, int count, const std::atomic<bool>* stop) {
  for (int i = 0; i < count; ++i)
    while (!mailbox->post({poster, i}) && !stop->load()) std::this_thread::yield();
}

// Takes `total` items, and only after the descriptor has said that there are some. "" if each
// poster's came in order, and never more than the capacity at once.
std::string takeAfterWakeups(Mailbox* mailbox, int total) {
  std::array<int, kPosters> next{};
  while (total > 0) {
    pollfd wait{mailbox->fd(), POLLIN, 0};
    if (::poll(&wait, 1, kPatienceMs) != 1) return "nobody woke the loop";
    const std::vector<Item> items = mailbox->takeAll();
    if (items.size() > kCapacity) return "more than the capacity";
    for (const Item& item : items)
      if (item.number != next[item.poster]++)
        return "out of order: " + std::to_string(item.number) + " of poster " +
               std::to_string(item.poster);
    total -= static_cast<int>(items.size());
  }
  return mailbox->takeAll().empty() ? "" : "items that nobody posted";
}

}  // namespace

TEST_CASE("a mailbox wakes its loop for every item of many threads") {
  const int each = rueda::stress::rounds(20000);
  Mailbox mailbox(kCapacity);
  std::atomic<bool> stop{false};
  std::vector<std::thread> posters;
  for (size_t i = 0; i < kPosters; ++i) posters.emplace_back(post, &mailbox, i, each, &stop);
  const std::string wrong = takeAfterWakeups(&mailbox, static_cast<int>(kPosters) * each);
  stop.store(true);
  for (std::thread& poster : posters) poster.join();
  CHECK(wrong == "");
}

TEST_CASE("a single item between two sleeps is never missed") {
  // Every item meets an empty mailbox and a loop that sleeps or is about to.
  const int count = rueda::stress::rounds(10000);
  Mailbox there(1);
  Mailbox back(1);
  std::string echoed;
  std::thread echo([&] {
    echoed = "";
    for (int i = 0; i < count && echoed.empty();) {
      pollfd wait{there.fd(), POLLIN, 0};
      if (::poll(&wait, 1, kPatienceMs) != 1) echoed = "nobody woke the echo";
      for (const Item& item : there.takeAll()) {
        while (!back.post(item)) std::this_thread::yield();
        ++i;
      }
    }
  });
  std::string wrong;
  for (int i = 0; i < count && wrong.empty(); ++i) {
    if (!there.post({0, i})) wrong = "an empty mailbox refused";
    std::vector<Item> got;
    while (got.empty() && wrong.empty()) {
      pollfd wait{back.fd(), POLLIN, 0};
      if (::poll(&wait, 1, kPatienceMs) != 1) wrong = "nobody woke the loop";
      got = back.takeAll();
    }
    if (wrong.empty() && (got.size() != 1 || got[0].number != i)) wrong = "another item came back";
  }
  echo.join();
  CHECK(wrong == "");
  CHECK(echoed == "");
}
