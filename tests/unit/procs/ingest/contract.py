"""Compares answers with the description of the API, taken at its word: what it does not name may not be there."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from fourstroke.procs.ingest.openapi.document import document


class Contract:
    """The description of a server, with or without a key."""

    def __init__(self, with_key: bool) -> None:
        self.document = document(with_key)
        self._schemas = copy.deepcopy(self.document["components"]["schemas"])
        for schema in self._schemas.values():
            _close(schema)

    def check(self, response: httpx.Response) -> None:
        """Assert that an answer is one that the description has for its request."""
        request = response.request
        path = re.sub("(?<=^/v1/models/).*", "{name}", request.url.path)
        path = re.sub("(?<=^/v1/requests/).*(?=/abort$)", "{id}", path)
        operation = self.document["paths"].get(path, {}).get(request.method.lower())
        assert response.headers["x-request-id"]
        if operation is None:
            if response.status_code >= 400 and request.method != "HEAD":
                self.match({"$ref": "#/components/schemas/Error"}, response.json())
            return
        described = operation["responses"].get(str(response.status_code))
        assert described is not None, f"{response.status_code} of {path} is not described"
        for name, header in described["headers"].items():
            if name in response.headers:
                self.match(header["schema"], response.headers[name])
            else:
                assert not header.get("required"), name
        self._check_content(described["content"], response)

    def _check_content(self, content: dict[str, Any], response: httpx.Response) -> None:
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in content, f"{kind} is not described"
        if kind == "application/json":
            self.match(content[kind]["schema"], response.json())
        elif kind == "text/event-stream":
            for event in response.text.split("\n\n"):
                if event.startswith("data: {"):
                    self.match(
                        content[kind]["schema"]["properties"]["data"]["else"]["contentSchema"],
                        json.loads(event.removeprefix("data: ")),
                    )

    def match(self, schema: dict[str, Any], value: Any) -> None:
        """Assert that a value is as a schema says."""
        Draft202012Validator({**schema, "components": {"schemas": self._schemas}}).validate(value)


def _close(schema: Any) -> None:
    """Allow no members but those that are named, in a schema and all that it holds."""
    if isinstance(schema, list):
        for item in schema:
            _close(item)
    elif isinstance(schema, dict):
        if "properties" in schema:
            schema["additionalProperties"] = False
        for item in list(schema.values()):
            _close(item)
