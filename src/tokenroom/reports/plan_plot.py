"""A picture of a plan: what it costs, where the requests are, what lengths the pool holds."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Final

from tokenroom.planning.judging import Proposal
from tokenroom.planning.search import Plan
from tokenroom.planning.verification import statistic_of
from tokenroom.reports.messages import Language, message
from tokenroom.reports.plan_text import deployment_text, heading, load_text
from tokenroom.reports.plots import (
    ACCENT,
    ALARM,
    FILLS,
    INK,
    QUIET,
    dress,
    new_figure,
    plot_style,
    save_figure,
    set_subtitle,
    usable_language,
)
from tokenroom.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS: Final = 200
_TITLE_WIDTH: Final = 70
_LINE_WIDTH: Final = 110


def plot_plan(plan: Plan, file: Path, language: Language) -> Language:
    """Draw the plans, and memory and lengths of the first; gives the language of the labels.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    first = plan.options[0].proposal
    title, subtitle = _title(plan, language)
    name = deployment_text(first.candidate, language, first.replicas)
    with plot_style(file):
        figure = new_figure(width=8.6, height=12.0)
        costs, memory, lengths = figure.subplots(3, 1)
        _draw_costs(costs, plan, language)
        _draw_memory(memory, first, language)
        _draw_lengths(lengths, first, plan, language)
        priced = first.usd_per_hour is not None
        cost = message("plan.plot.usd" if priced else "plan.plot.cost", language)
        dress(costs, title=title, y_label=message("plan.plot.tpot", language))
        set_subtitle(costs, subtitle)
        costs.set_xlabel(cost, color=QUIET, fontsize=9.5)
        dress(memory, title=title, y_label=message("plan.plot.memory", language))
        set_subtitle(memory, message("plan.plot.each", language, deployment=name))
        memory.set_xlabel(message("plan.plot.users", language), color=QUIET, fontsize=9.5)
        dress(lengths, title=title, y_label=message("plan.plot.bxs", language))
        lengths.set_xlabel(message("plan.plot.length", language), color=QUIET, fontsize=9.5)
        figure.align_ylabels()
        save_figure(figure, file)
    return language


def _title(plan: Plan, language: Language) -> tuple[str, str]:
    """The models, and below them the load and what is promised, in lines that fit."""
    models = dict.fromkeys(candidate.spec.name for candidate in plan.candidates)
    lines = [load_text(plan.demand, language), heading(plan, language)[1]]
    title = message("speed.parts_join", language).join(models)
    return (
        shorten(title, _TITLE_WIDTH, placeholder="…"),
        "\n".join(line for text in lines for line in wrap(text, _LINE_WIDTH)),
    )


def _cost(proposal: Proposal) -> float:
    return proposal.gpus if proposal.usd_per_hour is None else proposal.usd_per_hour


def _draw_costs(axes: Axes, plan: Plan, language: Language) -> None:
    """Every proposal by cost and TPOT: filled as simulated, by what is promised, or hollow."""
    held = [option.proposal for option in plan.options]
    if plan.untried:
        axes.scatter(
            [_cost(each) for each in plan.untried],
            [each.point.tpot_seconds.value * 1e3 for each in plan.untried],
            s=18,
            facecolors="none",
            edgecolors=QUIET,
            label=message("plan.plot.others", language),
            zorder=3,
        )
    for number, option in enumerate(plan.options, start=1):
        proposal = option.proposal
        name = deployment_text(proposal.candidate, language, proposal.replicas)
        tpot = statistic_of(plan.demand, option.verification.tpot)
        at = _cost(proposal), (proposal.point.tpot_seconds.value if tpot is None else tpot) * 1e3
        axes.scatter(*at, s=150, color=ACCENT, label=f"{number}  {name}", zorder=3)
        axes.annotate(
            str(number), at, ha="center", va="center", fontsize=8, color="white", zorder=4
        )
    if max(map(_cost, [*held, *plan.untried])) > 8 * min(map(_cost, held)):
        axes.set_xscale("log")
    elif held[0].usd_per_hour is None:
        axes.locator_params(axis="x", integer=True)
    wanted = plan.demand.objectives.tpot_seconds
    if wanted is not None:
        axes.axhline(wanted * 1e3, color=ALARM, linewidth=1.0, linestyle="--", zorder=2)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", frameon=False, fontsize=8.5, labelcolor=INK, ncols=2)


def _draw_memory(axes: Axes, proposal: Proposal, language: Language) -> None:
    """A GPU's memory against the clients of a replica: who finds no room waits outside of it."""
    fitted = proposal.fit
    stage = fitted.governing_stage
    running = fitted.requests_running
    clients = [count * 1.6 * running / _STEPS for count in range(_STEPS + 1)]
    pool = stage.kv_pool_bytes / GIB
    fixed = fitted.deployment.node.accelerator.memory_bytes / GIB - pool - stage.free_bytes / GIB
    weights = stage.weights_bytes / GIB
    held = fitted.requests_held
    used = [pool * min(count, running) / held for count in clients]
    waiting = [pool * max(0.0, count - running) / held for count in clients]
    axes.stackplot(
        clients,
        [weights] * len(clients),
        [fixed - weights] * len(clients),
        used,
        colors=[FILLS["weights"], FILLS["reserve"], FILLS["kv"]],
        labels=[message(f"segment.{name}", language) for name in ("weights", "reserve", "kv")],
        zorder=2,
    )
    capacity = fitted.deployment.node.accelerator.memory_bytes / GIB
    axes.axhline(capacity, color=INK, linewidth=1.0, zorder=3)
    axes.fill_between(
        clients,
        [capacity] * len(clients),
        [capacity + more for more in waiting],
        facecolor="white",
        edgecolor=ALARM,
        hatch="////",
        linewidth=0.6,
        label=message("plan.plot.queue", language),
        zorder=2,
    )
    axes.axvline(proposal.point.concurrency, color=INK, linewidth=0.9, linestyle=":", zorder=4)
    axes.set_xlim(0, clients[-1])
    axes.legend(loc="upper left", frameon=False, fontsize=8.5, labelcolor=INK, ncols=2)
    axes.set_ylim(0, (capacity + waiting[-1]) * 1.28)


def _draw_lengths(axes: Axes, proposal: Proposal, plan: Plan, language: Language) -> None:
    """Requests that run at once against their length: the pool is divided among them."""
    fitted = proposal.fit
    longest = plan.demand.longest_tokens
    lengths = [max(1, round(longest * step / _STEPS)) for step in range(4, _STEPS + 1)]
    most = fitted.plan.max_num_seqs
    axes.plot(
        lengths,
        [min(most, fitted.plan.requests_of(tokens)) for tokens in lengths],
        color=ACCENT,
        linewidth=1.8,
        zorder=3,
    )
    axes.plot(
        [plan.demand.input_tokens + plan.demand.output_tokens],
        [proposal.point.concurrency],
        marker="o",
        color=INK,
        zorder=4,
    )
    axes.annotate(
        message("plan.plot.here", language),
        (plan.demand.input_tokens + plan.demand.output_tokens, proposal.point.concurrency),
        xytext=(7, 5),
        textcoords="offset points",
        fontsize=9,
        color=INK,
    )
    axes.set_xlim(0, longest)
    axes.set_ylim(bottom=0)
