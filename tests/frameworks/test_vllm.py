# SPDX-License-Identifier: BSD-3-Clause
"""vLLM on CPUs with two tensor-parallel ranks: the tokens are those of vLLM's own kernels. `make test-vllm` runs it."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

GENERATE = """
import json, os
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
set_seed(7)
LlamaForCausalLM(LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256)).save_pretrained("model")
from vllm import LLM, SamplingParams

def made_by(worker):
    from program import made_by
    return made_by()

llm = LLM("model", skip_tokenizer_init=True, tensor_parallel_size=2, enforce_eager=True, dtype="float32",
          max_model_len=128, distributed_executor_backend="mp")
prompts = [{"prompt_token_ids": [1, 5, 9, 33]}, {"prompt_token_ids": [7, 8, 100]}]
made = llm.generate(prompts, SamplingParams(max_tokens=12, temperature=0, detokenize=False))
figures = {"by": llm.collective_rpc(made_by), "tokens": [list(each.outputs[0].token_ids) for each in made]}
del llm
print()
print(json.dumps(figures))
"""
SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # two ranks on one NUMA node
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # of `made_by`
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_PLUGINS": "",
}


def test_the_tokens_are_those_of_vllm(ranks):
    want = ranks(GENERATE, 1, **SETTINGS)
    assert not any(each.startswith("altorch") for each in want["by"])
    for more in ({"ALTORCH_SERVES": "gloo"}, {"VLLM_PLUGINS": "altorch"}):
        made = ranks(GENERATE, 1, **(SETTINGS | more))
        assert made == {"by": ["altorch._C"] * 2, "tokens": want["tokens"]}, more
