"""The defaults of vLLM's V0 engine, where they differ from V1's.

Source: ``EngineArgs.create_engine_config`` (from 0.8 ``_set_default_args_v0``),
engine/arg_utils.py, ``SchedulerConfig.__post_init__``, config.py, and ``_BATCH_SIZES_TO_CAPTURE``,
worker/model_runner.py, 0.4.1 to 0.10.2.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from tokenroom.engines.vllm.attention_backend import DEFAULT_BLOCK_SIZE, AttentionBackend
from tokenroom.engines.vllm.defaults import Resolver
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.v0_rules import V0Rules, v0_rules
from tokenroom.models.spec import Attention

_LONG_CONTEXT: Final = 32768
_LEAST_TOKENS: Final = 2048
_MAX_NUM_SEQS: Final = 256
_SIZES: Final = (1, 2, 4, *range(8, 8193, 8))


class V0Resolver(Resolver):
    """Fills in what V0 would."""

    engine = EngineGeneration.V0

    @cached_property
    def old(self) -> V0Rules:
        """The V0 engine's decisions in this version."""
        return v0_rules(self.rules.version)

    def _disables_windows(self) -> bool:
        """Windows on some of Gemma 2's layers were beyond it, and later beyond xFormers."""
        if super()._disables_windows():
            return True
        windows = {
            mixer.window
            for layer, _ in self.spec.layer_kinds
            for mixer in layer.mixers
            if isinstance(mixer, Attention)
        }
        if len(windows) < 2:
            return False
        backend = self.user.environment.get("VLLM_ATTENTION_BACKEND")
        early = self.spec.model_type == "gemma2" and not self.old.interleaves_windows
        return early or backend == "XFORMERS"

    def _chunked_prefill(self) -> bool:
        name, user, rules = "enable_chunked_prefill", self.user, self.old
        if user.enable_chunked_prefill is not None:
            return bool(self._plain(name, None))
        length = user.max_model_len
        if length is None or length == -1:
            length = self.notes["max_model_len"].value
        obstacle = ""
        if length <= _LONG_CONTEXT or not rules.chunks_long_contexts:
            obstacle = "prompts are chunked by default only beyond 32768 tokens"
        elif self.spec.towers:
            obstacle = "the model has an encoder"
        elif self.traits.latent is not None and rules.latent_forbids_chunks:
            obstacle = "latent attention is not chunked"
        elif self.accelerator.vendor != "nvidia":
            obstacle = "the GPU is none of NVIDIA's"
        elif self._windowed:
            obstacle = "the model has sliding windows"
        elif user.speculative is not None or user.enable_lora or self.traits.pooling:
            obstacle = "drafts, adapters or pooling are in use"
        elif self.traits.recurrent:
            obstacle = "some layers are recurrent"
        elif user.enable_prefix_caching and rules.prefix_caching_forbids_chunks:
            obstacle = "prefixes are cached"
        return bool(self._note(name, not obstacle, "engine", obstacle))

    @property
    def _windowed(self) -> bool:
        attention = self.traits.attention
        return attention is not None and attention.window is not None

    def _prefix_caching(self) -> bool:
        return bool(self._plain("enable_prefix_caching", False))

    def _batch(self, max_model_len: int, chunked: bool) -> tuple[int, int]:
        seqs = int(self._plain("max_num_seqs", _MAX_NUM_SEQS))
        tokens = self.user.max_num_batched_tokens
        if tokens is not None:
            return seqs, int(self._note("max_num_batched_tokens", tokens, "user"))
        tokens, reason = max(max_model_len, _LEAST_TOKENS), "a whole prompt fits"
        if chunked:
            tokens, reason = self.old.chunked_tokens, "prompts are chunked"
        if self.traits.pooling and self.old.pooling_tokens:
            tokens = max(tokens, self.old.pooling_tokens)
        if self.spec.towers and self.old.multimodal_tokens:
            tokens = max(tokens, self.old.multimodal_tokens)
        return seqs, int(self._note("max_num_batched_tokens", tokens, "engine", reason))

    def _backend(self, dtype: str, kv_cache_dtype: str, ranks: int) -> AttentionBackend | None:
        """FlashAttention on Ampere and later, xFormers before (attention/selector.py)."""
        if self.traits.attention_free:
            self._note("attention_backend", "NO_ATTENTION", "model", "no layer attends")
            return None
        selected = self.user.attention_backend or self.user.environment.get(
            "VLLM_ATTENTION_BACKEND"
        )
        latent = self.traits.latent is not None
        capable = self._capability is None or self._capability >= (8, 0)
        name = selected or ("FLASH_ATTN" if capable and dtype != "float32" else "XFORMERS")
        self._note("attention_backend", name, "user" if selected else "gpu")
        return AttentionBackend(name=name, supports=lambda _: True, latent=latent)

    def _block_size(self, dtype: str, kv_cache_dtype: str, backend: AttentionBackend | None) -> int:
        return int(self._plain("block_size", DEFAULT_BLOCK_SIZE))

    def _mamba_mode(self, prefix_caching: bool) -> str:
        return str(self._note("mamba_cache_mode", "none", "engine"))

    def _async_scheduling(self, mamba_mode: str, second_runner: bool) -> bool:
        return bool(self._note("async_scheduling", False, "engine"))

    def _graph_mode(self, enforce_eager: bool) -> str:
        """Whole decode steps are captured, or nothing."""
        if enforce_eager:
            return str(self._note("cudagraph_mode", "NONE", "user", "enforce_eager"))
        return str(self._note("cudagraph_mode", "FULL_DECODE_ONLY", "engine"))

    def _graph_sizes(self, mode: str, seqs: int, tokens: int) -> tuple[int, ...]:
        name, user = "cudagraph_capture_sizes", self.user
        if mode == "NONE":
            return tuple(self._note(name, (), "engine", "no graphs are captured"))
        if user.cudagraph_capture_sizes is not None:
            return tuple(self._note(name, tuple(sorted(user.cudagraph_capture_sizes)), "user"))
        largest = next((size for size in _SIZES if size >= seqs), _SIZES[-1])
        largest = min(largest, self.old.largest_graph)
        sizes = tuple(size for size in _SIZES if size <= largest)
        return tuple(self._note(name, sizes, "engine"))
