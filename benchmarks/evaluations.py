"""How many fits of one model over changing settings one core makes in a second.

    python benchmarks/evaluations.py [--model NAME] [--gpu NAME]

Counted in processor time of the one thread, so that other work on the machine does not change it.
Recorded results are in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import time

from tokenroom import fit, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fits", type=int, default=2000)
    arguments = parser.parse_args()
    spec = load_model(arguments.model)
    rates = []
    for turn in range(arguments.rounds):
        started = time.process_time()
        for number in range(arguments.fits):
            result = fit(
                spec,
                arguments.gpu,
                context=8192 + 16 * (number % 1000),
                util=0.85 + 0.0001 * (turn + number % 100),
                concurrency=1 + number % 64,
            )
            assert result.verdict
        rates.append(arguments.fits / (time.process_time() - started))
    rates.sort()
    print(
        f"{arguments.model} on {arguments.gpu}: {rates[0]:,.0f} to {rates[-1]:,.0f} fits/s, "
        f"median {rates[len(rates) // 2]:,.0f}"
    )


if __name__ == "__main__":
    main()
