"""Whether a module is on a checkpoint's list of names.

Four languages are in use: names at component boundaries (fp8, bitsandbytes, HQQ: ``"lm_head"``,
``"visual"``), bare substrings (AWQ), shell wildcards (modelopt, Quark: ``"model.layers.0.*"``) and
names or regular expressions (compressed-tensors: ``"re:.*lm_head"``). Each becomes one predicate
over the names a module may go by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Final, TypeAlias

from tokenroom.errors import QuantizationError, shown
from tokenroom.models.patterns import Pattern, compile_pattern

Predicate: TypeAlias = Callable[[Sequence[str]], bool]


_OTHER_PARTS: Final[tuple[tuple[str, str], ...]] = (
    (".mlp.", ".block_sparse_moe."),
    (".mlp.", ".ffn."),
    (".self_attn.", ".attn."),
)
"""Module names that a published checkpoint has where transformers' class has the first."""

_OTHER_LEAVES: Final[Mapping[str, str]] = {
    "gate_proj": "w1",
    "down_proj": "w2",
    "up_proj": "w3",
    "indexer.q_proj": "index_q_proj",
    "indexer.k_proj": "index_k_proj",
}


def spellings(path: str) -> tuple[str, ...]:
    """The names under which a checkpoint may list the module at ``path``.

    Multimodal checkpoints name their text model ``model.language_model`` or
    ``language_model.model``, depending on the transformers release that wrote them, and quantisers
    may list it without either. Mixtral's heirs and DeepSeek V4 name feed-forward blocks and experts
    otherwise than their classes in transformers do.
    """
    names = [path]
    for mine, other in (
        ("model.language_model.", "language_model.model."),
        ("language_model.model.", "model.language_model."),
    ):
        if path.startswith(mine):
            rest = path[len(mine) :]
            names += [other + rest, "model." + rest, "language_model." + rest]
    if path.startswith("backbone."):
        names.append("model." + path[len("backbone.") :])
    for name in tuple(names):
        for mine, other in _OTHER_PARTS:
            if mine in name:
                swapped = name.replace(mine, other, 1)
                names += [swapped, swapped.removeprefix("model.")]
    for name in tuple(names):
        for mine, other in _OTHER_LEAVES.items():
            if name.endswith(f".{mine}"):
                names.append(name.removesuffix(mine) + other)
    return tuple(dict.fromkeys(names))


def by_component(entries: Iterable[str]) -> Predicate:
    """Whether an entry is the path or a run of whole components of it; ``*`` is a wildcard."""
    listed = tuple(entries)
    plain = {entry.strip(".") for entry in listed if "*" not in entry} - {""}
    lengths = {entry.count(".") + 1 for entry in plain}
    wild = by_wildcard([entry for entry in listed if "*" in entry])

    def matches(names: Sequence[str]) -> bool:
        for name in names:
            parts = name.split(".")
            # Checkpoints list thousands of paths: look runs up instead of trying each entry.
            for length in lengths:
                for start in range(len(parts) - length + 1):
                    if ".".join(parts[start : start + length]) in plain:
                        return True
        return wild(names)

    return matches


def by_substring(entries: Iterable[str]) -> Predicate:
    """Whether an entry occurs anywhere in the path (AWQ; vLLM ``is_layer_skipped`` substring)."""
    listed = tuple(entries)
    return lambda names: any(entry in name for name in names for entry in listed)


def by_wildcard(entries: Iterable[str]) -> Predicate:
    """Whether a shell wildcard matches the whole path."""
    listed = [translate(entry) for entry in entries]
    if not listed:
        return lambda names: False
    pattern = re.compile("|".join(listed))
    return lambda names: any(pattern.match(name) for name in names)


def by_modelopt(entries: Iterable[str]) -> Predicate:
    """Exclusions of modelopt: exact, substring or wildcard.

    As vLLM 0.33 ``modelopt.py`` ``ModelOptQuantConfigBase.is_layer_excluded`` and
    ``apply_vllm_mapper``: ``path*`` stands for ``path`` and ``path.*``, and a bare name excludes
    every path that contains it.
    """
    expanded: list[str] = []
    for entry in entries:
        if len(entry) >= 2 and entry.endswith("*") and entry[-2] != ".":
            expanded += [entry[:-1], f"{entry[:-1]}.*"]
        else:
            expanded.append(entry)
    contained = by_substring([entry for entry in expanded if "*" not in entry])
    wild = by_wildcard([entry for entry in expanded if "*" in entry])
    return lambda names: contained(names) or wild(names)


def compile_regex(pattern: str, field: str) -> Pattern:
    """A pattern of a configuration.

    Raises:
        QuantizationError: It is not a regular expression, or cannot be matched in bounded time.
    """
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise QuantizationError(
            f"{field} holds {shown(pattern)}, which is not a usable regular expression ({error}); "
            "correct it in the checkpoint's quantization_config"
        ) from error


def by_target(entries: Iterable[str], field: str) -> Predicate:
    """compressed-tensors names: exact, or a regular expression after ``re:``.

    As vLLM 0.33 ``compressed_tensors/utils.py`` ``is_equal_or_regex_match``. Class names such as
    ``"Linear"`` are the caller's to judge.

    Raises:
        QuantizationError: A regular expression does not compile.
    """
    exact: set[str] = set()
    patterns: list[Pattern] = []
    for entry in entries:
        if entry.startswith("re:"):
            patterns.append(compile_regex(entry[3:], field))
        else:
            exact.add(entry)

    def matches(names: Sequence[str]) -> bool:
        return any(
            name in exact or any(pattern.match(name) for pattern in patterns) for name in names
        )

    return matches
