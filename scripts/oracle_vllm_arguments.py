"""Record what vLLM's own parser makes of random argument lists, as a fixture for the tests.

Runs in an environment with vLLM 0.32 (the CPU build suffices), not in the project's own:

    python scripts/oracle_vllm_arguments.py tests/engines/data/vllm_arguments_0.32.json.gz

Each row is ``[words, result]``: the words after ``vllm serve`` and the settings that
``EngineArgs.from_cli_args`` ends up with where they differ from its defaults, under tokenroom's
names, or null where the parser refuses the words.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sys
from typing import Any

from vllm.config import AttentionConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

SEED = 20260101
ROWS = 600
MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B", "./model", "deepseek-ai/DeepSeek-V3.2")
SAME_NAME = tuple(
    """
    dtype quantization tensor_parallel_size pipeline_parallel_size data_parallel_size
    data_parallel_size_local data_parallel_external_lb nnodes enable_expert_parallel enable_eplb
    all2all_backend enable_dbo decode_context_parallel_size prefill_context_parallel_size
    disable_custom_all_reduce max_model_len max_num_seqs max_num_batched_tokens
    max_num_scheduled_tokens gpu_memory_utilization kv_cache_dtype kv_cache_memory_bytes
    num_gpu_blocks_override block_size enable_prefix_caching enable_chunked_prefill
    disable_hybrid_kv_cache_manager kv_cache_dtype_skip_layers kv_sharing_fast_prefill
    mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode enforce_eager
    async_scheduling enable_lora max_loras max_lora_rank max_cpu_loras
    fully_sharded_loras lora_dtype language_model_only max_logprobs runner convert
    disable_sliding_window performance_mode enable_prompt_embeds enable_sleep_mode
    skip_mm_profiling mm_encoder_only mm_encoder_tp_mode model_impl load_format moe_backend
    linear_backend
