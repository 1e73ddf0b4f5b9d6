"""Container launches: ``docker run`` words, compose files, Kubernetes and Helm documents.

Everything becomes a :class:`Launch`: the words that run inside the container, what environment
they see, and how many accelerators the container is given. Documents arrive already parsed from
YAML; this module reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tokenroom.engines.shell import expand
from tokenroom.errors import CommandLineError

#: Options of ``docker run`` and ``podman run`` that take no value (docker 28, podman 5).
_DOCKER_FLAGS: Final = frozenset(
    {
        *("--detach", "--interactive", "--tty", "--publish-all", "--rm", "--init", "--privileged"),
        *("--read-only", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet"),
        *("--disable-content-trust", "--replace", "--tls-verify", "--rmi", "--help", "-q"),
    }
)
_GPU_RESOURCE: Final = re.compile(
    r"^(nvidia\.com/(gpu|mig-.*)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi)$"
)
_ACCELERATOR_LABELS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "amd.com/gpu.product-name",
)
_MAX_DEPTH: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One program to be started, unwrapped from whatever starts it.

    Attributes:
        name: Service, container or workload it comes from, empty for a plain command.
        words: Program and arguments; when ``image_entrypoint`` only the arguments.
        image: Container image with its tag, None outside containers.
        image_entrypoint: The image's own entry point runs, which ``words`` does not repeat.
        environment: Variables that the launch itself sets.
        gpus: Accelerators it is given, None when it does not say.
        accelerator: The kind of accelerator that a node label asks for.
        facts: Other settings worth showing, such as ``"shm-size"``.
        files: Text of files that are written beside it, by name: here-documents, ConfigMaps.
    """

    name: str = ""
    words: tuple[str, ...] = ()
    image: str | None = None
    image_entrypoint: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None
    accelerator: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def read_docker_run(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Launch | None:
    """What ``docker run``, ``docker container run``, ``podman run`` or ``nerdctl run`` starts.

    Args:
        words: The words of the command; wrappers such as ``sudo`` may come before.
        environment: Variables of the host, for ``-e NAME`` without a value.

    Returns:
        None when the words are no such command.
    """
    start = _docker_start(words)
    if start is None:
        return None
    host = environment or {}
    inside: dict[str, str] = {}
    facts: dict[str, str] = {}
    gpus: int | None = None
    entrypoint: str | None = None
    name = ""
    index = start
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        index += 1
        option, separator, value = word.partition("=")
        if option in _DOCKER_FLAGS or set(word[1:]) <= set("ditP"):
            continue
        if not word.startswith("--") and len(word) > 2:
            option, value = word[:2], word[2:].removeprefix("=")
        elif not separator:
            if index >= len(words):
                raise CommandLineError(f"{option} of docker run has no value; give one")
            value = words[index]
            index += 1
        if option in ("-e", "--env"):
            key, given, content = value.partition("=")
            if given or key in host:
                inside[key] = content if given else host[key]
        elif option == "--gpus":
            gpus = _docker_gpus(value)
        elif option == "--device" and "nvidia.com/gpu=" in value:
            ids = value.partition("=")[2]
            gpus = None if ids == "all" else (gpus or 0) + 1
        elif option == "--entrypoint":
            entrypoint = value
        elif option == "--name":
            name = value
        elif option in ("--shm-size", "--ipc", "--runtime", "-m", "--memory"):
            facts[option.lstrip("-")] = value
    if index >= len(words):
        raise CommandLineError("docker run names no image; put it after the options")
    image, arguments = words[index], tuple(words[index + 1 :])
    return Launch(
        name=name,
        words=(entrypoint, *arguments) if entrypoint else arguments,
        image=image,
        image_entrypoint=not entrypoint,
        environment=inside,
        gpus=gpus,
        facts=facts,
    )


def _docker_start(words: Sequence[str]) -> int | None:
    for index, word in enumerate(words):
        if word.rsplit("/", 1)[-1] in ("docker", "podman", "nerdctl", "docker.exe"):
            rest = list(words[index + 1 : index + 12])
            for command in ("run", "create"):
                if command in rest:
                    return index + 2 + rest.index(command)
            return None
    return None


def _docker_gpus(value: str) -> int | None:
    """Accelerators of ``--gpus``: ``all`` is unknown, a count, or ``"device=0,1"``."""
    value = value.strip("\"'")
    if match := re.search(r"device=([^\"']+)", value):
        return len([item for item in match.group(1).split(",") if item and "=" not in item])
    if match := re.search(r"(?:count=)?(\d{1,9})(?!\d)", value):
        return int(match.group(1))
    return None


def read_documents(documents: Sequence[Any], variables: Mapping[str, str]) -> list[Launch]:
    """Every container that parsed YAML documents start, in order.

    Understands compose files, every Kubernetes kind that holds ``containers`` (Pods, Deployments,
    StatefulSets, Jobs, LeaderWorkerSets, KServe) and Helm values (``modelSpec`` with
    ``vllmConfig`` of the vLLM production stack, ``args`` or ``extraArgs`` lists).

    Raises:
        CommandLineError: A document is nested deeper than any real one.
    """
    launches: list[Launch] = []
    files: dict[str, str] = {}
    for document in documents:
        if isinstance(document, Mapping):
            files |= _config_map(document)
            if isinstance(document.get("services"), Mapping):
                launches += _compose(document["services"], variables)
            else:
                kind = document.get("kind")
                meta = document.get("metadata")
                name = str(meta.get("name", "")) if isinstance(meta, Mapping) else ""
                title = f"{kind} {name}".strip() if kind else ""
                launches += _walk(document, title, None, variables, 0)
    return [replace(launch, files=files) for launch in launches] if files else launches


def _config_map(document: Mapping[Any, Any]) -> dict[str, str]:
    """The files of a ConfigMap."""
    data = document.get("data")
    if document.get("kind") != "ConfigMap" or not isinstance(data, Mapping):
        return {}
    return {str(name): text for name, text in data.items() if isinstance(text, str)}


def _compose(services: Mapping[Any, Any], variables: Mapping[str, str]) -> Iterator[Launch]:
    for name, service in services.items():
        if not isinstance(service, Mapping):
            continue
        environment = _environment(service.get("environment"), variables)
        devices = _path(service, "deploy", "resources", "reservations", "devices")
        gpus: int | None = None
        for device in devices if isinstance(devices, list) else []:
            if isinstance(device, Mapping):
                ids, count = device.get("device_ids"), device.get("count")
                if isinstance(ids, list):
                    gpus = (gpus or 0) + len(ids)
                elif str(count).isdigit():
                    gpus = (gpus or 0) + int(str(count))
        if gpus is None and "gpus" in service and not isinstance(service["gpus"], list):
            gpus = _docker_gpus(str(service["gpus"]))
        facts = {
            fact.replace("_", "-"): str(service[fact])
            for fact in ("shm_size", "ipc", "runtime")
            if fact in service
        }
        yield _container(
            service, "entrypoint", "command", str(name), environment, gpus, None, facts, variables
        )


def _walk(
    node: Any, title: str, accelerator: str | None, variables: Mapping[str, str], depth: int
) -> Iterator[Launch]:
    """Containers anywhere below a node; node labels above them say the accelerator."""
    if depth > _MAX_DEPTH:
        raise CommandLineError(f"the YAML is nested deeper than {_MAX_DEPTH} levels; flatten it")
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, title, accelerator, variables, depth + 1)
        return
    if not isinstance(node, Mapping):
        return
    accelerator = _accelerator(node) or accelerator
    if isinstance(node.get("vllmConfig"), Mapping):
        yield _production_stack(node, accelerator)
        return
    if node.get("kind") in ("ConfigMap", "Secret"):
        return
    if _is_container(node):
        environment = _environment(node.get("env", node.get("environment")), variables)
        name = str(node.get("name", "")) or title
        label = f"{title}/{name}" if title and name and name != title else name
        yield _container(
            node, "command", "args", label, environment, _gpu_limit(node), accelerator, {}, {}
        )
        return
    for value in node.values():
        yield from _walk(value, title, accelerator, variables, depth + 1)


