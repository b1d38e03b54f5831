"""Fresh random cases over all strategies: `python benchmarks/many_cases.py [COUNT] [SEED]`.

A bounded search for what the profiles have not met: COUNT programs (1000 if left out) in all, from
a seed that no profile uses. Prints each failure with its line to replay, and exits with 1.
"""

import os
import sys

os.environ["JAX_NUM_CPU_DEVICES"] = "12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from conformance import verify
from conformance.candidate import strategies
from conformance.generators import drawn_cases


def main(count: int = 1000, seed: int = 20261202) -> int:
    """Verifies an equal share of the cases for each strategy and kind of axes."""
    kinds = [(one, kind) for one in strategies() for kind in one.contract.axis_types]
    share = -(-count // len(kinds))
    failed = seen = 0
    for candidate, kind in kinds:
        cases = drawn_cases(candidate.contract, kind, 12, candidate.renames, share, seed)
        verdict = verify(candidate, cases=cases)
        seen += len(cases)
        failed += not verdict.ok
        print(f"{candidate.name:<40} {kind:<9} {len(cases):>4} cases  {verdict.word}", flush=True)
        for failure in verdict.failures:
            print(failure)
    print(f"{seen} cases, {failed} of {len(kinds)} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
