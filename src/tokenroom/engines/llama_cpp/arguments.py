"""llama.cpp's command lines, and Ollama's, as :class:`LlamaCppSettings`.

Flags are those of ``common/arg.cpp`` of llama.cpp 0c1e57098 with the spellings of earlier builds;
variables ``LLAMA_ARG_*`` count where the flag is not given. Of Ollama: ``ollama run`` and
``ollama serve`` with ``OLLAMA_*`` variables, and a Modelfile's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tokenroom.engines.command_line import (
    MAX_OPTIONS_BYTES,
    ParsedCommand,
    flag_refusal,
    read_launches,
)
from tokenroom.engines.containers import Launch
from tokenroom.engines.llama_cpp.bench import read_bench
from tokenroom.engines.llama_cpp.command_words import MODEL_NAMES, CommandWords
from tokenroom.engines.llama_cpp.flags import (
    ALIASES,
    ENVIRONMENT,
    INFLUENTIAL,
    KNOWN_SWITCHES,
    KNOWN_VALUES,
)
from tokenroom.engines.llama_cpp.modelfile import read_modelfile
from tokenroom.engines.llama_cpp.settings import LAYER_WORDS, LlamaCppSettings
from tokenroom.engines.shell import hole_in, hole_sentence
from tokenroom.engines.start_files import is_modelfile
from tokenroom.errors import CommandLineError, shown
from tokenroom.files import read_bounded_text

_PROGRAMS: Final[Mapping[str, str]] = {
    "llama-server": "server",
    "llama-cli": "cli",
    "llama-run": "cli",
    "llama-completion": "cli",
    "llama-bench": "bench",
    "llama-mtmd-cli": "cli",
}
_TRUE: Final = frozenset({"on", "enabled", "true", "1", "yes"})
_FALSE: Final = frozenset({"off", "disabled", "false", "0", "no"})


def parse_command(
    command: str | Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    allow_files: bool = False,
    service: str | None = None,
    version: str | None = None,
) -> ParsedCommand:
    """Understand how someone starts llama.cpp or Ollama.

    Args:
        command: Shell text, words already split, ``docker run``, a compose or Kubernetes document,
            or the text of a Modelfile.
        environment: Variables for ``$NAME`` in the text; they are not taken as settings.
        allow_files: A Modelfile may be read.
        service: Name of the service or container to take when several run it.
        version: Build whose defaults apply.

    Raises:
        CommandLineError: Nothing runs llama.cpp, no model is named, or a flag holds what llama.cpp
            refuses.
    """
    if isinstance(command, str) and is_modelfile(command):
        return _modelfile(command, {}, version)
    launches = read_launches(command, environment)
    for launch in launches:
        if service is not None and service != launch.name:
            continue
        words = list(launch.words)
        variables = {**_assigned(words), **launch.environment}
        for index, word in enumerate(words):
            started = word.rsplit("/", 1)[-1].removesuffix(".exe")
            if started in _PROGRAMS:
                return _llama(started, words[index + 1 :], variables, launch, version)
            if started == "ollama":
                return _ollama(words[index + 1 :], variables, allow_files, version)
        if launch.image_entrypoint and "llama.cpp" in (launch.image or ""):
            # ghcr.io/ggml-org/llama.cpp:server-cuda starts llama-server.
            return _llama("llama-server", words, variables, launch, version)
    seen = " ".join(launches[0].words)[:80] if launches else "nothing"
    raise CommandLineError(
        f"the command runs {shown(seen)}, not llama.cpp; give one such as llama-server -m "
        f"model.gguf"
    )


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """Variables set before the program, as ``env A=1 llama-server`` does."""
    found = {}
    for word in words:
        if match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.S):
            found[match[1]] = match[2]
    return found


def _llama(
    program: str,
    words: Sequence[str],
    variables: Mapping[str, str],
    launch: Launch,
    version: str | None,
) -> ParsedCommand:
    if _PROGRAMS[program] == "bench":
        return _command(program, read_bench(words), variables, launch, version)
    values: dict[str, list[str]] = {}
    for name, own in ENVIRONMENT.items():
        value = variables.get(name)
        if value is not None and not hole_in(value):
            values[own] = [value]
    unknown: list[str] = []
    ignored: list[str] = []
    given: set[str] = set()
    for flag, text in _flags(words):
        setting = ALIASES.get(flag)
        if setting is not None:
            if setting not in given:
                given.add(setting)
                values[setting] = []
            values[setting].append("" if text is None else text)
        elif flag in KNOWN_SWITCHES or flag in KNOWN_VALUES:
            ignored.append(flag)
        elif flag.startswith("-"):
            unknown.append(flag)
    files = {name: values.pop(name)[-1] for name in MODEL_NAMES if name in values}
    said = CommandWords(
        names=files,
        settings=_settings(values),
        ignored=tuple(ignored),
        unknown=tuple(unknown),
    )
    refusal = _refusal(program, unknown[0]) if unknown and version is None else ""
    return replace(_command(program, said, variables, launch, version), refusal=refusal)


def _refusal(program: str, flag: str) -> str:
    """That the program exits on a flag; builds that are named may have what this one has not."""
    import difflib  # only a misspelt flag needs it

    names = [*ALIASES, *KNOWN_SWITCHES, *KNOWN_VALUES]
    close = difflib.get_close_matches(flag, names, n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ""
    return flag_refusal("llama.cpp", f"{program} has no flag {flag}{hint}")


def _command(
    program: str,
    said: CommandWords,
    variables: Mapping[str, str],
    launch: Launch,
    version: str | None,
) -> ParsedCommand:
    """What a program's words say, with the model looked up and the devices that are visible."""
    notes = []
    if said.unknown:
        notes.append(f"llama.cpp has no {', '.join(said.unknown)}, which was left out")
    notes += said.notes
    model, layout = said.names.get("model"), None
    if model is None and (repository := said.names.get("hf_repo")):
        model, layout, note = _hub_model(repository, said.names.get("hf_file", ""))
        notes += note
    if not model:
        raise CommandLineError(f"the command names no model; give it as {program} -m model.gguf")
    if missing := hole_in(model):
        raise CommandLineError(hole_sentence("the model", missing))
    settings = LlamaCppSettings(
        version=version,
        program=_PROGRAMS[program],
        ignored_flags=said.ignored,
        unknown_flags=said.unknown,
        **said.settings,
    )
    gpus = _visible(variables, launch)
    if settings.gpus is None and gpus is not None:
        settings = replace(settings, gpus=gpus)
    return ParsedCommand(
        engine="llama.cpp",
        model=model,
        version=version,
        settings=settings,
        gpus=settings.gpus or None,
        accelerator_hint=launch.accelerator,
        notes=tuple(notes),
        facts=dict(launch.facts),
        weights=layout,
    )


