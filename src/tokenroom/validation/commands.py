"""The command behind a row: its flags as the words that start the engine.

Rows hold arguments by name as people quote them (``"0.9 (default)"``, ``"mtp 3"``, ``"49.0 GiB"``).
The rules here bring them to what the engine's own command line takes; docs/validation.md lists
them. What no rule covers is a reason not to predict, never a guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tokenroom.engines.launch import value_words
from tokenroom.engines.vllm.launch import transfer
from tokenroom.errors import RowError, TokenroomError, shown
from tokenroom.units import parse_bytes
from tokenroom.validation.rows import Row

_REMARK: Final = re.compile(r"^(.*?)\s*\(([^()]*)\)\s*$")
_UNCERTAIN: Final = re.compile(r"\b(external|unknown|not|likely|approx\w*)\b")
_DRAFTING: Final = re.compile(r"^(mtp|ngram|eagle3?|medusa)\s*(?:n\s*=\s*)?(\d+)$", re.I)
_LAYERS: Final = re.compile(r"^(\d+)\s*/\s*\d+$")
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?(?:\.post\d+)?")
_BUILD: Final = re.compile(r"\bb\d{3,6}\b")
_FOREIGN: Final = re.compile(r"\b(fork|plugin)\b", re.I)
_INFERRED_PARALLEL: Final = re.compile(r"tensor parallel (\d+)")
_PARALLEL_FLAGS: Final = frozenset(
    {
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
        *("tp", "tp_size", "pp", "pp_size", "dp", "dp_size", "world_size"),
    }
)
_SECRET_NAME: Final = r"[\w-]*(?:api[-_]?key|token|password|secret)"
_SECRET_FLAG: Final = re.compile(rf"--?{_SECRET_NAME}", re.I)
_SECRET_VALUE: Final = re.compile(rf"^((?:--?)?{_SECRET_NAME})=.*", re.I | re.S)
#: Quantisation that vLLM applies to plain weights while loading (--quantization).
_ONLINE: Final = frozenset({"fp8", "bitsandbytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How an engine's command line writes what rows hold by name.

    Attributes:
        start: Words up to the model.
        tensor_parallel: Its name for the tensor-parallel size, None where GPUs are used unasked.
        names: Names in rows whose flag is spelt otherwise, None where the flag says nothing about
            memory.
        settings: Names in rows that are given as settings, where the command line has no flag or
            not in every version.
        values: Rules for values that are no plain text or number.
    """

    start: tuple[str, ...]
    tensor_parallel: str | None = None
    names: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Callable[[str, Any], Any]] = field(default_factory=dict)


def _drafting(name: str, value: Any) -> Any:
    """``"mtp 3"`` or ``"mtp n=4"`` as the JSON that ``--speculative-config`` takes."""
    if isinstance(value, Mapping):
        return value
    match = _DRAFTING.match(str(value))
    if match is None:
        raise RowError(
            f"{name} is {shown(value)}; a method with its number of tokens is understood"
        )
    return {"method": match[1].lower(), "num_speculative_tokens": int(match[2])}


def _connector(name: str, value: Any) -> Any:
    """The name of a KV connector as ``--kv-transfer-config`` takes it."""
    if isinstance(value, Mapping):
        return value
    return transfer(str(value))


def _size(name: str, value: Any) -> Any:
    """``"49.0 GiB"`` as bytes."""
    return value if isinstance(value, int) else parse_bytes(str(value), name)


def _first_word(name: str, value: Any) -> Any:
    """``"awq int4"`` as the method alone."""
    words = str(value).split()
    if not words:
        raise RowError(f"{name} is {shown(value)}; it names no method")
    return words[0].lower()


def _offloaded(name: str, value: Any) -> Any:
    """``"62/62"`` (layers on the accelerator of how many) as the number."""
    match = _LAYERS.match(str(value))
    return int(match[1]) if match else value


def _algorithm(name: str, value: Any) -> Any:
    """``"MTP/EAGLE"`` as the algorithm that SGLang runs MTP blocks by."""
    return "EAGLE" if str(value).upper() in ("MTP", "MTP/EAGLE", "EAGLE") else value


