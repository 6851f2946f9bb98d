"""The fields of a request that say how to generate: read from the body, checked, made SamplingParams.

What there is, is in fields.py; what the values of sampling parameters may be, in common/types.py. Here is what is
HTTP's: two names of one thing, null, defaults, fields that depend on each other, and those that must be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...common.errors import InvalidRequest
from ...common.types import SamplingParams
from .body import Body
from .fields import DEFAULT_COMPLETION_TOKENS, FIELDS, PATHS, SAMPLING, Field, Route
from .structure import Structure, read_structure
from .tools.request import NO_TOOLS, Tools, read_tools


@dataclass(frozen=True, slots=True)
class Parameters:
    """How to generate, and how to send what was generated. `echo`: after the prompt."""

    sampling: SamplingParams
    structure: Structure | None
    stream: bool
    include_usage: bool
    echo: bool
    tools: Tools


def read_parameters(body: Body, route: Route, vocab_size: int) -> Parameters:
    """The parameters in a request's body. Raises InvalidRequest, which names the field."""
    _refuse_unusable(body, route)
    echo = route == "completions" and flag(body, "echo", False)
    sampling = _sampling(body, route, echo)
    for name, tokens in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", dict(sampling.logit_bias))):
        if any(token >= vocab_size for token in tokens):
            raise InvalidRequest(f"{name} holds a token id that is not in 0..{vocab_size - 1}", name)
    _check_best_of(body, sampling.n)
    stream = flag(body, "stream", False)
    tools = read_tools(body) if route == "chat" else NO_TOOLS
    return Parameters(sampling, read_structure(body), stream, _include_usage(body, stream), echo, tools)


def flag(body: Body, name: str, default: bool) -> bool:
    """A field that is true or false."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", name)
    return value


def _refuse_unusable(body: Body, route: Route) -> None:
    """Refuse what would have to be ignored: fields of the other route, and those that nobody has yet."""
    for field in FIELDS:
        value = body.get(field.name)
        if value is None or field.required or field.usable(route) or any(_same(value, one) for one in field.neutral):
            continue
        raise InvalidRequest(f"{field.name} {_why_unusable(field, route)}; leave it out", field.name)


def _why_unusable(field: Field, route: Route) -> str:
    if route in field.routes:
        return "is not supported yet"
    return f"is not a field of {PATHS[route]} but of {', '.join(PATHS[one] for one in field.routes)}"


def _same(value: Any, other: Any) -> bool:
    """Equal and of one type: JSON's true is not 1."""
    return type(value) is type(other) and value == other


def _sampling(body: Body, route: Route, echo: bool) -> SamplingParams:
    given = {field.name: body[field.name] for field in SAMPLING if body.get(field.name) is not None}
    limit_name, limit = _max_tokens(body)
    top_name, top = _logprobs(body, route)
    if limit is None and route == "completions":
        limit = DEFAULT_COMPLETION_TOKENS
    try:
        sampling = SamplingParams(max_tokens=limit, logprobs=top, **given)
    except InvalidRequest as error:
        name = {"max_tokens": limit_name, "logprobs": top_name}.get(error.param or "")
        if error.param is None or name is None:
            raise
        raise InvalidRequest(str(error).replace(error.param, name), name) from None
    if sampling.max_tokens == 0 and not echo:
        raise InvalidRequest(
            f"{limit_name} must be at least 1, unless the prompt of a completion is echoed", limit_name
        )
    return sampling


def _max_tokens(body: Body) -> tuple[str, Any]:
    """The limit and the name it was given by; the newer name is max_completion_tokens."""
    old, new = body.get("max_tokens"), body.get("max_completion_tokens")
    if new is None:
        return "max_tokens", old
    if old is not None and not _same(old, new):
        raise InvalidRequest("max_completion_tokens and max_tokens are both given and differ", "max_completion_tokens")
    return "max_completion_tokens", new


def _logprobs(body: Body, route: Route) -> tuple[str, Any]:
    """How many alternatives each token has, None for no log-probabilities, and the name of that number's field."""
    if route == "completions":
        return "logprobs", body.get("logprobs")
    wanted, top = flag(body, "logprobs", False), body.get("top_logprobs")
    if top is not None and not wanted:
        raise InvalidRequest("top_logprobs needs logprobs to be true", "top_logprobs")
    return "top_logprobs", 0 if wanted and top is None else top


def _check_best_of(body: Body, n: int) -> None:
    best_of = body.get("best_of")
    if best_of is not None and not _same(best_of, n):
        raise InvalidRequest(f"best_of must be the same as n, which is {n}", "best_of")


def _include_usage(body: Body, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise InvalidRequest("stream_options must be an object", "stream_options")
    if not stream:
        raise InvalidRequest("stream_options needs stream to be true", "stream_options")
    try:
        return flag(Body(options), "include_usage", False)
    except InvalidRequest as error:
        raise InvalidRequest(f"stream_options.{error}", "stream_options") from None
