"""A :class:`~tokenroom.serving.roomy_engine.RoomyEngine` for answers to prompts computed elsewhere.

Decisions are those of :mod:`~tokenroom.serving.schedulers.vllm_transfers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokenroom.serving.engine import Fetch
from tokenroom.serving.roomy_engine import NoRoomError, RoomyEngine, RoomyRequest
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_table import StepTable


class RoomyReceiver(RoomyEngine):
    """One that writes answers to prompts which others have computed.

    Args:
        config: As of :class:`RoomyEngine`, as all but the last.
        table: See there.
        comes: See there.
        replica: See there.
        fetch: Hears whose KV is to come.
    """

    def __init__(
        self,
        config: VllmSchedulerConfig,
        table: StepTable,
        comes: Callable[[], float],
        *,
        replica: int,
        fetch: Fetch,
    ) -> None:
        super().__init__(config, table, comes, replica=replica)
        self._fetch = fetch
        self._arriving: dict[int, RoomyRequest] = {}
        self._filled: set[int] = set()

    @property
    def _queued(self) -> int:
        """Requests that wait for blocks, for KV or for their turn."""
        return len(self._waiting) + len(self._arriving)

    def awaits(self, request_id: int) -> bool:
        """Whether KV of a request is on its way to it."""
        return request_id in self._arriving and request_id not in self._filled

    def deliver(self, request_id: int) -> None:
        """Let the KV of a request's prompt arrive."""
        self._filled.add(request_id)

    def _has_prompts(self) -> bool:
        return bool(self._filled) and self.num_running < self._config.max_num_seqs

    def _begun(self, admitted: list[RoomyRequest]) -> Iterator[tuple[RoomyRequest, int, int]]:
        """Requests whose KV has arrived, in the order in which they were given blocks.

        The last token of a prompt is computed again.
        """
        for request_id in [each for each in self._arriving if each in self._filled]:
            if self.num_running >= self._config.max_num_seqs:
                return
            if not self._fits(0):
                raise NoRoomError
            sequence = self._arriving.pop(request_id)
            self._filled.remove(request_id)
            self.num_running += 1
            admitted.append(sequence)
            yield sequence, 1, sequence.prompt_tokens - 1

    def _reserve(self) -> None:
        """Give blocks for their prompts to requests, and ask for the KV."""
        while self._waiting and self.num_running < self._config.max_num_seqs:
            if not self._fits(self._waiting[0].prompt_tokens):
                return
            sequence = self._waiting.popleft()
            sequence.computed = sequence.prompt_tokens
            blocks = -(-sequence.prompt_tokens // self._block)
            self._hold(blocks)
            self._arriving[sequence.request.id] = sequence
            self._fetch(sequence.request.id, blocks)