def _sequence(name: str, value: Any) -> Any:
    """One number or several as a sequence of them."""
    return tuple(value) if isinstance(value, list) else (value,)


def _on_off(name: str, value: Any) -> Any:
    """A switch that takes a word."""
    if isinstance(value, int):  # True and False are 1 and 0
        return "on" if value else "off"
    return {"enabled": "on", "disabled": "off"}.get(str(value), value)


_SPELLINGS: Final[Mapping[str, Spelling]] = {
    "vllm": Spelling(
        start=("vllm", "serve"),
        tensor_parallel="tensor_parallel_size",
        names={
            "world_size": None,
            "api_server_count": None,
            "trust_remote_code": None,
            "swap_space": None,
            "kv_cache_memory": "--kv-cache-memory-bytes",
            "speculative": "--speculative-config",
        },
        values={
            "speculative": _drafting,
            "speculative_config": _drafting,
            "kv_transfer_config": _connector,
            "kv_cache_memory": _size,
            "kv_cache_memory_bytes": _size,
            "quantization": _first_word,
        },
    ),
    "sglang": Spelling(
        start=("python", "-m", "sglang.launch_server", "--model-path"),
        tensor_parallel="tp",
        names={
            "tp": "--tp-size",
            "pp": "--pp-size",
            "dp": "--dp-size",
            "ep": "--ep-size",
            "nodes": "--nnodes",
            "spec": "--speculative-algorithm",
            "speculative": "--speculative-algorithm",
            "trust_remote_code": None,
        },
        values={"spec": _algorithm, "speculative": _algorithm},
    ),
    "tensorrt-llm": Spelling(
        start=("trtllm-serve",),
        tensor_parallel="tp",
        names={
            **dict.fromkeys(("tp", "tensor_parallel_size"), "--tp_size"),
            **dict.fromkeys(("pp", "pipeline_parallel_size"), "--pp_size"),
            **dict.fromkeys(("ep", "moe_expert_parallel_size"), "--ep_size"),
            "weights": None,
        },
        settings={
            "backend": "backend",
            "max_tokens": "max_tokens",
            "cuda_graph_max_batch_size": "cuda_graph_max_batch_size",
            "cuda_graph_enable_padding": "cuda_graph_enable_padding",
            "dtype": "dtype",
            "max_batch_size": "max_batch_size",
            "max_num_tokens": "max_num_tokens",
            "max_seq_len": "max_seq_len",
            "max_input_len": "max_input_len",
            "max_output_len": "max_output_len",
            "max_beam_width": "max_beam_width",
            "tokens_per_block": "tokens_per_block",
            "max_attention_window": "max_attention_window",
            "kv_cache_dtype": "kv_cache_dtype",
            "free_gpu_memory_fraction": "free_gpu_memory_fraction",
            "kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction",
            "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction",
        },
        values={"max_attention_window": _sequence},
    ),
    "llama.cpp": Spelling(
        start=("llama-server", "-m"),
        names={
            "n_ctx": "-c",
            "num_ctx": "-c",
            "n_batch": "-b",
            "n_ubatch": "-ub",
            "ngl": "-ngl",
            "flash_attn": "-fa",
            "cache_type_k": "-ctk",
            "cache_type_v": "-ctv",
            "n_parallel": "-np",
            "n_seq_max": "-np",
            "swa_full": "--swa-full",
            "split_mode": "-sm",
            "tensor_split": "-ts",
            "n_layer": None,
            "frontend": None,
            "layers_offload": None,
            "layers_requested": None,
        },
        values={"ngl": _offloaded, "flash_attn": _on_off},
    ),
}


def has_command(engine: str) -> bool:
    """Whether rows of this engine can be turned into a command."""
    return engine in _SPELLINGS


