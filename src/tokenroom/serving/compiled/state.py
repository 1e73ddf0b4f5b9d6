"""What the compiled engine holds, as arrays of records.

Requests are told apart by their place in ``live``, blocks by their number as in
:mod:`tokenroom.serving.block_pool`, and -1 stands for nobody.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

NOBODY: Final = -1
NEVER: Final = 2**31 - 1
"""A count of tokens that no request reaches."""
NOT_YET: Final = -1.0
NO_SESSION: Final = -(2**63)

WAITING: Final = 0
RUNNING: Final = 1
PREEMPTED: Final = 2
FINISHED: Final = 3

SERVED: Final = 0
TOO_LONG: Final = 1
BEYOND_POOL: Final = 2

UNNAMED: Final = 0
"""A block that holds nothing to be found again."""
OWN: Final = 1
"""A block whose name only its own request looks for, once it is preempted."""
LISTED: Final = 2
"""A block that is found by its name."""

SETTINGS: Final = np.dtype(
    [
        ("block_tokens", "i8"),
        ("num_blocks", "i8"),
        ("max_model_len", "i8"),
        ("budget", "i8"),
        ("max_num_batched_tokens", "i8"),
        ("max_num_seqs", "i8"),
        ("threshold", "i8"),
        ("adaptive", "i8"),
        ("spare_blocks", "i8"),
        ("caches", "i8"),
        ("chunks", "i8"),
        ("whole", "i8"),
        ("ahead", "i8"),
        ("answers_awaited", "i8"),
        ("prepare_seconds", "f8"),
        ("sequence_seconds", "f8"),
        ("step_seconds", "f8"),
        ("replays", "i8"),
        ("starting_tokens", "f8"),  # seconds, as those that follow
        ("starting_outputs", "f8"),
        ("starting_decoding", "f8"),
        ("starting_prompts", "f8"),
    ]
)
"""Of the scheduler (:class:`~tokenroom.serving.schedulers.vllm.VllmSchedulerConfig`) and of the
host (:class:`~tokenroom.performance.step_parts.StepParts`)."""

ENGINE: Final = np.dtype(
    [
        ("clock", "f8"),  # seconds
        ("ended_at", "f8"),  # when the last step ended
        ("horizon", "f8"),  # every request that enters before it is in ``entering``
        ("free_blocks", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),
        ("first_waiting", "i8"),
        ("last_waiting", "i8"),
        ("seats", "i8"),  # rows of block tables that nobody has
        ("places", "i8"),  # places of ``live`` that nobody has
        ("prepared", "i8"),  # whether a step is decided that has not run
        ("current", "i8"),  # which of the two plans was decided last
        ("runs", "i8"),  # whether a decided step is to run next
        ("stalled", "i8"),
        ("listed", "i8"),  # names that came to be found or ceased to, so far
        ("blocked", "i8"),  # who was not let in when a step was last decided
        ("blocked_free", "i8"),  # blocks that were free then
        ("blocked_listed", "i8"),  # ``listed`` then
        ("names_given", "i8"),
        ("entered", "i8"),  # requests of ``entering`` that have been taken in
        ("coming", "i8"),  # requests of ``entering``
        ("ended", "i8"),  # records in ``ended``
        ("gaps", "i8"),  # entries in ``gaps``
        ("wanted", "i8"),  # entries in ``wanted``
        ("steps", "i8"),
        ("computed_tokens", "i8"),
        ("preemptions", "i8"),
        ("max_running", "i8"),
        ("max_waiting", "i8"),
        ("max_used", "i8"),
        ("points", "i8"),
        ("steps_a_point", "i8"),
    ]
)
"""Where the engine stands."""

LIVE: Final = np.dtype(
    [
        ("id", "i8"),
        ("session", "i8"),
        ("arrival", "f8"),
        ("scheduled", "f8"),
        ("first_token", "f8"),
        ("last_token", "f8"),
        ("own_name", "i8"),
        ("names", "i8"),  # where its names begin
        ("num_names", "i4"),
        ("named_blocks", "i4"),
        ("name_tokens", "i4"),  # tokens that one of its names stands for
        ("prompt", "i4"),
        ("tokens", "i4"),
        ("last_tokens", "i4"),
        ("computed", "i4"),
        ("in_flight", "i4"),
        ("commit_at", "i4"),
        ("committed", "i4"),  # blocks
        ("blocks", "i4"),
        ("hit_tokens", "i4"),
        ("preemptions", "i4"),
        ("status", "i4"),
        ("seat", "i4"),
        ("before", "i4"),  # in the queue
        ("after", "i4"),
    ],
    align=True,
)
"""A request that waits or runs: see :class:`tokenroom.serving.sequence.Sequence`."""

BLOCK: Final = np.dtype(
    [
        ("name", "i8"),
        ("before", "i4"),  # in the queue of free blocks, a ring through block 0
        ("after", "i4"),
        ("holders", "i4"),
        ("kind", "i4"),  # UNNAMED, OWN or LISTED
        ("chain", "i4"),  # the next block in its bucket, 0 for none
    ],
    align=True,
)

ENTRY: Final = np.dtype(
    [
        ("slot", "i4"),
        ("tokens", "i4"),
        ("context", "i4"),
        ("silent", "i4"),
    ]
)
"""A request in a planned step: see :class:`tokenroom.serving.scheduler.StepPlan`."""

PLAN: Final = np.dtype(
    [
        ("entries", "i8"),
        ("tokens", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),
        ("used_blocks", "i8"),
        ("preempted", "i8"),
        ("decodes", "i8"),  # everything that runs gets one token, and nothing else happens
    ]
)

ENTERING: Final = np.dtype(
    [
        ("enters", "f8"),  # when it reaches the scheduler
        ("arrival", "f8"),
        ("id", "i8"),
        ("session", "i8"),
        ("names", "i8"),
        ("num_names", "i4"),
        ("prompt", "i4"),
        ("output", "i4"),
        ("named_blocks", "i4"),
        ("name_tokens", "i4"),
    ],
    align=True,
)

ENDED: Final = np.dtype(
    [
        ("id", "i8"),
        ("session", "i8"),
        ("arrival", "f8"),
        ("scheduled", "f8"),
        ("first_token", "f8"),
        ("finish", "f8"),
        ("prompt", "i8"),
        ("output", "i8"),
        ("cached", "i8"),
        ("preemptions", "i8"),
        ("refused", "i8"),
    ]
)
"""What :class:`tokenroom.serving.record.RequestRecord` holds."""

GAP: Final = np.dtype([("seconds", "f8"), ("times", "i8")])


class StepNodes(NamedTuple):
    """Nodes of a :class:`tokenroom.serving.step_table.StepTable`, NaN where none is computed.

    The first index of the first three says how kernels start: by the host, or from a graph.

    Attributes:
        counts: Values of the nodes of counts.
        contexts: Those of contexts.
        chunks: Those of tokens of a prompt's chunk.
        before_chunks: Those of contexts before it.
        tokens: Seconds by tokens.
        outputs: Seconds by rows of logits.
        decoding: Seconds by decoding requests and context.
        loads: Four numbers for each kernel over prompts, by a chunk's tokens and context.
        kernels: Coefficients of those kernels.
        wanted: Nodes that are not computed yet: their kind, row and column.
    """

    counts: Any
    contexts: Any
    chunks: Any
    before_chunks: Any
    tokens: Any
    outputs: Any
    decoding: Any
    loads: Any
    kernels: Any
    wanted: Any


class Core(NamedTuple):
    """Everything of one run.

    Attributes:
        settings: One :data:`SETTINGS`.
        engine: One :data:`ENGINE`.
        live: :data:`LIVE` of requests that wait or run.
        places: Places of ``live`` that nobody has.
        running: Who runs, in the order in which they are served.
        tables: Blocks of each request that runs.
        seats: Rows of ``tables`` that nobody has.
        blocks: :data:`BLOCK` of each block.
        buckets: First block of each bucket of names.
        names: Names of blocks that may be shared.
        plans: Two :data:`PLAN`.
        entries: Their :data:`ENTRY`.
        entering: :data:`ENTERING`, in order.
        ended: :data:`ENDED`, in order.
        gaps: :data:`GAP`: times between tokens.
        points: Rows of the timeline, as :class:`tokenroom.serving.metrics.Timeline` has them.
        phases: Whose next block comes in which step, while steps are alike.
        nodes: Step times.
    """

    settings: Any
    engine: Any
    live: Any
    places: Any
    running: Any
    tables: Any
    seats: Any
    blocks: Any
    buckets: Any
    names: Any
    plans: Any
    entries: Any
    entering: Any
    ended: Any
    gaps: Any
    points: Any
    phases: Any
    nodes: StepNodes
