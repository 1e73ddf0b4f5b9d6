"""What to deploy, for a person: the plans that hold, how to start the first, why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.front import in_turns
from tokenroom.planning.judging import Proposal, Rejection
from tokenroom.planning.quality import QualityNote, quality_notes
from tokenroom.planning.search import Option, Plan
from tokenroom.planning.tuning import Tuning
from tokenroom.planning.tuning_words import draft_text
from tokenroom.planning.verification import statistic_of
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, refusal_text
from tokenroom.reports.plan_files import start_text
from tokenroom.reports.speed_text import limiter_text
from tokenroom.units import format_figure, format_gib, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNPROVEN = 5
"""Proposals that are shown of a search that was interrupted before any was simulated."""

_LINKS = {
    "nvlink": "NVLink",
    "nvlink_bridge": "an NVLink bridge",
    "pcie": "PCIe",
}
"""Links as they are written, where the catalogue's own word is not."""

_NEAREST = 3
"""Rejected candidates of a reason that are shown, those that come nearest."""


def print_plan(out: Console, plan: Plan, language: Language, *, list_all: bool = False) -> None:
    """Write the whole report to ``out``.

    Args:
        out: Where to.
        plan: What was found.
        language: The reader's.
        list_all: Every rejected candidate has its line, not only the nearest of each reason.
    """
    for line, style in zip(heading(plan, language), ("bold", "dim"), strict=True):
        out.print(Paragraph(line, style=style))
    if not plan.complete:
        out.print(Paragraph(message("plan.interrupted", language), style="bold yellow"))
    out.print()
    if plan.options:
        out.print(Paragraph(found_text(plan, language), style="dim"))
        print_trimmed(out, _table(plan, language))
        for line in table_notes(plan, language):
            out.print(Paragraph(line, style="dim"))
        out.print()
        _print_first(out, plan, language)
    elif plan.complete:
        out.print(Paragraph(message("plan.none", language), style="bold red"))
    for line in unproven_lines(plan, language):
        out.print(Paragraph(line, first="  ", rest="    "))
    _print_rejected(out, plan, language, list_all=list_all)
    if plan.untried and plan.complete:
        count = len(plan.untried)
        out.print(Paragraph(message("plan.untried", language, count=count), style="dim"))


def unproven_lines(plan: Plan, language: Language) -> Iterator[str]:
    """Of an interrupted search that has proven nothing: what would have been simulated first."""
    if plan.complete or plan.options or not plan.untried:
        return
    yield message("plan.unproven", language)
    for proposal in islice(in_turns(plan.untried), _UNPROVEN):
        yield message(
            "plan.unproven.line",
            language,
            deployment=deployment_text(proposal.candidate, language, proposal.replicas),
            cost=_cost_text(proposal.usd_per_hour, proposal.gpus, language),
            ttft=format_seconds(proposal.ttft_seconds),
            tpot=format_seconds(proposal.tpot_seconds),
            room=f"{proposal.headroom:.2f}x",
        )


def found_text(plan: Plan, language: Language) -> str:
    """How much was judged, and how what is shown was chosen."""
    judged, skipped = plan.counts
    key = "plan.found.bounds" if skipped else "plan.found"
    return message(
        key, language, layouts=plan.judged, judged=judged, skipped=skipped, all=judged + skipped
    )


def heading(plan: Plan, language: Language) -> tuple[str, str]:
    """For what the plan is, and what is promised: two lines."""
    demand = plan.demand
    models = dict.fromkeys(candidate.spec.name for candidate in plan.candidates)
    title = message(
        "plan.title",
        language,
        models=message("speed.parts_join", language).join(models),
        load=load_text(demand, language),
    )
    promises = message("speed.parts_join", language).join(
        message(
            "plan.promise",
            language,
            name=name.upper(),
            statistic=message(f"plan.statistic.{demand.statistic}", language),
            time=format_seconds(seconds),
        )
        for name, seconds in (
            ("ttft", demand.objectives.ttft_seconds),
            ("tpot", demand.objectives.tpot_seconds),
        )
        if seconds is not None
    )
    lengths = message(
        "plan.lengths",
        language,
        input=demand.input_tokens,
        output=demand.output_tokens,
        longest=demand.longest_tokens,
        promises=promises,
    )
    return title, lengths


