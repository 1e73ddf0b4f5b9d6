"""The ledger of one named device, in the words of engines that print buffers by device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.engines.policy import Notice, StageMemory
from tokenroom.fitting import FitResult
from tokenroom.reports.messages import Language, message
from tokenroom.units import GIB, format_bytes

if TYPE_CHECKING:
    from rich.console import Console


def remarks_of(result: FitResult) -> tuple[Notice, ...]:
    """What the plan has to say under the verdict, where it has remarks."""
    found: tuple[Notice, ...] = getattr(result.plan, "remarks", ())
    return found


def print_device(out: Console, stage: StageMemory, language: Language) -> None:
    """Write the buffers of one device."""
    from rich.table import Table
    from rich.text import Text

    kind = "host" if stage.is_host else "gpu"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    heading = message(f"device.{kind}", language, device=stage.device)
    table.add_column(heading, no_wrap=True)
    table.add_column(message("fit.column.bytes", language), justify="right", no_wrap=True)
    table.add_column(message("fit.column.range", language), justify="right", no_wrap=True)

    def add(label: str, num_bytes: int, note: str = "", style: str = "") -> None:
        table.add_row(Text(label, style), Text(f"{num_bytes / GIB:,.2f}", style), note)

    def name(key: str) -> str:
        return message(f"device.{key}", language)

    exact = message("fit.exact", language)
    add(name("model"), stage.weights_bytes, exact)
    parts = sorted(
        ((component, size) for component, size in stage.weights.items() if _prints(size)),
        key=lambda part: part[1],
        reverse=True,
    )
    if len(parts) > 1:
        for component, num_bytes in parts:
            add("  " + message(f"fit.component.{component}", language), num_bytes, "", "dim")
    if stage.kv_pool_bytes or not stage.is_host:
        add(name("kv"), stage.kv_pool_bytes, exact)
    add(name("compute"), stage.activation.num_bytes, exact)
    if _prints(stage.activation_decode_bytes):
        add("  " + name("generation"), stage.activation_decode_bytes, "", "dim")
    later = stage.non_torch
    before = stage.context_bytes
    spread = f"{(before + later.low_bytes) / GIB:.2f} … {(before + later.high_bytes) / GIB:.2f}"
    if stage.is_host:
        add(name("output"), stage.buffers_bytes, exact)
        if later.high_bytes:
            add(name("saved"), later.num_bytes, spread)
    else:
        add(name("driver"), before + later.num_bytes, spread)
    if stage.free_bytes > 0:
        add(message("fit.line.free", language), stage.free_bytes)
    elif stage.free_bytes < 0:
        add(message("fit.line.short", language), -stage.free_bytes, "", "bold red")
    total = "total_gpu" if not stage.is_host else "total_host" if stage.free_bytes else "needed"
    add(name(total), stage.total_bytes, "", "bold")
    out.print(table)


def _prints(num_bytes: int) -> bool:
    """Whether a size is more than 0.00 GiB as it is written."""
    return f"{num_bytes / GIB:.2f}" != "0.00"


def cell_lines(result: FitResult, language: Language) -> Iterator[str]:
    """Cells, slots and what the layers cache in them."""
    plan = result.plan
    yield message(
        "device.cells",
        language,
        cells=plan.kv_blocks,
        slots=plan.max_num_seqs,
        length=plan.max_model_len,
    )
    for group in plan.kv_groups:
        key = "device.state" if group.kind == "recurrent" else "device.group"
        yield message(
            key,
            language,
            layers=group.num_layers,
            kind=group.kind,
            page=format_bytes(group.page_bytes),
        )
