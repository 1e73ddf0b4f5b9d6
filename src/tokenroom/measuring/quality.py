"""What a quantised cache costs: windows of a text scored with it and without, and what they tell.

Each window is scored with every scheme and with the full cache, so differences are paired: what
makes a window hard falls out of them. The change of perplexity is exp(mean difference of the loss)
- 1 with Student's interval over windows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenroom.comparing.differences import Mean, mean_of
from tokenroom.errors import MeasurementError


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of the text.

    Attributes:
        context_tokens: Its tokens.
        start: Index of its first token.
        scored_tokens: Its last tokens, which are predicted and count.
    """

    context_tokens: int
    start: int
    scored_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One window under one scheme; means over its scored tokens.

    Attributes:
        window: The window.
        scheme: Its name, ``"full"`` for the full cache.
        loss: Negative log-likelihood of the text, in nats a token.
        divergence: KL(full || scheme) of the next token's distribution, in nats.
        agreement: Share of tokens whose likeliest successor is the full cache's.
        bytes_per_token: What the cache takes of all layers.
    """

    window: Window
    scheme: str
    loss: float
    divergence: float
    agreement: float
    bytes_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeResult:
    """A scheme at one context length.

    Attributes:
        scheme: Its name.
        context_tokens: Length of the windows.
        perplexity: exp of the mean loss.
        full_perplexity: The same of the full cache.
        loss_change: Mean difference of the loss with its interval.
        divergence: Mean KL divergence with its interval.
        agreement: Mean share of equal likeliest tokens.
        bytes_per_token: Of the cache.
        full_bytes_per_token: Of the full cache.
    """

    scheme: str
    context_tokens: int
    perplexity: float
    full_perplexity: float
    loss_change: Mean
    divergence: Mean
    agreement: float
    bytes_per_token: float
    full_bytes_per_token: float

    @property
    def change(self) -> float:
        """Relative change of perplexity."""
        return math.expm1(self.loss_change.value)

    @property
    def change_range(self) -> tuple[float, float] | None:
        """Ends of the interval of :attr:`change`; None of one window."""
        half = self.loss_change.half_width
        if half is None:
            return None
        middle = self.loss_change.value
        return math.expm1(middle - half), math.expm1(middle + half)

    @property
    def saved_share(self) -> float:
        """Part of the full cache that is saved."""
        return 1 - self.bytes_per_token / self.full_bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The whole answer.

    Attributes:
        model: Its name.
        random_weights: They were drawn, so the loss says nothing of a trained model.
        device: Where it ran.
        dtype: Type of its weights and of the full cache.
        text: Name of the text.
        text_tokens: Its length.
        seed: Which windows were drawn by.
        confidence: Of intervals.
        scores: Every window under every scheme.
        windows_asked: Windows that were to be scored.
        interrupted: It was ended early; windows that were not scored by all schemes are left out.
        identical: The full cache's logits equal those of the model without this cache, bit by bit.
        unquantised: Tensors that no scheme touches, as states of recurrent layers.
        versions: Of the libraries.
    """

    model: str
    random_weights: bool
    device: str
    dtype: str
    text: str
    text_tokens: int
    seed: int
    confidence: float
    scores: tuple[Score, ...]
    windows_asked: int
    interrupted: bool
    identical: bool
    unquantised: bool
    versions: Mapping[str, str]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Windows that every scheme scored."""
        return tuple(dict.fromkeys(score.window for score in self.scores))

    @property
    def results(self) -> tuple[SchemeResult, ...]:
        """Schemes at each length, in the order asked for."""
        return results_of(self.scores, self.confidence)


def windows_of(
    text_tokens: int,
    context_tokens: int,
    *,
    stride: int | None = None,
    most: int | None = None,
    seed: int = 0,
) -> tuple[Window, ...]:
    """Windows of one length over a text, each with its own scored tokens.

    Args:
        text_tokens: Length of the text.
        context_tokens: Length of a window.
        stride: Scored tokens of each, half the window when not given.
        most: So many at most, drawn by the seed.
        seed: Of that draw.

    Raises:
        MeasurementError: The text is shorter than a window, or the stride is none.
    """
    step = max(1, context_tokens // 2) if stride is None else stride
    if context_tokens < 2:
        raise MeasurementError(f"--context is {context_tokens}; a window needs 2 tokens or more")
    if not 1 <= step < context_tokens:
        raise MeasurementError(
            f"--stride is {step}; a window of {context_tokens} tokens predicts from 1 to "
            f"{context_tokens - 1}"
        )
    if text_tokens < context_tokens:
        raise MeasurementError(
            f"the text has {text_tokens} tokens and a window of --context {context_tokens} needs "
            f"as many; give longer text or a shorter --context"
        )
    starts = list(range(0, text_tokens - context_tokens + 1, step))
    if most is not None and len(starts) > most:
        starts = sorted(random.Random(f"{seed} {context_tokens}").sample(starts, most))
    return tuple(
        Window(context_tokens=context_tokens, start=start, scored_tokens=step) for start in starts
    )


def results_of(scores: Sequence[Score], confidence: float) -> tuple[SchemeResult, ...]:
    """Schemes at each length, from the windows."""
    full = {score.window: score for score in scores if score.scheme == "full"}
    grouped: dict[tuple[int, str], list[Score]] = {}
    for score in scores:
        if score.scheme != "full":
            grouped.setdefault((score.window.context_tokens, score.scheme), []).append(score)
    found = []
    for (context, scheme), own in grouped.items():
        base = [full[score.window] for score in own]
        changes = [score.loss - other.loss for score, other in zip(own, base, strict=True)]
        found.append(
            SchemeResult(
                scheme=scheme,
                context_tokens=context,
                perplexity=_perplexity(own),
                full_perplexity=_perplexity(base),
                loss_change=mean_of(changes, confidence),
                divergence=mean_of([score.divergence for score in own], confidence),
                agreement=math.fsum(score.agreement for score in own) / len(own),
                bytes_per_token=math.fsum(score.bytes_per_token for score in own) / len(own),
                full_bytes_per_token=math.fsum(score.bytes_per_token for score in base) / len(base),
            )
        )
    return tuple(found)


def _perplexity(scores: Sequence[Score]) -> float:
    mean = math.fsum(score.loss for score in scores) / len(scores)
    return math.exp(mean) if mean < 700 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which scheme to take, as far as the windows tell.

    Attributes:
        key: ``"keeps"``, ``"none_keeps"``, ``"one_window"`` or ``"random"``.
        scheme: The smallest that keeps the tolerance at every length, None where none does.
        worst: Its result at the length where the interval reaches highest.
    """

    key: str
    scheme: str | None = None
    worst: SchemeResult | None = None


def verdict_of(quality: Quality, tolerance: float) -> Verdict:
    """The smallest scheme whose perplexity stays within a tolerance at every length.

    The upper end of the interval has to, not the mean: what was not shown to be small is not said
    to be. Of random weights and single windows nothing is concluded.

    Args:
        quality: What was scored.
        tolerance: Largest relative change of perplexity.
    """
    if quality.random_weights:
        return Verdict(key="random")
    by_scheme: dict[str, list[SchemeResult]] = {}
    for result in quality.results:
        by_scheme.setdefault(result.scheme, []).append(result)
    worst: dict[str, SchemeResult] = {}
    for scheme, results in by_scheme.items():
        if any(result.change_range is None for result in results):
            return Verdict(key="one_window")
        worst[scheme] = max(results, key=_highest)
    kept = [
        result
        for result in worst.values()
        if _highest(result) <= tolerance and result.saved_share > 0
    ]
    if not kept:
        return Verdict(key="none_keeps")
    best = min(kept, key=lambda result: (result.bytes_per_token, _highest(result)))
    return Verdict(key="keeps", scheme=best.scheme, worst=best)


def _highest(result: SchemeResult) -> float:
    ends = result.change_range
    return result.change if ends is None else ends[1]
