# SPDX-License-Identifier: BSD-3-Clause
from typing import Any

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class AltorchCommunicator(CpuCommunicator):
    """CpuCommunicator takes kernels of its own for groups named tp and pp, and torch.distributed for others."""

    def __init__(self, *arguments: Any, unique_name: str = "", **options: Any) -> None:
        if unique_name.startswith(("tp", "pp")):
            unique_name = f"al-{unique_name}"
        super().__init__(*arguments, unique_name=unique_name, **options)