def _hub_model(repository: str, file: str) -> tuple[str, str | None, list[str]]:
    """The model of ``-hf organisation/name:QUANT``: its file, or the model it was made from."""
    name, _, tag = repository.partition(":")
    if file:
        return f"{name}/{file}", None, []
    short = re.sub(r"[-_.]gguf$", "", name.rsplit("/", 1)[-1], flags=re.I)
    layout = _layout(tag) or "q4_k_m"  # what llama.cpp looks for first
    note = (
        f"the files of {name} are not read: {short} is taken with {layout} weights; give "
        f"{name}/FILE.gguf as the model for the file's own"
    )
    return short, layout, [note]


def _layout(tag: str) -> str | None:
    """The mix of types that a tag ends with: ``8b-instruct-q8_0``, ``UD-Q4_K_XL``."""
    found = re.search(r"(?:^|-)(i?q\d\w*|b?f(?:p)?(?:16|32)|mxfp4)$", tag, re.I)
    if found is None:
        return None
    layout = found[1].lower().replace("fp", "f") if found[1].lower() != "mxfp4" else "mxfp4"
    return layout.replace("_xl", "_m")


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Flags with their values; a flag written ``--name=value`` is taken apart."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or re.fullmatch(r"-?\d+(\.\d+)?", word):
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if equals:
            yield flag, value
            continue
        following = words[index] if index < len(words) else None
        own = ALIASES.get(flag)
        takes = flag in KNOWN_VALUES or (own is not None and own in INFLUENTIAL)
        if own == "flash_attn" and (following is None or not _is_switch_word(following)):
            takes = False  # earlier builds have it without a value
        if takes:
            if following is None:
                raise CommandLineError(f"{flag} is the last word; it needs a value")
            yield flag, following
            index += 1
        else:
            yield flag, None


