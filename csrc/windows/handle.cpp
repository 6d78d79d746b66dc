// SPDX-License-Identifier: BSD-3-Clause
#include "windows/handle.h"

#include "base/number.h"

namespace altorch {
namespace {

MappedPart part_from(const std::string& bytes, const std::string& offset) {
  return {number_from<std::size_t>(bytes, "the size of memory that others can map"),
          number_from<std::size_t>(offset, "where its window begins")};
}

}  // namespace

Fields registered_fields(const Registered& registered) {
  return {std::to_string(registered.bytes), std::to_string(static_cast<int>(registered.dtype))};
}

Registered registered_from(const std::string& bytes, const std::string& dtype) {
  const int type = number_from<int>(dtype, "the type of its window");
  if (type < 0 || type >= kDTypeCount)
    throw Error(ErrorKind::kInternal, "another rank wrote " + excerpt(dtype) + " as the type of its window");
  return {number_from<std::size_t>(bytes, "the size of its window"), static_cast<DType>(type)};
}

std::string HostHandle::text() const {
  Fields all = {node,
                cores,
                std::to_string(address),
                std::to_string(shareable.bytes),
                std::to_string(shareable.offset),
                unsupported_reason};
  for (std::string& field : process.fields()) all.push_back(std::move(field));
  return encode_fields(all);
}

HostHandle HostHandle::from(const std::string& text) {
  const Fields fields = decode_fields(text, 6 + shm::Process::kFields);
  HostHandle card;
  card.node = fields[0];
  card.cores = fields[1];
  card.address = number_from<std::uint64_t>(fields[2], "the address of its window");
  card.shareable = part_from(fields[3], fields[4]);
  card.unsupported_reason = fields[5];
  card.process = shm::Process::from({fields.begin() + 6, fields.end()});
  return card;
}

std::string DeviceHandle::text() const {
  return encode_fields(
      {gpu.text(), unsupported_reason, std::to_string(shareable.bytes), std::to_string(shareable.offset)});
}

DeviceHandle DeviceHandle::from(const std::string& text) {
  const Fields fields = decode_fields(text, 4);
  return {GpuPeerInfo::from(fields[0]), fields[1], part_from(fields[2], fields[3])};
}

}  // namespace altorch
