"""Hub ids: what is asked for, and one clear line for each way it can fail. The network is replaced by a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from mlx_sentis.catalogue import resolve_model
from weights_bridge.errors import StageError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[dict[str, Any]]]:
    """Let the hub return a folder or raise an error; gives the calls it got."""

    def behave(outcome: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def snapshot_download(name: str, **options: Any) -> str:
            calls.append({"name": name} | options)
            if isinstance(outcome, Exception):
                raise outcome
            return str(outcome)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return calls

    return behave


def test_only_safetensors_and_texts_are_asked_for(hub: Callable[[Any], list[dict[str, Any]]], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    calls = hub(tmp_path)
    assert resolve_model("owner/name") == tmp_path
    (call,) = calls
    assert call["name"] == "owner/name"
    assert not any(word in pattern for pattern in call["allow_patterns"] for word in ("bin", "pt", "pickle", ".py"))
    assert "*" not in call["allow_patterns"] and "*.safetensors" in call["allow_patterns"]


def response_error(kind: type[Exception], status: int) -> Exception:
    response = type("Response", (), {"status_code": status, "headers": {}, "request": None})()
    error = kind.__new__(kind)
    error.response = response  # pyright: ignore[reportAttributeAccessIssue]
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.LocalEntryNotFoundError("see https://hub.example.org"), "the hub cannot be reached"),
        (errors.OfflineModeIsEnabled("offline"), "the hub cannot be reached"),
        (response_error(errors.RepositoryNotFoundError, 404), "no such model on the hub"),
        (response_error(errors.GatedRepoError, 403), "behind terms of use"),
        (response_error(errors.HfHubHTTPError, 503), "the hub answered 503"),
        (errors.HFValidationError("bad"), "no such model on the hub"),
    ],
)
def test_each_failure_is_one_line_with_a_hint_and_no_address(
    hub: Callable[[Any], list[dict[str, Any]]], error: Exception, message: str
) -> None:
    hub(error)
    with pytest.raises(StageError, match=f"owner/name: .*{message}") as caught:
        resolve_model("owner/name")
    assert caught.value.hint and "http" not in str(caught.value)


def test_a_model_without_safetensors_is_refused(hub: Callable[[Any], list[dict[str, Any]]], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    hub(tmp_path)
    with pytest.raises(StageError, match=r"owner/name: has no \*\.safetensors"):
        resolve_model("owner/name")
