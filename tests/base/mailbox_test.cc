// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/mailbox.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <memory>

namespace {

using rueda::base::Mailbox;

template <typename T>
bool isRinging(const Mailbox<T>& mailbox) {
  pollfd waiting{mailbox.fd(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a new mailbox is empty and silent") {
  Mailbox<int> mailbox(4);
  CHECK_FALSE(isRinging(mailbox));
  CHECK(mailbox.takeAll().empty());
}

TEST_CASE("what is posted is taken, oldest first, and all at once") {
  Mailbox<int> mailbox(4);
  for (int i = 1; i <= 3; ++i) CHECK(mailbox.post(i));
  CHECK(isRinging(mailbox));
  CHECK(mailbox.takeAll() == std::vector<int>{1, 2, 3});
  CHECK_FALSE(isRinging(mailbox));
  CHECK(mailbox.takeAll().empty());
  CHECK(mailbox.post(4));
  CHECK(isRinging(mailbox));
}

TEST_CASE("a full mailbox refuses and keeps what it has") {
  Mailbox<int> mailbox(2);
  CHECK(mailbox.post(1));
  CHECK(mailbox.post(2));
  CHECK_FALSE(mailbox.post(3));
  CHECK(mailbox.takeAll() == std::vector<int>{1, 2});
  CHECK(mailbox.post(3));
}

TEST_CASE("a mailbox of no capacity takes nothing") {
  Mailbox<int> mailbox(0);
  CHECK_FALSE(mailbox.post(1));
  CHECK_FALSE(isRinging(mailbox));
}

TEST_CASE("items that only move go through") {
  Mailbox<std::unique_ptr<int>> mailbox(1);
  CHECK(mailbox.post(std::make_unique<int>(5)));
  auto taken = mailbox.takeAll();
  REQUIRE(taken.size() == 1);
  CHECK(*taken[0] == 5);
}
