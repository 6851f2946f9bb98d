"""The JSON of logprobs objects equals that of a naive model which builds objects and dumps them."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.logprobs import LOWEST, Entry
from fourstroke.procs.ingest.logprobs import Scored, chat_logprobs, completion_logprobs
from fourstroke.procs.ingest.token_names import TokenNames

ids = st.integers(0, 401)
scores = st.floats(-9999, 0, width=32)
entries = st.lists(st.tuples(ids, scores), max_size=4, unique_by=lambda pair: pair[0]).flatmap(
    lambda best: st.builds(Entry, scores, st.just([one for one, _ in best]), st.just([score for _, score in best]))
)
tokens = st.lists(st.builds(Scored, ids, st.none() | entries, st.integers(0, 9)), max_size=4)


def shown(names: TokenNames, token: int, logprob: float) -> dict[str, Any]:
    before, after = names.in_chat(token)
    return {**json.loads(f"{before}0{after}}}"), "logprob": logprob}


@given(tokens)
def test_chat(names: TokenNames, tokens: list[Scored]) -> None:
    """Each token has its name, bytes and alternatives, best first; where nothing is known it is very unlikely."""
    expected = []
    for token, entry, _ in tokens:
        best = [] if entry is None else zip(entry.best_ids, entry.best_logprobs, strict=True)
        expected.append(
            shown(names, token, LOWEST if entry is None else entry.logprob)
            | {"top_logprobs": [shown(names, other, score) for other, score in best]}
        )
    assert json.loads(chat_logprobs(names, tokens)) == {"content": expected}


@given(tokens)
def test_completions(names: TokenNames, tokens: list[Scored]) -> None:
    """Four lists of one length; the alternatives are a map by name in which the token itself always is."""

    def name(token: int) -> str:
        return str(json.loads(names.in_completion(token)))

    def top(token: int, entry: Entry) -> dict[str, float]:
        best = zip(map(name, entry.best_ids), entry.best_logprobs, strict=True)
        return {**dict(reversed(list(best))), name(token): entry.logprob}

    assert json.loads(completion_logprobs(names, tokens)) == {
        "tokens": [name(one.token) for one in tokens],
        "token_logprobs": [one.entry and one.entry.logprob for one in tokens],
        "top_logprobs": [one.entry and top(one.token, one.entry) for one in tokens],
        "text_offset": [one.offset for one in tokens],
    }


def test_alternatives_of_one_name(names: TokenNames) -> None:
    """Of tokens with one name the best counts, but a token that was chosen is never hidden by another."""
    twins = TokenNames(names.tokenizer)
    twins.in_completion = lambda token: '"same"' if token < 3 else f'"{token}"'  # type: ignore[assignment]
    found = json.loads(completion_logprobs(twins, [Scored(7, Entry(-3.0, [0, 1, 7], [-1.0, -2.0, -3.0]), 0)]))
    assert found["top_logprobs"] == [{"7": -3.0, "same": -1.0}]
    found = json.loads(completion_logprobs(twins, [Scored(2, Entry(-3.0, [0, 1], [-1.0, -2.0]), 0)]))
    assert found["top_logprobs"] == [{"same": -3.0}]
