"""A page of Prometheus's text format, read by ``prometheus_client``'s own parser."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tokenroom.errors import WatchError

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """Samples of a page by name.

    Attributes:
        samples: Name, ``_total`` and ``_bucket`` included, to labels and values.
    """

    samples: Mapping[str, tuple[tuple[Labels, float], ...]] = field(default_factory=dict)

    def of(self, *names: str) -> Iterator[tuple[Labels, float]]:
        """Samples of the first of some names that the page has."""
        for name in names:
            if name in self.samples:
                yield from self.samples[name]
                return

    def value(self, *names: str, where: Labels | None = None) -> float | None:
        """Sum over the samples with some labels; None where there is none or one is no number."""
        found = [value for labels, value in self.of(*names) if _matches(labels, where)]
        if not found or not all(math.isfinite(value) for value in found):
            return None
        return sum(found)

    def has(self, prefix: str) -> bool:
        """Whether a name begins so."""
        return any(name.startswith(prefix) for name in self.samples)


def read_exposition(text: str) -> Exposition:
    """The samples of a page.

    Raises:
        WatchError: It is no such page.
    """
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise WatchError(f"the page of metrics cannot be read: {error}") from error
    if not samples:
        raise WatchError("the page of metrics is empty")
    return Exposition(samples={name: tuple(found) for name, found in samples.items()})


def _matches(labels: Labels, where: Labels | None) -> bool:
    return where is None or all(labels.get(name) == value for name, value in where.items())
