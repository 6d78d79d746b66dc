// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/program_place.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "runtime/callback_thread.h"
#include "trace/trace_board.h"

namespace altorch {
namespace {

namespace py = pybind11;

constexpr std::chrono::milliseconds kPlaceTimeout{200};
const py::function* finder = nullptr;  // never freed: it is called while the interpreter ends

std::string found() {
  const py::gil_scoped_acquire locked;
  try {
    return (*finder)().cast<std::string>();
  } catch (const std::exception&) {  // ended with the lock held, as it may belong to Python
    return "";
  }
}

// One question at a time: while one is unanswered, another would not be answered either. It would
// only keep one more callback thread waiting for Python's lock.
std::string place() {
  static std::atomic<bool> asked{false};
  if (asked.exchange(true)) return "";
  auto answer = std::make_shared<std::promise<std::string>>();
  auto told = answer->get_future();
  CallbackThread::instance().push([answer = std::move(answer)] {
    std::string text = found();
    asked.store(false);
    answer->set_value(std::move(text));
  });
  return told.wait_for(kPlaceTimeout) == std::future_status::ready ? told.get() : "";
}

}  // namespace

void set_place_finder(const py::function& find) {
  finder = new py::function(find);
  TraceBoard::instance().set_place(&place);
}

}  // namespace altorch
