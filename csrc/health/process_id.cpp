// SPDX-License-Identifier: BSD-3-Clause
#include "health/process_id.h"

#include <unistd.h>

#include "platform/host_namespace.h"

namespace altorch {

ProcessId ProcessId::own() { return {host_namespace("pid"), getpid()}; }

}  // namespace altorch
