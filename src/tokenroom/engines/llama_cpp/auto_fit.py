"""Lowering what the user did not set until it fits: ``--fit``, on by default.

``common_params_fit_impl`` (``common/fit.cpp`` of llama.cpp 0c1e57098): first the context, down to
4096 tokens, then layers from the back to the front; of mixtures of experts the experts go to the
host first, and whole layers come back while there is room. Each device keeps a margin of 1024 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tokenroom.engines.llama_cpp.defaults import ResolvedSettings
from tokenroom.engines.llama_cpp.memory import Decisions, Memory, with_context
from tokenroom.engines.llama_cpp.placement import EXPERTS, HOST

#: Parts of the one layer that is divided: what goes to the host of it.
_DIVIDED = {
    "moe": r"\.ffn_(up|down|gate_up|gate)_(ch|)exps",
    "attn": r"\.ffn_(gate|up|gate_up|down).*",
    "up": r"\.ffn_(gate|gate_up|down).*",
    "gate": r"\.ffn_down.*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOutcome:
    """What fitting came to.

    Attributes:
        decisions: What llama.cpp loads with.
        context_lowered: The context was shortened.
        layers_lowered: Not everything is on the accelerators.
        failed: Why it gave up and loads as asked, empty when it did not: ``"layers_set"``,
            ``"split_set"``, ``"overrides_set"``, ``"rows"`` or ``"host"``.
    """

    decisions: Decisions
    context_lowered: bool = False
    layers_lowered: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True)
class _Share:
    """Layers of one device; ``parts`` of them keep their experts on the host."""

    layers: int = 0
    parts: int = 0
    divided: str = "moe"

    @property
    def full(self) -> int:
        return self.layers - self.parts


class _Fitter:
    """One run of the procedure; ``measure`` is what llama.cpp does with ``no_alloc``."""

    def __init__(
        self,
        resolved: ResolvedSettings,
        start: Decisions,
        measure: Callable[[Decisions], Memory],
        free: Sequence[int],
        layers: int,
        experts: bool,
    ) -> None:
        self._resolved = resolved
        self._start = start
        self._measure = measure
        self._free = free
        self._layers = layers  # without the output layer
        self._experts = experts
        self._devices = resolved.gpus

    def run(self) -> FitOutcome:
        resolved = self._resolved
        decisions = self._start
        full = self._measure(decisions)
        devices = self._devices
        if not devices:
            return self._fit_host(full)
        used = [full.total_of(device) for device in range(devices)]
        if all(
            free - size >= margin
            for free, size, margin in zip(self._free, used, resolved.margins, strict=True)
        ):
            return FitOutcome(decisions=decisions)
        lowered = False
        surplus = sum(self._free) - sum(used) - sum(resolved.margins)
        if surplus < 0 and resolved.context_is_free:
            shorter, whole = self._shorten(full, sum(used))
            lowered = shorter.n_ctx < decisions.n_ctx
            decisions = shorter
            if whole and devices <= 1:
                return FitOutcome(decisions=decisions, context_lowered=lowered)
        failed = self._forbidden()
        if failed:
            return FitOutcome(decisions=decisions, context_lowered=lowered, failed=failed)
        placed = self._place_layers(decisions)
        return FitOutcome(decisions=placed, context_lowered=lowered, layers_lowered=True)

    def _forbidden(self) -> str:
        resolved = self._resolved
        if not resolved.layers_are_free:
            return "layers_set"
        if self._devices > 1 and resolved.split_mode == "row":
            return "rows"
        if self._devices > 1 and len(set(resolved.tensor_split)) > 1:
            return "split_set"
        if resolved.overrides:
            return "overrides_set"
        return ""

    def _fit_host(self, full: Memory) -> FitOutcome:
        resolved = self._resolved
        total = resolved.host_memory_bytes
        if total is None or total - full.total_of(0) >= resolved.margins[0]:
            return FitOutcome(decisions=self._start)
        if not resolved.context_is_free:
            return FitOutcome(decisions=self._start, failed="host")
        self._free = (total,)
        shorter, whole = self._shorten(full, full.total_of(0))
        return FitOutcome(decisions=shorter, context_lowered=True, failed="" if whole else "host")

    def _shorten(self, full: Memory, used: int) -> tuple[Decisions, bool]:
        """A context interpolated between the least and the longest, and whether that suffices."""
        resolved, start = self._resolved, self._start
        streams = 1 if resolved.kv_unified else resolved.n_seq_max
        longest = resolved.n_ctx_train * streams
        least = resolved.fit_ctx * streams
        if longest <= least:
            return start, False
        target = sum(self._free) - sum(resolved.margins)
        devices = max(self._devices, 1)
        if self._devices > 1:
            weights = sum(full.weights_bytes[: self._devices])
            each = weights // min(start.n_gpu_layers, self._layers)
            target -= (self._devices + 1) * each // (6 if self._experts else 2)
        shortest = with_context(start, least, resolved)
        small = self._measure(shortest)
        least_used = sum(small.total_of(device) for device in range(devices))
        if target <= least_used or used <= least_used:
            return shortest, False
        n_ctx = least + (longest - least) * (target - least_used) // (used - least_used)
        step = 256 * streams
        n_ctx = max(n_ctx - n_ctx % step, least)
        return with_context(start, min(n_ctx, longest), resolved), True

    def _decisions(
        self, base: Decisions, shares: Sequence[_Share], spill: Sequence[int]
    ) -> Decisions:
        """``set_ngl_tensor_split_tbo``."""
        total = sum(share.layers for share in shares)
        overrides: list[tuple[str, int]] = []
        layer = self._layers + 1 - total
        for device, share in enumerate(shares):
            layer += share.full
            for index in range(layer, layer + share.parts):
                first = index == layer
                pattern = _DIVIDED[share.divided if first else "moe"]
                overrides.append((rf"blk\.{index}{pattern}", spill[device] if first else HOST))
            layer += share.parts
        split = tuple(float(share.layers) for share in shares)
        return replace(
            base,
            n_gpu_layers=total,
            tensor_split=split if any(split) else (1.0,) * len(shares),
            overrides=tuple(overrides),
        )

    def _place_layers(self, base: Decisions) -> Decisions:
        devices = self._devices
        resolved = self._resolved
        targets = [free - margin for free, margin in zip(self._free, resolved.margins, strict=True)]
        room_without_experts = -1
        if self._experts:
            moved = self._measure(
                replace(base, n_gpu_layers=self._start.n_gpu_layers, overrides=((EXPERTS, HOST),))
            )
            room_without_experts = sum(targets) - sum(
                moved.total_of(device) for device in range(devices)
            )
        spill = [HOST] * devices
        shares = [_Share() for _ in range(devices)]

        def memory(tried: Sequence[_Share], where: Sequence[int]) -> list[int]:
            measured = self._measure(self._decisions(base, tried, where))
            return [measured.total_of(device) for device in range(devices)]

        used = memory(shares, spill)
        for device in reversed(range(devices)):
            left = self._layers + 1 - sum(share.layers for share in shares[device + 1 :])
            high = list(shares)
            last = device == devices - 1
            parts = (left - 1 if last else left) if self._experts else 0
            high[device] = _Share(left, max(parts, 0))
            if left <= 0:
                continue
            high_used = memory(high, spill)
            if high_used[device] <= targets[device]:
                shares, used = high, high_used
                continue
            while (delta := high[device].layers - shares[device].layers) > 1:
                step = self._step(delta, device, targets, used, high_used)
                tried = list(shares)
                own = shares[device]
                added = step - 1 if last and own.parts == 0 and self._experts else step
                tried[device] = _Share(
                    own.layers + step, own.parts + (added if self._experts else 0)
                )
                tried_used = memory(tried, spill)
                if tried_used[device] <= targets[device]:
                    shares, used = tried, tried_used
                else:
                    high, high_used = tried, tried_used
        if not self._experts or room_without_experts <= 0:
            return self._decisions(base, shares, spill)
        return self._fill_experts(base, shares, spill, targets, used, memory)

    @staticmethod
    def _step(
        delta: int, device: int, targets: Sequence[int], low: Sequence[int], high: Sequence[int]
    ) -> int:
        step = delta * (targets[device] - low[device]) // max(1, high[device] - low[device])
        return min(max(step, 1), delta - 1)

    def _fill_experts(
        self,
        base: Decisions,
        shares: list[_Share],
        spill: list[int],
        targets: Sequence[int],
        used: list[int],
        memory: Callable[[Sequence[_Share], Sequence[int]], list[int]],
    ) -> Decisions:
        """Step 4: turn layers without experts into whole ones, from the first device on."""
        devices = self._devices
        start = next(device for device in range(devices) if all(s.layers for s in shares[device:]))
        for device in range(devices):
            if device > start or start >= devices:
                break
            high = list(shares)
            for other in range(start, devices):
                moved = high[other].layers - (1 if other == devices - 1 else 0)
                high[device] = replace(high[device], layers=high[device].layers + moved)
                high[other] = replace(high[other], layers=high[other].layers - moved, parts=0)
            high_start = devices - 1
            high_used = memory(high, spill)
            if high_used[device] > targets[device]:
                while (delta := high[device].full - shares[device].full) > 1:
                    step = self._step(delta, device, targets, used, high_used)
                    tried, tried_start = _converted(shares, start, device, step)
                    tried_used = memory(tried, spill)
                    if tried_used[device] <= targets[device]:
                        shares, used, start = tried, tried_used, tried_start
                    else:
                        high, high_used, high_start = tried, tried_used, tried_start
            else:
                shares, used, start = high, high_used, high_start
            if shares[start].layers > (0 if device < devices - 1 else 1) and shares[start].parts:
                shares, spill, used, start = self._one_more(
                    shares, spill, used, start, device, targets, memory
                )
        return self._decisions(base, shares, spill)

    def _one_more(
        self,
        shares: list[_Share],
        spill: list[int],
        used: list[int],
        start: int,
        device: int,
        targets: Sequence[int],
        memory: Callable[[Sequence[_Share], Sequence[int]], list[int]],
    ) -> tuple[list[_Share], list[int], list[int], int]:
        """Try to fit a part of one more layer."""
        devices = self._devices
        tried = list(shares)
        tried_start = start
        tried[start] = replace(
            tried[start], layers=tried[start].layers - 1, parts=tried[start].parts - 1
        )
        own = tried[device]
        tried[device] = replace(own, layers=own.layers + 1, parts=own.parts + 1)
        if tried[tried_start].parts == 0:
            tried_start += 1
        where = list(spill)
        if device < devices - 1:
            where[device] = device + 1

        def fits(attempt: Sequence[_Share]) -> list[int] | None:
            sizes = memory(attempt, where)
            good = sizes[device] < targets[device] and (
                device + 1 == devices or sizes[device + 1] < targets[device + 1]
            )
            return sizes if good else None

        def divided(how: str) -> list[_Share]:
            made = list(tried)
            made[device] = replace(made[device], divided=how)
            return made

        result = shares, spill, used, start
        attempt = divided("up")
        sizes = fits(attempt)
        if sizes is None:
            attempt = divided("attn")
            sizes = fits(attempt)
            return result if sizes is None else (attempt, where, sizes, tried_start)
        result = attempt, where, sizes, tried_start
        attempt = divided("gate")
        sizes = fits(attempt)
        return result if sizes is None else (attempt, where, sizes, tried_start)


def _converted(
    shares: Sequence[_Share], start: int, device: int, step: int
) -> tuple[list[_Share], int]:
    tried = list(shares)
    done = 0
    at = start
    while at < len(tried):
        take = min(step - done, tried[at].parts)
        tried[at] = replace(tried[at], layers=tried[at].layers - take, parts=tried[at].parts - take)
        tried[device] = replace(tried[device], layers=tried[device].layers + take)
        done += take
        if tried[at].parts > 0:
            break
        at += 1
    return tried, at


def auto_fit(
    resolved: ResolvedSettings,
    start: Decisions,
    measure: Callable[[Decisions], Memory],
    free: Sequence[int],
    *,
    layers: int,
    experts: bool,
) -> FitOutcome:
    """What llama.cpp makes of the settings that were not given.

    Args:
        resolved: Settings.
        start: The decisions as asked.
        measure: Memory under some decisions.
        free: Bytes free on each accelerator.
        layers: Blocks of the model.
        experts: Whether it is a mixture of experts.
    """
    return _Fitter(resolved, start, measure, free, layers, experts).run()
