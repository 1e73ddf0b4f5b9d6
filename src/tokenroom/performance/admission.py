"""How schedulers hold new requests back so that their prompts run together, in closed form."""

from __future__ import annotations

from typing import Final, NamedTuple


class Admission(NamedTuple):
    """What holds new requests back; all zero for a scheduler that takes each at once.

    Attributes:
        interval_steps: Decode steps between two looks for new requests, 0 or 1 for every step.
            SGLang's ``scheduler_recv_interval``; a step with prompts resets it (0.5.9
            managers/scheduler_recv_skipper.py).
        gather_steps: Steps that a prompt waits for others at most. TensorRT-LLM's
            ``batch_wait_timeout_iters``, where prompts stay short of
            ``batch_wait_max_tokens_ratio`` (1.1 pyexecutor/py_executor.py
            ``_waiting_requests``).
        balance_steps: Steps at most until every data-parallel rank has a prompt. TensorRT-LLM's
            ``attention_dp_config.timeout_iters`` under ``enable_balance``
            (``_balance_adp_requests`` of the same file).
    """

    interval_steps: float = 0.0
    gather_steps: float = 0.0
    balance_steps: float = 0.0


AT_ONCE: Final = Admission()


class Held(NamedTuple):
    """What a new request sees of it.

    Attributes:
        wait_steps: Mean decode steps that it waits.
        window_steps: Steps whose requests run their prompts together.
    """

    wait_steps: float
    window_steps: float


def held(admission: Admission, rate: float, ranks: int) -> Held:
    """Wait and window when each rank gets ``rate`` new requests a step, independently.

    A look each n steps finds a request (n - 1) / 2 steps old on average. A window of W steps that
    its first request opens is waited for in full by that one and in half by the rate x W that
    follow. All ranks have had one after H(ranks - 1) / rate steps from the first on average, H the
    harmonic number (the largest of as many exponential times).
    """
    interval = max(1.0, admission.interval_steps)
    window = admission.gather_steps
    arriving = rate
    if admission.balance_steps and ranks > 1:
        harmonic = sum(1 / number for number in range(1, ranks))
        until_all = harmonic / rate if rate else admission.balance_steps
        window = max(window, min(admission.balance_steps, until_all))
        arriving = rate * ranks
    following = arriving * window
    opened = window * (1 + following / 2) / (1 + following)
    return Held((interval - 1) / 2 + opened, max(interval, window))
