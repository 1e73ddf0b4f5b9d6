"""llama-bench's command line: many tests one after the other, of which the largest is planned.

Flags may be given again and hold several values, and every combination is a test with a context of
its own: n_prompt + n_gen + n_depth cells (``tools/llama-bench/llama-bench.cpp`` of llama.cpp
0c1e57098: ``parse_cmd_params``, ``get_cmd_params_instances``, ``to_llama_cparams``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final, TypeVar

from tokenroom.engines.llama_cpp.command_words import MODEL_NAMES, CommandWords
from tokenroom.engines.llama_cpp.settings import CACHE_TYPES
from tokenroom.errors import CommandLineError, shown

_RANGE: Final = re.compile(r"(-?\d+)(?:-(\d+)(?:([+*])(\d+))?)?(?:,|$)")
_MOST_VALUES: Final = 10_000
_TRUE: Final = frozenset({"on", "enabled", "true", "1"})
_FALSE: Final = frozenset({"off", "disabled", "false", "0"})
_Value = TypeVar("_Value")

#: Flag -> what it sets; ``-p`` and ``-n`` are tests, the others hold for each of them.
_FLAGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-m", "--model"), "model"),
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo"), "hf_repo"),
    **dict.fromkeys(("-hff", "--hf-file"), "hf_file"),
    **dict.fromkeys(("-p", "--n-prompt"), "n_prompt"),
    **dict.fromkeys(("-n", "--n-gen"), "n_gen"),
    "-pg": "n_pg",
    **dict.fromkeys(("-d", "--n-depth"), "n_depth"),
    **dict.fromkeys(("-b", "--batch-size"), "n_batch"),
    **dict.fromkeys(("-ub", "--ubatch-size"), "n_ubatch"),
    **dict.fromkeys(("-ctk", "--cache-type-k"), "type_k"),
    **dict.fromkeys(("-ctv", "--cache-type-v"), "type_v"),
    **dict.fromkeys(("-ngl", "--n-gpu-layers"), "n_gpu_layers"),
    **dict.fromkeys(("-ncmoe", "--n-cpu-moe"), "n_cpu_moe"),
    **dict.fromkeys(("-sm", "--split-mode"), "split_mode"),
    **dict.fromkeys(("-mg", "--main-gpu"), "main_gpu"),
    **dict.fromkeys(("-nkvo", "--no-kv-offload"), "no_kv_offload"),
    **dict.fromkeys(("-fa", "--flash-attn"), "flash_attn"),
    **dict.fromkeys(("-dev", "--device"), "device"),
    **dict.fromkeys(("-lm", "--load-mode"), "load_mode"),
    **dict.fromkeys(("-embd", "--embeddings"), "embeddings"),
    **dict.fromkeys(("-ts", "--tensor-split"), "tensor_split"),
    **dict.fromkeys(("-ot", "--override-tensor"), "override_tensor"),
    **dict.fromkeys(("-nopo", "--no-op-offload"), "no_op_offload"),
    "--no-host": "no_host",
    "--repack": "repack",
    **dict.fromkeys(("-fitt", "--fit-target"), "fit_target_mib"),
    **dict.fromkeys(("-fitc", "--fit-ctx"), "fit_ctx"),
}
_IGNORED_VALUES: Final = frozenset(
    {"-t", "--threads", "-C", "--cpu-mask", "--cpu-strict", "--poll", "-lzm", "--lazy-mode"}
    | {"-r", "--repetitions", "--prio", "--delay", "-o", "--output", "-oe", "--output-err"}
    | {"--numa", "-rpc", "--rpc", "-hft", "--hf-token"}
)
_IGNORED_SWITCHES: Final = frozenset(
    {"-v", "--verbose", "--progress", "--no-warmup", "--offline", "--list-devices"}
    | {"-h", "--help", "--version"}
)


def read_bench(words: Sequence[str]) -> CommandWords:
    """Read the words behind ``llama-bench``.

    Raises:
        CommandLineError: A value is missing or llama-bench would refuse it.
    """
    given = _Given(words)
    notes: list[str] = []
    names = {}
    for name in MODEL_NAMES:
        if values := given.values(name, str):
            names[name] = values[0]
            if len(values) > 1:
                notes.append(f"llama-bench runs several models: {values[0]} is planned")
    settings = _largest(given)
    prompt, generated, depth, lengths = _longest_test(given)
    settings["n_ctx"] = prompt + generated + depth
    tests = lengths * prod(given.num_values.values())
    if tests > 1:
        notes.append(
            f"llama-bench runs {tests} tests, each in a context of its own: planned is the "
            f"largest, with {prompt} tokens of prompt and {generated} generated at depth {depth}"
        )
    notes += [
        f"of several values of {name} the first is planned, as which needs the most depends on "
        "the model; give the others on their own"
        for name in _UNRANKED
        if given.num_values.get(name, 1) > 1
    ]
    return CommandWords(
        names=names,
        settings=settings,
        ignored=tuple(given.ignored),
        unknown=tuple(given.unknown),
        notes=tuple(notes),
    )


class _Given:
    """Flags with all their values.

    Attributes:
        num_values: How many different values a flag holds, of those that were asked for.
        ignored: Flags without influence on memory.
        unknown: Flags llama-bench does not have.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._texts: dict[str, list[str]] = {}
        self.num_values: dict[str, int] = {}
        self.ignored: list[str] = []
        self.unknown: list[str] = []
        rest = iter(words)
        for word in rest:
            flag = word.replace("_", "-") if word.startswith("--") else word
            name = _FLAGS.get(flag)
            if name is None and flag not in _IGNORED_VALUES:
                if flag in _IGNORED_SWITCHES:
                    self.ignored.append(flag)
                elif flag.startswith("-"):
                    self.unknown.append(flag)
                continue
            text = next(rest, None)
            if text is None:
                raise CommandLineError(f"{flag} is the last word; it needs a value")
            if name is None:
                self.ignored.append(flag)
            else:
                self._texts.setdefault(name, []).append(text)

    def texts(self, name: str) -> Sequence[str]:
        """What a flag holds, as often as it is given."""
        return self._texts.get(name, ())

    def values(self, name: str, rule: Callable[[str], _Value]) -> list[_Value]:
        """Values between commas."""
        parts = [part for text in self.texts(name) for part in text.split(",") if part]
        self.num_values[name] = max(1, len(parts))
        return [rule(part) for part in parts]

    def numbers(self, name: str, default: int, *, negative: bool = False) -> list[int]:
        """``parse_int_range``: ``512,1024``, ``1-4``, ``512-4096*2``, ``0-100+10``."""
        found: list[int] = []
        for text in self.texts(name):
            place = 0
            while place < len(text):
                match = _RANGE.match(text, place)
                if match is None or (match[1].startswith("-") and not negative):
                    raise CommandLineError(
                        f"{name} is {shown(text)}; it may be numbers and ranges, as 512,1024-4096*2"
                    )
                place = match.end()
                first = int(match[1])
                found += _counted(name, first, int(match[2] or first), match[3], match[4])
        self.num_values[name] = max(1, len(found))
        return found or [default]


