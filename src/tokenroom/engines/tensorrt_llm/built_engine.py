"""What a built engine has by default, and what its C++ runtime allocates beside it.

Before 1.0 an engine was built first (``trtllm-build``, earlier ``examples/*/build.py``), which
fixes its batch, lengths and tokens of a step. When it is loaded, the runtime allocates buffers for
``max_batch_size`` requests of ``max_seq_len`` tokens before it looks what is free for the cache.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.memory.activations import Terms
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import ModelSpec, Role

Release = tuple[int, int]

_PATTERN: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?!\d)")
_CALIBRATED: Final = frozenset({"fp8", "awq", "nvfp4", "modelopt"})
"""Layouts that ModelOpt writes (``examples/quantization/quantize.py``)."""

_INT_BYTES: Final = 4
_TOP_K_MAX: Final = 1024
_BLOCKS_PER_BEAM: Final = 8
_SEQUENCE_TABLES: Final = 6
_SEQUENCE_OUTPUTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRules:
    """What a release of ``trtllm-build`` and its runtime do.

    Attributes:
        max_batch_size: Default.
        max_input_len: Default, in tokens.
        max_output_len: Default, in tokens; None from 0.11 on, where max_seq_len comes from the
            model.
        max_num_tokens: Default tokens of a step; None: max_batch_size x max_input_len.
        tokens_per_block: Default.
        shortens: A pool below one request of max_seq_len shortens max_seq_len; it is an error
            ("maxTokensInPagedKvCache must be large enough to process at least 1 sequence")
            otherwise.
        draft_logits: Logits of drafted tokens have their buffer without a drafter too.
        half_logits: Checkpoints that ModelOpt wrote have float16 logits.
    """

    max_batch_size: int
    max_input_len: int
    max_output_len: int | None
    max_num_tokens: int | None
    tokens_per_block: int
    shortens: bool
    draft_logits: bool
    half_logits: bool


_RULES: Final[tuple[tuple[Release, BuildRules], ...]] = (
    # examples/llama/build.py of 0.5; tensorrt_llm/commands/build.py from 0.8 on
    (
        (0, 0),
        BuildRules(
            max_batch_size=8,
            max_input_len=2048,
            max_output_len=512,
            max_num_tokens=None,
            tokens_per_block=128,
            shortens=False,
            draft_logits=True,
            half_logits=False,
        ),
    ),
    (
        (0, 8),
        BuildRules(
            max_batch_size=1,
            max_input_len=256,
            max_output_len=1024,
            max_num_tokens=None,
            tokens_per_block=128,
            shortens=False,
            draft_logits=True,
            half_logits=False,
        ),
    ),
    (  # "Set the default tokens_per_block argument of the trtllm-build command to 64"
        (0, 9),
        BuildRules(
            max_batch_size=1,
            max_input_len=1024,
            max_output_len=1024,
            max_num_tokens=None,
            tokens_per_block=64,
            shortens=False,
            draft_logits=True,
            half_logits=False,
        ),
    ),
    (  # max_seq_len is deduced from the model, and shortened to what the pool holds
        (0, 11),
        BuildRules(
            max_batch_size=256,
            max_input_len=1024,
            max_output_len=None,
            max_num_tokens=8192,
            tokens_per_block=64,
            shortens=True,
            draft_logits=True,
            half_logits=False,
        ),
    ),
    (
        (0, 13),
        BuildRules(
            max_batch_size=256,
            max_input_len=1024,
            max_output_len=None,
            max_num_tokens=8192,
            tokens_per_block=64,
            shortens=True,
            draft_logits=True,
            half_logits=True,
        ),
    ),
    (  # "The default max_batch_size of the trtllm-build command is set to 2048"
        (0, 14),
        BuildRules(
            max_batch_size=2048,
            max_input_len=1024,
            max_output_len=None,
            max_num_tokens=8192,
            tokens_per_block=64,
            shortens=True,
            draft_logits=False,
            half_logits=True,
        ),
    ),
    (
        (0, 19),
        BuildRules(
            max_batch_size=2048,
            max_input_len=1024,
            max_output_len=None,
            max_num_tokens=8192,
            tokens_per_block=32,
            shortens=True,
            draft_logits=False,
            half_logits=True,
        ),
    ),
)

LAST_WITH_OUTPUT_LEN: Final = "0.10"
"""The last release whose engines were built for an output length."""


def release_of(version: str) -> Release:
    """``"0.12.0.dev2024073000"`` as (0, 12).

    Raises:
        DeploymentError: It is no version.
    """
    match = _PATTERN.match(version)
    if match is None:
        raise DeploymentError(
            f"the version is {shown(version)}; write it as 1.4 (tensorrt-llm@1.4)"
        )
    return int(match[1]), int(match[2])


def build_rules(version: str) -> BuildRules:
    """The rules of a release (its release notes, and ``docs/source/release-notes.md``).

    Raises:
        DeploymentError: It is no version.
    """
    release = release_of(version)
    return next(rules for since, rules in reversed(_RULES) if since <= release)


def logits_bytes(spec: ModelSpec, rules: BuildRules) -> int:
    """Bytes of one logit: the checkpoint's ``logits_dtype``, float32 unless ModelOpt wrote it."""
    return element_bytes("float16" if rules.half_logits and is_calibrated(spec) else "float32")


