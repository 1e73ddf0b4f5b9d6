"""The workers of a Ray cluster, which the extra ``ray`` reaches."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tokenroom.errors import ExecutionError
from tokenroom.execution.canonical import program_version
from tokenroom.execution.lost import WorkerLostError

_Answer = TypeVar("_Answer")

_REACH_SECONDS: Final = 10.0
_REASON_CHARACTERS: Final = 200


class RayCluster(Executor):
    """Calls functions as tasks of a Ray cluster that is there already, a CPU for each.

    The package has to be installed, in the same version, where the cluster's workers run. Ray's own
    retries are off: a lost worker is told as :class:`WorkerLostError`, as of other executors.

    Args:
        address: Of the cluster, as ``ray.init`` takes it: ``HOST:PORT``, ``auto``, ``ray://...``.

    Raises:
        ExecutionError: Ray is not installed, no cluster answers there, or its workers have no
            tokenroom or another version.
    """

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise ExecutionError(
                "--ray needs the package ray, which is not installed; pip install 'tokenroom[ray]'"
            ) from None
        self._ray = ray
        try:
            _reach(address)  # Ray itself goes on trying for minutes
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:_REASON_CHARACTERS]
            raise ExecutionError(
                f"--ray {address}: no cluster answers there ({reason}); start one with ray start "
                "--head and give the address that it prints"
            ) from error
        self._call = ray.remote(num_cpus=1, max_retries=0)(_called)
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._check_version(address)

    def _check_version(self, address: str) -> None:
        try:
            theirs = self._ray.get(self._call.remote(program_version))
        except self._ray.exceptions.RayError as error:
            self._ray.shutdown()
            raise ExecutionError(
                f"--ray {address}: its workers cannot load tokenroom ({_last_line(error)}); "
                f"install the same version where they run"
            ) from error
        if theirs != program_version():
            self._ray.shutdown()
            raise ExecutionError(
                f"--ray {address}: its workers have tokenroom {theirs} and this is "
                f"{program_version()}; install the same version where they run"
            )

    def submit(self, fn: Callable[..., _Answer], /, *args: Any, **kwargs: Any) -> Future[_Answer]:
        """Have ``fn`` called on the cluster; importable there, with picklable arguments."""
        inner: Future[Any] = self._call.remote(fn, *args, **kwargs).future()
        future: Future[_Answer] = Future()
        future.set_running_or_notify_cancel()
        inner.add_done_callback(lambda done: self._ended(future, done))
        with self._lock:
            self._under_way.add(future)
        return future

    def _ended(self, future: Future[Any], inner: Future[Any]) -> None:
        errors = self._ray.exceptions
        error = inner.exception()
        with self._lock:
            self._under_way.discard(future)
        if error is None:
            future.set_result(inner.result())
        elif isinstance(
            error, errors.WorkerCrashedError | errors.NodeDiedError | errors.OutOfMemoryError
        ):
            future.set_exception(WorkerLostError())
        elif isinstance(error, errors.RayTaskError) and isinstance(error.cause, Exception):
            future.set_exception(error.cause)
        else:
            future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which ends there what is under way; before that ``wait`` for it."""
        if wait and not cancel_futures:
            with self._lock:
                under_way = set(self._under_way)
            wait_for(under_way)
        self._ray.shutdown()


def _reach(address: str) -> None:
    """Refuse a host and port where nobody listens; other forms of address are Ray's."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    if parts.hostname is not None and parts.port is not None:
        socket.create_connection((parts.hostname, parts.port), _REACH_SECONDS).close()


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _last_line(error: Exception) -> str:
    return next(reversed(str(error).strip().splitlines()), type(error).__name__).strip()
