"""Configuration is right when it is made, and an assignment survives its file."""

import dataclasses
import math

import pytest

from fourstroke.common.config import Assignment, Config
from fourstroke.common.errors import ConfigError

BAD = [
    ("--served-model-name", {"served_model_names": ()}),
    ("--served-model-name", {"served_model_names": ("a", "")}),
    ("--backend", {"backend": "tpu"}),
    ("--executor", {"executor": "none"}),
    ("--dtype", {"dtype": "int3"}),
    ("--quantization", {"quantization": "int3"}),
    ("--kv-cache-dtype", {"kv_cache_dtype": "int3"}),
    ("--log-level", {"log_level": "loud"}),
    ("--port", {"port": 65536}),
    ("--port", {"port": -1}),
    ("--block-size", {"block_size": 0}),
    ("--max-num-seqs", {"max_num_seqs": 0}),
    ("--max-num-batched-tokens", {"max_num_batched_tokens": 0}),
    ("--pipeline-depth", {"pipeline_depth": 3}),
    ("--max-queue", {"max_queue": 0}),
    ("--memory-fraction", {"memory_fraction": 1.0}),
    ("--memory-fraction", {"memory_fraction": math.nan}),
    ("--drain-timeout", {"drain_timeout_s": -1}),
    ("--start-timeout", {"start_timeout_s": 0}),
    ("--threads", {"threads": 0}),
    ("--num-blocks", {"num_blocks": 0}),
    ("--data-parallel-size", {"data_parallel_size": 0}),
    ("--data-parallel-size", {"data_parallel_size": 33}),
    ("--ingest-procs", {"ingest_procs": 0}),
    ("--output-procs", {"output_procs": 65}),
    ("--alignment", {"alignment": "always"}),
    ("--max-model-len", {"max_model_len": 0}),
    ("--kv-events", {"kv_events": True, "prefix_cache": False}),
    ("--kv-events-endpoint", {"kv_events": True, "kv_events_endpoint": "5557"}),
    ("--kv-events-replay-endpoint", {"kv_events": True, "kv_events_replay_endpoint": "udp://x"}),
    ("--kv-events-endpoint", {"kv_events": True, "kv_events_replay_endpoint": "tcp://*:5558", "data_parallel_size": 2}),
    ("--kv-events-hwm", {"kv_events_hwm": 0}),
    ("--kv-events-queue", {"kv_events_queue": 0}),
    ("--kv-events-buffer-steps", {"kv_events_buffer_steps": 0}),
    ("--kv-events-heartbeat", {"kv_events_heartbeat_s": -1}),
    ("--kv-events-min-interval", {"kv_events_min_interval_s": -1}),
    ("--api-key", {"api_key": ""}),
    ("--api-key", {"api_key": "schlüssel"}),
    ("--allowed-origins", {"allowed_origins": ("*", "example.org")}),
    ("--allowed-origins", {"allowed_origins": ("https://a.example/path",)}),
]


def config(**changes) -> Config:
    return Config(**{"model": "model.gguf", "served_model_names": ("model",), **changes})


@pytest.mark.parametrize("flag, changes", BAD, ids=lambda value: str(value)[:40])
def test_refused_by_flag(flag, changes):
    """What cannot work is refused when the configuration is made, in one line that begins with the flag."""
    with pytest.raises(ConfigError, match=f"^{flag} ") as caught:
        config(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, allowed",
    [
        ({"kv_events_encoding": "xml"}, "map, array"),
        ({"kv_events_replay_form": "none"}, "topic, legacy"),
        ({"kv_events_hash": "builtin"}, "sha256_cbor"),
    ],
)
def test_unknown_words_of_kv_events(changes, allowed):
    """Are refused with the words that are allowed."""
    with pytest.raises(ConfigError, match=allowed):
        config(**changes)


def test_where_kv_events_are_replayed():
    """With several engines the usual place is further away, so that the ranges do not overlap."""
    assert config(kv_events=True).kv_replay_endpoint == "tcp://127.0.0.1:5558"
    assert config(kv_events=True, data_parallel_size=8).kv_replay_endpoint == "tcp://127.0.0.1:5657"
    assert config(kv_events=True, kv_events_replay_endpoint="").kv_replay_endpoint == ""


def test_an_api_key_is_not_shown():
    """The refusal of a key does not print it."""
    with pytest.raises(ConfigError) as caught:
        config(api_key="schlüssel")
    assert "schlüssel" not in str(caught.value)


def assignment(**changes) -> Assignment:
    fields = {
        "name": "output0",
        "role": "output",
        "index": 0,
        "supervisor_pid": 17,
        "socket_folder": "/tmp/x",
        "owner": "17-4",
        "board": ("supervisor0", "output0"),
        "sends_to": ("ingest0", "ingest1"),
        "hears_from": (),
        "config": config(),
    }
    return Assignment(**{**fields, **changes})


@pytest.mark.parametrize(
    "saved",
    [
        assignment(),
        assignment(
            config=config(
                served_model_names=("a", "世界"),
                allowed_origins=("*",),
                api_key="k",
                num_blocks=9,
                unix_socket="/run/x",
            )
        ),
        assignment(config=config(visible_devices=())),
        assignment(config=config(visible_devices=("1", "GPU-DEADBEEF"))),
        assignment(board=(), sends_to=()),
    ],
    ids=["defaults", "options", "no devices", "devices", "empty"],
)
def test_assignment_round_trip(saved, tmp_path):
    """What a process reads is what the supervisor wrote, tuples as tuples."""
    path = tmp_path / "assignment.json"
    saved.save(path)
    loaded = Assignment.load(path)
    assert loaded == saved
    assert hash(loaded) == hash(saved)


def test_a_loaded_configuration_is_checked(tmp_path):
    """An assignment that was tampered with is refused like a command line."""
    path = tmp_path / "assignment.json"
    assignment().save(path)
    path.write_text(path.read_text().replace('"port": 8000', '"port": 99999'))
    with pytest.raises(ConfigError, match="--port"):
        Assignment.load(path)


def test_values_do_not_change():
    """A configuration cannot be changed after it was checked."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().port = -1
