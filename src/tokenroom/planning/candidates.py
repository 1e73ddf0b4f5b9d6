"""Deployments that may be tried: kinds of GPU, how many, how the model is divided, types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.spec import LatentAttention, ModelSpec, MoEFFN
from tokenroom.planning.tuning import AS_IT_IS, Tuning

PER_NODE: Final = 8
"""GPUs of one host: HGX and most servers."""

_COUNTS: Final = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Prompts and answers apart: servers that compute prompts beside others that write answers.

    Attributes:
        prompt_servers: Servers of prompts.
        prompt_tensor_parallel_size: Ranks of each of them.
        answer_servers: Servers of answers, which are divided as the candidate says.
    """

    prompt_servers: int
    prompt_tensor_parallel_size: int
    answer_servers: int

    @property
    def prompt_gpus(self) -> int:
        """GPUs of all servers of prompts."""
        return self.prompt_servers * self.prompt_tensor_parallel_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One replica as it may be deployed.

    Attributes:
        spec: The model, in the layout its weights have.
        accelerator: The kind of GPU.
        engine: The engine, with a version behind ``@`` when it is not the newest.
        tensor_parallel_size: Ranks that share each layer.
        pipeline_parallel_size: Stages.
        data_parallel_size: Copies of attention that share the experts.
        expert_parallel: Experts are divided by whole ones.
        kv: Type of the KV cache; None for what the engine takes by itself.
        tuning: Further settings of the engine.
        split: Servers that compute prompts apart, beside those that the rest is of; None where each
            server does both.
    """

    spec: ModelSpec
    accelerator: Accelerator
    engine: str = "vllm"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    kv: str | None = None
    tuning: Tuning = AS_IT_IS
    split: Split | None = None

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        own = self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size
        if self.split is None:
            return own
        return self.split.prompt_gpus + self.split.answer_servers * own

    @property
    def servers(self) -> int:
        """Servers of one replica that write answers."""
        return 1 if self.split is None else self.split.answer_servers

    @property
    def division(self) -> str:
        """How the model is divided, as ``TP4 PP2``; empty on one GPU.

        With prompts apart their servers come first, as ``1P TP4 + 2D TP2``.
        """
        if self.split is not None:
            size = self.split.prompt_tensor_parallel_size
            prompts = f"{self.split.prompt_servers}P" + (f" TP{size}" if size > 1 else "")
            own = self._own_division
            return f"{prompts} + {self.split.answer_servers}D" + (f" {own}" if own else "")
        return self._own_division

    @property
    def _own_division(self) -> str:
        parts = (
            ("TP", self.tensor_parallel_size),
            ("PP", self.pipeline_parallel_size),
            ("DP", self.data_parallel_size),
        )
        words = [f"{name}{size}" for name, size in parts if size > 1]
        return " ".join([*words, "EP"] if self.expert_parallel else words)


def in_each_layout(models: Iterable[str], layouts: Sequence[str]) -> list[str]:
    """Names of the models in each of some layouts, or as they are where there are none.

    Raises:
        DeploymentError: A name says a layout of its own.
    """
    names = list(models)
    if not layouts:
        return names
    for name in names:
        if "@" in name:
            raise DeploymentError(
                f"{shown(name)} names a layout and weights names {', '.join(layouts)}; give one "
                "of them"
            )
    return [f"{name}@{layout}" for name in names for layout in layouts]


def candidates(
    specs: Iterable[ModelSpec],
    accelerators: Sequence[Accelerator],
    *,
    engines: Sequence[str] = ("vllm",),
    kv_types: Sequence[str | None] = (None,),
    most_gpus: int = PER_NODE,
) -> Iterator[Candidate]:
    """Every replica worth trying, small ones first.

    Tensor parallelism stays inside of a host; what needs more hosts has a pipeline over them. Two
    stages are also tried inside of a host where GPUs are joined by PCIe, since they exchange far
    less. Mixtures of experts are also tried with experts divided by whole ones, and where attention
    is latent (MLA), whose cache tensor parallelism copies to every rank, with data-parallel
    attention.

    Args:
        specs: The model, in each layout to be compared.
        accelerators: Kinds of GPU.
        engines: Engines, with versions.
        kv_types: Types of the cache; None for what the engine takes by itself.
        most_gpus: The most GPUs of one replica.

    Raises:
        DeploymentError: An engine is unknown.
    """
    for engine in engines:
        engine_named(engine)
    for spec in specs:
        least_bytes = checkpoint_weights(spec).total_bytes
        for accelerator in accelerators:
            for gpus in _COUNTS:
                if gpus > most_gpus or gpus * accelerator.memory_bytes < least_bytes:
                    continue
                for division in _divisions(spec, accelerator, gpus):
                    for engine in engines:
                        for kv in kv_types:
                            tensor, pipeline, copies, experts = division
                            yield Candidate(
                                spec=spec,
                                accelerator=accelerator,
                                engine=engine,
                                tensor_parallel_size=tensor,
                                pipeline_parallel_size=pipeline,
                                data_parallel_size=copies,
                                expert_parallel=experts,
                                kv=kv,
                            )


def least_gpus(spec: ModelSpec, accelerator: Accelerator) -> int:
    """GPUs whose memory holds the weights alone."""
    return -(-checkpoint_weights(spec).total_bytes // accelerator.memory_bytes)


def _divisions(
    spec: ModelSpec, accelerator: Accelerator, gpus: int
) -> Iterator[tuple[int, int, int, bool]]:
    """Tensor, pipeline and data-parallel sizes, and whether whole experts are divided."""
    if gpus > PER_NODE:
        yield PER_NODE, gpus // PER_NODE, 1, False
        return
    yield gpus, 1, 1, False
    if gpus == 1:
        return
    if accelerator.link == "pcie":
        yield gpus // 2, 2, 1, False
    if any(isinstance(layer.ffn, MoEFFN) for layer in spec.layers):
        yield gpus, 1, 1, True
        if any(
            isinstance(mixer, LatentAttention) for layer in spec.layers for mixer in layer.mixers
        ):
            yield 1, 1, gpus, True
