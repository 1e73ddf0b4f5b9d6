"""TensorRT-LLM command lines and their YAML as :class:`TensorRTSettings`.

Flags of ``tensorrt_llm/commands/serve.py`` and ``bench``; keys of ``--config`` (also called
``--extra_llm_api_options``), which win over flags as the engine has it
(``update_llm_args_with_extra_dict``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenroom.engines.command_line import (
    ParsedCommand,
    brought_file,
    chosen_call,
    read_launches,
    read_options_file,
)
from tokenroom.engines.containers import Launch
from tokenroom.engines.shell import hole_in, hole_sentence
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings, changed
from tokenroom.errors import CommandLineError, DeploymentError, shown

_PROGRAMS: Final = frozenset({"trtllm-serve", "trtllm-bench"})
_SUBCOMMANDS: Final = frozenset({"serve", "throughput", "latency", "build", "mm_embedding_serve"})
_INT_FLAGS: Final[Mapping[str, str]] = {
    "tp_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "tensor_parallel_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "ep_size": "moe_expert_parallel_size",
    "ep": "moe_expert_parallel_size",
    "moe_expert_parallel_size": "moe_expert_parallel_size",
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "max_seq_len": "max_seq_len",
    "max_input_len": "max_input_len",
    "max_beam_width": "max_beam_width",
}
_BUILD_FLAGS: Final[Mapping[str, str]] = {
    # flags of trtllm-build, run.py and the Triton backend, which trtllm-serve does not have
    "max_output_len": "max_output_len",
    "tokens_per_block": "tokens_per_block",
    "max_tokens_in_paged_kv_cache": "max_tokens",
    "kv_cache_host_memory_bytes": "host_cache_size",
}
_TEXT_FLAGS: Final = frozenset({"backend", "kv_cache_dtype", "dtype"})
_FRACTION_FLAGS: Final = frozenset(
    {
        "free_gpu_memory_fraction",
        "kv_cache_free_gpu_memory_fraction",
        "kv_cache_free_gpu_mem_fraction",
    }
)
_SWITCH_FLAGS: Final = frozenset(
    {"enable_chunked_prefill", "fail_fast_on_attention_window_too_large"}
)
_CONFIG_FLAGS: Final = frozenset({"config", "extra_llm_api_options"})
_MODEL_FLAGS: Final = frozenset({"model", "model_path", "m"})
_IGNORED_FLAGS: Final = frozenset(
    {
        *("tokenizer", "custom_tokenizer", "host", "port", "custom_module_dirs", "log_level"),
        *("gpus_per_node", "num_postprocess_workers", "revision", "reasoning_parser"),
        *("tool_parser", "metadata_server_config_file", "server_role", "otlp_traces_endpoint"),
        *("disagg_cluster_uri", "media_io_kwargs", "chat_template", "dataset", "num_requests"),
        *("concurrency", "warmup", "report_json", "workspace", "streaming_file", "eos_id"),
        *("target_input_len", "target_output_len", "iteration_log", "output_json", "served_model"),
    }
)
_IGNORED_SWITCHES: Final = frozenset({"trust_remote_code", "streaming", "verbose"})
KV_KEYS: Final[Mapping[str, str]] = {
    "free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "max_tokens": "max_tokens",
    "max_gpu_total_bytes": "max_gpu_total_bytes",
    "dtype": "kv_cache_dtype",
    "tokens_per_block": "tokens_per_block",
    "enable_block_reuse": "enable_block_reuse",
    "host_cache_size": "host_cache_size",
    "max_attention_window": "max_attention_window",
    "use_kv_cache_manager_v2": "use_kv_cache_manager_v2",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "mamba_state_cache_interval": "mamba_state_cache_interval",
}
"""Key of ``kv_cache_config``: the setting that it is."""
_KV_IGNORED: Final = frozenset(
    {
        *(
            "enable_partial_reuse",
            "copy_on_partial_reuse",
            "onboard_blocks",
            "event_buffer_max_size",
        ),
        *("secondary_offload_min_priority", "sink_token_length", "use_uvm", "max_util_for_resume"),
        *("attention_dp_events_gather_period_ms",),
    }
)
SCHEDULER_KEYS: Final = frozenset(
    {"capacity_scheduler_policy", "context_chunking_policy", "enable_prefix_aware_scheduling"}
)
"""Keys of ``scheduler_config`` that are settings of the same name."""
_SCHEDULER_IGNORED: Final = frozenset(
    {"dynamic_batch_config", "waiting_queue_policy", "use_python_scheduler"}
)
TOP_KEYS: Final = frozenset(
    {
        *("backend", "dtype", "tensor_parallel_size", "pipeline_parallel_size"),
        *("moe_expert_parallel_size", "enable_attention_dp", "max_batch_size", "max_num_tokens"),
        *("max_seq_len", "max_input_len", "max_beam_width", "enable_chunked_prefill"),
        "disable_overlap_scheduler",
    }
)
"""Keys at the top of the file that are settings of the same name."""
_TOP_IGNORED: Final = frozenset(
    {
        *("print_iter_log", "enable_iter_perf_stats", "stream_interval"),
        *("num_postprocess_workers", "trust_remote_code", "attn_backend"),
        *("enable_autotuner", "guided_decoding_backend", "return_perf_metrics", "perf_metrics_max"),
        *(
            "gpus_per_node",
            "tokenizer",
            "enable_iter_req_stats",
            "garbage_collection_gen0_threshold",
        ),
        *("batch_wait_timeout_ms", "batch_wait_timeout_iters", "attention_dp_config", "moe_config"),
        *("max_stats_len", "skip_tokenizer_init", "load_format", "allreduce_strategy"),
    }
)


def parse_command(
    command: str | Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    allow_files: bool = False,
    service: str | None = None,
    version: str | None = None,
) -> ParsedCommand:
    """Understand how someone starts TensorRT-LLM.

    Args:
        command: Shell text, words, ``docker run``, a compose or Kubernetes document.
        environment: Variables for ``$NAME`` in the text.
        allow_files: The YAML that ``--config`` names may be read.
        service: Name of the service or container to take when several run it.
        version: Version; the image's tag otherwise.

    Raises:
        CommandLineError: Nothing runs TensorRT-LLM, several do, or a flag cannot be understood.
    """
    launches = read_launches(command, environment)
    launch, words = chosen_call(
        launches, _words, service, "TensorRT-LLM", example="trtllm-serve MODEL"
    )
    return _parse(launch, words, allow_files, version)


def _words(launch: Launch) -> tuple[str, ...] | None:
    """The words behind the program, None when the launch does not run it."""
    for index, word in enumerate(launch.words):
        base = word.rsplit("/", 1)[-1]
        rest = launch.words[index + 1 :]
        if word == "-m" and rest and rest[0].startswith("tensorrt_llm.commands."):
            return rest[1:]
        if base in _PROGRAMS:
            return rest
    return None


def _parse(
    launch: Launch, words: Sequence[str], allow_files: bool, version: str | None
) -> ParsedCommand:
    values: dict[str, Any] = {}
    unknown: list[str] = []
    ignored: list[str] = []
    notes: list[str] = []
    positional: list[str] = []
    configs: list[tuple[str, str]] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            if word not in _SUBCOMMANDS:
                positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in _SWITCH_FLAGS:
            values[name] = True
            continue
        if name in _IGNORED_SWITCHES:
            ignored.append(f"--{name}")
            continue
        following = words[index] if index < len(words) else None
        known = name in _known_flags()
        if not equals and (known or (following is not None and not following.startswith("-"))):
            if following is None:
                raise CommandLineError(f"--{name} has no value; write --{name} VALUE")
            value = following
            index += 1
        if not known:
            unknown.append(f"--{name}")
        elif name in _IGNORED_FLAGS:
            ignored.append(f"--{name}")
        elif name in _CONFIG_FLAGS:
            configs.append((name, value))
        elif name in _MODEL_FLAGS:
            positional.insert(0, value)
        else:
            own, parsed = _flag(name, value)
            values[own] = parsed
            if name in _BUILD_FLAGS:
                values.setdefault("backend", "tensorrt")
    for name, path in configs:
        document = _load(name, path, launch, allow_files, notes)
        values |= _document(document, path, unknown, ignored, notes)
    if not positional:
        raise CommandLineError("the command names no model; give it as trtllm-serve MODEL")
    model = positional[0]
    if hole := hole_in(model):
        raise CommandLineError(hole_sentence("the model", hole))
    named = version or _version(launch)
    shares = launch.environment.get("TRTLLM_WINDOW_SIZE_SHARES")
    try:
        settings = changed(TensorRTSettings(), values)
    except DeploymentError as error:
        raise CommandLineError(str(error)) from error
    settings = changed(
        settings,
        {
            "version": named,
            "environment": {"TRTLLM_WINDOW_SIZE_SHARES": shares} if shares else {},
            "unknown_flags": tuple(unknown),
            "ignored_flags": tuple(ignored),
        },
    )
    return ParsedCommand(
        engine="tensorrt-llm",
        model=model,
        version=named,
        settings=settings,
        gpus=launch.gpus,
        accelerator_hint=launch.accelerator,
        notes=tuple(notes),
        facts=launch.facts,
    )


def _known_flags() -> frozenset[str]:
    return (
        frozenset(_INT_FLAGS)
        | frozenset(_BUILD_FLAGS)
        | _TEXT_FLAGS
        | _FRACTION_FLAGS
        | _CONFIG_FLAGS
        | _MODEL_FLAGS
        | _IGNORED_FLAGS
    )


def _flag(name: str, value: str) -> tuple[str, Any]:
    if hole := hole_in(value):
        raise CommandLineError(f"--{name} is {hole}, which is not set; write its value out")
    if own := _INT_FLAGS.get(name) or _BUILD_FLAGS.get(name):
        if not re.fullmatch(r"\d{1,12}", value):
            raise CommandLineError(f"--{name} is {shown(value)}; it must be a whole number")
        return own, int(value)
    if name in _FRACTION_FLAGS:
        try:
            return "free_gpu_memory_fraction", float(value)
        except ValueError:
            raise CommandLineError(
                f"--{name} is {shown(value)}; it must be a number above 0 and at most 1"
            ) from None
    return name, {"trt": "tensorrt"}.get(value, value) if name == "backend" else value


def _load(
    name: str, path: str, launch: Launch, allow_files: bool, notes: list[str]
) -> Mapping[str, Any]:
    """The YAML of a path; one inside a container cannot be read, which is said."""
    text = brought_file(path, launch)
    if text is None and (
        not allow_files or (launch.image is not None and not Path(path).is_file())
    ):
        notes.append(f"--{name} {path} was not read: its settings are not counted")
        return {}
    return read_options_file(path, text)


def _document(
    document: Mapping[str, Any],
    path: str,
    unknown: list[str],
    ignored: list[str],
    notes: list[str],
) -> dict[str, Any]:
    """Settings of a YAML document."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in TOP_KEYS:
            values[key] = value
        elif key == "kv_cache_config":
            for name, item in _section(value, key, path).items():
                if name in KV_KEYS:
                    own = KV_KEYS[name]
                    values[own] = tuple(item) if isinstance(item, list) else item
                elif name in _KV_IGNORED:
                    ignored.append(f"{key}.{name}")
                else:
                    unknown.append(f"{key}.{name}")
        elif key == "scheduler_config":
            for name, item in _section(value, key, path).items():
                if name in SCHEDULER_KEYS:
                    values[name] = item
                else:
                    known = name in _SCHEDULER_IGNORED
                    (ignored if known else unknown).append(f"{key}.{name}")
        elif key == "cuda_graph_config":
            values |= _graph_values(value, path, unknown)
        elif key == "speculative_config":
            values |= _draft_values(value, path)
        elif key in _TOP_IGNORED:
            ignored.append(key)
        elif key in ("quant_config", "lora_config", "sparse_attention_config", "peft_cache_config"):
            notes.append(f"{key} changes memory in a way that is not modelled here")
        else:
            unknown.append(key)
    return values


