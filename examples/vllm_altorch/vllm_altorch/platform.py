# SPDX-License-Identifier: BSD-3-Clause
from vllm.platforms.cpu import CpuPlatform


class AltorchPlatform(CpuPlatform):
    dist_backend = "al"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm_altorch.communicator.AltorchCommunicator"