def _is_container(node: Mapping[Any, Any]) -> bool:
    runs = any(isinstance(node.get(key), list | str) for key in ("args", "command", "extraArgs"))
    image = node.get("image")
    return (runs and "containers" not in node) or (isinstance(image, str) and "vllm" in image)


def _container(
    node: Mapping[Any, Any],
    program_key: str,
    arguments_key: str,
    name: str,
    environment: Mapping[str, str],
    gpus: int | None,
    accelerator: str | None,
    facts: Mapping[str, str],
    variables: Mapping[str, str],
) -> Launch:
    compose = program_key == "entrypoint"
    image = node.get("image")
    if isinstance(image, Mapping):  # Helm: {repository, tag}
        image = f"{image.get('repository', '')}:{image.get('tag', '')}".rstrip(":")
    program = _words(node.get(program_key), split=compose)
    arguments = _words(node.get(arguments_key), split=compose)
    arguments += _words(node.get("extraArgs"), split=False)
    words = tuple(
        expand(word, variables) if compose else _kubernetes_expand(word, environment)
        for word in program + arguments
    )
    return Launch(
        name=name,
        words=words,
        image=expand(str(image), variables) if image else None,
        image_entrypoint=not program,
        environment=environment,
        gpus=gpus,
        accelerator=accelerator,
        facts=facts,
    )