def _section(value: Any, key: str, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CommandLineError(
            f"{key} in {path} is {shown(value)}; it must hold lines of NAME: VALUE below it"
        )
    return {str(name): item for name, item in value.items()}


def _graph_values(value: Any, path: str, unknown: list[str]) -> dict[str, Any]:
    """``null`` switches graphs off, an empty section on."""
    if value is None:
        return {"cuda_graphs": False}
    if value == {}:
        return {"cuda_graphs": True}
    values: dict[str, Any] = {}
    for name, item in _section(value, "cuda_graph_config", path).items():
        if name == "batch_sizes":
            values["cuda_graph_batch_sizes"] = tuple(item) if isinstance(item, list) else item
        elif name in ("max_batch_size", "enable_padding"):
            values[f"cuda_graph_{name}"] = item
        elif name != "mode":
            unknown.append(f"cuda_graph_config.{name}")
    return values


def _draft_values(value: Any, path: str) -> dict[str, Any]:
    section = _section(value, "speculative_config", path)
    values: dict[str, Any] = {}
    if section.get("decoding_type") is not None:
        values["speculative_type"] = str(section["decoding_type"])
    for name in ("max_draft_len", "num_nextn_predict_layers"):
        if section.get(name) is not None:
            values["speculative_tokens"] = section[name]
    for name in ("speculative_model", "speculative_model_dir"):
        if section.get(name) is not None:
            values["speculative_model"] = str(section[name])
    return values


def _version(launch: Launch) -> str | None:
    """The version of an image such as ``nvcr.io/nvidia/tensorrt-llm/release:1.1.0``."""
    match = re.search(r"(?:tensorrt[-_]llm|trtllm)[^:]*:v?(\d+\.\d+(?:\.\d+)?)", launch.image or "")
    return match.group(1) if match else None
