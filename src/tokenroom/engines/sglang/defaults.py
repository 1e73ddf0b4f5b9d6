"""SGLang's settings resolved: every default by version, GPU and model.

``server_args.py`` ``__post_init__`` and, from 0.5.19, ``arg_groups/pipeline.py`` and its hooks; the
functions behind each default are named where they are restated.
"""

from __future__ import annotations

from typing import Any, Final

from tokenroom.engines.policy import Setting
from tokenroom.engines.setting_checks import check_choice
from tokenroom.engines.sglang import backends
from tokenroom.engines.sglang.cells import check_kv_type
from tokenroom.engines.sglang.compressed import RUNNING_REQUESTS, WINDOW_RATIO, is_compressed
from tokenroom.engines.sglang.memory_defaults import (
    MemoryDefaults,
    MemoryRequest,
    memory_defaults,
)
from tokenroom.engines.sglang.pools import DEFAULT_WINDOW_RATIO
from tokenroom.engines.sglang.prefill_graphs import PrefillGraphInputs, captures_prefill
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.rules import VersionRules, rules_for
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.engines.sglang.states import DEFAULT_RATIO
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec, Tower
from tokenroom.units import MIB

_DTYPES: Final = {"half": "float16", "float": "float32"}
_DRAFT_RUNNING: Final = 48
_MAX_PREFILL_TOKENS: Final = 16384
_DEFAULT_CONTEXT: Final = 2048
ALGORITHMS: Final = (
    *(
        "EAGLE",
        "EAGLE3",
        "NEXTN",
        "MTP",
        "STANDALONE",
        "NGRAM",
        "LOOKAHEAD",
        "DFLASH",
        "DSPARK",
        "FROZEN_KV_MTP",
        "UNO",
    ),
)
"""Values of ``--speculative-algorithm`` (``speculative/spec_info.py``) of any version read."""
_ONE_BRANCH: Final = frozenset(
    {
        *("DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM"),
        *("GptOssForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"),
        *("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"),
        *("MistralLarge3ForCausalLM", "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"),
    }
)
_DEPTH_NAMED: Final = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5", "Glm4v", "Glm46V")
_AITER_CONTEXT: Final = 8192
_AITER_FACTOR: Final = 0.85


def memory_mib(accelerator: Accelerator) -> float:
    """The card as ``get_device_memory_capacity`` has it: whole MiB of the driver's tool."""
    return (accelerator.driver_memory_bytes or accelerator.memory_bytes) // MIB