def table_notes(plan: Plan, language: Language) -> Iterator[str]:
    """Of the table: what its mark means, and what puts the cheapest first."""
    if any(option.proposal.is_extrapolated for option in plan.options):
        yield message("plan.marked", language)
    if all(option.proposal.usd_per_hour is None for option in plan.options):
        gpu = plan.options[0].proposal.candidate.accelerator.key
        yield message("plan.unpriced", language, gpu=gpu)


def load_text(demand: Demand, language: Language) -> str:
    """The load as a phrase."""
    if demand.users is not None:
        key = "plan.load.users" if demand.think_seconds else "plan.load.clients"
        think = format_seconds(demand.think_seconds)
        return message(key, language, users=demand.users, think=think)
    rate = format_figure(demand.amount)
    if demand.burst > 1:
        return message("plan.load.bursts", language, rate=rate, factor=f"{demand.burst:g}")
    return message("plan.load.rate", language, rate=rate)


def deployment_text(candidate: Candidate, language: Language, replicas: int = 1) -> str:
    """Replicas of a candidate in a few words, as ``4 x [h100-sxm-80gb TP2]``."""
    words = [candidate.accelerator.key]
    if candidate.division:
        words.append(candidate.division)
    if candidate.kv is not None:
        words.append(f"KV {candidate.kv}")
    if candidate.engine != "vllm":
        words.append(candidate.engine)
    if candidate.spec.layout is not None:
        words.append(f"@{candidate.spec.layout}")
    words += tuning_words(candidate.tuning, language)
    each = " ".join(words)
    if replicas == 1:
        return each
    if len(words) == 1:
        return f"{replicas} x {each}"
    return message("plan.replicas", language, replicas=replicas, each=each)


def tuning_words(tuning: Tuning, language: Language) -> Iterator[str]:
    """Settings that are not the engine's own, each in a word or two."""
    for name, value in (
        ("budget", tuning.max_num_batched_tokens),
        ("seqs", tuning.max_num_seqs),
        ("share", tuning.memory_share),
        ("length", tuning.max_model_len),
    ):
        if value is not None:
            written = f"{value:g}" if isinstance(value, float) else value
            yield message(f"plan.tuning.{name}", language, value=written)
    if tuning.prefix_caching is not None:
        switch = "on" if tuning.prefix_caching else "off"
        yield message(f"plan.tuning.caching_{switch}", language)
    if tuning.kv_offload_bytes is not None:
        size = format_gib(tuning.kv_offload_bytes)
        yield message("plan.tuning.offload", language, size=size)
    if tuning.draft is not None:
        yield message("plan.tuning.draft", language, draft=draft_text(tuning.draft))


def served_text(demand: Demand, amount: float, language: Language) -> str:
    """A part of the load, in its own unit."""
    if demand.users is not None:
        return message("plan.served.users", language, count=int(amount))
    return message("plan.served.rate", language, rate=format_figure(amount))


