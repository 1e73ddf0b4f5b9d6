"""The benchmark of operators runs without a GPU, scaled down."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def test_it_prints_measured_and_predicted_times() -> None:
    pytest.importorskip("torch")
    path = Path(__file__).parents[2] / "benchmarks/step_time.py"
    done = subprocess.run(
        [sys.executable, str(path), "--quick"], capture_output=True, text=True, check=True
    )
    rows = json.loads(done.stdout)["rows"]
    assert sum("step" in row for row in rows) == 2
    assert all(row["measured_seconds"] > 0 and row["predicted_seconds"] > 0 for row in rows)