def _size(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DeploymentError(f"{name} is {shown(value)}; it must be a whole number of at least 1")
    return value


def parallel_sizes(settings: SGLangSettings, rules: VersionRules) -> tuple[int, int, int, int]:
    """(tp, pp, dp, copies of attention).

    Raises:
        DeploymentError: A size is no positive whole number, or DP attention does not divide the
            tensor-parallel ranks.
    """
    tp = _size("tp_size", settings.tp_size, 1)
    pp = _size("pp_size", settings.pp_size, 1)
    dp = _size("dp_size", settings.dp_size, 1)
    attention = _size("attn_dp_size", settings.attn_dp_size, 1)
    if settings.enable_dp_attention and attention == 1:
        if not rules.since(0, 4, 6):
            dp = tp
        attention = dp
    if tp % attention:
        raise DeploymentError(
            f"DP attention over {attention} copies does not divide tp_size {tp}; choose a dp_size "
            f"that divides it"
        )
    return tp, pp, dp, attention


def resolve(settings: SGLangSettings, spec: ModelSpec, node: Node) -> ResolvedSettings:
    """Every setting with its origin.

    Args:
        settings: What the user gave.
        spec: The model.
        node: The accelerators.

    Raises:
        DeploymentError: A setting holds what the engine refuses.
    """
    rules = rules_for(settings.version)
    accelerator = node.accelerator
    tp, pp, dp, attention_dp = parallel_sizes(settings, rules)
    found: dict[str, Setting] = {}

    def keep(name: str, value: Any, asked: Any, origin: str = "engine", reason: str = "") -> Any:
        source = "user" if asked is not None and asked == value else origin
        found[name] = Setting(value=value, origin=source, reason=reason)
        return value

    keep("tensor_parallel_size", tp, settings.tp_size)
    keep("pipeline_parallel_size", pp, settings.pp_size)
    keep("dp_size", dp, settings.dp_size)
    if attention_dp > 1:
        keep("attn_dp_size", attention_dp, settings.attn_dp_size or settings.dp_size)
    attention_cp = _size("attn_cp_size", settings.attn_cp_size, 1)
    if tp % (attention_dp * attention_cp):
        raise DeploymentError(
            f"attn_cp_size is {attention_cp}, which with {attention_dp} copies of attention does "
            f"not divide tp_size {tp}; choose one that does"
        )
    if attention_cp > 1:
        keep("attn_cp_size", attention_cp, settings.attn_cp_size)
    ep = settings.ep_size or (tp if settings.enable_ep_moe else 1)
    deepep = settings.moe_a2a_backend == "deepep"
    if deepep:
        ep = tp
    ep = _size("ep_size", ep, 1)
    if tp % ep:
        raise DeploymentError(f"ep_size is {ep}, which does not divide tp_size {tp}")
    keep("ep_size", ep, settings.ep_size)
    dtype = keep("dtype", _dtype(settings, spec), _named(settings.dtype), "model")
    context = _context_length(settings, spec)
    keep(
        "context_length",
        context,
        settings.context_length,
        "model" if spec.max_position_embeddings else "tokenroom",
    )
    algorithm, steps, topk, draft_tokens = _speculation(settings, spec, rules)
    running = settings.max_running_requests
    if running is None and algorithm is not None and rules.since(0, 4, 5):
        running = _DRAFT_RUNNING
    if running is None and is_compressed(spec.layers):
        running = RUNNING_REQUESTS
    backend = backends.attention_backend(spec, accelerator, settings, rules)
    keep("attention_backend", backend, settings.attention_backend, "gpu")
    page, why = backends.page_size(spec, backend, settings.page_size, accelerator)
    keep("page_size", page, settings.page_size, "engine", why)
    if settings.kv_cache_dtype is not None:
        check_kv_type(settings.kv_cache_dtype)
    kv_dtype, why = backends.kv_cache_type(spec, accelerator, settings.kv_cache_dtype, dtype)
    keep("kv_cache_dtype", kv_dtype, settings.kv_cache_dtype, "model" if why else "engine", why)
    towers = bool(spec.towers) and not settings.language_only
    multimodal = towers and settings.enable_multimodal is not False
    defaults = _memory(
        settings,
        spec,
        accelerator,
        rules,
        sizes=(tp, pp, dp, attention_dp),
        algorithm=algorithm,
        draft_tokens=draft_tokens,
        running=running,
        multimodal=multimodal,
        deepep=deepep,
    )
    fraction = defaults.mem_fraction_static
    reason = ""
    if settings.mem_fraction_static is None and _sparse_fraction(spec, rules):
        fraction, reason = 0.8, "set for sparse attention in 0.5.3"
    if multimodal and (factor := _runner_factor(rules)) < 1:
        fraction *= factor
        reason = "the model runner lessens it for multimodal models"
    if backend == "aiter" and context > _AITER_CONTEXT and rules.since(0, 4, 7):
        fraction *= _AITER_FACTOR
        reason = "aiter keeps 15% of it for its workspace beyond 8192 tokens"
    _check_fraction(fraction, settings)
    keep("mem_fraction_static", fraction, settings.mem_fraction_static, "gpu", reason)
    chunk = defaults.chunked_prefill_size
    if multimodal and _runner_factor(rules) < 1:
        chunk = -1
    if attention_dp > 1 and chunk > 0:
        chunk //= 2 if not rules.since(0, 4, 6) else attention_dp
    asked_chunk = settings.chunked_prefill_size
    keep("chunked_prefill_size", chunk, asked_chunk, "gpu" if asked_chunk is None else "engine")
    keep(
        "max_prefill_tokens",
        settings.max_prefill_tokens or _MAX_PREFILL_TOKENS,
        settings.max_prefill_tokens,
    )
    decoding = settings.decode_graphs is not False and settings.disaggregation_mode != "prefill"
    decode_bs = defaults.decode_bs if decoding else ()
    prefill_on = _prefill_inputs(
        settings,
        accelerator,
        sizes=(tp, pp, dp, attention_dp),
        algorithm=algorithm,
        multimodal=multimodal,
    )
    prefill = captures_prefill(spec, prefill_on, rules)
    prefill_tokens = defaults.prefill_tokens if prefill else ()
    if attention_dp > 1 and settings.prefill_graph_tokens is None and rules.since(0, 5, 15):
        prefill_tokens = tuple(size for size in prefill_tokens if size <= max(chunk, 0))
    keep(
        "cuda_graph_max_bs",
        max(decode_bs, default=0),
        settings.cuda_graph_max_bs,
        "gpu",
    )
    if prefill_tokens:
        keep("prefill_graph_max_tokens", max(prefill_tokens), settings.prefill_graph_max_tokens)
    ratio = settings.swa_full_tokens_ratio
    if ratio is None:
        ratio = WINDOW_RATIO if is_compressed(spec.layers) else DEFAULT_WINDOW_RATIO
    if not 0 < ratio <= 1:
        raise DeploymentError(
            f"swa_full_tokens_ratio is {shown(ratio)}; it must be above 0 and at most 1"
        )
    states = backends.has_states(spec)
    radix = not settings.disable_radix_cache
    extra = _extra_buffer(settings, rules, states=states, radix=radix)
    overlap = not settings.disable_overlap_schedule
    if states and radix and not extra and rules.since(0, 5, 14):
        overlap = False
    if states:
        keep(
            "mamba_full_memory_ratio",
            settings.mamba_full_memory_ratio or DEFAULT_RATIO,
            settings.mamba_full_memory_ratio,
        )
    if algorithm is not None:
        keep("speculative_algorithm", algorithm, settings.speculative_algorithm)
        keep("speculative_num_draft_tokens", draft_tokens, settings.speculative_num_draft_tokens)
    hierarchical = bool(settings.enable_hierarchical_cache)
    host_ratio = settings.hicache_ratio if settings.hicache_ratio is not None else 2.0
    return ResolvedSettings(
        rules=rules,
        settings=found,
        dtype=dtype,
        quantization=settings.quantization,
        tp_size=tp,
        pp_size=pp,
        dp_size=dp,
        replicas=dp if attention_dp == 1 else 1,
        attention_dp_size=attention_dp,
        attention_cp_size=attention_cp,
        ep_size=ep,
        dense_tp_size=settings.moe_dense_tp_size or tp,
        head_tp_size=tp // attention_dp if settings.enable_dp_lm_head else tp,
        moe_a2a_backend=settings.moe_a2a_backend or "none",
        moe_runner_backend=settings.moe_runner_backend or "auto",
        context_length=context,
        mem_fraction_static=fraction,
        chunked_prefill_size=chunk,
        max_prefill_tokens=settings.max_prefill_tokens or _MAX_PREFILL_TOKENS,
        max_running_requests=running,
        max_total_tokens=settings.max_total_tokens,
        page_size=page,
        kv_cache_dtype=kv_dtype,
        raw_latents=backends.reads_raw_latents(spec, accelerator, settings, kv_dtype, rules),
        swa_full_tokens_ratio=ratio,
        hybrid_swa=not settings.disable_hybrid_swa_memory,
        mamba_full_memory_ratio=settings.mamba_full_memory_ratio or DEFAULT_RATIO,
        max_mamba_cache_size=settings.max_mamba_cache_size,
        mamba_ssm_dtype=settings.mamba_ssm_dtype,
        extra_buffer=extra,
        radix_cache=radix,
        overlap=overlap,
        attention_backend=backend,
        decode_bs=decode_bs,
        prefill_tokens=prefill_tokens,
        speculative_algorithm=algorithm,
        draft_steps=steps,
        draft_topk=topk,
        draft_tokens=draft_tokens,
        max_lora_rank=(settings.max_lora_rank or 0) if settings.enable_lora else 0,
        max_loras_per_batch=settings.max_loras_per_batch or 8,
        hicache_bytes=settings.hicache_size_bytes if hierarchical else None,
        hicache_ratio=host_ratio if hierarchical else 0.0,
        cpu_offload_bytes=settings.cpu_offload_bytes or 0,
        towers=towers,
        disaggregation_mode=settings.disaggregation_mode or "null",
        environment=settings.environment,
    )


def _named(dtype: str | None) -> str | None:
    return _DTYPES.get(dtype, dtype) if dtype is not None else None


def _dtype(settings: SGLangSettings, spec: ModelSpec) -> str:
    """``--dtype``: float32 checkpoints run in float16, Gemma's in bfloat16."""
    asked = _named(settings.dtype)
    if asked not in (None, "auto"):
        assert asked is not None
        if asked not in ("float16", "bfloat16", "float32"):
            raise DeploymentError(
                f"dtype is {shown(settings.dtype)}; choose from auto, half, float16, "
                f"bfloat16, float, "
                f"float32"
            )
        return asked
    if spec.dtype == "float32":
        return "bfloat16" if spec.model_type.startswith("gemma") else "float16"
    return spec.dtype


def _context_length(settings: SGLangSettings, spec: ModelSpec) -> int:
    longest = spec.max_position_embeddings
    asked = settings.context_length
    if asked is None:
        return longest or _DEFAULT_CONTEXT
    _size("context_length", asked, 1)
    allowed = settings.environment.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "0")
    if longest is not None and asked > longest and allowed.lower() not in ("1", "true"):
        raise DeploymentError(
            f"context_length is {asked}, more than the {longest} of the model's configuration; "
            f"lower it or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
        )
    return asked


