"""The plan of a watched server as a table: what was predicted beside what is observed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.reports.console import Paragraph
from tokenroom.reports.messages import Language, engine_text, message, printable
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.reports.watch_words import NONE, count_text
from tokenroom.units import format_bytes
from tokenroom.watching.observation import Endpoint, Observation, Planned

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_lines(
    endpoint: Endpoint, used_bytes: int | None, language: Language, *, compact: bool
) -> Iterator[RenderableType]:
    """What was predicted for a server, its parts beside what is observed of them.

    Args:
        endpoint: The server.
        used_bytes: Memory in use of its fullest GPU; None where that is not known.
        language: Of the words.
        compact: The title alone.
    """
    from rich.table import Table

    if endpoint.no_plan is not None:
        told = message(
            "watch.no_plan", language, reason=printable(refusal_in(language, endpoint.no_plan))
        )
        yield Paragraph(told, style="dim")
    plan = endpoint.planned
    if plan is None:
        return
    yield Paragraph(_title(plan, language), style="bold")
    if not plan.starts:
        yield Paragraph(message("watch.plan_refused", language), style="bold red")
    if compact:
        return
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("", style="dim")
    table.add_column(message("watch.predicted", language), justify="right")
    table.add_column(message("watch.observed", language), justify="right")
    for name, predicted, observed in _parts(endpoint, plan, used_bytes):
        table.add_row(message(f"watch.part.{name}", language), predicted, observed)
    yield table


def _title(plan: Planned, language: Language) -> str:
    told = message(
        "watch.plan_for",
        language,
        model=printable(plan.model),
        gpus=plan.gpus,
        gpu=plan.gpu,
        engine=engine_text(plan.engine, language),
        version=plan.version,
    )
    told = message("watch.named", language, name=message("watch.plan", language), text=told)
    if not plan.assumed:
        return told
    aside = message("watch.plan_assumed", language, names=", ".join(plan.assumed))
    return message("watch.aside", language, text=told, aside=aside)


def most_used_bytes(seen: Observation) -> int | None:
    """Memory in use of the fullest GPU, where one server alone is watched beside them."""
    if len(seen.endpoints) != 1:
        return None
    return max((gpu.used_bytes for gpu in seen.gpus if not gpu.mig), default=None)


def _parts(
    endpoint: Endpoint, plan: Planned, used_bytes: int | None
) -> Iterator[tuple[str, str, str]]:
    """Rows of the plan: name, predicted, observed as far as the server and its GPUs tell."""
    facts = endpoint.facts
    assert facts is not None  # a plan is made when the server has told what it is

    def size(num_bytes: int | None) -> str:
        return NONE if num_bytes is None else format_bytes(num_bytes)

    yield "weights", size(plan.weights_bytes), size(facts.weights_bytes)
    yield "activation", size(plan.activation_bytes), NONE
    yield "graphs", size(plan.graphs_bytes), size(facts.graphs_bytes)
    yield "other", size(plan.other_bytes), NONE
    yield "pool", size(plan.kv_pool_bytes), size(facts.kv_bytes)
    yield "peak", size(plan.peak_bytes), size(used_bytes)
    pool = facts.kv_pool_tokens
    if pool is None:
        pool = max(
            (one.kv_pool_tokens for one in endpoint.replicas if one.kv_pool_tokens), default=None
        )
    tokens = count_text(plan.kv_pool_tokens)
    if plan.kv_pool_tokens_low != plan.kv_pool_tokens_high:
        tokens += f" ({plan.kv_pool_tokens_low:,}..{plan.kv_pool_tokens_high:,})"
    yield "tokens", tokens, count_text(pool)
    yield "length", count_text(plan.max_model_len), count_text(facts.max_model_len)
    yield "requests", count_text(plan.max_num_seqs), count_text(facts.max_num_seqs)
