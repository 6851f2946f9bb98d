"""What holds for the scheduler whatever happens: books, one last word, and the tokens of a request alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, continuation

from .driver import Driver

requests = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.lists(st.integers(3, 40), min_size=1, max_size=24),
            "max_tokens": st.integers(1, 30),
            "ignore_eos": st.booleans(),
            "min_tokens": st.integers(0, 2),
            "wait": st.integers(0, 4),
            "abort_after": st.none() | st.integers(0, 12),
        }
    ),
    min_size=1,
    max_size=10,
)
setups = st.fixed_dictionaries(
    {
        "depth": st.sampled_from([1, 2]),
        "blocks": st.integers(4, 64),
        "block_size": st.sampled_from([1, 4, 16]),
        "rows": st.integers(1, 8),
        "budget": st.integers(1, 70),
        "max_model_len": st.sampled_from([16, 48]),
        "headroom": st.sampled_from([0, 8, 64]),
        "cache": st.booleans(),
        "drafts": st.sampled_from([0, 0, 1, 3]),
        "prefill_first": st.booleans(),
        "chunked": st.booleans(),
        "long_prefill_threshold": st.sampled_from([0, 0, 3]),
    }
)


@settings(max_examples=300, deadline=None)
@given(setup=setups, requests=requests)
def test_every_request_gets_its_own_tokens_and_one_last_word(setup, requests):
    """Whatever is batched, chunked, preempted or aborted: tokens equal those of the request alone.

    The driver compares the core's books after every event.
    """
    driver = Driver(**setup)
    aborts = {}
    for rid, request in enumerate(requests):
        for _ in range(request["wait"]):
            driver.turn()
            abort_due(driver, aborts)
        request["min_tokens"] = min(request["min_tokens"], request["max_tokens"])
        limits = {name: request[name] for name in ("max_tokens", "ignore_eos", "min_tokens")}
        driver.submit(rid, request["prompt"], **limits)
        if request["abort_after"] is not None:
            aborts[rid] = request["abort_after"]
    for _ in range(5000):
        if not driver.turn():
            break
        abort_due(driver, aborts)
    assert not driver.core.alive
    assert driver.core.pool.free == setup["blocks"]
    for rid, request in enumerate(requests):
        check(driver, rid, request, setup["max_model_len"])


def abort_due(driver: Driver, aborts: dict[int, int]) -> None:
    """Abort requests that have as many outputs as they may have."""
    for rid, count in list(aborts.items()):
        if len(driver.outputs.get(rid, [])) >= count:
            driver.abort(rid)
            del aborts[rid]


def check(driver: Driver, rid: int, request: dict, max_model_len: int) -> None:
    """The outputs of one request, and its last word, are what the plain definition gives."""
    outputs, ended = driver.outputs.get(rid, []), driver.ended[rid]
    prompt = request["prompt"]
    assert outputs == continuation(prompt, len(outputs))
    room = min(request["max_tokens"], max_model_len - len(prompt))
    match ended.finish:
        case Finish.REJECTED:
            assert outputs == []
        case Finish.LENGTH:
            assert len(outputs) == room or ended.detail == "kv_capacity"
        case Finish.STOP:
            assert outputs[-1] == EOS_TOKEN_ID and not request["ignore_eos"]
        case Finish.ABORT:
            assert request["abort_after"] is not None
        case _:
            raise AssertionError(f"an unexpected end: {ended}")
    if not request["ignore_eos"]:
        earlier = outputs[max(request["min_tokens"] - 1, 0) : -1]
        assert EOS_TOKEN_ID not in earlier, "EOS did not stop the request"
