"""Models on the Hugging Face Hub: configuration and headers, never a weight.

Small files come by plain requests, headers by byte ranges; files already in the Hub's cache are
read from there when there is no network. Needs the extra ``hub`` (httpx, huggingface_hub), which is
imported on first use.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tokenroom.errors import HubError, ModelError, shown
from tokenroom.models.gguf import read_gguf
from tokenroom.models.headers import attach_stored_tensors
from tokenroom.models.hf_config import MAX_FILE_BYTES, read_config
from tokenroom.models.ranges import RangeReader, StoredTensor, open_file
from tokenroom.models.safetensors import MAX_INDEX_BYTES, parse_index, read_header, read_indexed
from tokenroom.models.spec import ModelSpec

if TYPE_CHECKING:
    import httpx

DEFAULT_ENDPOINT: Final = "https://huggingface.co"

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_FIRST_BYTES: Final = 2**18  # most headers lie in it whole: one request a shard
_SLOWEST: Final = 6  # a whole answer may take this many times the wait for its next piece
_PARALLEL: Final = 8
_TRUE: Final = frozenset({"1", "on", "yes", "true"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """How to reach the Hub.

    Attributes:
        revision: Branch, tag or commit.
        token: Access token; None: ``HF_TOKEN`` or the one ``hf auth login`` stored.
        cache_dir: The Hub's cache; None: where huggingface_hub keeps it (``HF_HOME``).
        offline: Read the cache only; None: as ``HF_HUB_OFFLINE`` says.
        endpoint: Address of the Hub; None: ``HF_ENDPOINT`` or huggingface.co.
        timeout_seconds: Longest wait for a connection or the next piece of an answer.
        read_headers: Also read the headers of the weight files, for the exact stored bytes.
    """

    revision: str = "main"
    token: str | None = None
    cache_dir: str | None = None
    offline: bool | None = None
    endpoint: str | None = None
    timeout_seconds: float = 10.0
    read_headers: bool = False

    @property
    def is_offline(self) -> bool:
        """Whether the network is not to be used."""
        if self.offline is not None:
            return self.offline
        return os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE


def is_installed() -> bool:
    """Whether the extra ``hub`` is there."""
    from importlib.util import find_spec

    return find_spec("httpx") is not None and find_spec("huggingface_hub") is not None


def is_repository_id(name: str) -> bool:
    """Whether ``name`` can be a model id of the Hub, ``organisation/name``."""
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name and "--" not in name


def load_from_hub(
    name: str, options: HubOptions, *, assume_architecture: str | None = None
) -> ModelSpec:
    """The model of a Hub id, or of one GGUF file in it (``organisation/name/file.gguf``).

    Args:
        name: The id.
        options: How to reach the Hub.
        assume_architecture: As for :func:`~tokenroom.models.hf_config.read_config`.

    Raises:
        HubError: The extra is not installed, or the Hub cannot be reached, has no such model,
            revision or file, or does not let it be read.
        ModelError: What it has cannot be read as a model.
    """
    repository, file = _split(name)
    if not is_installed():
        raise HubError(
            f"reading {name} from the Hub needs httpx and huggingface_hub;"
            " pip install 'tokenroom[hub]'"
        )
    with _Session.open(repository, options) as session:
        if file is not None:
            spec = read_gguf(file, session.open_range)
            return replace(spec, name=name, source=f"{spec.source} of {session.described}")
        return _load_repository(session, assume_architecture)


def _split(name: str) -> tuple[str, str | None]:
    repository, _, file = name, "", None
    if name.endswith(".gguf") and name.count("/") >= 2:
        organisation, model, file = name.split("/", 2)
        repository = f"{organisation}/{model}"
    if not is_repository_id(repository) or (file and ".." in file.split("/")):
        raise HubError(f"{name[:200]!r} is no Hub id; one looks like Qwen/Qwen3-8B")
    return repository, file


def _load_repository(session: _Session, assume_architecture: str | None) -> ModelSpec:
    config = session.json_file("config.json")
    if config is None:
        raise HubError(
            f"{session.described} has no config.json; if it holds GGUF files, name one as"
            f" {session.repository}/FILE.gguf"
        )
    if "quantization_config" not in config and "compression_config" not in config:
        block = session.json_file("hf_quant_config.json")
        if block is not None:
            config = {**config, "quantization_config": {"quant_method": "modelopt", **block}}
    spec = read_config(config, session.repository, assume_architecture=assume_architecture)
    spec = replace(
        spec,
        source=f"config.json of {session.described}",
        assumptions=(*spec.assumptions, *session.notes),
    )
    if session.options.read_headers:
        spec = attach_stored_tensors(spec, _stored_tensors(session))
    return spec


def _stored_tensors(session: _Session) -> tuple[StoredTensor, ...]:
    index = session.small_file("model.safetensors.index.json", MAX_INDEX_BYTES)
    if index is None:
        return read_header(session.open_range("model.safetensors"))
    from concurrent.futures import ThreadPoolExecutor

    shards = sorted(set(parse_index(index, "model.safetensors.index.json").values()))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        readers = dict(zip(shards, pool.map(session.open_range, shards), strict=True))
    return read_indexed(index, "model.safetensors.index.json", readers.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReader:
    """A file on the Hub; its beginning is kept from the request that told its length."""

    name: str
    size_bytes: int
    beginning: bytes
    session: _Session

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``, by one range request unless kept.

        Raises:
            HubError: The Hub does not send them.
        """
        if offset + length <= len(self.beginning):
            return self.beginning[offset : offset + length]
        _, data = self.session.range_of(self.name, offset, length)
        if len(data) != length:
            raise HubError(
                f"{self.session.described} sent {len(data):,} bytes of {self.name} instead of the"
                f" {length:,} asked for"
            )
        return data


