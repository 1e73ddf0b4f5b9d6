"""Observations drawn over each other on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.watching.observation import Observation


def show_live(
    observations: Iterable[tuple[Observation, str | None]], *, foot: str, language: Language
) -> None:
    """Draw each observation over the one before, until Ctrl-C; the last stays on the screen.

    Args:
        observations: Each with its title; None for that of a watch.
        foot: The last line.
        language: Of the words.
    """
    from rich.live import Live

    from tokenroom.reports.console import console
    from tokenroom.reports.watch_view import WatchView

    out = console()
    view = WatchView(language, width=out.width, blocks="utf" in out.encoding.lower())
    last = None
    screen = Live(console=out, auto_refresh=False, screen=True, vertical_overflow="ellipsis")
    with screen as live, contextlib.suppress(KeyboardInterrupt):  # the usual end
        for seen, title in observations:
            view.width = out.width  # the window may have changed
            view.take(seen)
            last = view.drawn(seen, title=title, foot=foot)
            shown = last
            if len(out.render_lines(last, pad=False)) > out.height:
                shown = view.drawn(seen, title=title, foot=foot, compact=True)
            live.update(shown, refresh=True)
    if last is not None:
        out.print(last)
