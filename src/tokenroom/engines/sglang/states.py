"""The pool of fixed-size states that SGLang keeps for Mamba and linear-attention layers.

Sources: ``configs/mamba_utils.py`` ``mamba_cache_per_req``; ``model_runner.py`` and
``kv_cache_configurator.py`` ``handle_max_mamba_cache`` and ``_calculate_mamba_ratio``, read in
0.5.3, 0.5.6, 0.5.9, 0.5.12, 0.5.17 and 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.rules import VersionRules
from tokenroom.errors import DeploymentError
from tokenroom.memory.kv_cache import recurrent_state
from tokenroom.models.spec import Layer, Recurrent

DEFAULT_RATIO: Final = 0.9
"""``--mamba-full-memory-ratio``: memory of states against memory of the KV pool."""

_SLOTS_PER_REQUEST: Final = 3
_WITHOUT_RADIX_CACHE: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInputs:
    """What the pool of states depends on.

    Attributes:
        bytes_per_request: State of one request on one rank, the largest stage's.
        ratio: ``mamba_full_memory_ratio``.
        max_mamba_cache_size: As given.
        max_running_requests: As given or set for speculative decoding.
        attention_dp_size: Copies of attention.
        radix_cache: Prefixes are kept.
        extra_buffer: States of prefixes are tracked in further slots
            (``mamba_radix_cache_strategy`` ``extra_buffer``).
        overlap: The overlap scheduler runs.
        draft_tokens: Tokens verified at once, None without speculative decoding.
    """

    bytes_per_request: int
    ratio: float = DEFAULT_RATIO
    max_mamba_cache_size: int | None = None
    max_running_requests: int | None = None
    attention_dp_size: int = 1
    radix_cache: bool = True
    extra_buffer: bool = False
    overlap: bool = True
    draft_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePool:
    """The pool of states on one rank.

    Attributes:
        slots: ``max_mamba_cache_size``.
        num_bytes: Bytes of all slots and of what drafting keeps between steps.
        slots_per_request: Slots a running request takes.
    """

    slots: int
    num_bytes: int
    slots_per_request: int

    @property
    def max_requests(self) -> int:
        """Requests that the slots let run at once."""
        return self.slots // self.slots_per_request


def state_bytes_per_request(layers: Iterable[Layer], ranks: int, *, state_dtype: str | None) -> int:
    """State of one request in a stage's layers on one rank.

    The convolution keeps kernel - 1 columns in bfloat16; the recurrent state is in float32 unless
    the checkpoint or ``--mamba-ssm-dtype`` says otherwise (``mamba2_state_dtype``).
    """
    total = 0
    for layer in layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Recurrent):
                total += recurrent_state(
                    mixer,
                    convolution_dtype="bfloat16",
                    recurrent_dtype=state_dtype or mixer.state_dtype or "float32",
                    tensor_parallel_size=ranks,
                ).num_bytes
    return total


def slots_per_request(inputs: StateInputs, rules: VersionRules) -> int:
    """Slots a running request takes: one without prefixes, else three and its tracking slots."""
    if not inputs.radix_cache:
        return 1
    if not inputs.extra_buffer or not rules.since(0, 5, 8):
        return _SLOTS_PER_REQUEST
    return _SLOTS_PER_REQUEST + (2 if inputs.overlap else 1)


def state_pool(rest_bytes: int, inputs: StateInputs, rules: VersionRules) -> StatePool:
    """How many slots the pool has and what it takes of ``rest_bytes``.

    Raises:
        DeploymentError: Drafting needs ``max_running_requests`` and there is none.
    """
    per_request = inputs.bytes_per_request
    each = slots_per_request(inputs, rules)
    drafts = inputs.draft_tokens or 0
    budget = rest_bytes * inputs.ratio / (1 + inputs.ratio)
    running = None
    if inputs.max_running_requests is not None:
        running = max(1, inputs.max_running_requests // inputs.attention_dp_size)
    if drafts and running is None:
        raise DeploymentError(
            "speculative decoding of a model with states needs max_running_requests; give "
            "--max-running-requests"
        )
    if not rules.since(0, 5, 7):
        return _older_pool(int(budget), inputs, each, running)
    padding = 1 if rules.since(0, 5, 17) else 0
    intermediate = 0
    if inputs.max_mamba_cache_size is not None:
        slots = inputs.max_mamba_cache_size // inputs.attention_dp_size
        if drafts and running is not None:
            intermediate = per_request * (min(running, slots // each) + padding) * drafts
    elif not inputs.radix_cache and running is not None:
        slots = running
        intermediate = per_request * (slots + padding) * drafts
    elif drafts and running is not None and padding:
        slots = int((budget - per_request * (1 + drafts)) // (per_request * (1 + drafts / each)))
        intermediate = per_request * (min(running, slots // each) + 1) * drafts
    else:
        if drafts and running is not None:
            intermediate = per_request * running * drafts
            budget = (rest_bytes - intermediate) * inputs.ratio / (1 + inputs.ratio)
        slots = int((budget - padding * per_request) // per_request)
    slots = max(0, slots)  # less than nothing left: none, and no memory back
    return StatePool(
        slots=slots,
        num_bytes=(slots + padding) * per_request + intermediate,
        slots_per_request=each,
    )


def _older_pool(
    budget_bytes: int, inputs: StateInputs, each: int, running: int | None
) -> StatePool:
    """0.5.3 to 0.5.6: slots hold what drafting needs as well."""
    drafts = inputs.draft_tokens or 0
    per_slot = inputs.bytes_per_request * (1 + drafts)
    if inputs.max_mamba_cache_size is not None:
        slots = inputs.max_mamba_cache_size
    elif not inputs.radix_cache:
        slots = running if running is not None else _WITHOUT_RADIX_CACHE
    else:
        slots = budget_bytes // per_slot
    slots = max(0, slots // inputs.attention_dp_size)
    return StatePool(slots=slots, num_bytes=slots * per_slot, slots_per_request=each)
