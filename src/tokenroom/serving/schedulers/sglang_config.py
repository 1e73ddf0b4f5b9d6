"""Settings of SGLang that decide what its steps run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tokenroom.errors import DeploymentError, shown

SchedulePolicy = Literal["fcfs", "lpm", "dfs-weight", "lof"]
"""In which order waiting requests are looked at: as they came, the longest cached prefix first,
branches of the tree with the most of them first, or the longest answer first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSchedulerConfig:
    """Settings of SGLang that decide what a step runs, by SGLang's names.

    Attributes:
        max_total_num_tokens: Tokens of the pool.
        page_size: Tokens of a page.
        context_length: The longest context.
        max_running_requests: Most requests that run at a time.
        max_prefill_tokens: Most tokens of a step of prompts.
        chunked_prefill_size: Most tokens of it where prompts may be divided; None where not.
        prefill_max_requests: Most prompts of a step; None for any number.
        scheduler_recv_interval: Steps of answers after which it is looked who has come.
        enable_mixed_chunk: Steps of prompts go on with answers too.
        disable_radix_cache: Prefixes are not cached.
        overlap_schedule: A step is decided before the one before it has returned.
        schedule_policy: The order in which waiting requests are looked at.
        schedule_conservativeness: Factor on the room that is kept for answers.
        max_new_tokens: What requests ask for at most; None for as much as their answers have.
        ignore_eos: Requests forbid answers to end earlier, as ``sglang.bench_serving`` does.
        name_tokens: Tokens that one name of ``Request.block_hashes`` stands for.

    Raises:
        DeploymentError: A count below 1, a policy that is not simulated, no conservativeness, or
            names of other tokens than whole pages.
    """

    max_total_num_tokens: int
    page_size: int
    context_length: int
    max_running_requests: int
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int | None
    prefill_max_requests: int | None = None
    scheduler_recv_interval: int = 1
    enable_mixed_chunk: bool = False
    disable_radix_cache: bool = False
    overlap_schedule: bool = True
    schedule_policy: SchedulePolicy = "fcfs"
    schedule_conservativeness: float = 1.0
    max_new_tokens: int | None = None
    ignore_eos: bool = True
    name_tokens: int

    def __post_init__(self) -> None:
        for name in (
            "max_total_num_tokens",
            "page_size",
            "context_length",
            "max_running_requests",
            "max_prefill_tokens",
            "scheduler_recv_interval",
            "name_tokens",
        ):
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )
        for name in ("chunked_prefill_size", "prefill_max_requests", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DeploymentError(f"{name} is {shown(value)}; it must be 1 or more, or None")
        if self.schedule_policy not in get_args(SchedulePolicy):
            raise DeploymentError(
                f"schedule_policy {shown(self.schedule_policy)} is not simulated; it may be "
                f"{', '.join(get_args(SchedulePolicy))}"
            )
        if not self.schedule_conservativeness > 0:
            raise DeploymentError(
                f"schedule_conservativeness is {shown(self.schedule_conservativeness)}; it must be "
                "above 0"
            )
        if self.name_tokens % self.page_size:
            raise DeploymentError(
                f"name_tokens is {self.name_tokens}; it must be a multiple of page_size "
                f"{self.page_size}"
            )

    @property
    def max_req_len(self) -> int:
        """Prompt and answer together are shorter than this by one (``get_worker_info``)."""
        return min(self.context_length, self.max_total_num_tokens) - 1
