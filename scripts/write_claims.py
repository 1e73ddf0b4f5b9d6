"""Write docs/claims.md and docs/claims.zh.md: published claims beside computed figures.

    python scripts/write_claims.py

Everything is computed, simulations too (about a quarter of a minute). Their figures go to
src/tokenroom/claims/data/simulated.json, which answers where simulations would take too long.
"""

import sys
import time
from pathlib import Path

from tokenroom.claims.index import RECORDED, all_claims, answers, recording
from tokenroom.reports.claims_text import claims_markdown
from tokenroom.reports.messages import Language

ROOT = Path(__file__).parent.parent
PAGES = {
    ROOT / "docs" / "claims.md": Language.ENGLISH,
    ROOT / "docs" / "claims.zh.md": Language.CHINESE,
}


def main() -> int:
    begun = time.monotonic()
    found = list(answers(all_claims()))
    kept = ROOT / "src" / "tokenroom" / "claims" / RECORDED
    kept.write_text(recording(found), encoding="utf-8")
    for page, language in PAGES.items():
        page.write_text(claims_markdown(found, language), encoding="utf-8")
    print(f"{len(found)} rows in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
