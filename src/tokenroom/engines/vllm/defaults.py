"""Every vLLM setting with its value and where it comes from, as the engine would resolve it.

:func:`resolve` follows ``EngineArgs.create_engine_config`` (engine/arg_utils.py) and
``VllmConfig.__post_init__`` (config/vllm.py) of the version: what the user set stays, the rest is
the engine's default, which may depend on the GPU and the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from math import ceil
from operator import attrgetter
from typing import Any, Final

from tokenroom.engines.policy import Setting
from tokenroom.engines.vllm.attention_backend import (
    DEFAULT_BLOCK_SIZE,
    AttentionBackend,
    AttentionQuery,
    choose_backend,
    forced_block_size,
)
from tokenroom.engines.vllm.connectors import connector_of, keeps_hybrid_manager
from tokenroom.engines.vllm.default_rules import DefaultRules, default_rules
from tokenroom.engines.vllm.generation import EngineGeneration, runs_v0
from tokenroom.engines.vllm.graph_sizes import GraphRequest, capture_sizes
from tokenroom.engines.vllm.model_length import ModelLength, check_length, model_length
from tokenroom.engines.vllm.model_traits import model_traits
from tokenroom.engines.vllm.overlap import overlap_obstacle, runs_second_runner
from tokenroom.engines.vllm.resolved import ResolvedSettings
from tokenroom.engines.vllm.rules import rules_for
from tokenroom.engines.vllm.settings import SpeculativeSettings, VLLMSettings
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB

__all__ = ["ResolvedSettings", "resolve"]

_DTYPE_NAMES: Final = {
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
}
_NO_HALF: Final = frozenset(
    {"gemma2", "gemma3", "gemma3_text", "glm4"}
)  # config/model.py _FLOAT16_NOT_SUPPORTED_MODELS
#: Classes whose image tokens see each other (config/model.py ``is_mm_prefix_lm``).
_TWO_WAY_IMAGES: Final = frozenset(
    {
        *("Gemma3ForConditionalGeneration", "PaliGemmaForConditionalGeneration"),
        *("Molmo2ForConditionalGeneration", "BagelForConditionalGeneration"),
        "Moondream3ForCausalLM",
    }
)
#: Fields of the settings that say what is asked, not how the engine is set.
_NO_SETTINGS: Final = frozenset(
    {"version", "usage", "environment", "speculative", "unknown_flags", "ignored_flags"}
)
_REST_NAMES: Final = tuple(
    item.name for item in fields(VLLMSettings) if item.name not in _NO_SETTINGS
)
_REST: Final = attrgetter(*_REST_NAMES)
_UNSET: Final = _REST(VLLMSettings())
_GRAPH_MODE_OF_LEVEL: Final = ("NONE", "PIECEWISE", "FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE")
_WITHOUT_PIECEWISE: Final = {"PIECEWISE": "NONE", "FULL_AND_PIECEWISE": "FULL_DECODE_ONLY"}

#: Settings whose default depends on nothing else.
_PLAIN_DEFAULTS: Final[Mapping[str, Any]] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "prefill_context_parallel_size": 1,
    "enable_expert_parallel": False,
    "kv_cache_memory_bytes": None,
    "num_gpu_blocks_override": None,
    "mamba_cache_dtype": "auto",
    "mamba_ssm_cache_dtype": "auto",
    "enforce_eager": False,
    "enable_lora": False,
    "max_loras": 1,
    "max_lora_rank": 16,
    "fully_sharded_loras": False,
    "lora_dtype": "auto",
    "limit_mm_per_prompt": {},
    "language_model_only": False,
    "skip_mm_profiling": False,
    "disable_custom_all_reduce": False,
    "cpu_offload_bytes": 0,
    "max_logprobs": 20,
}
_ENGINE_DEFAULTS: Final = {
    name: Setting(value, "engine") for name, value in _PLAIN_DEFAULTS.items()
}


def resolve(
    settings: VLLMSettings, spec: ModelSpec, node: Node, version: str | None = None
) -> ResolvedSettings:
    """Every setting, as vLLM of that version would resolve it on these accelerators.

    Args:
        settings: What the user set.
        spec: The model, quantised as it will be loaded.
        node: The accelerators.
        version: vLLM version; the settings' own, then the newest known, when None.

    Raises:
        DeploymentError: The engine would refuse while resolving: a length beyond the model's, a
            backend that does not fit, contradicting graph sizes, a version before 0.4.
    """
    rules = default_rules(version or settings.version)
    if runs_v0(settings, spec, node.accelerator, rules.version):
        from tokenroom.engines.vllm.v0_defaults import V0Resolver  # builds on this module

        return V0Resolver(settings, spec, node.accelerator, rules).run()
    return Resolver(settings, spec, node.accelerator, rules).run()


def with_batch(
    old: ResolvedSettings, settings: VLLMSettings, spec: ModelSpec, node: Node
) -> ResolvedSettings:
    """What :func:`resolve` gives for settings that differ from those of ``old`` in few.

    Args:
        old: Resolved before, of the V1 engine.
        settings: The same but for ``max_model_len``, ``max_num_seqs`` and
            ``max_num_batched_tokens``.
        spec: The model.
        node: The accelerators.

    Raises:
        DeploymentError: The engine would refuse them.
    """
    rules = default_rules(settings.version)
    return Resolver(settings, spec, node.accelerator, rules).with_batch(old)


class Resolver:
    """Fills in one setting after the other, noting whose value each is."""

    engine: EngineGeneration = EngineGeneration.V1

    def __init__(
        self,
        settings: VLLMSettings,
        spec: ModelSpec,
        accelerator: Accelerator,
        rules: DefaultRules,
    ) -> None:
        self.user = settings
        self.spec = spec
        self.accelerator = accelerator
        self.rules = rules
        self.traits = model_traits(spec, settings)
        self.notes: dict[str, Setting] = {}

    def run(self) -> ResolvedSettings:
        user = self.user
        length = model_length(
            self.spec,
            self.rules,
            user.hf_overrides,
            disable_sliding_window=self._disables_windows(),
        )
        values: dict[str, Any] = {
            "dtype": self._dtype(),
            "quantization": self._plain("quantization", self.spec.quantization, "model"),
            "max_model_len": self._max_model_len(length),
        }
        for name, default in _ENGINE_DEFAULTS.items():
            value = getattr(user, name)
            chosen = default if value is None else Setting(value, "user")
            self.notes[name], values[name] = chosen, chosen.value
        values["gpu_memory_utilization"] = self._plain(
            "gpu_memory_utilization", self.rules.gpu_memory_utilization
        )
        values["hybrid_manager"] = not self._disables_hybrid_manager()
        values["enable_chunked_prefill"] = self._chunked_prefill()
        values["enable_prefix_caching"] = self._prefix_caching()
        seqs, tokens = self._batch(values["max_model_len"], values["enable_chunked_prefill"])
        values["max_num_seqs"], values["max_num_batched_tokens"] = seqs, tokens
        kv_cache_dtype = self._kv_cache_dtype()
        backend = self._backend(values["dtype"], kv_cache_dtype, values["tensor_parallel_size"])
        values["attention_backend"] = "NO_ATTENTION" if backend is None else backend.name
        values["kv_cache_dtype"] = self._packed_kv_dtype(kv_cache_dtype, backend)
        values["block_size"] = self._block_size(values["dtype"], kv_cache_dtype, backend)
        mode = self._mamba_mode(values["enable_prefix_caching"])
        values["mamba_cache_mode"] = mode
        values["mamba_block_size"] = self._mamba_block_size(mode, values["block_size"])
        values["second_runner"] = runs_second_runner(
            user, self.spec, self.traits, self.rules, mamba_mode=mode
        )
        values["async_scheduling"] = self._async_scheduling(mode, values["second_runner"])
        values["max_in_flight_tokens"] = self._in_flight(
            tokens, values["async_scheduling"], values["second_runner"]
        )
        values["cudagraph_mode"] = self._graph_mode(values["enforce_eager"])
        values["cudagraph_capture_sizes"] = self._graph_sizes(
            values["cudagraph_mode"], seqs, tokens
        )
        speculative = self._speculative()
        self._note_rest(speculative)
        return ResolvedSettings(
            version=".".join(map(str, self.rules.version)),
            engine=self._engine(),
            usage=user.usage,
            traits=self.traits,
            length=length,
            fits_max_model_len=user.max_model_len == -1,
            speculative=speculative,
            asked=user,
            environment=user.environment,
            settings=self.notes,
            **values,
        )

    def with_batch(self, old: ResolvedSettings) -> ResolvedSettings:
        """What :meth:`run` gives where ``old`` differs in lengths, batches and memory share alone.

        Only what depends on those is resolved; of the notes, nothing is kept.

        Raises:
            DeploymentError: The engine would refuse them.
        """
        length = self._max_model_len(old.length)
        seqs, tokens = self._batch(length, old.enable_chunked_prefill)
        return replace(
            old,
            max_model_len=length,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            max_in_flight_tokens=self._in_flight(tokens, old.async_scheduling, old.second_runner),
            cudagraph_capture_sizes=self._graph_sizes(old.cudagraph_mode, seqs, tokens),
            asked=self.user,
            settings=self.notes,
        )

    def _speculative(self) -> SpeculativeSettings | None:
        """The draft; MTP drafts as many tokens as the checkpoint has blocks for, unless set."""
        draft = self.user.speculative
        if draft is not None and draft.num_speculative_tokens < 1 and draft.method == "mtp":
            draft = replace(draft, num_speculative_tokens=max(1, len(self.spec.mtp_layers)))
        return draft

    def _note_rest(self, draft: SpeculativeSettings | None) -> None:
        """How tokens are drafted, and what else the user set that needed no rule here."""
        asked = self.user.speculative
        if draft is not None and asked is not None:
            for item in fields(SpeculativeSettings):
                value, given = getattr(draft, item.name), getattr(asked, item.name)
                if value is not None:
                    origin = "user" if value == given else "model"
                    self._note(f"speculative.{item.name}", value, origin)
        given = _REST(self.user)
        if given != _UNSET:
            for name, value, unset in zip(_REST_NAMES, given, _UNSET, strict=True):
                if value is not unset and value != unset and name not in self.notes:
                    self._note(name, value, "user")

    def _note(self, name: str, value: Any, origin: str, reason: str = "") -> Any:
        self.notes[name] = Setting(value, origin, reason)
        return value

    def _plain(self, name: str, default: Any, origin: str = "engine") -> Any:
        """The user's value, or a default that depends on nothing else."""
        value = getattr(self.user, name)
        if value is not None:
            return self._note(name, value, "user")
        return self._note(name, default, origin)

    @property
    def _capability(self) -> tuple[int, int] | None:
        return self.accelerator.compute_capability

    def _engine(self) -> EngineGeneration:
        """Which engine runs; only 0.8 to 0.10 left a choice."""
        asked = self.user.environment.get("VLLM_USE_V1") in ("0", "1")
        chosen = asked and (0, 8, 0) <= self.rules.version < (0, 11, 0)
        self._note("engine", self.engine.value, "user" if chosen else "engine")
        return self.engine

    def _disables_windows(self) -> bool:
        """Every layer attends within the window alone, which bounds the length."""
        return bool(self.user.disable_sliding_window)

    def _disables_hybrid_manager(self) -> bool:
        """A KV connector that does not support the manager turns it off, unless set."""
        name, connector = "disable_hybrid_kv_cache_manager", connector_of(self.user)
        unset = self.user.disable_hybrid_kv_cache_manager is None
        if unset and connector is not None and self.rules.hybrid_cache:
            off = not keeps_hybrid_manager(connector, self.rules.version)
            reason = f"{connector} does not support it" if off else ""
            return bool(self._note(name, off, "engine", reason))
        return bool(self._plain(name, not self.rules.hybrid_cache))

    def _dtype(self) -> str:
        """``_get_and_verify_dtype``: float32 checkpoints run in half, old GPUs without bfloat16."""
        wanted = (self.user.dtype or "auto").lower()
        if wanted != "auto":
            return str(self._note("dtype", _DTYPE_NAMES.get(wanted, wanted), "user"))
        stored = self.spec.dtype
        supported = ["bfloat16", "float16", "float32"]
        if self._capability is not None and self._capability < (8, 0):
            supported.remove("bfloat16")
        if self.spec.model_type in _NO_HALF:
            supported.remove("float16")
        half_first = self.traits.pooling and "float16" in supported
        preferred = "float16" if half_first else supported[0]
        if stored == "float32":
            return str(
                self._note("dtype", preferred, "engine", "the checkpoint is stored in float32")
            )
        if stored in supported:
            return str(self._note("dtype", stored, "model"))
        reason = f"the {self.accelerator.name} does not compute in {stored}"
        return str(self._note("dtype", preferred, "gpu", reason))

    def _max_model_len(self, length: ModelLength) -> int:
        wanted = self.user.max_model_len
        if wanted is not None and wanted != -1:
            check_length(wanted, length, self.user.environment)
            return int(self._note("max_model_len", wanted, "user"))
        return int(self._note("max_model_len", length.default, "model", length.reason))

    def _chunked_prefill(self) -> bool:
        """``is_chunked_prefill_supported``: off for encoders and sequence-to-sequence models."""
        old_generate = self.rules.version < (0, 12, 0) and not self.traits.pooling
        if self.user.enable_chunked_prefill is not None and not old_generate:
            return bool(self._plain("enable_chunked_prefill", None))
        off = self.traits.encoder_only or self.traits.encoder_decoder
        if self.rules.version[:2] == (0, 12) and self._context_parallel_prefill:
            return bool(self._note("enable_chunked_prefill", False, "engine", "prefill is split"))
        reason = "the model attends in both directions or to an encoder" if off else ""
        return bool(self._note("enable_chunked_prefill", not off, "engine", reason))

    @property
    def _context_parallel_prefill(self) -> bool:
        return (self.user.prefill_context_parallel_size or 1) > 1

    def _prefix_caching(self) -> bool:
        """``is_prefix_caching_supported``, and what recurrent layers allowed by version."""
        name, traits, rules = "enable_prefix_caching", self.traits, self.rules
        recurrent = traits.recurrent
        if recurrent and rules.forbids_recurrent_prefix_caching:
            return bool(self._note(name, False, "engine", "recurrent layers forbid it"))
        if (
            recurrent
            and rules.recurrent_prefix_caching_listed
            and not traits.keeps_every_state
            and self.user.enable_prefix_caching
        ):
            return bool(self._note(name, False, "engine", "the recurrent layers forbid it"))
        if self.user.enable_prefix_caching is not None:
            return bool(self._plain(name, None))
        if traits.encoder_only or traits.encoder_decoder:
            return bool(self._note(name, False, "engine", "the model has an encoder"))
        if traits.attention_free:
            return bool(self._note(name, False, "engine", "no layer caches keys"))
        if traits.hybrid and not traits.pooling and not rules.hybrid_prefix_caching:
            return bool(self._note(name, False, "engine", "some layers are recurrent"))
        if rules.version < (0, 12, 0) and self.user.enable_prompt_embeds:
            return bool(self._note(name, False, "engine", "prompt embeddings are enabled"))
        if rules.version[:2] == (0, 12) and self._context_parallel_prefill:
            return bool(self._note(name, False, "engine", "prefill is split"))
        return bool(self._note(name, True, "engine"))

    def _batch(self, max_model_len: int, chunked: bool) -> tuple[int, int]:
        """max_num_seqs and max_num_batched_tokens: ``get_batch_defaults`` and what follows it."""
        rules, user = self.rules, self.user
        default_tokens, default_seqs, reason = self._batch_defaults()
        if (
            rules.batched_dp_tokens is not None
            and user.all2all_backend in ("deepep_low_latency", "nixl_ep")
            and user.enable_expert_parallel
            and (user.data_parallel_size or 1) > 1
        ):
            default_tokens = rules.batched_dp_tokens
            reason = f"{user.all2all_backend} takes batches of this size"
        tokens, seqs = user.max_num_batched_tokens, user.max_num_seqs
        if user.performance_mode == "throughput":
            default_tokens, default_seqs = 2 * default_tokens, 2 * default_seqs
            reason = f"{reason}, doubled for throughput"
        wanted_seqs = default_seqs if seqs is None else seqs
        if tokens is None:
            if not chunked:
                longer = max(max_model_len, default_tokens)
                default_tokens = longer if rules.raises_tokens_to_length else max_model_len
                reason = f"{reason}; without chunked prefill a whole prompt fits"
            if rules.caps_tokens and wanted_seqs * max_model_len < default_tokens:
                default_tokens = wanted_seqs * max_model_len
                reason = "max_num_seqs times max_model_len"
            tokens = int(self._note("max_num_batched_tokens", default_tokens, "gpu", reason))
        else:
            self._note("max_num_batched_tokens", tokens, "user")
        if seqs is None:
            seqs = min(default_seqs, tokens)
            cut = "max_num_batched_tokens" if seqs < default_seqs else reason
            self._note("max_num_seqs", seqs, "gpu", cut)
        else:
            self._note("max_num_seqs", seqs, "user")
        return seqs, tokens

    def _batch_defaults(self) -> tuple[int, int, str]:
        """Tokens and sequences of a step by GPU memory, name and usage."""
        gpu, rules = self.accelerator, self.rules
        if self.user.usage not in ("server", "llm"):
            return 2048, 128, "the scheduler's own default"
        server = self.user.usage == "server"
        if rules.large_gpus_by_name:
            large = any(name in gpu.name.lower() for name in ("h100", "h200"))
            tokens = (8192 if large else 2048) if server else (16384 if large else 8192)
            return tokens, 1024, "an H100 or H200" if large else "neither an H100 nor an H200"
        if rules.huge_gpu_tier and gpu.memory_bytes >= 160 * GIB:
            return 16384, 1024, "a GPU of 160 GiB or more"
        small = (rules.excludes_a100 and "a100" in gpu.name.lower()) or (
            rules.excludes_gb10 and gpu.compute_capability == (12, 1)
        )
        if gpu.memory_bytes >= 70 * GIB and not small:
            return 8192 if server else 16384, 1024, "a GPU of 70 GiB or more that is no A100"
        return 2048 if server else 8192, 256, "a GPU below 70 GiB, an A100 or a GB10"

    def _kv_cache_dtype(self) -> str:
        """``resolve_kv_cache_dtype_string``: auto is what the checkpoint asks for."""
        wanted = self.user.kv_cache_dtype or "auto"
        sparse = self.traits.latent is not None and self.traits.latent.indexer is not None
        if wanted != "auto":
            if sparse and wanted.startswith("fp8") and self.rules.version < (0, 18, 0):
                reason = "sparse latent attention packs its cache"
                return str(self._note("kv_cache_dtype", "fp8_ds_mla", "user", reason))
            if sparse and wanted == "bfloat16" and self.rules.version < (0, 27, 0):
                return str(self._note("kv_cache_dtype", "auto", "user"))
            return str(self._note("kv_cache_dtype", wanted, "user"))
        if sparse and self.rules.fp8_sparse_default:
            reason = "sparse latent attention packs its cache"
            return str(self._note("kv_cache_dtype", "fp8_ds_mla", "model", reason))
        if self.spec.kv_cache_dtype not in (None, "auto"):
            reason = "the checkpoint was quantised with its cache"
            return str(self._note("kv_cache_dtype", self.spec.kv_cache_dtype, "model", reason))
        return str(self._note("kv_cache_dtype", "auto", "engine"))

    def _packed_kv_dtype(self, dtype: str, backend: AttentionBackend | None) -> str:
        """Sparse backends keep a quantised cache in their packed form (mla_attention.py)."""
        if backend is None or dtype in ("auto", "float16", "bfloat16", "nvfp4_ds_mla"):
            return dtype
        packs = backend.name == "FLASHMLA_SPARSE" or backend.name.endswith("SM120")
        if packs and dtype != "fp8_ds_mla":
            reason = f"{backend.name} keeps {dtype} packed"
            return str(self._note("kv_cache_dtype", "fp8_ds_mla", "user", reason))
        return dtype

    def _query(self, dtype: str, kv_cache_dtype: str, ranks: int) -> AttentionQuery | None:
        latent, plain = self.traits.latent, self.traits.attention
        capability = self._capability
        if capability is None or (latent is None and plain is None):
            return None
        if latent is not None:
            return AttentionQuery(
                version=self.rules.version,
                capability=capability,
                head_dim=latent.kv_lora_rank + latent.qk_rope_head_dim,
                num_heads=ceil(latent.num_heads / ranks),
                dtype=dtype,
                kv_cache_dtype=kv_cache_dtype,
                latent=True,
                sparse=latent.indexer is not None,
                qk_nope_head_dim=latent.qk_nope_head_dim,
                block_size=self.user.block_size,
            )
        assert plain is not None
        return AttentionQuery(
            version=self.rules.version,
            capability=capability,
            head_dim=plain.head_dim,
            num_heads=ceil(plain.num_heads / ranks),
            dtype=dtype,
            kv_cache_dtype=kv_cache_dtype,
            sinks=plain.sinks,
            mm_prefix=self.rules.version >= (0, 13, 0)
            and bool(self.spec.towers)
            and not self.user.language_model_only
            and self.spec.architecture in _TWO_WAY_IMAGES,
            block_size=self.user.block_size,
        )

    def _backend(self, dtype: str, kv_cache_dtype: str, ranks: int) -> AttentionBackend | None:
        selected = self.user.attention_backend or self.user.environment.get(
            "VLLM_ATTENTION_BACKEND"
        )
        query = self._query(dtype, kv_cache_dtype, ranks)
        if query is None:
            if self.traits.attention_free:
                self._note("attention_backend", "NO_ATTENTION", "model", "no layer attends")
                return None
            latent = self.traits.latent is not None
            name = selected or ("TRITON_MLA" if latent else "TRITON_ATTN")
            self._note("attention_backend", name, "user" if selected else "gpu")
            return AttentionBackend(name=name, supports=lambda _: True, latent=latent)
        backend = choose_backend(query, selected.upper() if selected else None)
        origin = "user" if selected else "gpu"
        self._note("attention_backend", backend.name, origin)
        return backend

    def _block_size(self, dtype: str, kv_cache_dtype: str, backend: AttentionBackend | None) -> int:
        wanted = self.user.block_size
        if backend is None:
            return int(self._plain("block_size", DEFAULT_BLOCK_SIZE))
        old = self.rules.version < (0, 18, 0)
        size = DEFAULT_BLOCK_SIZE if old else backend.preferred_block_size
        size = size if wanted is None else wanted
        query = self._query(dtype, kv_cache_dtype, self.user.tensor_parallel_size or 1)
        forced = size if query is None else forced_block_size(query, backend, size)
        if forced != size or (wanted is None and forced != DEFAULT_BLOCK_SIZE):
            reason = f"{backend.name} takes blocks of {forced} tokens"
            return int(self._note("block_size", forced, "gpu", reason))
        return int(self._note("block_size", forced, "user" if wanted else "engine"))

    def _mamba_mode(self, prefix_caching: bool) -> str:
        """``MambaModelConfig``: states are kept for prefix caching or for the sequence alone."""
        name = "mamba_cache_mode"
        if not (self.traits.recurrent) or not prefix_caching:
            return str(self._note(name, "none", "engine"))
        rules, drafts = self.rules, self.user.speculative is not None
        every = self.traits.keeps_every_state
        wanted = self.user.mamba_cache_mode
        if rules.version < (0, 16, 0):
            return str(self._note(name, "all", "engine"))
        if wanted not in (None, "none") and rules.version < (0, 32, 0):
            if wanted == "all" and not every:
                return str(self._note(name, "align", "model", "its states cannot all be kept"))
            return str(self._note(name, wanted, "user"))
        keeps = rules.mamba_cache_mode_all and every
        if keeps and not (drafts and rules.mamba_all_not_with_drafts):
            return str(self._note(name, "all", "engine"))
        return str(self._note(name, "align", "engine"))

    def _mamba_block_size(self, mode: str, block_size: int) -> int | None:
        if self.user.mamba_block_size is not None:
            return int(self._plain("mamba_block_size", None))
        value = block_size if mode == "align" else None
        self._note("mamba_block_size", value, "engine")
        return value

    def _async_scheduling(self, mamba_mode: str, second_runner: bool) -> bool:
        if self.user.async_scheduling is not None:
            return bool(self._plain("async_scheduling", None))
        reason = overlap_obstacle(
            self.user,
            self.traits,
            self.rules,
            mamba_mode=mamba_mode,
            second_runner=second_runner,
        )
        overlaps = self.rules.async_scheduling and not reason
        return bool(self._note("async_scheduling", overlaps, "engine", reason))

    def _in_flight(self, tokens: int, overlaps: bool, second_runner: bool) -> int:
        """``max_in_flight_tokens``, config/vllm.py: tokens scheduled and not yet settled."""
        batches = self.user.pipeline_parallel_size or 1
        if self.rules.version < (0, 26, 0):
            batches = 1
        elif overlaps and (second_runner or batches == 1):
            batches += 1
        return int(self._note("max_in_flight_tokens", batches * tokens, "engine"))

    def _graph_mode(self, enforce_eager: bool) -> str:
        """The mode after the levels and what pooling and encoders rule out."""
        name, user, traits = "cudagraph_mode", self.user, self.traits
        if enforce_eager:
            return str(self._note(name, "NONE", "user", "enforce_eager"))
        level = user.optimization_level
        mode, origin = user.cudagraph_mode, "user"
        if mode is None:
            mode = _GRAPH_MODE_OF_LEVEL[2 if level is None else level]
            if mode != "NONE" and not self.rules.full_graphs:
                mode = "PIECEWISE"
            origin = "engine" if level is None else "user"
        compiled = user.compilation_mode
        if compiled is None:
            compiled = 0 if level == 0 else 3
        if compiled != 3 and user.cudagraph_mode is None:
            mode = "NONE" if self.rules.version < (0, 12, 0) else _WITHOUT_PIECEWISE.get(mode, mode)
        if traits.pooling and mode.startswith("FULL"):
            return str(self._note(name, "PIECEWISE", "model", "pooling models take no full graphs"))
        if traits.encoder_decoder and mode not in ("NONE", "FULL_DECODE_ONLY"):
            fallback = "FULL_DECODE_ONLY" if self.rules.version >= (0, 13, 0) else "PIECEWISE"
            return str(self._note(name, fallback, "model", "the model has an encoder"))
        batched = user.all2all_backend == "deepep_high_throughput"
        if batched and (user.data_parallel_size or 1) > 1 and self.rules.version < (0, 16, 0):
            return str(self._note(name, "NONE", "engine", "DeepEP high throughput"))
        return str(self._note(name, mode, origin))

    def _graph_sizes(self, mode: str, seqs: int, tokens: int) -> tuple[int, ...]:
        name, user = "cudagraph_capture_sizes", self.user
        if mode == "NONE":
            return tuple(self._note(name, (), "engine", "no graphs are captured"))
        rules = rules_for(".".join(map(str, self.rules.version)))
        blackwell = self._capability is not None and self._capability[0] == 10
        draft = self._speculative()
        drafts = draft.num_speculative_tokens if draft else 0
        request = GraphRequest(
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            speculative_tokens=drafts,
            ceiling=rules.max_capture_tokens_blackwell if blackwell else rules.max_capture_tokens,
            sizes=user.cudagraph_capture_sizes,
            largest=user.max_cudagraph_capture_size,
            architecture=self.spec.architecture,
            interactivity=user.performance_mode == "interactivity",
        )
        origin = "user" if request.sizes or request.largest else "engine"
        return tuple(self._note(name, capture_sizes(request, self.rules), origin))
