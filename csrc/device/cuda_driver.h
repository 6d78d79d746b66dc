// SPDX-License-Identifier: BSD-3-Clause
// What altorch uses of the CUDA driver's C interface, declared after its documentation: nothing is
// linked and no header of CUDA is needed to build. Signatures are those of CUDA 12 and later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace altorch::cuda {

using Result = int;               // CUresult
using DevicePtr = std::uint64_t;  // CUdeviceptr
inline constexpr Result kSuccess = 0;
struct Uuid {  // CUuuid
  unsigned char bytes[16];
};
inline constexpr int kCanUse64BitStreamMemOps =
    122;  // CU_DEVICE_ATTRIBUTE_...; the 32-bit ones come with them
// CU_DEVICE_ATTRIBUTE_...
inline constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
inline constexpr int kMultiprocessors = 16;
inline constexpr int kCanUseHostPointerForRegisteredMem = 91;
inline constexpr int kVirtualMemory = 102, kFileDescriptorHandles = 103;
inline constexpr int kMpsEnabled = 133;
inline constexpr int kNativeAtomicSupported = 3;  // between two devices
// CUDA_MEMCPY2D: rows of `width` bytes, `pitch` bytes apart.
struct RowCopy {
  struct End {
    std::size_t x = 0, y = 0;
    int type = 0;  // CU_MEMORYTYPE_...
    const void* host = nullptr;
    DevicePtr device = 0;
    void* array = nullptr;
    std::size_t pitch = 0;
  };
  End from, to;
  std::size_t width = 0, rows = 0;
};
// CUmemAllocationProp and CUmemAccessDesc: physical memory of a device, and which device may use a
// mapping of it.
inline constexpr int kFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_...
struct AllocationProperties {
  int type = 0, handle_types = 0;
  int location_type = 0, location = 0;
  void* windows_security = nullptr;
  unsigned char flags[8] = {};
  static AllocationProperties exportable(int device) {
    return {.type = 1, .handle_types = kFileDescriptor, .location_type = 1, .location = device};
  }
};
struct Access {
  int location_type = 0, location = 0, flags = 0;
  static Access to(int device) { return {.location_type = 1, .location = device, .flags = 3}; }
};
// CUlaunchConfig, with one CUlaunchAttribute.
struct alignas(8) LaunchAttribute {
  int id = 0, unused = 0;
  int value = 0;
  unsigned char rest[60] = {};
};
inline constexpr int kProgrammaticSerialization = 6;  // CU_LAUNCH_ATTRIBUTE_...
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  void* stream = nullptr;
  const LaunchAttribute* attributes = nullptr;
  unsigned number = 0;
};
inline constexpr int kOnHost = 1, kOnDevice = 2;
inline constexpr unsigned kHostAllocPortable = 1, kHostAllocMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr unsigned kWaitValueGeq = 0, kWriteValueDefault = 0;