def _counted(name: str, first: int, last: int, operator: str | None, step: str | None) -> list[int]:
    found = []
    value = first
    while value <= last:
        found.append(value)
        following = value * int(step or 1) if operator == "*" else value + int(step or 1)
        if following <= value or len(found) > _MOST_VALUES:
            raise CommandLineError(f"{name} holds a range without an end, from {first} to {last}")
        value = following
    return found


def _longest_test(given: _Given) -> tuple[int, int, int, int]:
    """Tokens of prompt, generated and before both of the longest test, and how many lengths."""
    pairs = [(count, 0) for count in given.numbers("n_prompt", 512) if count]
    pairs += [(0, count) for count in given.numbers("n_gen", 128) if count]
    for text in given.texts("n_pg"):
        match = re.fullmatch(r"(\d+),(\d+)", text)
        if match is None:
            raise CommandLineError(f"-pg is {shown(text)}; it must be two numbers, as 512,128")
        if (pair := (int(match[1]), int(match[2]))) != (0, 0):
            pairs.append(pair)
    if not pairs:
        raise CommandLineError("-p and -n are 0, so that llama-bench tests nothing; give one")
    del given.num_values["n_prompt"], given.num_values["n_gen"]
    prompt, generated = max(pairs, key=sum)
    return prompt, generated, max(given.numbers("n_depth", 0)), len(pairs)


