"""Where the ``tokenroom`` command and ``python -m tokenroom`` start.

Everything is imported inside, so that Ctrl-C while modules are loading ends as quietly as later.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 128 + 2


def main() -> int:
    """Run the command line; the exit code."""
    try:
        from tokenroom.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("tokenroom: interrupted", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
