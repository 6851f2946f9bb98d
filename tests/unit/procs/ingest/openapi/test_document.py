"""The description is sound OpenAPI, complete, and as strict as the server.

That answers are as it says is checked wherever a test asks the application (../contract.py).
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest import body
from fourstroke.procs.ingest.app import application
from fourstroke.procs.ingest.body import Body, parse
from fourstroke.procs.ingest.fields import BOTH, PATHS, Route
from fourstroke.procs.ingest.framing import read_framing
from fourstroke.procs.ingest.openapi.document import document
from fourstroke.procs.ingest.openapi.requests import generating
from fourstroke.procs.ingest.parameters import read_parameters

from ..surroundings import CHAT, COMPLETIONS, Surroundings

PROMPTS: dict[Route, dict[str, Any]] = {
    "completions": {"prompt": "Hi"},
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
}


async def _get(around: Surroundings, **headers: str) -> httpx.Response:
    async with around.client() as client:
        return await client.get("/openapi.json", headers=headers)


@pytest.mark.parametrize("with_key", [False, True])
def test_valid(with_key: bool) -> None:
    """It is OpenAPI 3.1, and its schemas are JSON Schema."""
    found = document(with_key)
    validate(found)  # type: ignore[arg-type]
    assert ("securitySchemes" in found["components"]) == with_key


def test_served(tmp_path: Path) -> None:
    """The server gives it to who has the key."""
    around = Surroundings(tmp_path / "model", api_key="k")
    assert asyncio.run(_get(around)).status_code == 401
    assert asyncio.run(_get(around, Authorization="Bearer k")).json() == document(with_key=True)


def test_all_routes(around: Surroundings) -> None:
    """Every route of the application is described with its method, and no other is."""
    described = {(path, method.upper()) for path, of in document(False)["paths"].items() for method in of}
    routes = {(route.path_format, method) for route in application(around.service).routes for method in route.methods}
    assert described == {(path, method) for path, method in routes if method != "HEAD"}


class Watched(Body):
    """A body that notes which members somebody asked for."""

    asked: set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("route", BOTH)
def test_all_fields(around: Surroundings, monkeypatch: pytest.MonkeyPatch, route: Route) -> None:
    """Every member of a request that is ever asked for is described, and all that are described are asked for."""
    bodies = []

    def watched(data: bytes) -> Body:
        bodies.append(Watched(parse(data)))
        bodies[-1].asked = set()
        return bodies[-1]

    monkeypatch.setattr(body, "parse", watched)
    assert asyncio.run(around.post(PATHS[route], {**PROMPTS[route], "max_tokens": 1})).status_code == 200
    assert bodies[0].asked == set(generating(route)["properties"])


ATOMS = st.none() | st.booleans() | st.integers(-3, 200) | st.floats(allow_nan=False) | st.text(max_size=3)
VALUES = st.recursive(
    ATOMS | st.sampled_from(["none", "auto", "text", "json_schema", 2**64, -(2**64), 1e30]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "json", "regex", "choice", "7", "include_usage"]), inner, max_size=2)
    ),
    max_leaves=5,
)
NEEDED = {"stream_options": {"stream": True}, "top_logprobs": {"logprobs": True}}


@settings(deadline=None, max_examples=500)
@given(st.data(), st.sampled_from(BOTH), VALUES)
def test_what_is_not_described_is_refused(data: st.DataObject, route: Route, value: Any) -> None:
    """A value that a field's schema forbids is refused, and the field is named: nothing is ignored in silence."""
    described = generating(route)["properties"]
    name = data.draw(st.sampled_from(sorted(described.keys() - {"model", "prompt", "messages"})))
    if not Draft202012Validator(described[name]).is_valid(value):
        with pytest.raises(InvalidRequest) as caught:
            body = Body({**NEEDED.get(name, {}), name: value})
            read_parameters(body, route, 100)
            read_framing(body, route == "chat")
        assert caught.value.param == name


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_defaults(path: str) -> None:
    """A request that gives each field its described default is the request that gives none of them."""
    route: Route = "chat" if path == CHAT else "completions"
    described = generating(route)["properties"]
    given_all = {name: schema["default"] for name, schema in described.items() if "default" in schema}
    assert len(given_all) > 20
    assert read_parameters(Body(given_all), route, 100) == read_parameters(Body(), route, 100)
