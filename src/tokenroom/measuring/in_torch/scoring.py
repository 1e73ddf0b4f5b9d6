"""Windows of a text scored with every scheme, one after the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from tokenroom.errors import MeasurementError
from tokenroom.measuring.in_torch.fake_quantization import QuantisedCache
from tokenroom.measuring.kv_coding import FULL, Scheme
from tokenroom.measuring.quality import Score, Window

_ROWS: Final = 256
"""Positions whose distributions are compared at once, in float32 over the vocabulary."""


def tokens_of(text: str, folder: Path | None, vocab_size: int) -> torch.Tensor:
    """The text as token ids, by the tokenizer beside the model.

    Raises:
        MeasurementError: There is no tokenizer, or it is another model's.
    """
    try:
        if folder is None:
            raise OSError("a configuration alone has no tokenizer")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError, TypeError) as problem:
        first = (str(problem).strip().splitlines() or [""])[0][:200]
        raise MeasurementError(
            f"{folder or 'the model'} has no tokenizer that transformers reads ({first}); give a "
            f"folder with the model's tokenizer files"
        ) from problem
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=True, verbose=False).input_ids[0]
    if ids.numel() and int(ids.max()) >= vocab_size:
        raise MeasurementError(
            f"the tokenizer gives token {int(ids.max())} and the model knows {vocab_size}; give "
            f"the model its own tokenizer"
        )
    return torch.as_tensor(ids, dtype=torch.long)


class Scorer:
    """A model over a text.

    Attributes:
        identical: The full cache changed no bit of the logits of the first window.
        unquantised: There are states that no scheme touches.
    """

    def __init__(self, model: Any, ids: torch.Tensor) -> None:
        self._model = model
        self._ids = ids
        self.identical = True
        self.unquantised = False
        self._checked = False
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def scores(
        self,
        windows: Sequence[Window],
        schemes: Sequence[Scheme],
        on_window: Callable[[int, int], None] | None = None,
    ) -> Iterator[list[Score]]:
        """The scores of each window, full cache first.

        Args:
            windows: What to score.
            schemes: With what, beside the full cache.
            on_window: Called with (windows done, of how many).

        Raises:
            MeasurementError: The model keeps no keys and values, or memory ran out.
        """
        for number, window in enumerate(windows):
            try:
                with torch.no_grad():
                    yield self._scored(window, schemes)
            except torch.OutOfMemoryError as problem:
                raise MeasurementError(
                    f"memory ran out in a window of {window.context_tokens} tokens; give a "
                    f"shorter --context"
                ) from problem
            if on_window is not None:
                on_window(number + 1, len(windows))

    def _scored(self, window: Window, schemes: Sequence[Scheme]) -> list[Score]:
        ids = self._ids[window.start : window.start + window.context_tokens]
        ids = ids.to(self._model.device)[None]
        full, cache = self._logits(ids, FULL)
        if not self._checked:
            self._check(ids, full, cache)
        rows = slice(window.context_tokens - 1 - window.scored_tokens, window.context_tokens - 1)
        base = full[rows]
        answers = ids[0, -window.scored_tokens :]
        found = [_score(window, "full", base, base, answers, cache)]
        for scheme in schemes:
            other, cache = self._logits(ids, scheme)
            found.append(_score(window, scheme.name, base, other[rows], answers, cache))
        return found

    def _logits(self, ids: torch.Tensor, scheme: Scheme) -> tuple[torch.Tensor, QuantisedCache]:
        cache = QuantisedCache(self._model.config, scheme)
        given = {self._cache_name: cache}
        return self._model(ids, use_cache=True, **given).logits[0], cache

    def _check(self, ids: torch.Tensor, full: torch.Tensor, cache: QuantisedCache) -> None:
        """Whether the full cache is no change, and what of the model it does not see."""
        self._checked = True
        if not cache.full_bytes:
            raise MeasurementError(
                "the model keeps no keys and values that could be quantised; give one with "
                "attention"
            )
        self.unquantised = any(
            layer.__class__.__name__.startswith("Linear") for layer in cache.layers
        )
        plain = self._model(ids, use_cache=False).logits[0]
        self.identical = bool(torch.equal(plain, full))


def _score(
    window: Window,
    name: str,
    base: torch.Tensor,
    other: torch.Tensor,
    answers: torch.Tensor,
    cache: QuantisedCache,
) -> Score:
    loss = divergence = agreed = 0.0
    for begin in range(0, window.scored_tokens, _ROWS):
        rows = slice(begin, begin + _ROWS)
        expected = base[rows].float().log_softmax(-1)
        given = expected if other is base else other[rows].float().log_softmax(-1)
        loss -= float(given.gather(-1, answers[rows, None]).double().sum())
        # Terms may be negative where the scheme is likelier; only the sum is a divergence.
        terms = (expected.exp() * (expected - given)).sum(-1)
        divergence += float(terms.double().sum())
        agreed += float((expected.argmax(-1) == given.argmax(-1)).sum())
    count = window.scored_tokens
    return Score(
        window=window,
        scheme=name,
        loss=loss / count,
        divergence=max(0.0, divergence / count),
        agreement=agreed / count,
        bytes_per_token=cache.stored_bytes / window.context_tokens,
    )