def reason_text(rejection: Rejection, demand: Demand, language: Language) -> str:
    """Why a candidate is not proposed, as half a sentence."""
    values = dict(rejection.values)
    key = f"plan.reason.{rejection.reason}"
    match rejection.reason:
        case "memory":
            values = {"text": refusal_text(values["refusal"], language)}  # type: ignore[arg-type]
        case "weights":
            values["weights_bytes"] = format_gib(_number(values["weights_bytes"]))
        case "ttft" | "tpot":
            values = {
                "alone": format_seconds(_number(values["alone_seconds"])),
                "wanted": format_seconds(_number(values["wanted_seconds"])),
                "floor": format_seconds(_number(values["floor_seconds"])),
                "limiter": limiter_text(str(values["limiter"]), language),
                "share": f"{_number(values['share']):.0%}",
            }
        case "gpus":
            if not values["served"]:
                key += ".none"
            values["served"] = served_text(demand, _number(values["served"]), language)
        case "budget":
            values |= {name: f"{_number(values[name]):,.2f}" for name in ("usd", "most")}
        case "dominated":
            winner = values["by"]
            assert isinstance(winner, Proposal)
            priced = values["usd"] is not None and winner.usd_per_hour is not None
            values |= {
                "by": deployment_text(winner.candidate, language, winner.replicas),
                "cost": _cost_text(values["usd"] if priced else None, values["gpus"], language),
                "by_cost": _cost_text(
                    winner.usd_per_hour if priced else None, winner.gpus, language
                ),
            }
            if (share := _number(values.pop("communication"))) >= 0.3:
                key += ".communication"
                values["share"] = f"{share:.0%}"
                link = rejection.candidate.accelerator.link
                values["link"] = _LINKS.get(link, link)
        case "split":
            winner = values["by"]
            assert isinstance(winner, Proposal)
            values |= {
                "by": deployment_text(winner.candidate, language, winner.replicas),
                "by_gpus": winner.gpus,
            }
        case "simulation":
            values |= {
                "name": str(values["objective"]).upper(),
                "seconds": format_seconds(_number(values["seconds"])),
                "wanted": format_seconds(_number(values["wanted_seconds"])),
                "statistic": message(f"plan.statistic.{demand.statistic}", language),
            }
    return message(key, language, **values)


def _cost_text(usd: object, gpus: object, language: Language) -> str:
    if usd is None:
        return message("plan.cost.gpus", language, gpus=gpus)
    return message("plan.cost.usd", language, usd=f"{_number(usd):,.2f}")


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def table_columns(plan: Plan) -> list[str]:
    """Columns of the table of plans, by the end of their message's key."""
    priced = any(option.proposal.usd_per_hour is not None for option in plan.options)
    money = ["usd"] if priced else []
    return ["deployment", "gpus", *money, "ttft", "tpot", "tokens", "room", "limiter"]


def heading_of(column: str, demand: Demand, language: Language) -> str:
    """The heading of a column."""
    return message(f"plan.column.{column}", language, statistic=demand.statistic)


def option_row(option: Option, plan: Plan, language: Language) -> Iterator[str]:
    """Cells of one plan, in the order of :func:`table_columns`."""
    proposal, seen = option.proposal, option.verification
    usd = proposal.usd_per_hour
    name = deployment_text(proposal.candidate, language, proposal.replicas)
    if proposal.is_extrapolated:
        name = message("plan.mark", language, deployment=name)
    ttft, tpot = (statistic_of(plan.demand, found) for found in (seen.ttft, seen.tpot))
    cells = {
        "deployment": name,
        "gpus": f"{proposal.gpus:,}",
        "usd": "-" if usd is None else f"{usd:,.2f}",
        "ttft": "-" if ttft is None else format_seconds(ttft),
        "tpot": "-" if tpot is None else format_seconds(tpot),
        "tokens": f"{proposal.output_tokens_per_second:,.0f}",
        "room": f"{proposal.headroom:.2f}x",
        "limiter": limiter_text(proposal.point.tpot_limiter, language),
    }
    return (cells[name] for name in table_columns(plan))


def nearest_rejections(plan: Plan) -> Iterator[tuple[Rejection, int]]:
    """Of each reason the nearest few, the last of them with the number that is left out."""
    groups: dict[str, list[Rejection]] = {}
    for rejection in plan.rejections:
        groups.setdefault(rejection.reason, []).append(rejection)
    for group in groups.values():
        *few, last = _different(sorted(group, key=lambda found: found.nearest))
        yield from ((rejection, 0) for rejection in few)
        yield last, len(group) - len(few) - 1