def command_words(row: Row, *, quantized: bool) -> tuple[str, ...]:
    """The command that starts the engine of a row.

    Args:
        row: The row; its engine is one that :func:`has_command` knows.
        quantized: The model's own files say how it is quantised, so that a flag that repeats it is
            left out, as the engine reads it from there.

    Raises:
        RowError: A flag's value is covered by no rule.
    """
    spelling = _SPELLINGS[row.engine]
    words = [*spelling.start, row.model or ""]
    for name, raw in (_parallel_sizes(row, spelling) | dict(row.flags)).items():
        if spelling.names.get(name, "") is None or name in spelling.settings:
            continue
        value = _value(spelling, name, raw)
        if value is None:
            continue
        if name == "quantization" and row.engine == "vllm":
            if quantized:
                continue
            if value not in _ONLINE:
                raise RowError(
                    f"flag quantization is {shown(raw)} and the files of {row.model} are not "
                    f"quantised"
                )
        words += _flag_words(spelling, name, value, row.engine)
    return tuple(words)


def extra_settings(row: Row) -> dict[str, Any]:
    """Settings of a row that its engine's command line has no flag for, by the engine's names.

    Raises:
        RowError: A flag's value is covered by no rule.
    """
    spelling = _SPELLINGS[row.engine]
    found = {
        own: _value(spelling, name, row.flags[name])
        for name, own in spelling.settings.items()
        if name in row.flags
    }
    return {name: value for name, value in found.items() if value is not None}


def _value(spelling: Spelling, name: str, raw: Any) -> Any:
    """A flag's value by the rules; None when the engine's default is meant."""
    value = plain_value(name, raw)
    if value is None or (isinstance(value, str) and value in ("default", "defaults")):
        return None
    rule = spelling.values.get(name)
    return value if rule is None else _ruled(rule, name, value)


def _parallel_sizes(row: Row, spelling: Spelling) -> dict[str, int]:
    """The tensor-parallel size of a row that states none: what it infers, else all its GPUs."""
    if spelling.tensor_parallel is None or not _PARALLEL_FLAGS.isdisjoint(row.flags):
        return {}
    for text in row.inferred:
        if match := _INFERRED_PARALLEL.fullmatch(text):
            return {spelling.tensor_parallel: int(match[1])}
    return {spelling.tensor_parallel: row.gpus} if row.gpus and row.gpus > 1 else {}


def plain_value(name: str, value: Any) -> Any:
    """A value without the remark in brackets that people add, as a number where it is one.

    Raises:
        RowError: The remark says that the value is not what it seems.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if match := _REMARK.match(text):
        if _UNCERTAIN.search(match[2].lower()):
            raise RowError(f"flag {name} is {shown(value)}, which leaves open what was given")
        text = match[1]
    if text.startswith("~"):
        raise RowError(f"flag {name} is {shown(value)}, which is not exact")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def engine_version(row: Row) -> str | None:
    """The version a row states, as numbers; None when it states none.

    Raises:
        RowError: It is a fork or plugin, which keeps its own rules.
    """
    text = row.engine_version or ""
    if _FOREIGN.search(text):
        raise RowError(f"engine_version is {shown(text)}, which is not the engine as released")
    match = (_BUILD if row.engine == "llama.cpp" else _VERSION).search(text)
    return match[0] if match else None


def _ruled(rule: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    try:
        return rule(name, value)
    except TokenroomError as error:
        raise RowError(f"flag {error}") from None


def _flag_words(spelling: Spelling, name: str, value: Any, engine: str) -> list[str]:
    dashed = name if engine == "tensorrt-llm" else name.replace("_", "-")
    flag = spelling.names.get(name) or f"--{dashed}"
    if value is False:
        return [f"--no-{flag[2:]}"] if engine == "vllm" else []
    return [*value_words(flag, value)]


def plain_command(words: Sequence[str]) -> str:
    """A command as text that can be shown: values of keys, tokens and passwords are left out."""
    shown: list[str] = []
    hidden = False
    for word in words:
        if hidden and not word.startswith("-"):
            shown.append("HIDDEN")
        elif match := _SECRET_VALUE.match(word):
            shown.append(f"{match[1]}=HIDDEN")
        else:
            shown.append(word)
        hidden = _SECRET_FLAG.fullmatch(word) is not None
    return " ".join(shown) if len(shown) == 1 else shlex.join(shown)