""".split()  # noqa: SIM905
)
#: Flag spellings with values to draw from; an empty tuple is a switch.
FLAGS: dict[str, tuple[str, ...]] = {
    "--tensor-parallel-size": ("1", "2", "8", " 4", "+2", "1_0", "x", "2.0", ""),
    "-tp": ("2", "4"),
    "-pp": ("1", "2"),
    "-dp": ("2", "8"),
    "-dcp": ("2",),
    "--pipeline-parallel-size": ("2", "3"),
    "--data_parallel_size": ("2",),
    "--data-parallel-size-local": ("1", "2"),
    "--decode-context-parallel-size": ("1", "2"),
    "--prefill-context-parallel-size": ("2",),
    "--nnodes": ("1", "2"),
    "--max-model-len": (
        "8192",
        "32k",
        "32K",
        "1M",
        "1m",
        "1.5k",
        "1.5K",
        "auto",
        "AUTO",
        "-1",
        "x",
    ),
    "--max_model_len": ("4096",),
    "--max-num-seqs": ("1", "128", "1k"),
    "--max-num-batched-tokens": ("2048", "16k", "8K", "2.5k", "auto"),
    "--gpu-memory-utilization": ("0.9", "0.95", "1", ".5", "1e-1", "high"),
    "--device-memory-utilization": ("0.8",),
    "--kv-cache-dtype": ("auto", "fp8", "fp8_e5m2", "bfloat16"),
    "--kv-cache-memory-bytes": ("8G", "8g", "1.5g", "123456789", "None"),
    "--num-gpu-blocks-override": ("100", "None"),
    "--block-size": ("16", "32", "128", "17"),
    "--dtype": ("auto", "half", "bfloat16", "float32", "fp16", "int8"),
    "--quantization": ("fp8", "awq", "None"),
    "-q": ("gptq",),
    "--enforce-eager": (),
    "--no-enforce-eager": (),
    "--enable-prefix-caching": (),
    "--no-enable-prefix-caching": (),
    "--disable-prefix-caching": (),
    "--enable-chunked-prefill": (),
    "--no-enable-chunked-prefill": (),
    "--disable-chunked-prefill": (),
    "--async-scheduling": (),
    "--no-async-scheduling": (),
    "--enable-expert-parallel": (),
    "-ep": (),
    "--enable-eplb": (),
    "--enable-dbo": (),
    "--enable-lora": (),
    "--max-loras": ("4",),
    "--max-lora-rank": ("16", "64", "17", "None"),
    "--max-cpu-loras": ("8",),
    "--fully-sharded-loras": (),
    "--lora-dtype": ("auto", "bfloat16"),
    "--language-model-only": (),
    "--max-logprobs": ("-1", "5"),
    "--runner": ("generate", "pooling", "auto", "bad"),
    "--convert": ("embed", "none"),
    "--disable-sliding-window": (),
    "--disable-hybrid-kv-cache-manager": (),
    "--no-disable-hybrid-kv-cache-manager": (),
    "--kv-sharing-fast-prefill": (),
    "--mamba-cache-dtype": ("auto", "float32"),
    "--mamba-ssm-cache-dtype": ("float32",),
    "--mamba-block-size": ("128",),
    "--mamba-cache-mode": ("align", "all", "none"),
    "--performance-mode": ("throughput", "balanced", "fast"),
    "--enable-prompt-embeds": (),
    "--enable-sleep-mode": (),
    "--skip-mm-profiling": (),
    "--mm-encoder-only": (),
    "--mm-encoder-tp-mode": ("data", "weights"),
    "--model-impl": ("transformers", "vllm"),
    "--load-format": ("dummy", "safetensors"),
    "--moe-backend": ("triton", "Deep-GEMM", "auto"),
    "--linear-backend": ("auto",),
    "--all2all-backend": ("deepep_low_latency", "allgather_reducescatter"),
    "--disable-custom-all-reduce": (),
    "--data-parallel-external-lb": (),
    "--max-num-scheduled-tokens": ("1k",),
    "--cpu-offload-gb": ("4", "0.5"),
    "--kv-offloading-size": ("8", "2.5"),
    "--mm-ipc-gpu-memory-gb": ("1",),
    "--cudagraph-capture-sizes": ("1 2 4", "8", "1,2"),
    "--max-cudagraph-capture-size": ("256", "0"),
    "--limit-mm-per-prompt": (
        '{"image": 2}',
        '{"image": 0, "video": {"count": 1, "num_frames": 8}}',
        "image=2",
    ),
    "--limit-mm-per-prompt.image": ("3", "1k"),
    "--speculative-config": (
        '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}',
        '{"method": "mtp", "num_speculative_tokens": 1}',
        '{"model": "a/eagle3-b", "method": "eagle3", "num_speculative_tokens": 5}',
        "{bad",
        "None",
    ),
    "--speculative-config.method": ("ngram",),
    "--speculative-config.num_speculative_tokens": ("2", "4"),
    "--compilation-config": (
        '{"cudagraph_mode": "FULL"}',
        '{"cudagraph_mode": "piecewise", "mode": 3}',
        '{"mode": 0}',
        '{"cudagraph_capture_sizes": [1, 2, 8]}',
        '{"max_cudagraph_capture_size": 64}',
        "[1]",
    ),
    "-cc.cudagraph_mode": ("NONE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    "-cc.mode": ("0", "VLLM_COMPILE"),
    "-cc.cudagraph_capture_sizes+": ("1", "2,4"),
    "--compilation-config.max_cudagraph_capture_size": ("128",),
    "-O0": (),
    "-O1": (),
    "-O": ("2", "3"),
    "-O=2": (),
    "--optimization-level": ("0", "3"),
    "--hf-overrides": ('{"max_position_embeddings": 65536}', '{"a": {"b": 1}}'),
    "--hf-overrides.rope_parameters.factor": ("4", "4.0", "yarn"),
    "--hf_overrides.text_config.x": ("true",),
    "--attention-backend": ("FLASH_ATTN", "flashinfer", "auto", "TRITON_MLA"),
    "--attention-config.backend": ("TRITON_ATTN",),
    "--kv-transfer-config": ('{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',),
    "--eplb-config": ('{"num_redundant_experts": 8}', '{"window_size": 100}'),
    "--eplb-config.num_redundant_experts": ("4",),
    "--kv-cache-dtype-skip-layers": ("0 1", "sliding_window"),
    "--mm-processor-kwargs": ('{"max_pixels": 1003520}', "None"),
    "--port": ("8001", "x"),
    "--served-model-name": ("a b", "x"),
    "--api-key": ("k1 k2",),
    "--trust-remote-code": (),
    "--host": ("0.0.0.0",),
    "--tokenizer": ("x/y",),
    "--reasoning-parser": ("qwen3",),
    "--disable-log-stats": (),
    "--seed": ("0", "-5"),
    "--max-model": ("1k",),
    "--max-num": ("3",),
    "--tensor-par": ("2",),
    "--gpu-mem": ("0.7",),
    "--enforce": (),
    "--max-num-b": ("512",),
    "--kv-cache-me": ("1G",),
}


def draw(rng: random.Random) -> list[str]:
    words = [] if rng.random() < 0.1 else [rng.choice(MODELS)]
    if not words and rng.random() < 0.9:
        words = rng.choice((["--model", MODELS[0]], [f"--model={MODELS[1]}"]))
    picks: list[list[str]] = []
    for flag in rng.sample(list(FLAGS), rng.randint(1, 7)):
        values = FLAGS[flag]
        if not values:
            picks.append([flag])
            continue
        value = rng.choice(values)
        spelled = flag.replace("-", "_").replace("__", "--", 1) if rng.random() < 0.1 else flag
        if not flag.startswith("--"):
            spelled = flag
        if " " in value and value[0].isalnum():
            picks.append([spelled, *value.split()])
        elif rng.random() < 0.3:
            picks.append([f"{spelled}={value}"])
        else:
            picks.append([spelled, value])
    if rng.random() < 0.5:
        picks.append(words)
        rng.shuffle(picks) if words[:1] and words[0].startswith("-") else picks.reverse()
        return [word for pick in picks for word in pick]
    return [*words, *(word for pick in picks for word in pick)]


def plain(value: Any) -> Any:
    if isinstance(value, set | tuple):
        return list(value)
    return value


def refuse_contradictions(args: AsyncEngineArgs) -> None:
    """What ``create_engine_config`` refuses without looking at the model (0.32)."""
    config = args.compilation_config
    if args.attention_backend is not None and args.attention_config.backend is not None:
        raise ValueError("attention_backend twice")
    if args.cudagraph_capture_sizes and config.cudagraph_capture_sizes:
        raise ValueError("cudagraph_capture_sizes twice")
    if args.max_cudagraph_capture_size and config.max_cudagraph_capture_size:
        raise ValueError("max_cudagraph_capture_size twice")
    spec = args.speculative_config
    if spec is not None and not {"method", "model"} & set(spec):
        raise ValueError("speculative_config names no method")


def settings_of(args: AsyncEngineArgs) -> dict[str, Any]:
    refuse_contradictions(args)
    result = {name: plain(getattr(args, name)) for name in SAME_NAME}
    gib = 2**30
    result["model"] = args.model
    result["cpu_offload_bytes"] = int(args.cpu_offload_gb * gib)
    size = args.kv_offloading_size
    result["kv_offload_bytes"] = None if size is None else int(size * gib)
    result["mm_ipc_gpu_memory_bytes"] = int(args.mm_ipc_gpu_memory_gb * gib)
    config = args.compilation_config
    result["compilation_mode"] = None if config.mode is None else int(config.mode)
    mode = config.cudagraph_mode
    result["cudagraph_mode"] = None if mode is None else mode.name
    result["cudagraph_capture_sizes"] = (
        args.cudagraph_capture_sizes or config.cudagraph_capture_sizes
    )
    largest = args.max_cudagraph_capture_size
    result["max_cudagraph_capture_size"] = (
        config.max_cudagraph_capture_size if largest is None else largest
    )
    result["optimization_level"] = int(args.optimization_level)
    result["limit_mm_per_prompt"] = {
        key: value["count"] if isinstance(value, dict) else getattr(value, "count", value)
        for key, value in args.limit_mm_per_prompt.items()
    }
    result["hf_overrides"] = args.hf_overrides
    backend = args.attention_backend or args.attention_config.backend
    if isinstance(backend, str):  # create_engine_config turns the text into the enum
        backend = AttentionConfig.validate_backend_before(backend)
    result["attention_backend"] = getattr(backend, "name", backend)
    spec = args.speculative_config
    result["speculative"] = None if spec is None else spec
    transfer = args.kv_transfer_config
    result["kv_connector"] = None if transfer is None else transfer.kv_connector
    result["num_redundant_experts"] = args.eplb_config.num_redundant_experts
    result["mm_processor_kwargs"] = args.mm_processor_kwargs
    return result


def serve_parser() -> FlexibleArgumentParser:
    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=True, dest="subparser"))
    return parser


def main() -> None:
    rng = random.Random(SEED)
    plain_args = serve_parser().parse_args(["serve"])
    defaults = settings_of(AsyncEngineArgs.from_cli_args(plain_args))
    rows: list[list[Any]] = []
    refused = 0
    parser = serve_parser()
    for _ in range(ROWS):
        words = draw(rng)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                namespace = parser.parse_args(["serve", *words])
                if namespace.model_tag is not None:
                    namespace.model = namespace.model_tag
                found = settings_of(AsyncEngineArgs.from_cli_args(namespace))
        except (SystemExit, ValueError, IndexError, TypeError) as error:
            refused += 1
            rows.append([words, None])
            if not isinstance(error, SystemExit):
                print(type(error).__name__, error, words)
            continue
        changed = {key: value for key, value in found.items() if value != defaults[key]}
        rows.append([words, changed])
    data = {"version": "0.32.0", "defaults": defaults, "rows": rows}
    text = json.dumps(data, separators=(",", ":"))
    with open(sys.argv[1], "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} rows, {refused} refused")


if __name__ == "__main__":
    main()