def _table(plan: Plan, language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    # Columns beside the first are no wider than a word, so that no name of a GPU has to be broken.
    for name in table_columns(plan):
        table.add_column(
            "\n".join(heading_of(name, plan.demand, language).split()),
            justify="left" if name in ("deployment", "limiter") else "right",
            overflow="fold",
        )
    for option in plan.options:
        *cells, limiter = option_row(option, plan, language)
        table.add_row(*cells, "\n".join(limiter.split()))
    return table


def _print_first(out: Console, plan: Plan, language: Language) -> None:
    option = plan.options[0]
    proposal = option.proposal
    key = "plan.first" if proposal.usd_per_hour is not None else "plan.first.smallest"
    name = deployment_text(proposal.candidate, language, proposal.replicas)
    out.print(Paragraph(message(key, language, deployment=name), style="bold"))
    for line in option_lines(option, plan.demand, language):
        out.print(Paragraph(line, first="  ", rest="    "))
    text = start_text(proposal)
    if text is not None:
        out.print(Paragraph(message("plan.start", language), first="  "))
        for line in text.splitlines():
            out.print(f"    {line}", soft_wrap=True)
    out.print()


def option_lines(option: Option, demand: Demand, language: Language) -> Iterator[str]:
    """What one replica of a plan does, in sentences."""
    proposal, seen = option.proposal, option.verification
    figures = {
        "running": format_figure(seen.running),
        "most": seen.max_running,
        "tokens": proposal.fit.plan.kv_pool_tokens,
        "used": f"{seen.max_pool_share:.0%}",
    }
    split = proposal.candidate.split
    if split is not None:
        load = served_text(demand, seen.load, language)
        counts = {"prompts": split.prompt_servers, "answers": split.answer_servers}
        sizes = {
            "prompts": split.prompt_tensor_parallel_size,
            "answers": proposal.candidate.tensor_parallel_size,
        }
        servers = {
            name: message("plan.servers", language, count=count, each=f"TP{sizes[name]}")
            for name, count in counts.items()
        }
        yield message("plan.share.split", language, load=load, **servers, **figures)
    elif demand.users is not None:
        yield message("plan.share.users", language, load=int(seen.load), **figures)
    else:
        yield message("plan.share.rate", language, load=format_figure(seen.load), **figures)
    shares = proposal.point.tpot_shares
    limiter = proposal.point.tpot_limiter
    yield message(
        "plan.limited",
        language,
        tpot=format_seconds(proposal.point.tpot_seconds.value),
        share=f"{shares[limiter]:.0%}",
        limiter=limiter_text(limiter, language),
    )
    yield message("plan.simulated", language, requests=seen.requests)
    for note in quality_notes(proposal.candidate):
        yield quality_text(note, language)
    if proposal.is_extrapolated:
        yield message("plan.extrapolated", language, gpu=proposal.candidate.accelerator.name)


def quality_text(note: QualityNote, language: Language) -> str:
    """What a type of weights or cache does to answers, with its source."""
    known = message(f"plan.quality.{note.part}.{note.kind}", language, name=note.name)
    if not note.source:
        return known
    return message("plan.quality.source", language, text=known, source=note.source)


def _print_rejected(out: Console, plan: Plan, language: Language, *, list_all: bool) -> None:
    if not plan.rejections:
        return
    if plan.options:
        out.print(Paragraph(message("plan.rejected", language), style="bold"))
    shown = (
        ((rejection, 0) for rejection in plan.rejections) if list_all else nearest_rejections(plan)
    )
    left_out = False
    for rejection, more in shown:
        line = message(
            "plan.rejected.line",
            language,
            deployment=deployment_text(rejection.candidate, language),
            reason=reason_text(rejection, plan.demand, language),
        )
        out.print(Paragraph(line, first="  ", rest="    "))
        if more:
            left_out = True
            told = message("plan.rejected.more", language, count=more)
            out.print(Paragraph(told, first="    ", style="dim"))
    if left_out:
        out.print(Paragraph(message("plan.all_hint", language), style="dim"))
    out.print()


def _different(rejections: Sequence[Rejection]) -> list[Rejection]:
    """The nearest few, of each kind of GPU one first."""
    kinds = list({r.candidate.accelerator.key: r for r in reversed(rejections)}.values())[::-1]
    rest = [rejection for rejection in rejections if rejection not in kinds]
    return [*kinds, *rest][:_NEAREST]