def _is_switch_word(word: str) -> bool:
    return word.lower() in _TRUE | _FALSE | {"auto"}


def _settings(values: Mapping[str, list[str]]) -> dict[str, Any]:
    """Values by setting, converted as ``common/arg.cpp`` does."""
    found: dict[str, Any] = {}
    for own, texts in values.items():
        text = texts[-1]
        if own in _COUNTS:
            found[own] = _whole(own, text)
        elif own == "slot_prompt_similarity":
            found[own] = _number(own, text)
        elif own == "n_gpu_layers":
            found[own] = LAYER_WORDS[text] if text in LAYER_WORDS else _whole(own, text)
        elif own in ("type_k", "type_v", "split_mode", "load_mode"):
            found[own] = text.strip().lower()
        elif own == "flash_attn":
            lower = text.lower()
            found[own] = "on" if not lower or lower in _TRUE else lower
            found[own] = "off" if lower in _FALSE else found[own]
        elif own == "fit":
            found[own] = _truth(own, text)
        elif own == "tensor_split":
            found[own] = tuple(_number(own, part) for part in re.split(r"[,/]", text) if part)
        elif own == "fit_target_mib":
            found[own] = tuple(_whole(own, part) for part in re.split(r"[,/]", text) if part)
        elif own == "override_tensor":
            found[own] = tuple(pair for item in texts for pair in _overrides(item))
        elif own == "device":
            names = [name for name in text.split(",") if name.strip()]
            found["gpus"] = 0 if names == ["none"] else len(names)
        elif own in _SWITCHES:
            name, value = _SWITCHES[own]
            found[name] = value if not text else _truth(own, text) is value
        elif own in ("draft_model", "mmproj"):
            found[own] = text
    if found.pop("no_mmap", False):
        found.setdefault("load_mode", "none")
    return found


#: Flags that set a whole number.
_COUNTS: Final = frozenset(
    {"n_ctx", "n_batch", "n_ubatch", "n_parallel", "kv_unified_per_slot", "main_gpu", "n_cpu_moe"}
    | {"n_cpu_ffn", "fit_ctx", "cache_ram_mib", "ctx_checkpoints", "draft_max"}
)
#: Flags without a value -> (setting, what it becomes).
_SWITCHES: Final[Mapping[str, tuple[str, bool]]] = {
    "kv_unified": ("kv_unified", True),
    "no_kv_unified": ("kv_unified", False),
    "cpu_moe": ("cpu_moe", True),
    "swa_full": ("swa_full", True),
    "kv_offload": ("kv_offload", True),
    "no_kv_offload": ("kv_offload", False),
    "op_offload": ("op_offload", True),
    "no_op_offload": ("op_offload", False),
    "repack": ("repack", True),
    "no_repack": ("repack", False),
    "no_host": ("no_host", True),
    "no_mmap": ("no_mmap", True),
    "embeddings": ("embeddings", True),
    "cache_prompt": ("cache_prompt", True),
    "no_cache_prompt": ("cache_prompt", False),
    "cache_idle_slots": ("cache_idle_slots", True),
    "no_cache_idle_slots": ("cache_idle_slots", False),
}


def _overrides(text: str) -> Iterator[tuple[str, str]]:
    """``parse_tensor_buffer_overrides``: ``pattern=buffer,pattern=buffer``."""
    for item in text.split(","):
        pattern, equals, buffer = item.rpartition("=")
        if not equals or not pattern or not buffer:
            raise CommandLineError(
                f"override_tensor is {shown(text)}; write PATTERN=BUFFER, as exps=CPU"
            )
        yield pattern, buffer


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandLineError(f"{name} is {shown(text)}; it must be a whole number") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandLineError(f"{name} holds {shown(text)}; it must hold numbers") from None


def _truth(name: str, text: str) -> bool:
    lower = text.strip().lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise CommandLineError(f"{name} is {shown(text)}; it may be on or off")


