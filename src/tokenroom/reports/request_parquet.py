"""Records of requests as a Parquet file that grows by row groups as they end (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.files import naming
from tokenroom.reports.request_file import FIELDS, values
from tokenroom.serving.record import RequestRecord

if TYPE_CHECKING:
    from pyarrow import Schema
    from pyarrow.parquet import ParquetWriter

GROUP_ROWS: Final = 2**16
"""Records of a row group, which is what memory holds of them."""


class ParquetRequests:
    """Writes records a row group at a time.

    Args:
        writer: The file.
        path: Its name.
        schema: Its columns: :data:`~tokenroom.reports.request_file.FIELDS`.
    """

    __slots__ = ("_path", "_rows", "_schema", "_writer")

    def __init__(self, writer: ParquetWriter, path: Path, schema: Schema) -> None:
        self._writer, self._path = writer, path
        self._schema = schema
        # Whole rows, not columns: an interrupt that strikes within request() leaves no half of one.
        self._rows: list[Sequence[object]] = []

    def request(self, record: RequestRecord) -> None:
        """Write what became of a request, once its row group is full."""
        self._rows.append(tuple(values(record)))
        if len(self._rows) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the row group that has begun."""
        if not self._rows:
            return
        from pyarrow import record_batch

        columns = list(zip(*self._rows, strict=True))
        with naming(self._path):
            self._writer.write_batch(record_batch(columns, schema=self._schema))
        self._rows.clear()

    def end(self) -> None:
        """Hear that this was the last one."""


@contextmanager
def parquet_requests(path: Path) -> Iterator[ParquetRequests]:
    """What writes records to a Parquet file; it is whole however the run ends.

    Raises:
        TokenroomError: pyarrow is not installed.
        OSError: It cannot be written.
    """
    try:
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise TokenroomError(
            f"{path.name} is a Parquet file, which needs pyarrow; install it with pip install "
            "'tokenroom[parquet]', or name a file that ends in .csv"
        ) from None
    schema = _schema()
    with naming(path):
        writer = ParquetWriter(path, schema, compression="zstd")
    requests = ParquetRequests(writer, path, schema)
    try:
        yield requests
    finally:
        try:
            requests.flush()
        finally:
            with naming(path):
                writer.close()


def _schema() -> Schema:
    import pyarrow

    def kind(name: str) -> Any:
        if name == "refused":
            return pyarrow.string()
        return pyarrow.float64() if name.endswith("_seconds") else pyarrow.int64()

    return pyarrow.schema([(name, kind(name)) for name in FIELDS])
