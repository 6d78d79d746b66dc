// SPDX-License-Identifier: BSD-3-Clause
// Which processes share something of this host.
#pragma once

#include <string>

namespace altorch {

// The same text in two processes: they run on one boot of one host, in one namespace of this kind
// ("pid": they see each other's process ids; "net": their sockets reach each other), and have the
// same ALTORCH_NODE.
std::string host_namespace(const std::string& kind);

}  // namespace altorch
