"""vLLM command lines, deployment files and ``LLM(...)`` calls as :class:`VLLMSettings`.

The command is unwrapped to the words behind ``vllm serve`` (or another entry), parsed by the flags
of its version and turned into settings by :mod:`~tokenroom.engines.vllm.engine_args`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tokenroom.engines.command_line import (
    ParsedCommand,
    brought_file,
    flag_refusal,
    read_launches,
    read_options_file,
)
from tokenroom.engines.containers import Launch
from tokenroom.engines.shell import hole_in, hole_sentence
from tokenroom.engines.vllm.engine_args import INFLUENTIAL, not_modelled, to_settings
from tokenroom.engines.vllm.flags import (
    ParsedFlags,
    known_versions,
    nearest_version,
    parse_flags,
    version_key,
    version_with,
)
from tokenroom.errors import CommandLineError, shown

_TEXT_SETTINGS: Final = ("VLLM_", "PYTORCH_", "NCCL_", "CUDA_", "HIP_", "ROCR_", "NVIDIA_VISIBLE_")
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_SERVER_MODULES: Final = frozenset(
    {
        "vllm.entrypoints.openai.api_server",
        "vllm.entrypoints.launchers.api_server.entry",
        "vllm.entrypoints.api_server",
        "vllm.entrypoints.grpc_server",
    }
)
_PYTHON_CALL: Final = re.compile(r"\b(LLM|AsyncLLM|EngineArgs|AsyncEngineArgs)\s*\(")
#: Options of ``vllm bench latency`` and ``throughput`` beside the engine's (vllm/benchmarks).
_BENCH_FLAGS: Final = frozenset(
    {
        *("--input-len", "--output-len", "--batch-size", "--n", "--num-iters", "--num-prompts"),
        *("--num-iters-warmup", "--dataset-name", "--dataset-path", "--dataset", "--backend"),
        *("--output-json", "--random-range-ratio", "--random-input-len", "--random-output-len"),
        *("--random-prefix-len", "--prefix-len", "--lora-path", "--hf-subset", "--hf-split"),
        *("--profile-result-dir", "--input-file", "--output-file", "-i", "-o"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A launch that runs vLLM: its flags and by which entry."""

    launch: Launch
    flags: tuple[str, ...]
    usage: str
    serve: bool
    environment: Mapping[str, str]
    extra_flags: frozenset[str] = frozenset()

    @property
    def has_known_flags(self) -> bool:
        """Every flag that the entry takes is in the table: a server, and no benchmark or call."""
        return self.usage == "server" and not self.extra_flags and bool(self.launch.words)


def parse_command(
    command: str | Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    allow_files: bool = False,
    service: str | None = None,
    version: str | None = None,
) -> ParsedCommand:
    """Understand how someone starts vLLM.

    Args:
        command: Shell text, words already split, ``docker run``, a compose, Kubernetes or Helm
            document, or Python text with an ``LLM(...)`` call.
        environment: Variables for ``$NAME`` in the text; they are not taken as settings.
        allow_files: ``--config FILE`` may be read.
        service: Name of the service or container to take when several run vLLM.
        version: vLLM version whose flags apply; the image's tag or the newest known otherwise.

    Raises:
        CommandLineError: Nothing runs vLLM, several do, or a flag holds what vLLM refuses.
    """
    if isinstance(command, str) and _PYTHON_CALL.search(command):
        call = _python_call(command)
        if call is not None:
            return _finish(call, version, allow_files)
    launches = read_launches(command, environment)
    calls = [call for launch in launches if (call := _vllm_call(launch)) is not None]
    return _finish(_choose(calls, launches, service), version, allow_files)


def _choose(calls: list[_Call], launches: Sequence[Launch], service: str | None) -> _Call:
    if service is not None:
        named = [call for call in calls if service in (call.launch.name, *_short(call.launch))]
        if not named:
            names = ", ".join(call.launch.name for call in calls if call.launch.name) or "none"
            raise CommandLineError(
                f"service is {shown(service)}, which does not run vLLM; those that do: {names}"
            )
        calls = named
    if not calls:
        seen = launches[0].words if launches else ()
        words = " ".join(seen) or "nothing"
        raise CommandLineError(
            f"the command runs {shown(words)}, not vLLM; give one such as vllm serve MODEL"
        )
    first = calls[0]
    if any((call.flags, call.usage) != (first.flags, first.usage) for call in calls):
        started = ", ".join(call.launch.name or " ".join(call.flags)[:40] for call in calls)
        raise CommandLineError(
            f"vLLM is started {len(calls)} times ({started}); give one of "
            f"them, or choose a service of a deployment file by its name (--service)"
        )
    return first


