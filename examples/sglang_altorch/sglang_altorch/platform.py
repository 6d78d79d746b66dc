# SPDX-License-Identifier: BSD-3-Clause
from sglang.srt.platforms.cpu import CpuSRTPlatform


class AltorchPlatform(CpuSRTPlatform):
    def get_torch_distributed_backend_str(self) -> str:
        return "al"
