"""Finding the least change of settings after which a deployment does what was asked.

An engine lists ladders: for each setting a function that gives its values from the least change to
the greatest, the cheapest setting first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any, Final, TypeAlias, TypeVar

from tokenroom.engines.launch import written_settings
from tokenroom.engines.policy import Change, Deployment, Engine
from tokenroom.errors import TokenroomError
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import ModelSpec

_Answer = TypeVar("_Answer")

_MOST_PAIRS: Final = 4
_WIDEST: Final = 64
_MOST_GPUS_FACTOR: Final = 4
"""Ways that take more than so many times the GPUs of the thriftiest are not worth a line."""

_FEW_BITS: Final = 7
"""A four-bit checkpoint takes up to 5.5 with its scales and what it leaves alone, others 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One setting moved to one value.

    Attributes:
        key: Which setting; it has a price in the messages.
        flags: What the user does for it where no command line of the engine says it: another
            checkpoint, an argument in Python.
        settings: Fields of the engine's settings and what they become.
        layout: What-if layout of the weights, None to keep them.
    """

    key: str
    flags: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    layout: str | None = None


Ladder: TypeAlias = Callable[[Deployment], list[Step]]


def changes_from(
    policy: Engine,
    deployment: Deployment,
    suffices: Callable[[Deployment], bool],
    *,
    soft: Sequence[Ladder],
    hard: Sequence[Ladder],
    narrowing: Sequence[Ladder] = (),
    lengths: Ladder | None = None,
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first.

    First of settings and weights alone, in pairs if need be; then those that take more GPUs or the
    host's memory, by themselves or, where that saves GPUs, with one narrowing; settings and
    hardware together otherwise only as a last resort.

    Args:
        policy: The engine.
        deployment: What does not do.
        suffices: Whether a changed deployment does.
        soft: Ladders of settings and weights.
        hard: Ladders of hardware.
        narrowing: Those of ``soft`` that make the cache or the weights smaller.
        lengths: Shorter requests, where nobody said how long they are: fewer GPUs may do then.
    """
    tried = _Tried(policy, deployment, suffices)

    def attempt(steps: Sequence[Step]) -> Change | None:
        try:
            changed = tried.deployment(steps)
            if not tried.suffices(steps):
                return None
            flags = [step.flags or written_settings(changed, step.settings) for step in steps]
        except TokenroomError:  # the engine refuses this combination
            return None
        if not all(flags):  # this version has no flag for it
            return None
        return Change(
            key=steps[0].key,
            flags=" ".join(flags),
            prices=tuple(step.key for step in steps),
            deployment=changed,
            layout=next((step.layout for step in steps if step.layout is not None), None),
        )

    def single(ladder: Ladder) -> Iterator[Change]:
        for step in ladder(deployment):
            if change := attempt((step,)):
                yield change
                return

    def pair(first: Ladder, second: Ladder) -> Iterator[Change]:
        """The least of ``second`` that ``first``, seen from there, completes."""
        for two in second(deployment):
            try:
                base = tried.deployment((two,))
            except TokenroomError:
                continue
            steps = first(base)
            # The far end frees the most: what fails there fails before it.
            if not steps or attempt((steps[-1], two)) is None:
                continue
            for one in steps:
                if change := attempt((one, two)):
                    yield change
                    return

    def assisted(ladder: Ladder) -> Iterator[Change]:
        """The least of a hardware ladder that a narrowing completes, short of doing alone."""
        for step in ladder(deployment):
            if attempt((step,)):
                return
            for narrow in helpful:
                change = attempt((step, narrow))
                if change and _gpus(change) > deployment.node.count:
                    yield change
                    return

    def shortened(ladder: Ladder) -> Iterator[Change]:
        """The least of a hardware ladder on which shorter requests run, short of doing alone.

        One narrowing may stand beside them where that saves GPUs.
        """
        for step in ladder(deployment) if lengths is not None else ():
            if attempt((step,)):
                return
            for beside in ((), *((narrow,) for narrow in steps if with_length((narrow,)) is None)):
                change = with_length((step, *beside))
                if change and _gpus(change) > deployment.node.count:
                    yield change
                    return

    def with_length(others: Sequence[Step]) -> Change | None:
        """The longest requests that run with some steps, where their length may be chosen."""
        try:
            base = _apply(policy, deployment, others)
        except TokenroomError:
            return None
        shorter = lengths(base)[:1] if lengths is not None else ()
        return attempt((*others, *shorter)) if shorter else None

    # A narrowing that does by itself needs no more GPUs beside it.
    steps = [step for ladder in narrowing for step in ladder(deployment)]
    helpful = [step for step in steps if attempt((step,)) is None]
    found = [change for ladder in soft for change in single(ladder)]
    yield from found
    if not found:
        pairs = (change for two in combinations(soft, 2) for change in pair(*two))
        found = list(islice(pairs, _MOST_PAIRS))
        narrower = (change for narrow in steps if (change := with_length((narrow,))))
        found += [change for change in narrower if change.flags not in {x.flags for x in found}]
        yield from found
    harder = [
        change
        for ladder in hard
        for change in (*shortened(ladder), *single(ladder), *assisted(ladder))
    ]
    if not found and not harder:
        both = (change for second in hard for first in soft for change in pair(first, second))
        harder = list(islice(both, _MOST_PAIRS))
    harder.sort(key=_gpus)
    thriftiest = min(map(_gpus, harder), default=0)
    yield from (change for change in harder if _gpus(change) <= _MOST_GPUS_FACTOR * thriftiest)