def _largest(given: _Given) -> dict[str, Any]:
    """Of every setting the value that needs the most memory of the accelerators."""
    found: dict[str, Any] = {}
    for name in ("n_batch", "n_ubatch"):
        if given.texts(name):
            found[name] = max(given.numbers(name, 0))
    layers = given.numbers("n_gpu_layers", -1, negative=True)
    found["n_gpu_layers"] = min(layers) if min(layers) < 0 else max(layers)
    if given.texts("n_cpu_moe"):
        found["n_cpu_moe"] = min(given.numbers("n_cpu_moe", 0))
    if given.texts("main_gpu"):
        found["main_gpu"] = given.numbers("main_gpu", 0)[0]
    for name in ("type_k", "type_v"):
        if kinds := given.values(name, str.lower):
            found[name] = next((kind for kind in CACHE_TYPES if kind in kinds), kinds[0])
    for name, own, most in _SWITCHES:
        if switched := given.values(name, partial(_truth, name)):
            value = most if most in switched else not most
            found[own] = value if own == name else not value
    if modes := given.values("flash_attn", _mode):
        found["flash_attn"] = next(mode for mode in ("off", "auto", "on") if mode in modes)
    for name, rule in _UNRANKED.items():
        if values := given.values(name, str.strip):
            found |= rule(values[0])
    targets, contexts = given.numbers("fit_target_mib", 0), given.numbers("fit_ctx", 0)
    if any(targets) or any(contexts):  # it fits when either is given
        found |= {"fit": True, "n_gpu_layers": -1, "fit_target_mib": (min(targets),)}
        found |= {"fit_ctx": max(contexts)} if any(contexts) else {}
    return found


#: Flags that hold 0 or 1: name, setting, and which of the two needs the most.
_SWITCHES: Final = (
    ("no_kv_offload", "kv_offload", False),
    ("no_op_offload", "op_offload", False),
    ("embeddings", "embeddings", True),
    ("no_host", "no_host", True),
    ("repack", "repack", True),
)


def _truth(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise CommandLineError(f"{name} is {shown(text)}; it may be 0 or 1")
    return text == "1"


def _mode(text: str) -> str:
    lower = text.lower()
    if lower in _TRUE or lower in _FALSE:
        return "on" if lower in _TRUE else "off"
    if lower in ("auto", "-1"):
        return "auto"
    raise CommandLineError(f"flash_attn is {shown(text)}; it may be on, off or auto")


def _devices(text: str) -> dict[str, Any]:
    names = [name for name in re.split(r"[;/]", text) if name.strip()]
    return {"gpus": 0 if names == ["none"] else len(names)}


def _shares(text: str) -> dict[str, Any]:
    try:
        return {"tensor_split": tuple(float(part) for part in re.split(r"[;/]+", text) if part)}
    except ValueError:
        raise CommandLineError(f"tensor_split is {shown(text)}; it must hold numbers") from None


def _overrides(text: str) -> dict[str, Any]:
    pairs = []
    for item in text.split(";"):
        pattern, equals, buffer = item.partition("=")
        if not (equals and pattern and buffer):
            raise CommandLineError(
                f"override_tensor is {shown(text)}; write PATTERN=BUFFER, as exps=CPU"
            )
        pairs.append((pattern, buffer))
    return {"override_tensor": tuple(pairs)}


#: Flags of which no value needs the most by itself, and what one of them sets.
_UNRANKED: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "split_mode": lambda text: {"split_mode": text.lower()},
    "load_mode": lambda text: {"load_mode": text.lower()},
    "device": _devices,
    "tensor_split": _shares,
    "override_tensor": _overrides,
}
