"""Tables of GPUs and models for the terminal, and the same as JSON values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.records import Slice
from tokenroom.reports.console import Paragraph
from tokenroom.reports.messages import Language, message
from tokenroom.units import GIB, format_count, format_gib, format_parameters

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from tokenroom.models.catalogue import Entry
    from tokenroom.models.spec import ModelSpec, Scheme


def accelerator_table(accelerators: Sequence[Accelerator], language: Language) -> Table:
    """One line a GPU: memory, bandwidth, dense rates and link."""
    table = _table()
    table.add_column(message("gpus.key", language), no_wrap=True)
    for heading in ("memory", "bandwidth", "bf16", "fp8"):
        table.add_column(message(f"gpus.{heading}", language), justify="right", no_wrap=True)
    table.add_column(message("gpus.link", language), no_wrap=True)
    for gpu in accelerators:
        flops = gpu.flops_per_second
        memory_gib = gpu.memory_bytes / GIB
        table.add_row(
            gpu.key,
            f"~{memory_gib:.1f}" if gpu.memory_assumed else f"{memory_gib:.2f}",
            _scaled(gpu.bandwidth_bytes_per_second, 1e9, ".0f"),
            _scaled(flops.get("bf16") or flops.get("fp16"), 1e12, ".0f"),
            _scaled(flops.get("fp8"), 1e12, ".0f"),
            gpu.link.replace("_", " "),
        )
    return table


def accelerator_details(gpu: Accelerator, slices: Mapping[str, Slice], language: Language) -> Group:
    """Every figure of one GPU with its MIG slices, then the source of each.

    What the user did not say of a GPU of theirs is left out; of others it is "unknown".
    """
    from rich.console import Group
    from rich.text import Text

    memory = format_gib(gpu.memory_bytes)
    given_nominal = not gpu.custom or gpu.nominal_memory_bytes != gpu.memory_bytes
    figures = {
        "name": gpu.name,
        "aliases": ", ".join(gpu.aliases),
        "architecture": gpu.architecture,
        "compute_capability": ".".join(map(str, gpu.compute_capability or ())),
        "memory_bytes": message("gpus.assumed", language, memory=memory)
        if gpu.memory_assumed
        else memory,
        "driver_memory_bytes": format_gib(gpu.driver_memory_bytes)
        if gpu.driver_memory_bytes
        else "",
        "nominal_memory_bytes": _nominal(gpu.nominal_memory_bytes) if given_nominal else "",
        "bandwidth_bytes_per_second": _rate(gpu.bandwidth_bytes_per_second),
        "flops_per_second": ", ".join(
            f"{kind.upper()} {rate / 1e12:g}" for kind, rate in gpu.flops_per_second.items()
        ),
        "link": gpu.link.replace("_", " "),
        "link_bytes_per_second": _rate(gpu.link_bytes_per_second),
        "pcie_bytes_per_second": _rate(gpu.pcie_bytes_per_second),
        "multiprocessors": str(gpu.multiprocessors or ""),
        "mig": ", ".join(
            f"{profile} ({format_gib(part.memory_bytes)})" for profile, part in slices.items()
        ),
    }
    unknown = "" if gpu.custom else message("unknown", language)
    table = _table()
    table.show_header = False
    for column in range(2):
        table.add_column(no_wrap=not column)
    for name, figure in figures.items():
        shown = figure or ("" if name in ("aliases", "mig") else unknown)
        if shown:
            table.add_row(message(f"gpus.{name}", language).strip(), shown)
    parts: list[RenderableType] = [Text(gpu.key, style="bold"), table]
    if gpu.sources:
        parts.append(Text(message("gpus.sources", language), style="bold"))
    parts += [
        _remark(message(f"gpus.{name}", language).strip(), source, language)
        for name, source in gpu.sources.items()
    ]
    return Group(*parts)


def accelerator_json(gpu: Accelerator, slices: Mapping[str, Slice]) -> dict[str, Any]:
    """One GPU as plain values; sizes in bytes, rates in bytes or operations a second.

    ``mig`` holds the memory of each slice by its profile.
    """
    return {
        "key": gpu.key,
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "compute_capability": list(gpu.compute_capability) if gpu.compute_capability else None,
        "memory_bytes": gpu.memory_bytes,
        "memory_assumed": gpu.memory_assumed,
        "driver_memory_bytes": gpu.driver_memory_bytes,
        "nominal_memory_bytes": gpu.nominal_memory_bytes,
        "bandwidth_bytes_per_second": gpu.bandwidth_bytes_per_second,
        "flops_per_second": dict(gpu.flops_per_second),
        "link": gpu.link,
        "link_bytes_per_second": gpu.link_bytes_per_second,
        "pcie_bytes_per_second": gpu.pcie_bytes_per_second,
        "multiprocessors": gpu.multiprocessors,
        "unified_memory": gpu.unified_memory,
        "mig": {profile: part.memory_bytes for profile, part in slices.items()},
        "sources": dict(gpu.sources),
    }


def model_table(specs: Sequence[ModelSpec], language: Language) -> Table:
    """One line a model: parameters in all and for each token, weight layout, longest context."""
    table = _table()
    table.add_column(message("models.name", language), overflow="fold")
    for heading in ("parameters", "active"):
        table.add_column(message(f"models.{heading}", language), justify="right", no_wrap=True)
    table.add_column(message("models.weights", language), no_wrap=True)
    table.add_column(message("models.context", language), justify="right", no_wrap=True)
    for spec in specs:
        length = spec.max_position_embeddings
        table.add_row(
            spec.name,
            format_parameters(spec.parameters_total),
            format_parameters(spec.parameters_active),
            weight_layout(spec),
            "-" if length is None else format_count(length),
        )
    return table


_PLAIN: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def weight_layout(spec: ModelSpec) -> str:
    """The layout that most of a model's parameters are stored in, as people call it.

    Of a quantised model, that of most of its quantised parameters: ``bf16``, ``fp8``, ``awq``,
    ``w4a16``, ``w8a8``, ``nvfp4``, ...
    """
    from tokenroom.models.quantization.schemes import INT8, PACKED  # costs start-up time

    parameters: Counter[Scheme] = Counter()
    for _, weight, count in spec.all_weights():
        if weight.scheme is not None:
            parameters[weight.scheme] += weight.parameters * count
    if not parameters:
        return _PLAIN.get(spec.dtype, spec.dtype)
    scheme = max(parameters, key=parameters.__getitem__)
    if scheme.name in (INT8, PACKED):
        return f"w{scheme.weight_bits:g}a{scheme.activation_bits}"
    return scheme.name.split(":")[0]


def model_details(model: Entry, spec: ModelSpec, language: Language) -> Group:
    """What the catalogue holds of one model, and where it was read."""
    from rich.console import Group
    from rich.text import Text

    length, layout = spec.max_position_embeddings, weight_layout(spec)
    figures = {
        "aliases": ", ".join(model.aliases),
        "architecture": spec.architecture,
        "parameters": f"{format_parameters(spec.parameters_total)} ({spec.parameters_total:,})",
        "active": f"{format_parameters(spec.parameters_active)} ({spec.parameters_active:,})",
        "layers": format_count(spec.num_layers),
        "context": format_count(length) if length else "",
        "dtype": layout
        if spec.quantization in (None, layout)
        else f"{layout} ({spec.quantization})",
    }
    unknown = message("unknown", language)
    table = _table()
    table.show_header = False
    for column in range(2):
        table.add_column(no_wrap=not column)
    for name, figure in figures.items():
        if figure or name != "aliases":
            table.add_row(message(f"models.{name}", language), figure or unknown)
    notes = [
        _remark(message(f"models.{name}", language), text, language)
        for name, text in (("source", model.source), ("checked", model.checked))
    ]
    return Group(Text(model.name, style="bold"), table, *notes)


def model_json(model: Entry, spec: ModelSpec) -> dict[str, Any]:
    """One model of the catalogue as plain values."""
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "architecture": spec.architecture,
        "parameters_total": spec.parameters_total,
        "parameters_active": spec.parameters_active,
        "num_layers": spec.num_layers,
        "max_position_embeddings": spec.max_position_embeddings,
        "dtype": spec.dtype,
        "weights": weight_layout(spec),
        "quantization": spec.quantization,
        "source": model.source,
        "source_kind": model.source_kind,
        "checked": model.checked,
    }


def _remark(name: str, text: str, language: Language) -> Paragraph:
    return Paragraph(f"{name}{message('fit.colon', language)}{text}", rest="  ", style="dim")


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _scaled(value: float | None, unit: float, form: str) -> str:
    return "-" if value is None else format(value / unit, form)


def _nominal(num_bytes: int) -> str:
    """A nominal size in the unit it is whole in."""
    if num_bytes % 10**9 and not num_bytes % 2**20:
        return f"{num_bytes / GIB:g} GiB"
    return f"{num_bytes / 1e9:g} GB"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value / 1e9:g} GB/s"
