"""The tables that people look sizes up in, computed for the models and GPUs asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tokenroom.engines.cache_types import cache_types
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.lookup.table import Cell, Column, LookupTable, Remark
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization import what_if
from tokenroom.models.quantization.hypothetical import check_layout
from tokenroom.models.spec import ModelSpec
from tokenroom.planning.candidates import PER_NODE, candidates
from tokenroom.planning.choices import check_choices
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Proposal, judged

LAYOUTS: Final = ("bf16", "fp8", "int8", "awq")
BATCHES: Final = (1, 4, 16, 64)
LENGTHS: Final = (2048, 4096, 8192, 32768)
USERS: Final = (10, 50, 100, 500, 1000)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)


def parameters(specs: Sequence[ModelSpec], layouts: Sequence[str] = LAYOUTS) -> LookupTable:
    """Parameters of models, and the bytes of their weights in each layout (10^9 bytes).

    A layout is applied to what its method quantises, so scales and what stays as it is count.

    Raises:
        QuantizationError: A layout is unknown.
    """
    for layout in layouts:
        check_layout(layout)
    rows: list[tuple[Cell, ...]] = []
    remarks: list[Remark] = []
    for spec in specs:
        sizes: list[Cell] = []
        for layout in layouts:
            try:
                sizes.append(checkpoint_weights(what_if(spec, layout)).total_bytes)
            except TokenroomError as error:
                sizes.append(None)
                remarks.append(Remark(spec.name, layout, refusal=str(error)))
        rows.append((spec.name, spec.parameters_total, spec.parameters_active, *sizes))
    return LookupTable(
        name="params",
        columns=(
            Column("model"),
            Column("parameters", "count"),
            Column("active", "count"),
            *(Column(layout, "gigabytes", is_value=True) for layout in layouts),
        ),
        rows=tuple(rows),
        remarks=tuple(remarks),
    )


def kv_cache(
    specs: Sequence[ModelSpec],
    kv_dtype: str = "bfloat16",
    batches: Sequence[int] = BATCHES,
    lengths: Sequence[int] = LENGTHS,
) -> LookupTable:
    """Bytes of the KV cache of requests that run at once, by how many and how long.

    Windows and recurrent states are counted as what a request really keeps.
    """
    rows: list[tuple[Cell, ...]] = [
        (
            spec.name,
            f"{batch:,}",
            *(batch * request_bytes(spec, tokens, kv_dtype) for tokens in lengths),
        )
        for spec in specs
        for batch in batches
    ]
    return LookupTable(
        name="kv",
        columns=(
            Column("model"),
            Column("batch"),
            *(Column(f"{tokens:,}", "bytes", is_value=True) for tokens in lengths),
        ),
        rows=tuple(rows),
        about={"kv_dtype": kv_dtype},
    )


def concurrency(
    specs: Sequence[ModelSpec],
    accelerators: Sequence[Accelerator],
    *,
    tokens: int = 4096,
    engine: str = "vllm",
    on_row: Callable[[], None] = lambda: None,
) -> LookupTable:
    """The pool and its requests, of each model on the fewest GPUs that start and on twice as many.

    Args:
        specs: The models.
        accelerators: Kinds of GPU.
        tokens: Length of a request, and the longest context.
        engine: The engine.
        on_row: Called after each pair of model and GPU.
    """
    cache_types(engine)  # refuses an engine or a version that is not known
    rows: list[tuple[Cell, ...]] = []
    remarks: list[Remark] = []
    for spec in specs:
        for accelerator in accelerators:
            found = list(_starting(spec, accelerator, tokens, engine))
            if not found:
                remarks.append(_too_large(spec, accelerator))
            for result in found[:2]:
                stage = result.governing_stage
                rows.append(
                    (
                        spec.name,
                        accelerator.key,
                        result.deployment.node.count,
                        stage.weights_bytes,
                        stage.kv_pool_bytes,
                        result.plan.kv_bytes_of(tokens),
                        result.requests_held,
                        result.requests_running,
                    )
                )
            on_row()
    return LookupTable(
        name="concurrency",
        columns=(
            Column("model"),
            Column("gpu"),
            Column("gpus", "count"),
            Column("weights", "bytes"),
            Column("pool", "bytes"),
            Column("request", "bytes"),
            Column("held", "count"),
            Column("running", "count"),
        ),
        rows=tuple(rows),
        about={"tokens": tokens, "engine": engine},
        remarks=tuple(remarks),
    )


def gpus_for_users(
    specs: Sequence[ModelSpec],
    accelerators: Sequence[Accelerator],
    demand_of: Callable[[int], Demand],
    *,
    users: Sequence[int] = USERS,
    engine: str = "vllm",
    on_row: Callable[[], None] = lambda: None,
) -> LookupTable:
    """GPUs that so many users need under the objectives, by the closed form: the fewest there are.

    Args:
        specs: The models.
        accelerators: Kinds of GPU.
        demand_of: The demand of a number of users.
        users: Numbers of users.
        engine: The engine.
        on_row: Called after each row.
    """
    demands = [demand_of(count) for count in users]
    check_choices([engine], [])
    rows: list[tuple[Cell, ...]] = []
    for spec in specs:
        for accelerator in accelerators:
            tried = list(candidates([spec], [accelerator], engines=[engine]))
            cells: list[Cell] = []
            for demand in demands:
                found = [judged(candidate, demand) for candidate in tried]
                counts = [each.gpus for each in found if isinstance(each, Proposal)]
                cells.append(min(counts, default=None))
            rows.append((spec.name, accelerator.key, *cells))
            on_row()
    first = demands[0]
    return LookupTable(
        name="gpus-for-users",
        columns=(
            Column("model"),
            Column("gpu"),
            *(Column(f"{count:,}", "count", is_value=True) for count in users),
        ),
        rows=tuple(rows),
        about={
            "input": first.input_tokens,
            "output": first.output_tokens,
            "tpot_seconds": first.objectives.tpot_seconds,
            "ttft_seconds": first.objectives.ttft_seconds,
            "think_seconds": first.think_seconds,
            "engine": engine,
        },
    )


def reference(
    specs: Sequence[ModelSpec],
    accelerators: Sequence[Accelerator],
    *,
    tokens: int = 4096,
    requests: int = 16,
    engine: str = "vllm",
    on_row: Callable[[], None] = lambda: None,
) -> LookupTable:
    """The fewest GPUs that start, the fewest that run enough requests at once, and the command.

    Args:
        specs: The models.
        accelerators: Kinds of GPU.
        tokens: Length of a request, and the longest context.
        requests: How many at once are enough.
        engine: The engine.
        on_row: Called after each pair of model and GPU.
    """
    cache_types(engine)  # refuses an engine or a version that is not known
    rows: list[tuple[Cell, ...]] = []
    remarks: list[Remark] = []
    for spec in specs:
        for accelerator in accelerators:
            found = list(_starting(spec, accelerator, tokens, engine))
            enough = [each for each in found if each.requests_running >= requests]
            if not found:
                remarks.append(_too_large(spec, accelerator))
            least = found[0] if found else None
            best = enough[0] if enough else None
            launch = None if best is None else best.launch
            rows.append(
                (
                    spec.name,
                    accelerator.key,
                    None if least is None else least.deployment.node.count,
                    None if least is None else least.requests_running,
                    None if best is None else best.deployment.node.count,
                    None if best is None else best.requests_running,
                    None if launch is None else launch.shell_text,
                )
            )
            on_row()
    return LookupTable(
        name="reference",
        columns=(
            Column("model"),
            Column("gpu"),
            Column("least", "count"),
            Column("least_running", "count"),
            Column("enough", "count"),
            Column("enough_running", "count"),
            Column("command"),
        ),
        rows=tuple(rows),
        about={"tokens": tokens, "requests": requests, "engine": engine},
        remarks=tuple(remarks),
    )


def _starting(
    spec: ModelSpec, accelerator: Accelerator, tokens: int, engine: str
) -> Iterator[FitResult]:
    """The model on ever more GPUs, by tensor parallelism in a host and stages over hosts."""
    least_bytes = checkpoint_weights(spec).total_bytes
    for count in _COUNTS:
        if count * accelerator.memory_bytes < least_bytes:
            continue
        tensor, stages = min(count, PER_NODE), max(1, count // PER_NODE)
        node = Node(accelerator=accelerator, count=count, per_node=tensor)
        try:
            found = fit(
                spec,
                node,
                engine=engine,
                context=tokens,
                request_tokens=tokens,
                tp=tensor if count > 1 else None,
                pp=stages if stages > 1 else None,
            )
        except TokenroomError:
            continue  # the engine does not divide the model so
        if found.plan.refusal is None and found.requests_running:
            yield found


def _too_large(spec: ModelSpec, accelerator: Accelerator) -> Remark:
    return Remark(spec.name, accelerator.key, most_gpus=_COUNTS[-1])
