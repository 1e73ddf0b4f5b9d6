"""KV connectors: which of them leave the hybrid KV-cache manager on.

Source: ``SupportsHMA`` of distributed/kv_transfer/kv_connector/v1/*.py, with the version that added
it to each class, and ``VllmConfig.__post_init__`` (0.10.2 to 0.33.0): until 0.21 any connector
turned the manager off, from 0.22 on only one that does not support it.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.settings import VLLMSettings

_ASKS_CONNECTOR_SINCE: Final = (0, 22, 0)
_SUPPORTED_SINCE: Final = {
    "NixlConnector": (0, 18, 0),
    "NixlPullConnector": (0, 24, 0),
    "NixlPushConnector": (0, 24, 0),
    "SimpleCPUOffloadConnector": (0, 19, 0),
    "MooncakeConnector": (0, 20, 0),
    "DecodeBenchConnector": (0, 21, 0),
    "OffloadingConnector": (0, 21, 0),
    "MultiConnector": (0, 21, 0),
    "MooncakeStoreConnector": (0, 22, 0),
    "ExampleHiddenStatesConnector": (0, 22, 0),
    "MoRIIOConnector": (0, 30, 0),
    "HiSparseConnector": (0, 30, 0),
    "UMBPStoreConnector": (0, 33, 0),
}
#: Connectors of vLLM that never support it.
_NEVER: Final = frozenset(
    {
        *("ExampleConnector", "SharedStorageConnector", "LMCacheConnectorV1"),
        *("LMCacheMPConnector", "FlexKVConnectorV1", "HF3FSKVConnector", "P2pNcclConnector"),
    }
)


def known_connector(connector: str) -> bool:
    """Whether it is one of vLLM's own, whose influence on the cache layout is known."""
    return connector in _NEVER or connector in _SUPPORTED_SINCE


def connector_of(settings: VLLMSettings) -> str | None:
    """The connector in use: the one named, or the one that ``--kv-offloading-size`` brings."""
    if settings.kv_offload_bytes is not None:
        return settings.kv_connector or "OffloadingConnector"
    return settings.kv_connector


def keeps_hybrid_manager(connector: str, version: tuple[int, ...]) -> bool:
    """Whether the hybrid manager stays on beside that connector when nobody set it."""
    if version < _ASKS_CONNECTOR_SINCE:
        return False
    since = _SUPPORTED_SINCE.get(connector)
    return since is not None and version >= since