def _speculation(
    settings: SGLangSettings, spec: ModelSpec, rules: VersionRules
) -> tuple[str | None, int, int, int | None]:
    """Algorithm, steps, branches and tokens verified at once.

    ``auto_choose_speculative_params``.
    """
    algorithm = settings.speculative_algorithm
    if algorithm is None:
        return None, 0, 0, None
    algorithm = algorithm.upper()
    check_choice("speculative_algorithm", algorithm, ALGORITHMS)
    if algorithm in ("NEXTN", "MTP"):
        algorithm = "EAGLE"
    if algorithm == "NGRAM":
        return algorithm, 0, 0, settings.speculative_num_draft_tokens or 12
    if settings.speculative_num_steps is None:
        several = (
            spec.architecture == "LlamaForCausalLM"
            or spec.architecture.startswith("Grok1")
            or (spec.architecture not in _ONE_BRANCH and not rules.since(0, 5, 10))
            or not rules.since(0, 5, 1)
        )
        steps, topk, tokens = (5, 4, 8) if several and algorithm != "STANDALONE" else (3, 1, 4)
    else:
        steps = settings.speculative_num_steps
        topk = settings.speculative_eagle_topk or 1
        tokens = settings.speculative_num_draft_tokens or steps + 1
    if topk == 1:
        tokens = steps + 1
    return algorithm, steps, topk, tokens


