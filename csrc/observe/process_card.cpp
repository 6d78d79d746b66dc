#include "observe/process_card.h"

#include <unistd.h>

#include "common/host_namespace.h"

namespace altorch {

ProcessCard ProcessCard::own() { return {host_namespace("pid"), getpid()}; }

}  // namespace altorch
