// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/text.h"

#include <catch2/catch.hpp>

using rueda::serve::validUtf8;

TEST_CASE("valid UTF-8 passes unchanged") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "layer1.weight", "\x7f\x01", "\xc3\xb1", "\xe2\x82\xac",
               "\xed\x9f\xbf", "\xf0\x9f\x92\x83", "\xf4\x8f\xbf\xbf");
  CHECK(validUtf8(text) == text);
}

TEST_CASE("each byte outside valid UTF-8 is spelled out") {
  SECTION("a lone byte between letters") {
    CHECK(validUtf8("a\xff"
                    "b") == "a\\xffb");
  }
  SECTION("a continuation without a start") { CHECK(validUtf8("\x80") == "\\x80"); }
  SECTION("a sequence cut at the end") { CHECK(validUtf8("a\xe2\x82") == "a\\xe2\\x82"); }
  SECTION("a sequence broken by a letter") { CHECK(validUtf8("\xe2\x82x") == "\\xe2\\x82x"); }
  SECTION("overlong forms") {
    CHECK(validUtf8("\xc0\xaf") == "\\xc0\\xaf");
    CHECK(validUtf8("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
    CHECK(validUtf8("\xf0\x80\x80\xaf") == "\\xf0\\x80\\x80\\xaf");
  }
  SECTION("surrogates") { CHECK(validUtf8("\xed\xa0\x80") == "\\xed\\xa0\\x80"); }
  SECTION("values above the last code point") {
    CHECK(validUtf8("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(validUtf8("\xf5\x80") == "\\xf5\\x80");
  }
}
