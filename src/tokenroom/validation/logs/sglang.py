"""SGLang's log words. "GB" in them is GiB.

Sources: model_executor/model_runner.py ``load_model``, ``init_torch_distributed``,
``init_device_graphs``; mem_cache/memory_pool.py ``_finalize_allocation_log``;
managers/scheduler.py (0.4.3, 0.5.9, 0.5.22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tokenroom.validation.logs.facts import Facts, LogReader, sized
from tokenroom.validation.logs.lines import Message
from tokenroom.validation.logs.literals import named_values

_VERSION: Final = re.compile(r"sglang(?: version[ :=]*|==)v?(\d+\.\d+\.\d+[\w.+-]*)", re.I)
#: Server arguments that memory depends on; the log prints every argument with its value.
_ARGUMENTS: Final = frozenset(
    {
        *("tp_size", "pp_size", "dp_size", "ep_size", "dtype", "quantization", "kv_cache_dtype"),
        *("context_length", "mem_fraction_static", "max_running_requests", "max_total_tokens"),
        *("chunked_prefill_size", "max_prefill_tokens", "page_size", "swa_full_tokens_ratio"),
        *("mamba_full_memory_ratio", "max_mamba_cache_size", "mamba_ssm_dtype"),
        *("disable_radix_cache", "disable_cuda_graph", "cuda_graph_max_bs", "attention_backend"),
        *("enable_dp_attention", "speculative_algorithm", "speculative_draft_model_path"),
        *("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("enable_lora", "max_lora_rank", "max_loras_per_batch", "enable_hierarchical_cache"),
        *("hicache_ratio", "hicache_size", "cpu_offload_gb", "torchao_config"),
    }
)
_UNSET: Final = (None, False, "auto", "", 0)


class SGLangLog(LogReader):
    """Reads what SGLang prints."""

    engine = "sglang"
    keywords = (
        "server_args=ServerArgs(",
        "Load weight ",
        "Init torch distributed ends",
        "ache is allocated",
        "KV cache allocated",
        "Memory pool end",
        "Capture cuda graph ",
        "max_total_num_tokens=",
        "SWAKVPool mem usage",
        "sglang version",
        "sglang==",
        "Traceback (most recent",
    )
    started = ("The server is fired up and ready to roll", "Application startup complete")
    out_of_memory = (
        "OutOfMemoryError",
        "CUDA out of memory",
        "HIP out of memory",
        "Not enough memory. Please try to increase --mem-fraction-static",
    )
    figures = (
        sized(r"Load weight begin\. avail mem=<avail_before_weights_gib> GB"),
        sized(r"Load weight end\..*?avail mem=<avail_after_weights_gib> GB"),
        sized(r"Load weight end\..*?mem usage=<weights_gib> GB"),
        sized(r"Init torch distributed ends\..*?mem usage=<dist_init_gib> GB"),
        sized(r"KV [Cc]ache (?:is )?allocated\..*?#tokens: <kv_tokens>,"),
        sized(r"KV [Cc]ache (?:is )?allocated\..*?K size: <k_gib> GB, V size: <v_gib> GB"),
        sized(r"KV [Cc]ache (?:is )?allocated\..*?KV size: <kv_gib> GB"),
        sized(r"Memory pool end\. avail mem=<avail_after_pool_gib> GB"),
        sized(r"Capture cuda graph begin\..*?avail mem=<avail_before_graph_gib> GB"),
        sized(r"Capture cuda graph end\..*?mem usage=<graph_gib> GB"),
        sized(r"Capture cuda graph end\..*?avail mem=<avail_after_graph_gib> GB"),
        sized(r"max_total_num_tokens=<kv_tokens>,"),
        sized(r"max_running_requests=<max_running_requests>,"),
        sized(r"max_mamba_cache_size: <mamba_slots>,"),
        sized(r"swa size: <swa_layer_tokens>, full size: <full_layer_tokens>"),
    )

    def read(self, message: Message) -> None:
        """Version, model and arguments."""
        text = message.text
        if "server_args=ServerArgs(" in text:
            self.begin()
            self._arguments(text.split("ServerArgs(", 1)[1])
        if (version := _VERSION.search(text)) is not None and self.facts.version is None:
            self.facts.version = version[1]
        if "Traceback (most recent call last)" in text and self.facts.failure is None:
            self.facts.failure = "fails_other"

    def finish(self, facts: Facts) -> Mapping[str, Any]:
        """The figures; what K and V take together beside them."""
        reported: dict[str, Any] = facts.reported()
        if "k_gib" in reported and "v_gib" in reported and "kv_gib" not in reported:
            reported["kv_gib"] = round(reported["k_gib"] + reported["v_gib"], 2)
        return reported

    def _arguments(self, text: str) -> None:
        for name, value in named_values(text):
            if name == "model_path" and isinstance(value, str):
                self.facts.model = value
            elif name in _ARGUMENTS and value not in _UNSET:
                self.facts.flags[name] = value