@dataclass(slots=True, kw_only=True)
class _Session:
    """One repository, over the network or from the cache."""

    repository: str
    options: HubOptions
    client: httpx.Client | None
    notes: list[str]

    @classmethod
    @contextmanager
    def open(cls, repository: str, options: HubOptions) -> Iterator[_Session]:
        if options.is_offline:
            yield cls(repository=repository, options=options, client=None, notes=[])
            return
        import httpx
        from huggingface_hub import get_token

        token = options.token or get_token()
        headers = {"user-agent": "tokenroom", "accept-encoding": "identity"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        with httpx.Client(
            headers=headers, follow_redirects=True, timeout=options.timeout_seconds
        ) as client:
            yield cls(repository=repository, options=options, client=client, notes=[])

    @property
    def endpoint(self) -> str:
        options = self.options
        return (options.endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")

    @property
    def described(self) -> str:
        return f"{self.repository} at revision {self.options.revision}"

    def json_file(self, file: str) -> dict[str, object] | None:
        """A small JSON object, None when the repository has no such file."""
        data = self.small_file(file, MAX_FILE_BYTES)
        if data is None:
            return None
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{file} of {self.described} is not readable JSON") from error
        if not isinstance(value, dict):
            raise ModelError(f"{file} of {self.described} must hold a JSON object")
        return value

    def small_file(self, file: str, limit_bytes: int) -> bytes | None:
        """A whole small file, None when the repository has no such file."""
        if self.client is None or _COMMIT.fullmatch(self.options.revision):
            path = self._cached(file)
            if path is not None:
                return path.read_bytes()
        if self.client is None:
            if file == "config.json":
                raise self._not_cached(file)
            return None
        try:
            with self._request(file, {}) as response:
                return self._body(response, file, limit_bytes)
        except _NoSuchFileError:
            return None
        except _UnreachableError:
            path = self._cached(file)
            if path is None:
                raise
            self.notes.append("the Hub could not be reached; the cached copy was read")
            self.client = None  # the rest comes from the cache as well
            return path.read_bytes()

    def open_range(self, file: str) -> RangeReader:
        """A reader of a file's ranges.

        Raises:
            HubError: The file is not there or the Hub does not serve ranges of it.
        """
        if self.client is None:
            path = self._cached(file)
            if path is None:
                raise self._not_cached(file)
            return open_file(path)
        size_bytes, beginning = self.range_of(file, 0, _FIRST_BYTES)
        return HttpReader(name=file, size_bytes=size_bytes, beginning=beginning, session=self)

    def range_of(self, file: str, offset: int, length: int) -> tuple[int, bytes]:
        """The file's length and at most ``length`` bytes from ``offset``."""
        wanted = {"range": f"bytes={offset}-{offset + length - 1}"}
        try:
            with self._request(file, wanted) as response:
                if response.status_code == 416 and offset == 0:
                    return 0, b""
                served = re.fullmatch(
                    r"bytes (\d{1,15})-(\d{1,15})/(\d{1,18})",
                    response.headers.get("content-range", ""),
                )
                if response.status_code != 206 or not served or int(served[1]) != offset:
                    raise HubError(
                        f"{self.endpoint} does not serve byte ranges of {file}; its header cannot"
                        " be read without downloading the weights"
                    )
                return int(served[3]), self._body(response, file, length)
        except _NoSuchFileError:
            raise HubError(f"{self.described} has no file {file}") from None

    @contextmanager
    def _request(self, file: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """One GET whose status has been checked; the body is still to be read."""
        import httpx

        assert self.client is not None
        url = (
            f"{self.endpoint}/{self.repository}/resolve/"
            f"{quote(self.options.revision, safe='')}/{quote(file)}"
        )
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                self._check_status(response, file)
                yield response
        except httpx.TimeoutException as error:
            raise _UnreachableError(
                f"{self.endpoint} did not answer within {self.options.timeout_seconds:g} seconds;"
                " try again or raise the timeout"
            ) from error
        except httpx.TooManyRedirects as error:
            raise HubError(f"{self.endpoint} redirects {file} in circles") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _UnreachableError(
                f"{self.endpoint} cannot be reached ({str(error)[:200] or type(error).__name__});"
                " check the network, or give a config.json"
            ) from error

    def _check_status(self, response: httpx.Response, file: str) -> None:
        status = response.status_code
        if status in (200, 206, 416):
            return
        code = response.headers.get("x-error-code", "")
        where = f"{self.endpoint}/{self.repository}"
        if status == 404 and code not in ("RepoNotFound", "RevisionNotFound"):
            raise _NoSuchFileError(f"{self.described} has no file {file}")
        if code == "RevisionNotFound":
            raise HubError(f"{self.repository} has no revision {shown(self.options.revision)}")
        if code == "GatedRepo" or status == 403:
            raise HubError(
                f"{self.repository} is gated: ask for access at {where} and set HF_TOKEN to a token"
                " that has it, or give a config.json"
            )
        if status == 401 or code == "RepoNotFound":
            raise HubError(
                f"the Hub has no public model {shown(self.repository)}; check the name, or "
                f"set HF_TOKEN"
                " if it is private or gated"
            )
        if status == 429:
            wait = response.headers.get("retry-after", "")
            later = f"in {wait} seconds" if wait.isdecimal() else "later"
            raise HubError(f"{self.endpoint} limits requests; try again {later} or set HF_TOKEN")
        raise HubError(
            f"{self.endpoint} answered {file} with HTTP status {status}; try again later"
        )

    def _body(self, response: httpx.Response, file: str, limit_bytes: int) -> bytes:
        """The body, never more than the limit and never longer than patience lasts."""
        deadline = time.monotonic() + _SLOWEST * self.options.timeout_seconds
        body = bytearray()
        for piece in response.iter_raw():
            body += piece
            if len(body) > limit_bytes:
                raise HubError(f"{self.endpoint} sent more than {limit_bytes:,} bytes of {file}")
            if time.monotonic() > deadline:
                raise _UnreachableError(
                    f"{self.endpoint} sends {file} too slowly; try again or raise the timeout"
                )
        return bytes(body)

    def _cached(self, file: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(
            self.repository,
            file,
            cache_dir=self.options.cache_dir,
            revision=self.options.revision,
        )
        return Path(path) if isinstance(path, str) else None

    def _not_cached(self, file: str) -> HubError:
        return HubError(
            f"{file} of {self.described} is not in the Hub's cache and the Hub is not asked while"
            " offline; go online or give a local path"
        )


class _UnreachableError(HubError):
    """The Hub did not answer; a cached copy may do."""


class _NoSuchFileError(HubError):
    """The repository is there, the file is not."""
