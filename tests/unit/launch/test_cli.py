"""The command line: what it refuses, and that it says so in one line and with the right exit status."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from fourstroke import __version__
from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError, InvalidRequest, ModelError, ResourceError, ServerError
from fourstroke.launch.cli import exit_status, run
from fourstroke.launch.options import ENGINE, HTTP, as_flags, given, make_parser

NUMBERS = [option.flag for option in ENGINE + HTTP if option.type not in (str, bool)]
SWITCHES = [option.flag for option in ENGINE + HTTP if option.type is bool]
SET_ELSEWHERE = {"model", "served_model_names", "api_key", "allowed_origins", "visible_devices", "kernel_folder"}
"""Fields of Config with flags of their own kind."""


def refuse(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Check that a command line is refused in one line, and return the line."""
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("fourstroke: error: ")
    return line


@pytest.mark.parametrize("flag", NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e999", "ten", "", "1_0", "١", "true", "1 2"])
def test_numbers(capfd: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    """No flag takes NaN, infinity, a negative number or what is no number; the refusal names the flag."""
    assert flag in refuse(capfd, "serve", "--show-topology", f"{flag}={value}")


@pytest.mark.parametrize("flag", SWITCHES)
def test_switches(capfd: pytest.CaptureFixture[str], flag: str) -> None:
    """A switch takes no value, and has a flag for on and one for off."""
    off = flag.replace("--", "--no-")
    for either in (flag, off):
        assert flag in refuse(capfd, "serve", "--show-topology", f"{either}=yes")
    parser = make_parser(__version__)
    assert [*given(parser.parse_args(["serve", flag]), ENGINE + HTTP).values()] == [True]
    assert [*given(parser.parse_args(["serve", off]), ENGINE + HTTP).values()] == [False]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nope",),
        ("serve", "--nope"),
        ("serve", "--por", "8000"),
        ("serve", "--port"),
        ("serve", "--port", "65536"),
        ("serve", "--dtype", "half"),
        ("serve", "--log-level", "INFO"),
        ("serve", "--pipeline-depth", "3"),
        ("serve", "--policy", "fair"),
        ("serve", "--num-speculative-tokens", "17"),
        ("serve", "--no-prefix"),
        ("serve", "--api-key", ""),
        ("serve", "--served-model-name", ""),
        ("serve", "--allowed-origins", "example.org"),
        ("serve", "--memory-fraction", "1.5"),
        ("serve", "extra"),
        ("generate",),
        ("generate", "Hi", "--temperature", "-1"),
        ("generate", "Hi", "--top-p", "0"),
        ("generate", "Hi", "--max-tokens", "0"),
        ("generate", "Hi", "--threads", "0"),
        ("generate", "Hi", "--port", "1"),
        ("chat", "--url", "ftp://localhost"),
        ("chat", "--url", "localhost:8000"),
        ("chat", "--seed", "1.5"),
        ("bench",),
        ("bench", "nope"),
        ("bench", "scheduler", "--steps", "0"),
        ("bench", "scheduler", "--slack", "0"),
        ("bench", "scheduler", "--cases"),
        ("bench", "scheduler", "--json"),
    ],
    ids=" ".join,
)
def test_refusals(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    """A wrong command line is refused before anything is started or fetched."""
    refuse(capfd, *arguments)


def test_every_field_has_a_flag() -> None:
    """Everything in Config can be set on the command line, under the default that Config has."""
    fields = {field.name for field in dataclasses.fields(Config)}
    assert {option.field for option in ENGINE + HTTP} == fields - SET_ELSEWHERE


def test_nothing_given() -> None:
    """Without flags the defaults are Config's."""
    namespace = make_parser(__version__).parse_args(["serve"])
    assert given(namespace, ENGINE + HTTP) == {}


def test_flags_round_trip() -> None:
    """as_flags is the inverse of the parser, for every field."""
    values = {"backend": "cpu", "executor": "fake", "dtype": "float32", "log_level": "error", "policy": "prefill-first"}
    values |= {"quantization": "fp8", "kv_cache_dtype": "fp8", "batch_invariant": True}
    values |= {"host": "::1", "unix_socket": "/tmp/a b", "prefix_cache": False, "alignment": "delay"}
    values |= {"tool_call_parser": "hermes", "reasoning_parser": "think"}
    values |= {"kv_events_encoding": "array", "kv_events_replay_form": "legacy", "kv_events_hash": "sha256_cbor"}
    fields = {option.field: values.get(option.field, option.type("7")) for option in ENGINE + HTTP}
    namespace = make_parser(__version__).parse_args(["serve", *as_flags(fields, ENGINE + HTTP)])
    assert given(namespace, ENGINE + HTTP) == fields


def test_unknown_option() -> None:
    """The offline API refuses an option that Config does not have, by its name."""
    with pytest.raises(ConfigError, match="max_num_seq'"):
        as_flags({"max_num_seq": 1}, ENGINE)


@pytest.mark.parametrize("value", [1, 0, "no", "true", []])
def test_option_that_is_no_switch(value: object) -> None:
    """The offline API takes True and False for a switch, and no value that might mean one of them."""
    with pytest.raises(ConfigError, match="prefix_cache"):
        as_flags({"prefix_cache": value}, ENGINE)


def test_exit_statuses() -> None:
    """Each kind of error has its documented exit status."""
    kinds = {ConfigError: 2, InvalidRequest: 2, ServerError: 1, ModelError: 3, ResourceError: 3}
    assert {kind: exit_status(kind("")) for kind in kinds} == kinds


def test_error_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A line feed in what the user gave does not break the line."""
    assert "a b" in refuse(capfd, "serve", "--host", "x", "a\nb")


def test_missing_model(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A model that is not there is refused with status 3 and its path."""
    assert run(["serve", "--port", "0", "--model", str(tmp_path / "no.gguf")]) == 3
    assert str(tmp_path / "no.gguf") in capfd.readouterr().err


def test_show_topology(capfd: pytest.CaptureFixture[str]) -> None:
    """--show-topology prints to standard output, needs no model and ends with 0."""
    assert run(["serve", "--model", "/nowhere", "--show-topology"]) == 0
    out, err = capfd.readouterr()
    assert "executor0" in out
    assert err == ""


def test_module_is_the_command() -> None:
    """`python -m fourstroke` is the command, from any folder."""
    command = [sys.executable, "-m", "fourstroke", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == f"fourstroke {__version__}\n"


def test_serve_needs_no_heavy_packages() -> None:
    """The launcher starts without packages that only its processes or other commands need."""
    heavy = ("torch", "tokenizers", "starlette", "uvicorn", "rich", "huggingface_hub", "http.client")
    program = f"import sys, fourstroke.launch.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_devices_that_the_environment_confuses(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two variables that differ are refused before anything is started, unless the CPU is asked for."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    line = refuse(capfd, "serve", "--show-topology")
    assert "HIP_VISIBLE_DEVICES=0" in line
    assert "ROCR_VISIBLE_DEVICES=1" in line
    assert run(["serve", "--show-topology", "--backend", "cpu"]) == 0
