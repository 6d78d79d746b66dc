// A detached thread that takes no signals and that no exit handler waits for.
#pragma once

#include <functional>
#include <string>

namespace altorch {

// `name` has at most 15 characters. Throws Error(kTransport) when there can be no more threads.
void start_native_thread(const char* name, std::function<void()> body);

}  // namespace altorch
