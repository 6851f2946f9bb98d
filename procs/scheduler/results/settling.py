"""Taking in the results of a step: counters, new tokens, what may be cached now, and who has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....common.types import Finish
from ....ipc.logprobs import pack
from ....ipc.messages import NO_VALUES, Detail, Logprobs, RowError
from ....ipc.plan import StepSlot
from ....ipc.ring import Tokens
from ..cache.prefix_cache import PrefixCache
from ..lives import Lives
from ..planning.step import OpenStep
from ..request import Request
from ..rows import Counts, Flags, Rows, RowTable
from ..statistics import SpecStats, Statistics
from .emission import Emission, LastWords, NewTokens, last_word, opening
from .stops import Cut, append

MAX_SCORED_TOKENS = 1 << 16
"""One emission has the log-probabilities of so many prompt tokens at most, 11 MB: a message has a largest size."""

Scored = tuple[int, npt.NDArray[np.int32]]
"""A request's id and the words of its tokens' log-probabilities."""


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The rows of a step that sampled and still live: their places in the plan, rows, and how many tokens each."""

    places: Rows
    rows: Rows
    produced: Counts


class Settling:
    """Settles the steps of one row table."""

    def __init__(
        self,
        table: RowTable,
        lives: Lives,
        cache: PrefixCache,
        statistics: Statistics,
        spec_stats: SpecStats,
        eos_ids: Tokens,
    ) -> None:
        self._table = table
        self._lives = lives
        self._cache = cache
        self._statistics = statistics
        self._spec_stats = spec_stats
        self._eos_ids = eos_ids

    def settle(self, step: OpenStep, slot: StepSlot, errors: Sequence[RowError], now: float) -> list[Emission]:
        """The results of a step lie in its slot; `errors` are of rows that failed."""
        table = self._table
        alive = table.generation[step.rows] == step.generations
        self._statistics.late_results += int(np.count_nonzero(step.samples & ~alive))
        rows = step.rows[alive]
        table.in_flight[rows] -= step.counts[alive]
        table.open_steps[rows] -= 1
        table.open_tokens[rows] -= step.samples[alive]
        produced = slot.produced[: len(alive)].astype(np.int64)
        emissions = self._fail(step, alive, produced, errors, now)
        places = np.flatnonzero(alive & step.samples)
        sampled = _Sampled(places, step.rows[places], produced[places])
        emissions += self._prompt_logprobs(step, slot, alive)
        self._count_drafts(step, sampled)
        chunks = alive & ~step.decodes
        table.committed[step.rows[chunks]] += step.counts[chunks]
        emissions += self._extend(step, slot, sampled, step.rows[alive], now)
        emissions += self._end_prompts(step.rows[alive & ~step.samples], now)
        return emissions

    def _fail(
        self, step: OpenStep, alive: Flags, produced: Counts, errors: Sequence[RowError], now: float
    ) -> list[Emission]:
        """End the rows that failed, and those whose number of tokens cannot be; they live no more."""
        causes = {error.index: error.cause for error in errors}
        wrong = alive & step.samples & ((produced < 1) | (produced > 1 + step.drafts))
        for index in np.flatnonzero(wrong).tolist():
            causes.setdefault(index, f"the executor gave {produced[index]} tokens for {step.drafts[index]} drafts")
        emissions = []
        for index, cause in causes.items():
            if alive[index]:
                alive[index] = False
                request = self._table.request(int(step.rows[index]))
                self._lives.end(request, Finish.ERROR, now)
                emissions.append(last_word(request, Finish.ERROR, Detail(request.rid, cause)))
        return emissions

    def _count_drafts(self, step: OpenStep, sampled: _Sampled) -> None:
        """Statistics of the drafts that were verified: at most those that lay ready when the step ran."""
        drafts = step.drafts[sampled.places]
        if not drafts.any():
            return
        ready = np.where(step.host_drafts[sampled.places], drafts, self._table.drafted[sampled.rows])
        verified = np.minimum(drafts, ready)
        counted = verified > 0
        self._spec_stats.update(verified[counted], sampled.produced[counted] - 1)

    def _extend(self, step: OpenStep, slot: StepSlot, sampled: _Sampled, alive: Rows, now: float) -> list[Emission]:
        """Append the new tokens, publish what is computed, end the rows that their tokens end."""
        table, rows = self._table, sampled.rows
        if not len(rows):
            self._cache.publish(alive)
            return []
        tokens = slot.sampled[sampled.places]
        cut = append(table, rows, tokens, sampled.produced, self._eos_ids)
        table.drafted[rows] = np.clip(slot.drafted[sampled.places], 0, self._spec_stats.mtp_k)
        decodes = step.decodes[sampled.places]
        table.committed[rows[decodes]] += cut.kept[decodes]
        self._cache.publish(alive)
        opened = self._open(rows)
        self._statistics.generation_tokens += int(cut.kept.sum())
        rids = table.rid[rows]
        logprobs = self._logprobs(slot, sampled, cut)
        kept = np.arange(tokens.shape[1]) < cut.kept[:, None]
        ended = self._end(rows, rids, cut, now)
        new = NewTokens(rids, cut.kept.astype(np.int32), tokens[kept], logprobs)
        return [Emission(opened, new, ended)]

    def _open(self, rows: Rows) -> Sequence[Request]:
        """Those of the rows' requests of which output has not heard."""
        table = self._table
        fresh = rows[~table.opened[rows]]
        table.opened[fresh] = True
        return opening(table.requests_of(fresh))

    def _end(self, rows: Rows, rids: Counts, cut: Cut, now: float) -> LastWords:
        ends = cut.finishes != Finish.NONE
        details = self._lives.end_rows(rows[ends], now) if ends.any() else ()
        return LastWords(rids[ends], cut.finishes[ends], cut.stop_tokens[ends], details)

    def _end_prompts(self, rows: Rows, now: float) -> list[Emission]:
        """End the requests that wanted their prompt prefilled and no more."""
        table = self._table
        ended = rows[(table.committed[rows] >= table.target[rows]) & (table.token_limit[rows] <= table.target[rows])]
        emissions = []
        for row in ended.tolist():
            request = table.request(row)
            kv = self._lives.end(request, Finish.LENGTH, now)
            emissions.append(last_word(request, Finish.LENGTH, Detail(request.rid, "", kv) if kv else None))
        return emissions

    def take_first(self, rows: Rows, tokens: Tokens, now: float) -> Emission:
        """Tokens that another engine generated are the first outputs of rows; drafts may have come with them."""
        table, most_drafts = self._table, self._spec_stats.mtp_k
        ones = np.ones(len(rows), np.int64)
        cut = append(table, rows, tokens[:, None], ones, self._eos_ids)
        opened = self._open(rows)
        table.from_host[rows] = True
        if most_drafts:
            drafts = [len(one.remote.drafts) if one.remote else 0 for one in table.requests_of(rows)]
            table.drafted[rows] = np.minimum(drafts, most_drafts)
        self._statistics.generation_tokens += len(rows)
        rids = table.rid[rows]
        return Emission(opened, NewTokens(rids, ones.astype(np.int32), tokens), self._end(rows, rids, cut, now))

    # Log-probabilities

    def _logprobs(self, slot: StepSlot, sampled: _Sampled, cut: Cut) -> Logprobs:
        """Those of the tokens that count, of the rows that want them."""
        wanted = np.flatnonzero(self._table.wants_logprobs[sampled.rows])
        if not len(wanted):
            return NO_VALUES
        entries = []
        for index in wanted.tolist():
            request = self._table.request(int(sampled.rows[index]))
            words = 1 + 2 * request.sampling.logprobs
            entries.append((request.rid, slot.logprobs[sampled.places[index], : cut.kept[index], :words].copy()))
        return pack(entries)

    def _prompt_logprobs(self, step: OpenStep, slot: StepSlot, alive: Flags) -> list[Emission]:
        """Those of the prompt tokens behind the tokens of chunks, each once, whatever is computed again."""
        places = np.flatnonzero(alive & ~step.decodes & self._table.wants_prompt_logprobs[step.rows])
        entries = []
        for place in places.tolist():
            request = self._table.request(int(step.rows[place]))
            start, count, at = int(step.starts[place]), int(step.counts[place]), int(step.token_starts[place])
            first = max(start + 1, request.scored_tokens)
            end = min(start + count + 1, request.prompt_tokens)
            if first < end:
                words = slot.prompt_logprobs[at + first - start - 1 : at + end - start - 1]
                entries.append((request.rid, words[:, : 1 + 2 * request.sampling.prompt_logprobs].copy()))
                request.scored_tokens = end
        if not entries:
            return []
        beginning, *others = map(pack, _portions(entries))
        opened = self._open(step.rows[places])
        return [Emission(opened, prompt_logprobs=beginning), *(Emission(prompt_logprobs=other) for other in others)]


def _portions(entries: list[Scored]) -> Iterator[list[Scored]]:
    """Entries in portions of bounded size, in order; a long prompt's may lie in several."""
    portion: list[Scored] = []
    room = MAX_SCORED_TOKENS
    for rid, words in entries:
        for first in range(0, len(words), MAX_SCORED_TOKENS):
            part = words[first : first + MAX_SCORED_TOKENS]
            if len(part) > room:
                yield portion
                portion, room = [], MAX_SCORED_TOKENS
            portion.append((rid, part))
            room -= len(part)
    yield portion