def _prefill_inputs(
    settings: SGLangSettings,
    accelerator: Accelerator,
    *,
    sizes: tuple[int, int, int, int],
    algorithm: str | None,
    multimodal: bool,
) -> PrefillGraphInputs:
    return PrefillGraphInputs(
        asked=settings.prefill_graphs,
        nvidia=accelerator.vendor in ("nvidia", "unknown"),
        pp_size=sizes[1],
        dp_attention=sizes[3] > 1,
        context_parallel=(settings.attn_cp_size or 1) > 1,
        a2a_backend=settings.moe_a2a_backend or "none",
        speculative=algorithm is not None,
        lora=bool(settings.enable_lora),
        multimodal=multimodal,
        offloading=bool(settings.cpu_offload_bytes or settings.enable_hierarchical_cache),
        disaggregated=(settings.disaggregation_mode or "null") != "null",
        symmetric_memory=bool(settings.enable_symm_mem),
        torch_compile=bool(settings.enable_torch_compile),
        two_batch_overlap=bool(settings.enable_two_batch_overlap),
    )


def _memory(
    settings: SGLangSettings,
    spec: ModelSpec,
    accelerator: Accelerator,
    rules: VersionRules,
    *,
    sizes: tuple[int, int, int, int],
    algorithm: str | None,
    draft_tokens: int | None,
    running: int | None,
    multimodal: bool,
    deepep: bool,
) -> MemoryDefaults:
    tp, pp, dp, attention_dp = sizes
    inputs = _prefill_inputs(
        settings, accelerator, sizes=sizes, algorithm=algorithm, multimodal=multimodal
    )
    tower = next((tower for tower in spec.towers if tower.name == "vision"), None)
    return memory_defaults(
        MemoryRequest(
            memory_mib=memory_mib(accelerator),
            tp_size=tp,
            pp_size=pp,
            dp_size=dp,
            attention_dp_size=attention_dp,
            chunked_prefill_size=settings.chunked_prefill_size,
            max_prefill_tokens=settings.max_prefill_tokens or _MAX_PREFILL_TOKENS,
            max_total_tokens=settings.max_total_tokens,
            max_running_requests=running,
            context_length=settings.context_length,
            decode_graphs=settings.decode_graphs is not False,
            decode_max_bs=settings.cuda_graph_max_bs,
            decode_bs=settings.cuda_graph_bs,
            padding=not settings.disable_cuda_graph_padding,
            prefill_graphs=captures_prefill(spec, inputs, rules),
            prefill_max_tokens=settings.prefill_graph_max_tokens,
            prefill_tokens=settings.prefill_graph_tokens,
            latent=backends.is_latent(spec),
            llama_2="llama-2" in spec.name.lower(),
            speculative_algorithm=algorithm,
            draft_tokens=draft_tokens,
            disaggregation_mode=settings.disaggregation_mode or "null",
            deepep=deepep,
            vision=multimodal,
            vision_layers=_named_layers(spec, tower),
            vision_width=tower.hidden_size if tower is not None else None,
            mem_fraction_static=settings.mem_fraction_static,
        ),
        rules,
    )


