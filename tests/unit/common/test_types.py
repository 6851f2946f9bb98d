"""Sampling parameters refuse what cannot be served, and name the field."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import InvalidRequest
from fourstroke.common.types import SamplingParams

NOT_NUMBERS = [True, "1", None, [], math.nan, math.inf, -math.inf]
NOT_INTEGERS = [True, "1", 1.0, [], math.nan]

BAD = {
    "n": [0, 129, None, *NOT_INTEGERS],
    "max_tokens": [-1, 2**31, *NOT_INTEGERS],
    "logprobs": [-1, 21, *NOT_INTEGERS],
    "min_tokens": [-1, 2**31, None, *NOT_INTEGERS],
    "temperature": [-0.1, 1.1e6, 10**400, *NOT_NUMBERS],
    "top_k": [-2, 2**31, None, *NOT_INTEGERS],
    "top_p": [0, 0.0, -0.1, 1.1, *NOT_NUMBERS],
    "min_p": [-0.1, 1.1, *NOT_NUMBERS],
    "seed": [2**63, -(2**63) - 1, *NOT_INTEGERS],
    "stop": ["", [""], ["a", ""], ["z"] * 17, ["z" * 1025], [1], [None], {}, 5, True, "\ud800"],
    "stop_token_ids": [[-1], [2**31], [1.5], [True], ["7"], [None], 7, "7", [0] * 1025],
    "ignore_eos": [1, 0, "true", None],
    "include_stop_str_in_output": [1, "", None],
    "skip_special_tokens": [1, "", None],
    "priority": [2**31, -(2**31) - 1, None, *NOT_INTEGERS],
    "timeout": [0, 0.0, -1, 2**30 + 1, 10**400, *(value for value in NOT_NUMBERS if value is not None)],
    "cache_salt": ["", "x" * 1025, "\ud800", 5, 0, True, False, [], ["x"], {}],
}


@pytest.mark.parametrize(
    "name, value",
    [(name, value) for name, values in BAD.items() for value in values],
    ids=lambda value: repr(value)[:24].encode("ascii", "replace").decode(),
)
def test_refused_by_name(name, value):
    """A value that cannot be served is refused with the parameter's name, in the error and in its words."""
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "params",
    [
        {"n": 128},
        {"max_tokens": 1, "min_tokens": 1},
        {"max_tokens": 0},
        {"logprobs": 0},
        {"logprobs": 20},
        {"temperature": 0},
        {"temperature": 1e6},
        {"top_k": -1},
        {"top_p": 1},
        {"top_p": 1e-9},
        {"min_p": 1},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"stop": None},
        {"stop": []},
        {"stop": ["z" * 1024] * 16},
        {"stop_token_ids": None},
        {"stop_token_ids": [0, 2**31 - 1]},
        {"priority": -(2**31)},
        {"priority": 2**31 - 1},
        {"timeout": 1e-9},
        {"timeout": 2**30},
        {"cache_salt": "é" * 1024},
    ],
    ids=lambda params: repr(params)[:40],
)
def test_accepted(params):
    """The documented least and greatest values are accepted."""
    SamplingParams(**params)


def test_min_tokens_above_max_tokens():
    """More than can be generated cannot be asked for."""
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(min_tokens=5, max_tokens=4)
    assert caught.value.param == "min_tokens"


def test_one_form():
    """Whatever form a value was given in, it is kept in one: parameters that mean the same are equal and hashable."""
    one = SamplingParams(stop="a", temperature=1, stop_token_ids=[1])
    assert one == SamplingParams(stop=["a"], temperature=1.0, stop_token_ids=(1,))
    assert (one.stop, one.stop_token_ids, type(one.temperature)) == (("a",), (1,), float)
    assert hash(one) == hash(SamplingParams(stop=("a",), stop_token_ids=(1,)))


@given(st.floats(0, 1e6))
def test_greedy(temperature):
    """Temperatures that float32 could not divide by are greedy."""
    assert SamplingParams(temperature=temperature).greedy == (temperature < 1e-5)


def test_sampling_params_are_values():
    """Equal parameters are equal and hash alike; a bias given as a mapping cannot be changed afterwards."""
    bias = {7: -1, "5": 2.5}
    params = SamplingParams(logit_bias=bias, stop=["a"])
    bias[9] = 1
    assert params.logit_bias == ((5, 2.5), (7, -1.0))
    assert params == SamplingParams(logit_bias={5: 2.5, 7: -1}, stop="a") == dataclasses.replace(params)
    assert len({params, SamplingParams(logit_bias={5: 2.5, 7: -1}, stop="a")}) == 1
