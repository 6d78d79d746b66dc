# SPDX-License-Identifier: BSD-3-Clause
"""A platform of vLLM: its CPU platform, with altorch beneath. VLLM_PLUGINS="" leaves it out."""


def register() -> str:
    return "vllm_altorch.platform.AltorchPlatform"
