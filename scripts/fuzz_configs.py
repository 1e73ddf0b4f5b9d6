"""Put damaged values into real configurations and run whole fits, for as long as wanted.

    python scripts/fuzz_configs.py FOLDER [--seconds 600] [--seed 1]

FOLDER holds config.json files under any names. Every end that is neither an answer nor a
TokenroomError is printed once, with what was changed; the exit code is 1 when there was one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "fuzz"))

from config_targets import ENGINES, VALUES, answers, changed, places, within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    configs = {}
    for file in sorted(options.folder.rglob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(data, dict) and "model_type" in data:
            configs[str(file.relative_to(options.folder))] = data
    end = time.monotonic() + options.seconds
    seen: Counter[tuple[str, ...]] = Counter()
    count = 0
    while time.monotonic() < end:
        name = chosen.choice(list(configs))
        data, made = configs[name], []
        for _ in range(chosen.choice((1, 1, 2))):
            place, value = chosen.choice(list(places(data))), chosen.choice(VALUES)
            made.append((place, value if value != 10**400 else "10**400"))
            data = changed(data, place, value)
        engine = chosen.choice(ENGINES)
        count += 1
        try:
            with within(20):
                answers(data, engine, gpus=chosen.choice((1, 1, 2)))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            key = (type(error).__name__, str(error)[:80], Path(last.filename).name, last.name)
            seen[key] += 1
            if seen[key] == 1:
                print(*key, "|", name, engine, *made, flush=True)
    print(f"{count} fits of {len(configs)} configurations, {len(seen)} kinds of failure")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