// One row per function: its name in the table, its name in the library, its arguments.
#define ALTORCH_CUDA_FUNCTIONS(X)                                                                            \
  X(error_string, "cuGetErrorString", (Result error, const char** text))                                     \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, int device))                       \
  X(device_count, "cuDeviceGetCount", (int* number))                                                         \
  X(peer_attribute, "cuDeviceGetP2PAttribute", (int* value, int attribute, int device, int peer))            \
  X(context_synchronize, "cuCtxSynchronize", ())                                                             \
  X(device_uuid, "cuDeviceGetUuid_v2", (Uuid * uuid, int device))                                            \
  X(retain_context, "cuDevicePrimaryCtxRetain", (void** context, int device))                                \
  X(create_context, "cuCtxCreate_v2", (void** context, unsigned flags, int device))                          \
  X(pop_context, "cuCtxPopCurrent_v2", (void** context))                                                     \
  X(destroy_context, "cuCtxDestroy_v2", (void* context))                                                     \
  X(get_context, "cuCtxGetCurrent", (void** context))                                                        \
  X(set_context, "cuCtxSetCurrent", (void* context))                                                         \
  X(host_alloc, "cuMemHostAlloc", (void** memory, std::size_t bytes, unsigned flags))                        \
  X(host_free, "cuMemFreeHost", (void* memory))                                                              \
  X(allocate, "cuMemAlloc_v2", (DevicePtr * memory, std::size_t bytes))                                      \
  X(release, "cuMemFree_v2", (DevicePtr memory))                                                             \
  X(address_range, "cuMemGetAddressRange_v2", (DevicePtr * base, std::size_t * bytes, DevicePtr memory))     \
  X(retain_handle, "cuMemRetainAllocationHandle", (std::uint64_t * handle, void* memory))                    \
  X(handle_properties, "cuMemGetAllocationPropertiesFromHandle",                                             \
    (AllocationProperties * properties, std::uint64_t handle))                                               \
  X(allocation_granularity, "cuMemGetAllocationGranularity",                                                 \
    (std::size_t * bytes, const AllocationProperties* properties, int option))                               \
  X(create_memory, "cuMemCreate",                                                                            \
    (std::uint64_t * handle, std::size_t bytes, const AllocationProperties* properties,                      \
     unsigned long long flags))                                                                              \
  X(release_handle, "cuMemRelease", (std::uint64_t handle))                                                  \
  X(export_handle, "cuMemExportToShareableHandle",                                                           \
    (void* shareable, std::uint64_t handle, int type, unsigned long long flags))                             \
  X(import_handle, "cuMemImportFromShareableHandle", (std::uint64_t * handle, void* shareable, int type))    \
  X(reserve_address, "cuMemAddressReserve",                                                                  \
    (DevicePtr * memory, std::size_t bytes, std::size_t alignment, DevicePtr wish,                           \
     unsigned long long flags))                                                                              \
  X(free_address, "cuMemAddressFree", (DevicePtr memory, std::size_t bytes))                                 \
  X(map_memory, "cuMemMap",                                                                                  \
    (DevicePtr memory, std::size_t bytes, std::size_t offset, std::uint64_t handle,                          \
     unsigned long long flags))                                                                              \
  X(unmap_memory, "cuMemUnmap", (DevicePtr memory, std::size_t bytes))                                       \
  X(set_access, "cuMemSetAccess",                                                                            \
    (DevicePtr memory, std::size_t bytes, const Access* access, std::size_t count))                          \
  X(stream_create, "cuStreamCreateWithPriority", (void** stream, unsigned flags, int priority))              \
  X(stream_destroy, "cuStreamDestroy_v2", (void* stream))                                                    \
  X(stream_synchronize, "cuStreamSynchronize", (void* stream))                                               \
  X(set_bytes, "cuMemsetD8Async", (DevicePtr memory, unsigned char value, std::size_t bytes, void* stream))  \
  X(priority_range, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))                              \
  X(event_create, "cuEventCreate", (void** event, unsigned flags))                                           \
  X(event_destroy, "cuEventDestroy_v2", (void* event))                                                       \
  X(event_record, "cuEventRecord", (void* event, void* stream))                                              \
  X(stream_wait_event, "cuStreamWaitEvent", (void* stream, void* event, unsigned flags))                     \
  X(host_register, "cuMemHostRegister_v2", (void* memory, std::size_t bytes, unsigned flags))                \
  X(host_unregister, "cuMemHostUnregister", (void* memory))                                                  \
  X(load_module, "cuModuleLoadData", (void** module, const void* image))                                     \
  X(get_function, "cuModuleGetFunction", (void** function, void* module, const char* name))                  \
  X(launch, "cuLaunchKernelEx",                                                                              \
    (const LaunchConfig* config, void* function, void** arguments, void** extra))                            \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* host, DevicePtr device, std::size_t bytes, void* stream))   \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                                  \
    (DevicePtr device, const void* host, std::size_t bytes, void* stream))                                   \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", (DevicePtr to, DevicePtr from, std::size_t bytes, void* stream)) \
  X(copy_rows, "cuMemcpy2DAsync_v2", (const RowCopy* copy, void* stream))                                    \
  X(write_value, "cuStreamWriteValue32_v2",                                                                  \
    (void* stream, DevicePtr address, std::uint32_t value, unsigned flags))                                  \
  X(wait_value, "cuStreamWaitValue32_v2",                                                                    \
    (void* stream, DevicePtr address, std::uint32_t value, unsigned flags))

struct Driver {
#define ALTORCH_CUDA_MEMBER(name, symbol, arguments) Result(*name) arguments = nullptr;
  ALTORCH_CUDA_FUNCTIONS(ALTORCH_CUDA_MEMBER)
#undef ALTORCH_CUDA_MEMBER
  std::optional<std::string> missing;  // why it cannot be used, in a clause

  // Throws Error(kTransport) when `result` is a failure.
  void check(const char* what, Result result) const;
};

// Loaded when first asked for. Thread rules: any thread.
const Driver& driver();
// Replaces the library from now on; null: the library again. For tests, which have a fake. Call it
// while no thread uses a GPU.
void replace_driver(const Driver* fake);
// The compute capability of a device: 90 for 9.0; 0: the driver does not say. Thread rules: any
// thread.
int capability_of(int device);

}  // namespace altorch::cuda
