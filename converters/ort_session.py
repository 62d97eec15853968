"""Opening a model in ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal


def open_session(
    model: Path | bytes,
    optimisation: Literal["all", "off"] = "all",
    threads: int | None = None,
    *,
    folder: Path | None = None,
) -> Any:
    """Return an `onnxruntime.InferenceSession` on the CPU.

    Args:
        model: a file, or a serialised model.
        optimisation: ORT's graph optimisations, all or none.
        threads: inside an operator; None lets ORT choose.
        folder: where the side files of a serialised model lie.

    Raises:
        StageError: ORT refuses the model.
    """
    import onnxruntime

    from weights_bridge.errors import StageError

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimisation == "all" else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed as well
    if threads is not None:
        options.intra_op_num_threads = threads
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    source = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ORT's exception classes share no public base
        first = str(error).strip().splitlines()[0]
        name = "model" if isinstance(model, bytes) else str(model)
        hint = "`mlx-sentis scan` names known causes"
        raise StageError(f"{name}: ONNX Runtime refuses it: {first}", hint=hint) from None
