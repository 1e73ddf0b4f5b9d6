"""Rows of a Parquet trace, by pyarrow (the extra ``parquet``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads.bad_rows import BadRows
from tokenroom.serving.workloads.columns import Columns, find_columns
from tokenroom.serving.workloads.records import Records
from tokenroom.serving.workloads.rows import Row

_BATCH_ROWS: Final = 2**14


def parquet_rows(
    path: str | os.PathLike[str],
    bad: BadRows,
    asked: Columns | None,
    *,
    arrivals: bool = True,
    progress: Callable[[float], None] = lambda _: None,
) -> Iterator[Row]:
    """The rows of a Parquet file, a batch at a time; the first row is line 1.

    Args:
        path: The file.
        bad: Where rows go that cannot be read.
        asked: Names of columns, where they are told.
        arrivals: Whether arrival times are needed; without them every row arrives at 0.
        progress: Told the share of the rows that have been read.

    Raises:
        WorkloadError: pyarrow is not installed, the file is damaged, a column is missing, or a row
            cannot be read and is not left out.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise WorkloadError(
            f"{Path(path).name} is a Parquet file, which needs pyarrow; install it with pip "
            "install 'tokenroom[parquet]', or give the trace as CSV"
        ) from None
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as problem:
        reason = str(problem).split("\n", 1)[0]
        raise WorkloadError(f"{Path(path).name} is no readable Parquet file: {reason}") from problem
    with file:
        names = find_columns(file.schema_arrow.names, asked, name=bad.name, arrivals=arrivals)
        wanted = [name for field, name in names.names.items() if arrivals or field != "arrival"]
        total, line = file.metadata.num_rows, 0
        if not total:
            raise WorkloadError(f"{bad.name} is empty; give a trace with at least one request")
        records = Records(names, arrivals=arrivals)
        try:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
                columns = {name: batch.column(name).to_pylist() for name in wanted}
                for at in range(batch.num_rows):
                    line += 1
                    found = records.read({name: columns[name][at] for name in wanted}, line, bad)
                    if found is not None:
                        yield found
                progress(line / total)
        except (pyarrow.ArrowException, OSError) as problem:
            reason = str(problem).split("\n", 1)[0]
            bad.refuse(line + 1, "cut", f"the file is damaged here ({reason})")