def is_calibrated(spec: ModelSpec) -> bool:
    """The checkpoint was written by ModelOpt and not by ``convert_checkpoint.py``."""
    return spec.quantization in _CALIBRATED


def runtime_terms(
    spec: ModelSpec, rules: BuildRules, sequences: int, max_seq_len: int, beams: int
) -> Terms:
    """Buffers of the runtime and of its decoder for every request that may run at once.

    Runtime: the logits of a step, and six tables of one int a position (``runtimeBuffers.cpp``,
    ``decoderBuffers.cpp``: cache indirection and its views). Decoder: ids, parent ids, log
    probabilities and the same tiled, a position each; embedding bias, draft logits, penalty
    workspace, logits of the step and the workspace of top-k sampling, a vocabulary each
    (``gptDecoderBatched.cpp``, ``penaltyLayer.cpp``, ``samplingTopKKernels.h``). Four logs print
    both sizes: 1.14 and 4.35 GB (0.12, GPT-J-6B), 3.44 and 15.05 MB, 648 KB and 2.98 MB (0.13),
    2.66 and 5.76 GB (0.15); the tests compare.
    """
    logit, vocabulary = logits_bytes(spec, rules), spec.vocab_size
    rows = sequences * beams
    drafted = _INT_BYTES if rules.draft_logits else 0
    sampled = _TOP_K_MAX * _BLOCKS_PER_BEAM * (_INT_BYTES + logit)
    return (
        ("step_logits", rows * vocabulary * logit),
        ("sequence_tables", rows * max_seq_len * _SEQUENCE_TABLES * _INT_BYTES),
        ("decoder_outputs", rows * max_seq_len * _SEQUENCE_OUTPUTS * _INT_BYTES),
        ("decoder_logits", rows * vocabulary * (3 * logit + _INT_BYTES + drafted)),
        ("sampling_workspace", rows * sampled),
    )


def copied_tables_bytes(spec: ModelSpec, ranks: int, first: bool, last: bool) -> int:
    """What an engine keeps of the embedding beyond its share: whole on every rank, never tied.

    ``convert_checkpoint.py`` does not cut the table unless ``--use_parallel_embedding`` asks for
    it; ModelOpt's export does. A tied head is stored a second time (``--use_embedding_sharing`` is
    off).
    """
    element = element_bytes("float16")
    table = sum(
        weight.parameters * element
        for weight in spec.input_weights
        if weight.role is Role.EMBEDDING
    )
    whole = table - table // ranks if first and not is_calibrated(spec) else 0
    head = table // ranks if spec.tied_embeddings and last and first else 0
    return whole + head
