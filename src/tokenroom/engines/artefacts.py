"""What starts a deployment elsewhere than in a shell: a container, a Kubernetes manifest.

Both wrap the words of :class:`~tokenroom.engines.launch.LaunchCommand`, so that what is read back
from them is the same deployment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenroom.engines.launch import LaunchCommand
from tokenroom.engines.policy import Deployment

_TOKEN: Final = "HF_TOKEN"
"""What the Hub's client reads, and engines with it, to be let at gated models."""

_TOKEN_SECRET: Final = {"name": "hf-token-secret", "key": "token", "optional": True}
"""The Secret of vLLM's own guide (docs.vllm.ai/en/stable/deployment/k8s); a model that is not
gated starts without it."""

_FILES_AT: Final = "/config"
_CACHE_AT: Final = "/root/.cache/huggingface"
_NAME: Final = re.compile(r"[^a-z0-9]+")
_MOST_NAME: Final = 50  # of 63 that a Kubernetes name may have: what is added to it fits behind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    """Where an engine's maintainers publish it.

    Attributes:
        name: Image with its tag, ``{version}`` filled in.
        port: Where it listens by itself.
        health: Path that answers when it serves.
    """

    name: str
    port: int
    health: str = "/health"


_IMAGES: Final[Mapping[tuple[str, str], _Image]] = {
    # (engine, vendor of the GPU): published at
    # docs.vllm.ai/en/stable/deployment/docker
    ("vllm", "nvidia"): _Image(name="vllm/vllm-openai:v{version}", port=8000),
    ("vllm", "amd"): _Image(name="vllm/vllm-openai-rocm:v{version}", port=8000),
    # docs.sglang.ai/get_started/install
    ("sglang", "nvidia"): _Image(name="lmsysorg/sglang:v{version}", port=30000),
    # nvidia.github.io/TensorRT-LLM/quick-start-guide
    ("tensorrt-llm", "nvidia"): _Image(
        name="nvcr.io/nvidia/tensorrt-llm/release:{version}", port=8000
    ),
    # github.com/ggml-org/llama.cpp/blob/master/docs/docker.md
    ("llama.cpp", "nvidia"): _Image(
        name="ghcr.io/ggml-org/llama.cpp:full-cuda-{version}", port=8080
    ),
    ("llama.cpp", "amd"): _Image(name="ghcr.io/ggml-org/llama.cpp:full-rocm-{version}", port=8080),
}
_RESOURCE: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_DEVICES: Final = {
    # words of docker run that give it all GPUs
    "nvidia": ("--gpus", "all"),
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"),
}
_PROGRAMS: Final = {"llama-server": "/app/llama-server"}
"""Where a program lies that is not on the image's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A deployment on one host as a container.

    Attributes:
        deployment: What is deployed.
        launch: What starts it.
        image: The image that is run.
        label: What tells it from other deployments of the model, in names of Kubernetes.
    """

    deployment: Deployment
    launch: LaunchCommand
    image: _Image = field(repr=False)
    label: str = ""

    @property
    def image_name(self) -> str:
        """The image with its tag."""
        version = self.deployment.version
        if self.deployment.engine == "tensorrt-llm" and version.count(".") == 1:
            version += ".0"  # tags of releases have three numbers
        return self.image.name.format(version=version)

    @property
    def docker_text(self) -> str:
        """``docker run`` for a POSIX shell, after the files that it reads as here-documents.

        Ranks exchange through shared memory, hence the host's (``--ipc=host``); models are kept
        in the user's own cache.
        """
        files = [
            f"cat > {shlex.quote(name)} <<'END'\n{text}END\n"
            for name, text in self.launch.files.items()
        ]
        words = ["docker", "run", "--rm", *_DEVICES[self._vendor], "--ipc=host"]
        words += ["-p", f"{self.image.port}:{self.image.port}"]
        for name, value in self.launch.environment.items():
            words += ["-e", f"{name}={value}"]
        if self._is_fetched:
            words += ["-e", _TOKEN]  # as the shell has it; nothing where it has none
        program, *rest = self._words
        words += ["--entrypoint", program]
        mounts = f' -v "$HOME/.cache/huggingface:{_CACHE_AT}"'
        if local := self.deployment.spec.path:
            folder = shlex.quote(str(Path(local).resolve()))
            mounts += f" -v {folder}:{folder}:ro"
        if files or self._reads_gguf:
            mounts += f' -v "$PWD:{_FILES_AT}" -w {_FILES_AT}'
        return (
            "".join(files)
            + shlex.join(words)
            + mounts
            + " "
            + shlex.join([self.image_name, *rest, *self._listening])
        )

    def kubernetes_documents(self, replicas: int = 1) -> tuple[dict[str, Any], ...]:
        """A Deployment of ``replicas``, a Service before them, and a ConfigMap of files.

        Nodes are chosen by the label that NVIDIA's feature discovery gives them.
        """
        name = self.name
        vendor, node = self._vendor, self.deployment.node
        volumes: list[dict[str, Any]] = [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "cache", "emptyDir": {}},
        ]
        mounts = [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "cache", "mountPath": _CACHE_AT},
        ]
        container: dict[str, Any] = {
            "name": name,
            "image": self.image_name,
            "command": list(self._words[: len(self.launch.program)]),
            "args": [*self._words[len(self.launch.program) :], *self._listening],
            "ports": [{"containerPort": self.image.port}],
            "resources": {"limits": {_RESOURCE[vendor]: node.count}},
            "readinessProbe": {
                "httpGet": {"path": self.image.health, "port": self.image.port},
                "periodSeconds": 10,
                "failureThreshold": 3,
            },
            "startupProbe": {
                "httpGet": {"path": self.image.health, "port": self.image.port},
                "periodSeconds": 10,
                "failureThreshold": 360,
            },
            "volumeMounts": mounts,
        }
        variables: list[dict[str, Any]] = [
            {"name": key, "value": value} for key, value in self.launch.environment.items()
        ]
        if self._is_fetched:
            variables.append({"name": _TOKEN, "valueFrom": {"secretKeyRef": dict(_TOKEN_SECRET)}})
        if variables:
            container["env"] = variables
        documents: list[dict[str, Any]] = []
        if self.launch.files:
            documents.append(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": f"{name}-files"},
                    "data": dict(self.launch.files),
                }
            )
            volumes.append({"name": "files", "configMap": {"name": f"{name}-files"}})
            mounts.append({"name": "files", "mountPath": _FILES_AT})
            container["workingDir"] = _FILES_AT
        pod: dict[str, Any] = {"containers": [container], "volumes": volumes}
        if vendor == "nvidia" and not node.accelerator.custom:
            product = node.accelerator.name.replace(" ", "-")
            pod["nodeSelector"] = {"nvidia.com/gpu.product": product}
        documents.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
                },
            }
        )
        documents.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name},
                "spec": {
                    "selector": {"app": name},
                    "ports": [{"port": 80, "targetPort": self.image.port}],
                },
            }
        )
        return tuple(documents)

    def kubernetes_text(self, replicas: int = 1) -> str:
        """The same as YAML documents."""
        import yaml

        return yaml.safe_dump_all(
            self.kubernetes_documents(replicas), sort_keys=False, default_flow_style=False
        )

    @property
    def name(self) -> str:
        """A name that Kubernetes takes, from the model's and the label."""
        label = _NAME.sub("-", self.label.lower()).strip("-")
        bare = self.deployment.spec.name.rsplit("/", 1)[-1].lower()
        room = _MOST_NAME - len(label) - 1 if label else _MOST_NAME
        bare = _NAME.sub("-", bare)[:room].strip("-") or "model"
        return f"{bare}-{label}" if label else bare

    @property
    def _reads_gguf(self) -> bool:
        """Whether the model is a file that lies beside the command."""
        return any(word.endswith(".gguf") for word in self.launch.arguments)

    @property
    def _is_fetched(self) -> bool:
        """Whether the engine fetches the model from the Hub."""
        return not self.deployment.spec.path and not self._reads_gguf

    @property
    def _vendor(self) -> str:
        return self.deployment.node.accelerator.vendor

    @property
    def _words(self) -> tuple[str, ...]:
        first, *rest = self.launch.words
        return (_PROGRAMS.get(first, first), *rest)

    @property
    def _listening(self) -> tuple[str, ...]:
        """Words by which it answers from outside of the container, where it would not."""
        if self.deployment.engine == "vllm":
            return ()  # listens on all interfaces by itself
        return ("--host", "0.0.0.0", "--port", str(self.image.port))


def container(deployment: Deployment, launch: LaunchCommand, label: str = "") -> Container | None:
    """A deployment as a container.

    Args:
        deployment: What is deployed.
        launch: What starts it.
        label: What tells it from other deployments of the model, in names of Kubernetes.

    None where its engine publishes no image for the vendor of its GPUs, or where it takes more
    than one host.
    """
    node = deployment.node
    image = _IMAGES.get((deployment.engine, node.accelerator.vendor))
    if image is None or node.count > node.per_node:
        return None
    return Container(deployment=deployment, launch=launch, image=image, label=label)