def _named_layers(spec: ModelSpec, tower: Tower | None) -> int | None:
    """``vision_config.num_hidden_layers``; Qwen and GLM call it ``depth``, which is not read."""
    if tower is None or spec.architecture.startswith(_DEPTH_NAMED):
        return None
    return tower.num_layers


def _sparse_fraction(spec: ModelSpec, rules: VersionRules) -> bool:
    return backends.is_sparse(spec) and rules.since(0, 5, 3) and not rules.since(0, 5, 4)


def _runner_factor(rules: VersionRules) -> float:
    """What ``model_runner.py`` multiplies a multimodal model's fraction by, given or not."""
    if rules.since(0, 4, 3) and not rules.since(0, 4, 5):
        return 0.95
    return 0.90 if rules.since(0, 4, 5) and not rules.since(0, 4, 9) else 1.0


def _extra_buffer(
    settings: SGLangSettings, rules: VersionRules, *, states: bool, radix: bool
) -> bool:
    """``mamba_radix_cache_strategy``: ``extra_buffer`` is the default since 0.5.14."""
    if not states or not radix:
        return False
    strategy = settings.mamba_radix_cache_strategy
    if strategy in (None, "auto"):
        return rules.since(0, 5, 14) and not settings.disable_overlap_schedule
    return strategy in ("extra_buffer", "extra_buffer_lazy")


def _check_fraction(fraction: float, settings: SGLangSettings) -> None:
    if 0 < fraction < 1 or (settings.mem_fraction_static is not None and fraction == 1):
        return
    if settings.mem_fraction_static is None:
        raise DeploymentError(
            f"SGLang's default mem_fraction_static comes to {fraction:g} on this GPU: its reserve "
            f"for prefill and graphs is larger than the card; give --mem-fraction-static or a "
            f"smaller --chunked-prefill-size"
        )
    raise DeploymentError(f"mem_fraction_static is {fraction:g}; it must be above 0 and below 1")
