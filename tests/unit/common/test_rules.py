"""Rules and their schemas: what a rule takes is what its schema describes, no more and no less."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fourstroke.common.errors import InvalidRequest
from fourstroke.common.rules import Biases, Flag, Integer, Number, Rule, Text, Texts, TokenIds
from fourstroke.common.types import RULES, SamplingParams, default_of

RULES_OF_ALL_KINDS: list[Rule] = [
    Integer(-1, 3),
    Number(-2, 2),
    Number(0, 1, above=True),
    Flag(),
    Text(3),
    Texts(2, 3),
    TokenIds(2),
    Biases(2, 2),
]
NUMBERS = st.sampled_from([-2, -1, 0, 1, 2, 3, 4, 1.5, 1e-9, 2.5, 2**31 - 1, 2**31, 2**70])
ATOMS = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
KEYS = st.sampled_from(["0", "7", "07", "2147483647", "-1", "x", "", "1.5", "12345678901"])
VALUES = ATOMS | st.lists(ATOMS, max_size=3) | st.dictionaries(KEYS, ATOMS, max_size=3)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(RULES_OF_ALL_KINDS), VALUES)
def test_rule_and_schema_agree(rule: Rule, value: Any) -> None:
    """Of all that JSON can hold, a rule takes what its schema describes. (1.0 is 1 to schemas, and not to us.)"""
    assume(
        not any(isinstance(one, float) and one.is_integer() for one in (value if isinstance(value, list) else [value]))
    )
    assume(value is not None)  # each reader of requests takes null as absent
    if Draft202012Validator(rule.schema()).is_valid(value):
        rule.check("x", value)
    else:
        with pytest.raises(InvalidRequest) as caught:
            rule.check("x", value)
        assert caught.value.param == "x"


@pytest.mark.parametrize("rule", RULES_OF_ALL_KINDS, ids=repr)
def test_schema_is_one(rule: Rule) -> None:
    """What a rule says of itself is JSON Schema."""
    Draft202012Validator.check_schema(rule.schema())


def test_every_parameter_has_a_rule() -> None:
    """No sampling parameter is unchecked, but for the one that only the server can judge; defaults pass."""
    assert set(SamplingParams.__dataclass_fields__) - set(RULES) == {"structured_outputs"}
    for name, rule in RULES.items():
        if default_of(name) is not None:
            assert rule.check(name, default_of(name)) == default_of(name)
