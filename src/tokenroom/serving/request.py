"""One request of a workload, as every reader of workloads writes it and the simulator reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenroom.errors import WorkloadError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt that arrives, and the number of tokens that its answer will have.

    ``block_hashes`` say which KV blocks may be shared: entry ``i`` names *everything* up to the end
    of the request's ``i``-th full block (a chained hash, as ``hash_block_tokens`` of
    ``vllm/v1/core/kv_cache_utils.py`` builds it), counted in blocks of the engine's hash block
    size, over the prompt and then the answer. Equal entries mean equal tokens from the start on,
    and entries are 0 or more. Blocks past the entries are this request's own; no entries means
    that nothing is shared.

    Attributes:
        id: names the request; unique in a workload.
        arrival_seconds: when it reaches the engine, from the start of the workload.
        prompt_tokens: length of the prompt.
        output_tokens: length of the answer, its last token included.
        priority: lower is served first under vLLM's ``--scheduling-policy priority``.
        block_hashes: names of the blocks that may be shared, see above.
        session: names the conversation or user that it belongs to, if it is known.

    Raises:
        WorkloadError: a length below 1, a hash below 0, or a time that is negative or not finite.
    """

    id: int
    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    block_hashes: tuple[int, ...] = ()
    session: int | None = None

    def __post_init__(self) -> None:
        if (
            self.prompt_tokens >= 1 <= self.output_tokens
            and 0 <= self.arrival_seconds < math.inf
            and (not self.block_hashes or min(self.block_hashes) >= 0)
        ):
            return  # the quick way: workloads have millions of requests
        for field in ("prompt_tokens", "output_tokens"):
            if getattr(self, field) < 1:
                raise WorkloadError(
                    f"request {self.id} has {field} {shown(getattr(self, field))}; "
                    "a request has at least 1 token in and 1 out"
                )
        if not 0 <= self.arrival_seconds < math.inf:
            raise WorkloadError(
                f"request {self.id} has arrival_seconds {shown(self.arrival_seconds)}; "
                "it must be a finite time of 0 or more"
            )
        raise WorkloadError(
            f"request {self.id} has a block hash of {min(self.block_hashes)}; "
            "block hashes are 0 or more"
        )
