"""The handbook's 1,000 users: arrivals, queue and waiting time, worked through as a closed system.

A thousand users wait for an answer and then think for 10 seconds. With N users, thinking time Z and
a mean response R the throughput is X = N / (R + Z) (Little's law), and no more than slots over the
time S that a request stays in one: where that binds, R = N / X - Z and the wait is R - S.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tokenroom.claims.batching import served
from tokenroom.claims.claim import Case, Cases, Claim, Text, exactly, holds
from tokenroom.claims.subjects import A100, LLAMA_3_70B, case_speed, the_case

_USERS: Final = 1000
_THINK_SECONDS: Final = 10.0
_LAW: Final = "Little's law for a closed system; residence by the step-time model (docs/speed.md)"


class _Served(NamedTuple):
    """What a thousand users see with so many slots, in seconds and requests a second."""

    residence_seconds: float
    per_second: float
    wait_seconds: float

    @property
    def waiting(self) -> float:
        """Requests that wait on average."""
        return self.per_second * self.wait_seconds


def _with_slots(slots: int) -> _Served:
    speed = case_speed(slots)
    residence = speed.ttft_seconds.value + (speed.load.output_tokens - 1) * speed.tpot_seconds.value
    per_second = min(slots / residence, _USERS / (_THINK_SECONDS + residence))
    wait = _USERS / per_second - _THINK_SECONDS - residence
    return _Served(residence, per_second, wait)


def _both(figure: str) -> Cases:
    own = min(the_case().requests_held, the_case().plan.max_num_seqs)
    return [
        Case(float(getattr(_with_slots(slots), figure)), Text(f"{slots} slots", f"{slots} 个槽位"))
        for slots in (43, own)
    ]


def _simulated() -> Cases:
    """Mean wait until scheduled when the same users are simulated."""
    found = []
    own = min(the_case().requests_held, the_case().plan.max_num_seqs)
    for slots in (43, own):
        figures = served(
            f"users:count={_USERS},think=10s,input=3072,output=1024,requests={3 * _USERS}",
            name=LLAMA_3_70B,
            gpu=A100,
            tp=8,
            max_num_seqs=slots,
        )
        assert figures.queue.mean_seconds is not None
        found.append(Case(figures.queue.mean_seconds, Text(f"{slots} slots", f"{slots} 个槽位")))
    return found


def _claims() -> Iterator[Claim]:
    closed = Text(
        "Users who wait send nothing: the system is closed, and throughput is slots over the time "
        "a request stays, not users over thinking time.",
        "等待中的用户不会再发请求：这是闭环系统，吞吐等于槽位数除以请求驻留时间，而非用户数除以思考时间。",
    )
    setting_en = "1,000 users who think for 10 s, 8 x A100-80GB, Llama-3-70B (3,072 in, 1,024 out)"
    setting_zh = "1000 用户、思考 10 秒，8×A100-80GB，Llama-3-70B（输入 3072、输出 1024）"
    yield Claim(
        id="users-arrivals",
        article="handbook",
        section="6.6",
        text=Text(f"{setting_en}. Step 5: requests a second", f"{setting_zh}。步骤 5：每秒请求数"),
        unit="rate",
        printed="100 /s",
        published=exactly(100),
        ours=lambda: _both("per_second"),
        reason=closed,
        source=_LAW,
    )
    yield Claim(
        id="users-residence",
        article="handbook",
        section="6.6",
        text=Text(
            f"{setting_en}. How long a request stays in a slot (the article leaves it out)",
            f"{setting_zh}。请求驻留时间（文章未考虑）",
        ),
        unit="seconds",
        published=None,
        ours=lambda: _both("residence_seconds"),
        source=_LAW,
    )
    yield Claim(
        id="users-queue",
        article="handbook",
        section="6.6",
        text=Text(
            f"{setting_en}. Step 5: requests that wait", f"{setting_zh}。步骤 5：平均排队长度"
        ),
        unit="count",
        printed="43",
        published=exactly(43),
        ours=lambda: _both("waiting"),
        reason=closed,
        source=_LAW,
    )
    yield Claim(
        id="users-wait",
        article="handbook",
        section="6.6",
        text=Text(f"{setting_en}. Step 5: mean wait", f"{setting_zh}。步骤 5：平均排队时延"),
        unit="seconds",
        printed="0.43 s",
        published=exactly(0.43),
        ours=lambda: _both("wait_seconds"),
        reason=closed,
        source=_LAW,
    )
    yield Claim(
        id="users-wait-simulated",
        article="handbook",
        section="6.6",
        text=Text(
            f"{setting_en}. Step 5: mean wait, simulated from all users arriving at once",
            f"{setting_zh}。步骤 5：平均排队时延（模拟，所有用户同时开始）",
        ),
        unit="seconds",
        printed="0.43 s",
        published=exactly(0.43),
        ours=_simulated,
        reason=closed,
        source="vLLM 0.33 v1/core/sched/scheduler.py, stepped in virtual time",
        simulated=True,
    )
    yield Claim(
        id="users-acceptable",
        article="handbook",
        section="6.6",
        text=Text(
            f"{setting_en}. Waits are below half a second",
            f"{setting_zh}。平均排队 < 0.5 秒，可接受",
        ),
        unit="truth",
        ours=lambda: holds(all(case.value < 0.5 for case in _both("wait_seconds"))),
        reason=closed,
        source=_LAW,
    )


CLAIMS: Final = tuple(_claims())
