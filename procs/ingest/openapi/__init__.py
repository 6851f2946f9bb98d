"""The description of the HTTP API, in OpenAPI 3.1, as `GET /openapi.json` gives it."""
