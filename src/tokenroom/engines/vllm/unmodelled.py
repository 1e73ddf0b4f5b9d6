"""Settings that change memory in a way that is not modelled, and those without influence.

Together with the settings that some module reads they are all there are; a test keeps it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from tokenroom.engines.vllm.connectors import connector_of, known_connector
from tokenroom.engines.vllm.overrides import unmodelled_overrides
from tokenroom.engines.vllm.processor import unmodelled_keys
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.models.spec import ModelSpec


def _on(value: object) -> bool:
    return bool(value)


def _named(value: object) -> bool:
    return value not in (None, "", "auto")


#: Setting to when it changes memory.
NOT_MODELLED: Final[Mapping[str, Callable[[object], bool]]] = {
    # The allocator of sleep mode keeps pools of its own (device_allocator/cumem.py).
    "enable_sleep_mode": _on,
    # Staging tensors of embeddings beside those of token ids (gpu_model_runner.py).
    "enable_prompt_embeds": _on,
    # Two half batches in flight, with workspaces of their own (v1/worker/gpu_ubatch_wrapper.py).
    "enable_dbo": _on,
    # Communication buffers of expert parallelism (device_communicators/all2all.py).
    "all2all_backend": lambda value: value not in (None, "naive", "allgather_reducescatter"),
    # Modules of transformers instead of vLLM's own (model_executor/models/transformers/).
    "model_impl": lambda value: value == "transformers",
    # Kernels with workspaces and weight layouts of their own.
    "moe_backend": _named,
    "linear_backend": _named,
    "attention_config": _on,
    # Layers whose cache stays unquantised (cache_dtype_skip_layers).
    "kv_cache_dtype_skip_layers": _on,
    # Rows that adapters add to the vocabulary, until 0.12.
    "lora_extra_vocab_size": _on,
    # Copies of experts are weighed, what moves them is not (distributed/eplb/).
    "enable_eplb": _on,
    # The language model is left out (multimodal.py).
    "mm_encoder_only": _on,
}

_GIVEN: Final = attrgetter(*NOT_MODELLED)
_UNSET: Final = _GIVEN(VLLMSettings())

#: Settings that change where or when work is done, not what a rank holds.
WITHOUT_INFLUENCE: Final = frozenset(
    {
        "data_parallel_external_lb",
        "data_parallel_size_local",
        "ignored_flags",
        "load_format",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "max_num_active_seqs",
        "max_num_scheduled_tokens",
        "nnodes",
        "prefix_cache_retention_interval",
        "scheduler_reserve_full_isl",
        "scheduling_policy",
        "watermark",
    }
)


def unmodelled(settings: VLLMSettings, spec: ModelSpec) -> Iterator[str]:
    """Names of what was set and changes memory without being modelled.

    Args:
        settings: What the user set.
        spec: The model, read with the overrides.
    """
    given = _GIVEN(settings)
    if given != _UNSET:
        for (name, matters), value in zip(NOT_MODELLED.items(), given, strict=True):
            if matters(value):
                yield name
    for key in unmodelled_keys(spec, settings):
        yield f"mm_processor_kwargs {key}"
    for key in unmodelled_overrides(spec, settings.hf_overrides):
        yield f"hf_overrides {key}"
    connector = connector_of(settings)
    if connector is not None and not known_connector(connector):
        yield f"kv_connector {connector}"
