// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/watched.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace altorch {
namespace {

// Says which thread destroyed it.
class Object : public Watched {
 public:
  explicit Object(std::promise<std::thread::id>& ended) : ended_(ended) {}
  ~Object() override { ended_.set_value(std::this_thread::get_id()); }
  bool look() override { return false; }

 private:
  std::promise<std::thread::id>& ended_;
};

TEST(Watched, EndsOnTheThreadOfItsLastOwner) {
  std::promise<std::thread::id> ended;
  make_watched<Object>(ended).reset();
  EXPECT_EQ(ended.get_future().get(), std::this_thread::get_id());
}

// The other owner lets go while the brief one holds the object.
TEST(Watched, DoesNotEndOnTheThreadOfABriefOwner) {
  std::promise<std::thread::id> ended;
  auto owner = make_watched<Object>(ended);
  {
    const BriefOwner brief;
    auto held = std::weak_ptr<Object>(owner).lock();
    owner.reset();
    held.reset();
  }
  EXPECT_NE(ended.get_future().get(), std::this_thread::get_id());
  EXPECT_FALSE(BriefOwner::on_this_thread());
}

}  // namespace
}  // namespace altorch
