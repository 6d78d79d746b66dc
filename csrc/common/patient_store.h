// Requests of somebody who has a deadline of his own: that the store does not answer for a while is no
// failure to him yet.
#pragma once

#include "common/error.h"
#include "common/key_value_store.h"

namespace altorch {

// A request that may be repeated; nothing when the store did not answer in time.
template <typename Request>
auto if_it_answers(Request&& request) -> decltype(request()) {
  try {
    return request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
    return {};
  }
}

// A set() or an add() whose result nobody needs: what is late is carried out all the same.
template <typename Request>
void sooner_or_later(Request&& request) {
  try {
    request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
  }
}

}  // namespace altorch
