// SPDX-License-Identifier: BSD-3-Clause
// Releases Python's lock while a thread waits, where the thread holds it: another thread may need
// it for what is waited for.
#pragma once

#include <Python.h>

namespace altorch::backend {

// Thread rules: one thread.
class WithoutPython {
 public:
  WithoutPython() : saved_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPython() {
    if (saved_) PyEval_RestoreThread(saved_);
  }
  WithoutPython(const WithoutPython&) = delete;

 private:
  PyThreadState* const saved_;
};

}  // namespace altorch::backend