def _short(launch: Launch) -> tuple[str, ...]:
    return (launch.name.rsplit("/", 1)[-1], launch.name.split("/", 1)[0].rsplit(" ", 1)[-1])


def _vllm_call(launch: Launch) -> _Call | None:
    """The vLLM entry that a launch runs, wrappers such as ``sudo`` or ``numactl`` skipped."""
    words = launch.words
    environment = dict(launch.environment)
    for index, word in enumerate(words):
        if re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.S):
            key, _, value = word.partition("=")
            environment.setdefault(key, value)
        rest = words[index + 1 :]
        module = rest[0] if word == "-m" and rest else None
        if module in _SERVER_MODULES:
            usage = "other" if module == "vllm.entrypoints.api_server" else "server"
            return _Call(
                launch=launch, flags=rest[1:], usage=usage, serve=False, environment=environment
            )
        if module == "vllm.entrypoints.openai.run_batch":
            return _batch(launch, rest[1:], environment)
        base = word.rsplit("/", 1)[-1]
        if module in ("vllm", "vllm.entrypoints.cli.main", "vllm.scripts"):
            rest = rest[1:]
        elif base not in ("vllm", "vllm.exe") or word == launch.image:
            script = re.fullmatch(r"benchmark_(latency|throughput)\.py", base)
            if script:
                return _bench(launch, rest, environment)
            continue
        if rest[:1] == ("serve",):
            return _Call(
                launch=launch, flags=rest[1:], usage="server", serve=True, environment=environment
            )
        if rest[:1] == ("run-batch",):
            return _batch(launch, rest[1:], environment)
        if rest[:2] in (("bench", "latency"), ("bench", "throughput"), ("bench", "startup")):
            return _bench(launch, rest[2:], environment)
    image = (launch.image or "").rsplit("/", 1)[-1]
    if launch.image_entrypoint and "vllm" in (launch.image or "").lower():
        # The entry point of vllm/vllm-openai is the API server; since 0.11.1 "vllm serve".
        return _Call(
            launch=launch, flags=words, usage="server", serve=True, environment=environment
        )
    if words and words[0].startswith("--") and "vllm" in image.lower():
        return _Call(
            launch=launch, flags=words, usage="server", serve=True, environment=environment
        )
    return None


def _batch(launch: Launch, flags: tuple[str, ...], environment: Mapping[str, str]) -> _Call:
    return _Call(
        launch=launch,
        flags=flags,
        usage="other",
        serve=False,
        environment=environment,
        extra_flags=_BENCH_FLAGS,
    )


def _bench(launch: Launch, flags: tuple[str, ...], environment: Mapping[str, str]) -> _Call:
    return _Call(
        launch=launch,
        flags=flags,
        usage="llm",
        serve=False,
        environment=environment,
        extra_flags=_BENCH_FLAGS,
    )


def _python_call(text: str) -> _Call | None:
    """The first ``LLM(...)`` call of a Python text, its arguments as flags.

    Arguments are literals or names that the text sets to a literal before.
    """
    tree = _parse_python(text)
    if tree is None:
        return None
    known: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = node.value
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        if not _PYTHON_CALL.fullmatch(f"{name}("):
            continue
        flags: list[str] = []
        if node.args:
            flags += ["--model", str(_literal("model", node.args[0], known))]
        for keyword in node.keywords:
            if keyword.arg is None:
                raise CommandLineError(
                    f"{name}(**...) hides its arguments; write them out as name=value"
                )
            flags += _argument_words(keyword.arg, _literal(keyword.arg, keyword.value, known))
        usage = "llm" if name == "LLM" else "server"
        return _Call(launch=Launch(), flags=tuple(flags), usage=usage, serve=False, environment={})
    return None


def _parse_python(text: str) -> ast.AST | None:
    """The syntax tree of a Python text, or of the call inside a text that is not all Python."""
    try:
        return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    match = _PYTHON_CALL.search(text)
    for end in [place.end() for place in re.finditer(r"\)", text)][:200]:
        if match is not None and end > match.start():
            try:
                return ast.parse(text[match.start() : end])
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return None


