"""vLLM's log words and metrics, from the V0 engine to the newest release.

Sources: worker/worker.py ``determine_num_available_blocks`` (0.6.4, 0.7.3), worker/model_runner.py
(0.4.1), v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py, v1/core/kv_cache_utils.py
(0.11.0, 0.19.0, 0.33.0), utils/mem_utils.py ``MemoryProfilingResult.__repr__`` (0.19.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tokenroom.engines.vllm.engine_args import INFLUENTIAL
from tokenroom.validation.logs.facts import Facts, LogReader, sized
from tokenroom.validation.logs.lines import Message
from tokenroom.validation.logs.literals import named_values

_VERSION: Final = re.compile(
    r"(?:LLM engine \(v|API server version |[\u2580-\u259f] +version )(\d+\.\d+\.\d+[\w.+-]*)"
)
_CONFIG: Final = re.compile(r"LLM engine \(v[^)]*\) with config: (.*)", re.S)
_UTILISATION: Final = re.compile(
    r"utilization is \((0?\.\d+|1(?:\.0*)?)|gpu_memory_utilization \((0?\.\d+|1(?:\.0*)?)\)"
    r"|Requested memory: (0?\.\d+|1(?:\.0*)?) \(util\)|gpu_memory_utilization=(0?\.\d+|1(?:\.0*)?)"
)
#: Names in the engine's configuration line that differ from the arguments' own.
_CONFIG_NAMES: Final[Mapping[str, str]] = {
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
}
#: Labels of the gauge that /metrics shows (v1/metrics/loggers.py, 0.32), whose page may follow the
#: log.
_METRICS: Final[Mapping[str, str]] = {
    "block_size": "block_size",
    "num_gpu_blocks": "blocks",
    "kv_cache_size_tokens": "kv_tokens",
}
_AUTO: Final = frozenset({"auto", None})


class VLLMLog(LogReader):
    """Reads what vLLM prints."""

    engine = "vllm"
    keywords = (
        "non-default args",
        "args: Namespace(",
        "LLM engine (v",
        "API server version ",
        "  version ",
        " blocks: ",
        "num_gpu_blocks is: ",
        "KV cache size: ",
        "KV cache memory",
        "KV Cache is ",
        "memory for KV Cache",
        "gpu_memory_utilization (",
        "KV cache is needed",
        "stored in KV cache",
        "Maximum concurrency for ",
        "odel loading took ",
        "model weights took ",
        "model weights take ",
        "weights memory: ",
        "memory takes ",
        "emory profiling ",
        "total_memory=",
        "total_gpu_memory",
        "requested memory",
        "Requested memory",
        "CUDA graph memory: ",
        "CUDA graph pool memory",
        "Graph capturing finished",
        "Free memory on device",
        "nitial free memory",
        "Setting attention block size",
        "max_num_batched_tokens=",
        "Defaulting max_num_",
        "maximum model length is",
        "Explicitly set (",
        "vllm:cache_config_info{",
        "Traceback (most recent",
    )
    started = ("Application startup complete", "Uvicorn running on", "Started server process")
    out_of_memory = (
        "OutOfMemoryError",
        "CUDA out of memory",
        "HIP out of memory",
        "No available memory for the cache blocks",
        "is larger than the maximum number of tokens that can be stored in KV cache",
        "which is larger than the available KV cache memory",
        "is less than desired GPU memory utilization",
    )
    figures = (
        sized(r"[Mm]odel loading took <weights_gib> (?:GiB|GB)\b"),
        sized(r"Loading model weights took <weights_gib> (?:GiB|GB)\b"),
        sized(r"model weights take <weights_gib>GiB"),
        sized(r"weights memory: <weights_gib>GiB"),
        sized(r"Actual usage is <weights_gib> GiB for weight"),
        sized(r"Actual usage is <consumed_gib> GiB for consumed memory"),
        sized(r"total_memory=<total_gpu_gib>GiB"),
        sized(r"free_memory=<free_at_start_gib>GiB, total_memory"),
        sized(r"total_gpu_memory=<total_gpu_gib>GiB"),
        sized(r"total_gpu_memory \(<total_gpu_gib>GiB\)"),
        sized(r"Free memory on device \(<free_at_start_gib>/<total_gpu_gib> GiB\)"),
        sized(r"Free memory on device \w+:\d+ \(<refused_free_gib>/<total_gpu_gib> GiB\)"),
        sized(r"Initial free memory:? <free_at_start_gib> GiB"),
        sized(r"initial_memory_usage=<initial_memory_usage_gib>GiB"),
        sized(r"peak_torch_memory=<peak_torch_gib>GiB"),
        sized(r"memory_usage_post_profile=<post_profile_gib>GiB"),
        sized(r"non_torch_memory=<non_torch_gib>GiB kv_cache_size=<kv_gib>GiB"),
        sized(r"\(util\), <budget_gib> GiB"),
        sized(r"worker requested memory: <budget_gib>GiB"),
        sized(r"gpu_memory_utilization \([\d.]+\) = <budget_gib>GiB"),
        sized(r"torch peak memory increase: <activation_gib>GiB"),
        sized(r"PyTorch activation peak memory takes <activation_gib>GiB"),
        sized(r"GiB for weight, <activation_gib> GiB for peak activation"),
        sized(r"non-torch forward increase memory: <non_torch_gib>GiB"),
        sized(r"non_torch_memory takes <non_torch_gib>GiB"),
        sized(r"activation, <non_torch_gib> GiB for non-torch memory"),
        sized(r"Total non KV cache memory: <total_non_kv_gib>GiB"),
        sized(r"Available KV cache memory: <kv_gib> GiB"),
        sized(r"reserved for KV Cache is <kv_gib>GiB"),
        sized(r"KV cache size: <kv_tokens> tokens"),
        sized(r"total consumed \(from mem_get_info\): <consumed_gib>GiB"),
        sized(r"\(weights \+ non-torch\), <activation_gib> GiB for peak activation"),
        sized(r"reserved <kv_gib> GiB memory for KV Cache"),
        sized(
            r"Maximum concurrency for <max_concurrency_len> tokens per request: "
            r"<max_concurrency>x"
        ),
        sized(r"# (?:GPU|cuda) blocks: <blocks>, # CPU blocks: <cpu_blocks>"),
        sized(r"num_gpu_blocks is: <blocks>"),
        sized(r"Estimated CUDA graph memory: <graph_estimated_gib> GiB"),
        sized(r"Graph capturing finished in \d+ secs?, took <graph_gib> GiB"),
        sized(r"CUDA graph pool memory: <graph_gib> GiB \(actual\), <graph_estimated_gib> GiB"),
        sized(r"Setting attention block size to <block_size> tokens"),
        sized(r"hunked prefill is enabled with max_num_batched_tokens=<max_num_batched_tokens>\."),
        sized(r"Defaulting max_num_batched_tokens to <max_num_batched_tokens> for"),
        sized(r"Defaulting max_num_seqs to <max_num_seqs_default> for"),
        sized(r"\(<kv_needed_gib> GiB KV cache is needed"),
        sized(r"\(<kv_needed_gib> GiB\) KV cache is needed"),
        sized(r"larger than the available KV cache memory \(<kv_gib> GiB\)"),
        sized(r"estimated maximum model length is <est_max_model_len>"),
        sized(r"tokens that can be stored in KV cache \(<kv_tokens>\)"),
        sized(r"Explicitly set \(<kv_gib>/[\d.]+\) GiB for KV cache"),  # on CPU
        *(
            sized(rf'vllm:cache_config_info\{{.*\b{label}="<{quantity}>"')
            for label, quantity in _METRICS.items()
        ),
    )

    def read(self, message: Message) -> None:
        """Version, model and arguments."""
        text, facts = message.text, self.facts
        if "non-default args" in text:
            self.begin()
            self._arguments(text.split("non-default args", 1)[1], everything=False)
        elif "args: Namespace(" in text:
            self.begin()
            self._arguments(text.split("Namespace(", 1)[1], everything=True)
        facts = self.facts
        if (version := _VERSION.search(text)) is not None and facts.version is None:
            facts.version = version[1]
        if (config := _CONFIG.search(text)) is not None:
            self._config(config[1])
        if (found := _UTILISATION.search(text)) is not None:
            given = next(value for value in found.groups() if value is not None)
            facts.flags.setdefault("gpu_memory_utilization", float(given))
        if "Traceback (most recent call last)" in text and facts.failure is None:
            facts.failure = "fails_other"

    def finish(self, facts: Facts) -> Mapping[str, Any]:
        """The figures; beside the first rank's those of other ranks that decide for all."""
        reported: dict[str, Any] = facts.reported()
        refused = reported.pop("refused_free_gib", None)
        for quantity in ("kv_gib", "free_at_start_gib"):
            printed = set(facts.figures.get(quantity, {}).values())
            if quantity == "free_at_start_gib" and refused is not None:
                printed.add(refused)
            if others := sorted(printed - {reported.get(quantity)}):
                reported[f"{quantity}_other_ranks"] = others
        return reported

    def _arguments(self, text: str, *, everything: bool) -> None:
        """Arguments by name; of a list of all of them those that are set."""
        facts = self.facts
        for name, value in named_values(text):
            if name in ("model_tag", "model"):
                facts.model = facts.model or (value if isinstance(value, str) else None)
            elif name in INFLUENTIAL and (not everything or value not in (None, False, "auto")):
                facts.flags[name] = value

    def _config(self, text: str) -> None:
        """What the engine's configuration line says, where no arguments were printed."""
        facts = self.facts
        printed = bool(facts.flags) and facts.model is not None
        for name, value in named_values(text):
            if name == "model" and isinstance(value, str):
                facts.model = facts.model or value
            elif not printed and name in _CONFIG_NAMES and value not in (*_AUTO, False):
                facts.flags.setdefault(_CONFIG_NAMES[name], value)