def _words(value: Any, *, split: bool) -> list[str]:
    """Words of a command that is a list or, in compose files, one shell-like string."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    if isinstance(value, str):
        if split:
            return _split_quoted(value)
        return [value]
    return []


def _split_quoted(text: str) -> list[str]:
    """Split like a shell does, leaving variables for later interpolation."""
    words: list[str] = []
    pattern = re.compile(r"""((?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+)""", re.S)
    for match in pattern.finditer(re.sub(r"\\\n", " ", text)):
        word = re.sub(
            r"""\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'""",
            lambda part: (
                part.group(1)
                if part.group(1) is not None
                else re.sub(r"\\(.)", r"\1", part.group(2))
                if part.group(2) is not None
                else part.group(3)
            ),
            match.group(),
            flags=re.S,
        )
        words.append(word)
    return words


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _environment(value: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of a compose map or ``K=V`` list, or of a Kubernetes name/value list."""
    result: dict[str, str] = {}
    if isinstance(value, Mapping):
        for key, content in value.items():
            result[str(key)] = expand(_text(content), variables)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                key, given, content = item.partition("=")
                if given:
                    result[key] = expand(content, variables)
                elif key in variables:
                    result[key] = variables[key]
            elif isinstance(item, Mapping) and "name" in item and "value" in item:
                result[str(item["name"])] = _kubernetes_expand(_text(item["value"]), result)
    return result


def _kubernetes_expand(word: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by the container's variable, ``$$(NAME)`` staying literal."""
    return re.sub(
        r"\$?\$\(([A-Za-z_][A-Za-z0-9_]*)\)",
        lambda match: (
            match.group()[1:]
            if match.group().startswith("$$")
            else environment.get(match.group(1), match.group())
        ),
        word,
    )


def _gpu_limit(node: Mapping[Any, Any]) -> int | None:
    for kind in ("limits", "requests"):
        resources = _path(node, "resources", kind)
        if isinstance(resources, Mapping):
            for key, value in resources.items():
                if _GPU_RESOURCE.match(str(key)) and str(value).isdigit():
                    return int(str(value))
    return None


def _accelerator(node: Mapping[Any, Any]) -> str | None:
    selector = node.get("nodeSelector")
    if isinstance(selector, Mapping):
        for label in _ACCELERATOR_LABELS:
            if isinstance(selector.get(label), str):
                return str(selector[label])
    terms = _path(
        node, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in terms.get("nodeSelectorTerms", []) if isinstance(terms, Mapping) else []:
        for rule in term.get("matchExpressions", []) if isinstance(term, Mapping) else []:
            if isinstance(rule, Mapping) and rule.get("key") in _ACCELERATOR_LABELS:
                values = rule.get("values")
                if isinstance(values, list) and len(values) == 1:
                    return str(values[0])
    return None


def _production_stack(node: Mapping[Any, Any], accelerator: str | None) -> Launch:
    """A ``modelSpec`` entry of the vLLM production stack's Helm values."""
    words = ["vllm", "serve", str(node.get("modelURL", ""))]
    for key, value in node["vllmConfig"].items():
        if key == "extraArgs" and isinstance(value, list):
            words += [_text(item) for item in value]
        elif key not in ("v0", "v1", "extraArgs"):
            flag = "--" + re.sub(r"(?<=[a-z])([A-Z])", r"-\1", str(key)).lower()
            if isinstance(value, bool):
                words += [flag] if value else []
            elif isinstance(value, str | int | float):
                words += [flag, str(value)]
    gpus = node.get("requestGPU")
    image = f"{node.get('repository', '')}:{node.get('tag', '')}".strip(":")
    return Launch(
        name=str(node.get("name", "")),
        words=tuple(words),
        image=image or None,
        environment=_environment(node.get("env"), {}),
        gpus=int(gpus) if isinstance(gpus, int) and not isinstance(gpus, bool) else None,
        accelerator=accelerator,
    )


def _path(node: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node
