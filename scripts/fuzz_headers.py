"""Coverage-guided fuzzing of the header parsers with atheris, for as long as one likes.

    pip install atheris
    python scripts/fuzz_headers.py safetensors -max_total_time=300 -rss_limit_mb=2048

The first argument names the parser (safetensors, gguf, index), the rest goes to libFuzzer. A case
that fails is written as crash-*; put it into tests/fuzz/corpus as PARSER-what-it-shows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed; pip install atheris (Linux, CPython up to 3.13)")

with atheris.instrument_imports(include=["tokenroom"]):
    from header_targets import PARSERS, VALID, check


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in PARSERS:
        sys.exit(f"say which parser: {', '.join(PARSERS)}")
    parser = sys.argv.pop(1)
    seeds = Path(tempfile.mkdtemp(prefix=f"fuzz-{parser}-"))
    (seeds / "valid").write_bytes(VALID[parser]())
    for case in (ROOT / "tests" / "fuzz" / "corpus").glob(f"{parser}-*"):
        (seeds / case.name).write_bytes(case.read_bytes())
    atheris.Setup([*sys.argv, str(seeds)], lambda data: check(parser, data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
