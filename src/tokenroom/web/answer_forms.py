"""Answers that no schema of ``--json`` describes, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ListedModel(_Answer):
    """A model of the catalogue."""

    name: str
    aliases: list[str]
    architecture: str
    parameters_total: int
    parameters_active: int
    num_layers: int
    max_position_embeddings: int | None
    dtype: str
    weights: str
    quantization: str | None
    source: str
    source_kind: str
    checked: str


class Models(_Answer):
    """What ``model`` may name."""

    models: list[ListedModel]


class ListedGpu(_Answer):
    """A GPU; sizes in bytes, rates in bytes or operations a second."""

    key: str
    name: str
    aliases: list[str]
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    memory_bytes: int
    memory_assumed: bool
    driver_memory_bytes: int | None
    nominal_memory_bytes: int | None
    bandwidth_bytes_per_second: float | None
    flops_per_second: dict[str, float]
    link: str
    link_bytes_per_second: float | None
    pcie_bytes_per_second: float | None
    multiprocessors: int | None
    unified_memory: bool
    mig: dict[str, int] = Field(description="Memory of each slice by its profile.")
    sources: dict[str, str]


class Gpus(_Answer):
    """What ``gpu`` may name."""

    gpus: list[ListedGpu]


class ListedEngine(_Answer):
    """An engine by the name that ``engine`` takes, and by the one it is known by."""

    name: str
    title: str


class Engines(_Answer):
    """What ``engine`` and ``weights`` may name."""

    engines: list[ListedEngine]
    layouts: list[str]


class ListedWorkload(_Answer):
    """A workload that has a name."""

    name: str
    workload: str = Field(description="Its description (docs/workloads.md).")
    sources: list[str]
    sources_chinese: list[str]


class Workloads(_Answer):
    """What ``workload`` may begin with, besides the processes of docs/workloads.md."""

    workloads: list[ListedWorkload]


class QuantityErrors(_Answer):
    """Errors of one quantity, in percent of the printed figure."""

    engine: str
    quantity: str
    n: int
    median_abs_pct: float
    p90_abs_pct: float
    worst_abs_pct: float


class Outcomes(_Answer):
    """How often it was said beforehand whether an engine starts."""

    n: int
    foreseen: int


class SpeedErrors(_Answer):
    """Errors of one measured speed under one engine, of measurements that set no coefficient."""

    engine: str
    quantity: str
    n: int
    median_abs_pct: float
    p90_abs_pct: float
    median_ratio: float
    inside_share: float


class Accuracy(_Answer):
    """Errors over the rows that docs/accuracy.md is written from."""

    num_rows: int
    outcomes: Outcomes
    by_quantity: list[QuantityErrors]
    speeds: list[SpeedErrors]


class Read(_Answer):
    """What a text is, and the fields of a question that it fills."""

    kind: Literal["config", "command", "log"]
    question: dict[str, Any]


class Health(_Answer):
    """That the server works."""

    status: Literal["ok"]
