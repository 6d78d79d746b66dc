# SPDX-License-Identifier: BSD-3-Clause
"""A platform of SGLang: its CPU platform, with altorch beneath; and its own kernels left aside, where it has any."""

import os


def register() -> str | None:
    on_cpu = os.environ.get("SGLANG_USE_CPU_ENGINE") == "1"
    return "sglang_altorch.platform.AltorchPlatform" if on_cpu else None


def no_kernels() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if register() is not None:
        HookRegistry.register("sglang.srt.utils.common.is_shm_available", lambda *_: False, HookType.REPLACE)
