// SPDX-License-Identifier: BSD-3-Clause
// The few socket calls of node_links.cpp. Thread rules: any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace altorch {

bool is_loopback(const std::string& address);
// A listening, non-blocking socket and its port; an empty address: all of this host's. Throws
// Error(kTransport).
std::pair<int, int> listen_on(const std::string& address);
// A connected socket, or -1. Takes a few seconds at most, and what looking the name up takes.
int connect_to(const std::string& host, int port);
// Whether the host refuses connections to the port: its process has gone. Takes 100 ms at most, and
// what looking the name up takes. False where the host does not answer.
bool nothing_listens(const std::string& host, int port);
// Makes the kernel notice that the other node has been silent for ALTORCH_SILENCE_SECONDS; 1 at
// least.
void keep_alive(int socket);
// Whether the other node has answered all that it was asked before: what is sent to a silent one
// puts off noticing that it is.
bool is_quiet(int socket);
// Before it is closed: what lies there unread would have the connection reset, and this text lost
// with it.
void say_last(int socket, std::string_view text);
void close_socket(int socket);

}  // namespace altorch
