"""Opening a model in ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from weights_bridge.compare import Array


def open_session(
    model: Path | bytes,
    optimisation: Literal["all", "off"] = "all",
    threads: int | None = None,
    *,
    folder: Path | None = None,
    handed_over: Mapping[str, Array] | None = None,
) -> Any:
    """Return an `onnxruntime.InferenceSession` on the CPU.

    Args:
        model: a file, or a serialised model.
        optimisation: ORT's graph optimisations, all or none.
        threads: inside an operator; None lets ORT choose.
        folder: where the side files of a serialised model lie.
        handed_over: numbers of initialisers that the model declares to lie outside of it; ORT reads them where they
            lie, so they must live as long as the session.

    Raises:
        StageError: no model file, or ORT refuses it.
    """
    import onnxruntime

    from converters.onnx_file import read_skeleton, require_end
    from weights_bridge.errors import StageError

    if not isinstance(model, bytes):
        require_end(model, read_skeleton(model).model)  # ONNX Runtime waits at a pipe, and at some nodes, for ever
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimisation == "all" else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed as well
    if threads is not None:
        options.intra_op_num_threads = threads
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    if handed_over:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in handed_over.values()]
        options.add_external_initializers(list(handed_over), values)
    source = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ORT's exception classes share no public base
        first = str(error).strip().splitlines()[0]
        name = "model" if isinstance(model, bytes) else str(model)
        hint = "`mlx-sentis scan` names known causes"
        raise StageError(f"{name}: ONNX Runtime refuses it: {first}", hint=hint) from None
