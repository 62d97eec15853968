"""A model from the hub: weights in safetensors and texts only, never a pickle, never code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weights_bridge.errors import StageError

WANTED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model", "README.md")
UNWANTED_FILES = ("onnx/*", "*/*.safetensors")  # variants in subfolders are other formats of the same weights
OFFLINE_HINT = "connect, give a local directory, or use an embedded model (`mlx-sentis models list`)"


def hub_snapshot(name: str, say: Callable[[str], None]) -> Path:
    """Return the local snapshot of a hub id.

    Args:
        name: `owner/name`.
        say: hears what is happening.

    Raises:
        StageError: no network, no such model, one behind terms, or one without safetensors.
    """
    from huggingface_hub import errors, snapshot_download

    say(f"{name}: looking on the hub")
    try:
        found = snapshot_download(name, allow_patterns=list(WANTED_FILES), ignore_patterns=list(UNWANTED_FILES))
    except errors.GatedRepoError:
        hint = "accept its terms on its hub page, then log in with `hf auth login`"
        raise StageError(f"{name}: this model is behind terms of use", hint=hint) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        hint = "check the spelling; a private model needs `hf auth login`"
        raise StageError(f"{name}: no such directory here and no such model on the hub", hint=hint) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        message = f"{name}: no such directory here, and the hub cannot be reached"
        raise StageError(message, hint=OFFLINE_HINT) from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an unknown status")
        raise StageError(f"{name}: the hub answered {status}", hint="try again later") from None
    except errors.HTTPError:  # pyright: ignore[reportPrivateImportUsage]  # the client's own: a proxy, a cut transfer
        raise StageError(f"{name}: the transfer from the hub broke off", hint=OFFLINE_HINT) from None
    folder = Path(found)
    for pattern in ("config.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise StageError(f"{name}: has no {pattern}", hint="only models with safetensors weights are taken")
    return folder
