"""Ingest: HTTP, chat templates, tokenising, and the table of live requests."""