def _literal(name: str, node: ast.expr, known: Mapping[str, ast.expr]) -> Any:
    if isinstance(node, ast.Name) and node.id in known:
        node = known[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        code = ast.unparse(node)
        raise CommandLineError(
            f"{name} is {shown(code)}, which has to be run to be known; write its value out"
        ) from error


def _argument_words(name: str, value: Any) -> list[str]:
    """A keyword argument as the words of its flag; ``None`` is the default."""
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        return [f"{flag}={json.dumps(value, default=str)}"]
    if isinstance(value, list | tuple | set):
        return [flag, *map(str, value)] if value else []
    return [f"{flag}={value}"]


def _finish(call: _Call, version: str | None, allow_files: bool) -> ParsedCommand:
    notes: list[str] = []
    named = _version_of(call)
    if version is None:
        version = named
    known = nearest_version(version)
    if version is not None and version_key(version) > version_key(known_versions()[-1]):
        notes.append(f"vLLM {version} is newer than any read here; the flags of {known} apply")
    parsed = parse_flags(
        call.flags,
        known,
        influential=INFLUENTIAL,
        serve=call.serve,
        extra_flags=call.extra_flags,
        load_config=partial(_load_config, launch=call.launch, allow_files=allow_files),
    )
    notes += parsed.notes
    values = dict(parsed.values)
    model = values.pop("model", None) or parsed.model
    if call.serve and parsed.model is not None:
        model = parsed.model
    if model is None:
        raise CommandLineError("the command names no model; give it as vllm serve MODEL")
    if unknown_value := hole_in(model):
        raise CommandLineError(hole_sentence("the model", unknown_value))
    environment = {
        key: value
        for key, value in call.environment.items()
        if key.startswith(_TEXT_SETTINGS) and not hole_in(value)
    }
    notes += [
        f"--{key.replace('_', '-')} changes memory in a way that is not modelled here"
        for key in sorted(values.keys() & not_modelled())
    ]
    settings = to_settings(values, known, parsed=parsed)
    settings = replace(settings, version=version, usage=call.usage, environment=environment)
    return ParsedCommand(
        model=model,
        version=version,
        settings=settings,
        gpus=_visible_gpus(call, values),
        accelerator_hint=call.launch.accelerator,
        notes=tuple(notes),
        refusal=_refusal(call, version, parsed),
        facts={
            **call.launch.facts,
            **{key: str(values[key]) for key in ("revision", "hf_config_path") if key in values},
        },
    )


def _refusal(call: _Call, version: str | None, parsed: ParsedFlags) -> str:
    """That the server's own parser exits on a flag; a version that was not read may have it."""
    if not parsed.unknown or not call.has_known_flags:
        return ""
    other = version_with(parsed.unknown[0])
    newest = version_key(known_versions()[-1])
    if version is not None and (
        version_key(version) > newest or (other and version not in known_versions())
    ):
        return ""
    return flag_refusal("vllm", parsed.notes[0], other_version=other)


def _version_of(call: _Call) -> str | None:
    texts = [call.launch.image or "", *call.launch.words[:12]]
    for text in texts:
        if match := re.search(r"vllm[^:=]*(?:==|:)v?(\d+\.\d+\.\d+)", text):
            return match.group(1)
    return None


def _visible_gpus(call: _Call, values: Mapping[str, Any]) -> int | None:
    """Accelerators the process sees: the fewest of what container and variables allow."""
    counts = [] if call.launch.gpus is None else [call.launch.gpus]
    for name in _VISIBLE:
        text = call.environment.get(name)
        if text is not None and not hole_in(text):
            ids = [item.strip() for item in text.split(",") if item.strip()]
            cut = next((place for place, item in enumerate(ids) if item == "-1"), len(ids))
            counts.append(cut)
    visible = call.environment.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible not in ("all", "void", "none", "") and not hole_in(visible):
        counts.append(len(visible.split(",")))
    if isinstance(values.get("device_ids"), str):
        counts.append(len([item for item in values["device_ids"].split(",") if item.strip()]))
    return min(counts) if counts else None


def _load_config(path: str, launch: Launch, allow_files: bool) -> Mapping[str, Any]:
    text = brought_file(path, launch)
    if text is None and not allow_files:
        raise CommandLineError(
            f"--config names the file {shown(path)}, which may not be read here; "
            "write its options on the command line"
        )
    config = read_options_file(path, text)
    if not config:
        raise CommandLineError(
            f"--config {shown(path)} holds no options; write lines of NAME: VALUE"
        )
    return config
