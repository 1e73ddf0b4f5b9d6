"""Ollama's Modelfile: its instructions by line, and what Ollama would refuse in it.

Instructions are those of ``parser/parser.go`` of Ollama, parameters those of ``api/types.go`` with
the ones that earlier versions had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import CommandLineError, shown

_TEXTS: Final = frozenset(
    {"TEMPLATE", "SYSTEM", "LICENSE", "MESSAGE", "REQUIRES", "RENDERER", "PARSER"}
)
_LOADED: Final = frozenset({"ADAPTER", "DRAFT"})
_INSTRUCTIONS: Final = _TEXTS | _LOADED | {"FROM", "PARAMETER"}
_COUNTED: Final = frozenset({"num_ctx", "num_gpu", "num_batch"})
#: Parameters that do not change what is planned here.
_OTHER: Final = frozenset(
    {
        *("num_keep", "seed", "num_predict", "top_k", "top_p", "min_p", "typical_p", "stop"),
        *("repeat_last_n", "temperature", "repeat_penalty", "presence_penalty", "tfs_z"),
        *("frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "penalize_newline"),
        *("num_thread", "main_gpu", "use_mmap", "use_mlock", "numa", "low_vram", "f16_kv"),
        *("logits_all", "vocab_only", "embedding_only", "num_gqa", "rope_frequency_base"),
        *("rope_frequency_scale", "draft_num_predict"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelfile:
    """What a Modelfile says of memory.

    Attributes:
        model: What its FROM line names.
        parameters: Parameters by name that matter for memory.
        ignored: Known parameters without influence on memory.
        unknown: Parameters that Ollama does not have.
        refusal: That it refuses the file for one (``FormatParams``, ``api/types.go``); empty when
            there is none.
        notes: Sentences on lines that were left out.
    """

    model: str
    parameters: Mapping[str, str]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    refusal: str
    notes: tuple[str, ...]


def read_modelfile(text: str) -> Modelfile:
    """Understand a Modelfile.

    Raises:
        CommandLineError: A line is none that Ollama takes, or FROM is missing or there twice.
    """
    model, model_line = "", 0
    parameters: dict[str, str] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    refusal = ""
    notes: list[str] = []
    for number, line in _lines(text):
        word, *values = line.split(None, 1)
        name, value = word.upper(), values[0].strip() if values else ""
        where = f"line {number} of the Modelfile"
        if name not in _INSTRUCTIONS:
            raise CommandLineError(
                f"{where} begins with {shown(word)}, which is no instruction of Ollama; it may be "
                f"FROM, PARAMETER, TEMPLATE, SYSTEM, ADAPTER, LICENSE or MESSAGE"
            )
        if not value:
            raise CommandLineError(f"{where} has {name} without a value; give one")
        if name == "FROM":
            if model:
                raise CommandLineError(
                    f"{where} is a second FROM line, after line {model_line}; keep the model's"
                )
            model, model_line = _unquoted(value), number
        elif name == "PARAMETER":
            own, *given = value.split(None, 1)
            if not given:
                raise CommandLineError(f"{where} has PARAMETER {shown(own)} without a value")
            if own in _COUNTED:
                parameters[own] = _unquoted(given[0].strip())
            elif own in _OTHER:
                ignored.append(own)
            else:
                unknown.append(own)
                notes.append(f"Ollama has no parameter {own} ({where}), which was left out")
                refusal = refusal or (
                    f"Ollama has no parameter {own} ({where}) and refuses the file; correct it or "
                    f"leave it out"
                )
        elif name in _LOADED:
            notes.append(f"{name} {value} ({where}) is not counted")
    if not model:
        raise CommandLineError("the Modelfile has no FROM line; add FROM ./model.gguf")
    return Modelfile(
        model=model,
        parameters=parameters,
        ignored=tuple(dict.fromkeys(ignored)),
        unknown=tuple(unknown),
        refusal=refusal,
        notes=tuple(notes),
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Instructions with their line numbers; a value that opens a quote goes on until it closes."""
    lines = iter(enumerate(text.removeprefix("\ufeff").splitlines(), 1))
    for number, line in lines:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        yield number, line
        value = _value(line)
        quote = next((mark for mark in ('"""', '"') if value.startswith(mark)), None)
        if quote is None or _closes(value[len(quote) :], quote):
            continue
        if not any(_closes(following, quote) for _, following in lines):
            raise CommandLineError(
                f"line {number} of the Modelfile opens {quote} and never closes it; add the "
                f"closing one"
            )


def _value(line: str) -> str:
    """What stands behind an instruction, and behind the name that two of them have."""
    name, *rest = line.split(None, 1)
    behind = 2 if name.upper() in ("PARAMETER", "MESSAGE") else 1
    words = line.split(None, behind)
    return words[behind].strip() if rest and len(words) > behind else ""


def _closes(text: str, quote: str) -> bool:
    return text.rstrip().endswith(quote)


def _unquoted(value: str) -> str:
    for mark in ('"""', '"', "'"):
        if len(value) >= 2 * len(mark) and value.startswith(mark) and value.endswith(mark):
            return value[len(mark) : -len(mark)].strip()
    return value