class _Tried:
    """Deployments that were planned already: the same steps are met again in other pairs."""

    __slots__ = ("_answers", "_deployment", "_made", "_policy", "_suffices")

    def __init__(
        self,
        policy: Engine,
        deployment: Deployment,
        suffices: Callable[[Deployment], bool],
    ) -> None:
        self._policy = policy
        self._deployment = deployment
        self._suffices = suffices
        self._made: dict[str, Deployment | TokenroomError] = {}
        self._answers: dict[str, bool | TokenroomError] = {}

    def deployment(self, steps: Sequence[Step]) -> Deployment:
        """What the steps make of it.

        Raises:
            TokenroomError: The engine refuses it.
        """
        return _once(
            self._made, self._key(steps), lambda: _apply(self._policy, self._deployment, steps)
        )

    def suffices(self, steps: Sequence[Step]) -> bool:
        """Whether that does what was asked.

        Raises:
            TokenroomError: The engine refuses it.
        """
        return _once(
            self._answers, self._key(steps), lambda: self._suffices(self.deployment(steps))
        )

    def _key(self, steps: Sequence[Step]) -> str:
        """What tells changed deployments apart: the settings they come to, and the layouts."""
        asked = self._policy.settings(self._deployment.asked, _fields(steps))
        return repr((asked, [step.layout for step in steps if step.layout is not None]))


def _once(
    known: dict[str, _Answer | TokenroomError], key: str, make: Callable[[], _Answer]
) -> _Answer:
    """The answer for a key, or its refusal, found when it is asked for first."""
    if key not in known:
        try:
            known[key] = make()
        except TokenroomError as refused:
            known[key] = refused
    answer = known[key]
    if isinstance(answer, TokenroomError):
        raise answer
    return answer


def _gpus(change: Change) -> int:
    return change.deployment.node.count


def _apply(policy: Engine, deployment: Deployment, steps: Sequence[Step]) -> Deployment:
    spec: ModelSpec = deployment.spec
    for step in steps:
        if step.layout is not None:
            spec = what_if(spec, step.layout)
    asked = policy.settings(deployment.asked, _fields(steps))
    node = policy.place(deployment.node.accelerator, None, asked, deployment.node.used_bytes)
    return policy.deploy(spec, node, asked, deployment.draft)


def _fields(steps: Sequence[Step]) -> dict[str, Any]:
    return {name: value for step in steps for name, value in step.settings.items()}


def takes_fewer_bits(spec: ModelSpec) -> bool:
    """Whether four bits a parameter are well below what the checkpoint takes."""
    return 8 * checkpoint_weights(spec).total_bytes > _FEW_BITS * spec.parameters_total


def halves(value: int, least: int) -> list[int]:
    """``value`` halved down to ``least``, itself left out, in round steps."""
    if value <= 1:
        return []
    found = []
    half = 1 << (value - 1).bit_length() - 1
    while half >= least and half > 0:
        if half < value:
            found.append(half)
        half //= 2
    return found


def doubles(size: int, most: int = _WIDEST) -> list[int]:
    """``size`` doubled up to ``most``, itself left out."""
    found = []
    while (size := size * 2) <= most:
        found.append(size)
    return found
