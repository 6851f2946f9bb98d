"""Measures and writes figures to standard output, one a line: `fourstroke bench executor` starts it.

What to measure comes as JSON in the only argument: {"config": the fields of a Config, "rows": [numbers of rows],
"input_tokens", "output_tokens": those of each row, "prefill": tokens of a lone prompt, "repetitions"}.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ....common.config import Config
from ....common.errors import ConfigError, ModelError, ResourceError
from ....common.figures import Figure, summarise
from ....common.types import EXIT_REFUSED
from .driver import Driver


def main(argument: str) -> None:
    order = json.loads(argument)
    config = dataclasses.replace(Config.of_fields(order.pop("config")), num_speculative_tokens=0)
    for figure in measure(config, order):
        sys.stdout.write(figure.line + "\n")
        sys.stdout.flush()


def measure(config: Config, order: dict[str, Any]) -> Iterator[Figure]:
    """The figures of each number of rows, and of the lone prompt. Everything is done once more, first, to warm up."""
    given, wanted, repetitions = order["input_tokens"], order["output_tokens"], order["repetitions"]
    driver = Driver(config, max(order["rows"]), max(given + wanted, order["prefill"] + 1))
    for rows in order["rows"]:
        yield from _generation(driver, rows, given, wanted, repetitions)
    times_s = [_timed(driver.prefill, 1, order["prefill"]) for _ in range(1 + repetitions)][1:]
    case = f"prefill-{order['prefill']}"
    yield summarise(case, "time", "ms", [time_s * 1e3 for time_s in times_s])
    yield summarise(case, "rate", "tokens/s", [order["prefill"] / time_s for time_s in times_s])


def _generation(driver: Driver, rows: int, given: int, wanted: int, repetitions: int) -> Iterator[Figure]:
    """Rows that are prefilled together and then decode until each has `wanted` tokens.

    Figures: the steps that decode, the rate of these alone, and that of everything: what a closed loop of so many
    streams would get from a server that costs nothing.
    """
    prefills, totals, steps = [], [], []
    for repetition in range(1 + repetitions):
        prefill_s = _timed(driver.prefill, rows, given)
        step_s = [_timed(driver.decode, rows, given + done) for done in range(wanted - 1)]
        if repetition:
            prefills.append(prefill_s)
            totals.append(prefill_s + sum(step_s))
            steps.append(step_s)
    case = f"{rows} rows"
    parts = {"prefill": sorted(prefills)[repetitions // 2] * 1e3}
    yield summarise(case, "all", "ms", [total_s * 1e3 for total_s in totals], parts=parts)
    yield summarise(case, "output", "tokens/s", [rows * wanted / total_s for total_s in totals])
    if wanted > 1:
        yield summarise(case, "step", "ms", [time_s * 1e3 for step_s in steps for time_s in step_s])
        yield summarise(case, "decode", "tokens/s", [rows * len(step_s) / sum(step_s) for step_s in steps])


def _timed(work: Callable[..., None], *arguments: int) -> float:
    begun_s = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (ConfigError, ModelError, ResourceError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_REFUSED)
