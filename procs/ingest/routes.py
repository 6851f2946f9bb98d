"""The routes that generate nothing: models, tokens, aborts, the prefix cache, probes, metrics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...common.errors import InvalidRequest
from ...common.types import Finish
from .body import Body, parse, read_body, read_object
from .errors import Refusal, quoted
from .framing import read_framing
from .kv_sources import kv_sources
from .metrics import CONTENT_TYPE, exposition
from .openapi.document import document
from .parameters import flag
from .service import Service
from .tools.request import read_tools


class Routes:
    """The handlers of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._description = JSONResponse(document(with_key=service.config.api_key is not None)).body

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def openapi(self, _: Request) -> Response:
        """The description of all routes."""
        return Response(self._description, media_type="application/json")

    async def health(self, _: Request) -> Response:
        found = self._service.health
        return JSONResponse({"status": found.status, "detail": found.detail}, 200 if found.ok else 503)

    async def metrics(self, _: Request) -> Response:
        self._service.update_row()
        return Response(exposition(self._service.board), media_type=CONTENT_TYPE)

    async def kv_event_sources(self, _: Request) -> Response:
        return JSONResponse({"sources": kv_sources(self._service.config, self._service.board)})

    async def models(self, _: Request) -> Response:
        names = self._service.config.served_model_names
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, http: Request) -> Response:
        """One of them by its name, which may have slashes."""
        return JSONResponse(self._model(self._service.served(http.path_params["name"])))

    def _model(self, name: str) -> dict[str, Any]:
        length = self._service.limits().max_model_len
        facts = {"created": self._service.started, "owned_by": "fourstroke", "max_model_len": length}
        return {"id": name, "object": "model", **facts}

    async def abort(self, http: Request) -> Response:
        """End a request by the id in its answer. Its client gets what there is."""
        request_id = http.path_params["id"]
        if not await self._service.siblings.abort(request_id):
            raise Refusal(404, f"no request {quoted(request_id)} is running", param="id", code="request_not_found")
        return JSONResponse({"id": request_id, "status": "aborted"})

    async def reset_prefix_cache(self, http: Request) -> Response:
        """Forget the prefix cache; with `force` as soon as the requests that run have ended."""
        data = await read_body(http)
        body = parse(data) if data.strip() else Body()
        force = flag(body, "force", False)
        body.check_numbers()
        self._service.limits()
        ending = await self._service.table.reset_cache(force)
        if ending.finish is not Finish.STOP:
            raise Refusal(409, ending.detail or "requests are running", code="requests_running")
        return JSONResponse({"status": "reset"})

    async def tokenize(self, http: Request) -> Response:
        """Text or messages to ids, the same that a request to generate would have."""
        body = await read_object(http)
        length = self._service.limits().max_model_len
        self._service.model_name(body)
        body.check_numbers()
        prompt, messages = body.get("prompt"), body.get("messages")
        functions = read_tools(body).functions
        if messages is not None:
            if prompt is not None:
                raise InvalidRequest("prompt and messages are both given", "prompt")
            written = self._service.dialect.written
            framing = read_framing(body, chat=True, trusts_templates=self._service.config.trust_request_chat_template)
            tokens = await self._service.prompts.of_messages(
                messages, length, framing, functions=functions, form=written
            )
        elif isinstance(prompt, str):
            tokens = await self._service.prompts.of_text(prompt, length, read_framing(body, chat=False))
        else:
            raise InvalidRequest("prompt must be a string, unless there are messages", "prompt")
        listed = await self._service.prompts.listed(tokens)
        answer = f'{{"tokens":{listed},"count":{len(tokens)},"max_model_len":{length}'
        if flag(body, "return_token_strs", False):
            answer += f',"token_strs":{await self._service.prompts.spellings(tokens)}'
        return Response(answer + "}", media_type="application/json")

    async def detokenize(self, http: Request) -> Response:
        """Ids to text."""
        body = await read_object(http)
        self._service.limits()
        self._service.model_name(body)
        text = await self._service.prompts.text_as_json(body.get("tokens"))
        return Response(f'{{"prompt":{text}}}', media_type="application/json")