def _visible(variables: Mapping[str, str], launch: Launch) -> int | None:
    counts = [] if launch.gpus is None else [launch.gpus]
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        text = variables.get(name)
        if text is not None and not hole_in(text):
            ids = [item for item in text.split(",") if item.strip()]
            counts.append(0 if ids[:1] == ["-1"] else len(ids))
    return min(counts) if counts else None


def _ollama(
    words: Sequence[str], variables: Mapping[str, str], allow_files: bool, version: str | None
) -> ParsedCommand:
    names = [word for word in words if not word.startswith("-")]
    verb = names[0] if names else ""
    if verb == "create" and allow_files:
        file = _value_of(words, ("-f", "--file")) or "Modelfile"
        return _modelfile(_read(file), variables, version)
    if verb == "serve" or len(names) < 2:
        raise CommandLineError(
            "the command names no model; give it as ollama run MODEL, or a Modelfile with --from"
        )
    settings = _ollama_settings({}, variables, version)
    model, layout, notes = _ollama_model(names[1])
    return ParsedCommand(
        engine="llama.cpp",
        model=model,
        version=version,
        settings=settings,
        gpus=settings.gpus,
        notes=notes,
        weights=layout,
    )


def _ollama_model(name: str) -> tuple[str, str | None, tuple[str, ...]]:
    """A file, or the model that a tag of Ollama's library stands for."""
    if name.startswith("hf.co/"):
        model, layout, notes = _hub_model(name.removeprefix("hf.co/"), "")
        return model, layout, tuple(notes)
    if name.endswith(".gguf") or name.startswith((".", "/", "~")):
        return name, None, ()
    family, _, tag = name.partition(":")
    layout = _layout(tag)
    if layout is not None:
        tag = tag[: tag.rindex("-")] if "-" in tag else ""
    layout = layout or ("mxfp4" if family.rsplit("/", 1)[-1] == "gpt-oss" else "q4_k_m")
    note = (
        f"the tag {name} names no file here: it is taken with {layout} weights; give the GGUF's "
        "path for its own"
    )
    return f"{family}:{tag}" if tag else family, layout, (note,)


def _modelfile(text: str, variables: Mapping[str, str], version: str | None) -> ParsedCommand:
    """A Modelfile's model and parameters."""
    file = read_modelfile(text)
    settings = replace(
        _ollama_settings(file.parameters, variables, version),
        unknown_flags=file.unknown,
        ignored_flags=file.ignored,
    )
    model, layout, notes = _ollama_model(file.model)
    return ParsedCommand(
        refusal=file.refusal,
        engine="llama.cpp",
        model=model,
        version=version,
        settings=settings,
        gpus=settings.gpus,
        notes=(*file.notes, *notes),
        weights=layout,
    )


def _ollama_settings(
    parameters: Mapping[str, str], variables: Mapping[str, str], version: str | None
) -> LlamaCppSettings:
    """Ollama's parameters and variables as what it starts llama-server with."""
    slots = _whole("OLLAMA_NUM_PARALLEL", variables.get("OLLAMA_NUM_PARALLEL") or "1") or 1
    length = parameters.get("num_ctx") or variables.get("OLLAMA_CONTEXT_LENGTH")
    layers = parameters.get("num_gpu")
    batch = parameters.get("num_batch")
    kind = variables.get("OLLAMA_KV_CACHE_TYPE")
    flash = variables.get("OLLAMA_FLASH_ATTENTION")
    offloaded = None if layers is None else _whole("num_gpu", layers)
    return LlamaCppSettings(
        version=version,
        program="ollama",
        n_parallel=slots,
        n_ctx=None if not length else _whole("num_ctx", length) * slots,
        n_gpu_layers=offloaded,
        n_batch=None if batch is None else _whole("num_batch", batch),
        type_k=kind.lower() if kind else None,
        type_v=kind.lower() if kind else None,
        flash_attn=None
        if not flash
        else "on"
        if _truth("OLLAMA_FLASH_ATTENTION", flash)
        else "off",
        kv_unified=False,
    )


def _value_of(words: Sequence[str], flags: tuple[str, ...]) -> str | None:
    for index, word in enumerate(words[:-1]):
        if word in flags:
            return words[index + 1]
    return None


def _read(path: str) -> str:
    return read_bounded_text(
        path, MAX_OPTIONS_BYTES, what=f"the Modelfile {shown(path)}", error=CommandLineError
    )
