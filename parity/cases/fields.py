"""Fields 1 to 5 of a case file: what the model is, where its recipe stands, its data, its training, its export."""

from __future__ import annotations

from typing import Any

from parity.cases.cells import (
    HEADING,
    MISSING,
    Facts,
    coded,
    gib,
    line,
    megabytes,
    origin,
    plain,
    seconds,
    short_hash,
)
from parity.report import NOT_RUN

LIMIT_BYTES = 2**31 - 1  # of a file that Sentis' importer reads
SHOWN_CONSTANTS = (
    ("layers", "layers"),
    ("kinds of layers", "layer_kinds"),
    ("heads", "heads"),
    ("kv heads", "kv_heads"),
    ("head_dim", "head_dim"),
    ("width", "hidden"),
    ("width of the MLP", "intermediate"),
    ("vocabulary", "vocab"),
    ("sliding window", "sliding_window"),
    ("rotary base", "rope_theta"),
    ("rotary base of sliding layers", "rope_local_base_freq"),
    ("positions", "max_positions"),
    ("embedding and head tied", "tied_head"),
)


def model_field(facts: Facts) -> list[str]:
    """Return field 1: model, architecture constants, sizes."""
    file = "recipe.json"
    rows = [
        facts.row("model", file, "model.name", coded),
        facts.row("base", file, "base_models"),
        facts.row("architecture", file, "architecture", coded),
        facts.row("family", file, "family", coded),
        *(facts.row(what, file, f"constants.{key}") for what, key in SHOWN_CONSTANTS),
        facts.row("licence", file, "licence"),
    ]
    if facts.known(file, "licence_files"):
        rows.append(facts.row("its texts", file, "licence_files"))
    graph = "onnx/model.onnx" if facts.has("onnx/model.onnx") else "onnx/base.onnx"
    weights, size = facts.at(graph, "weights"), facts.at(graph, "bytes")
    rows.append(facts.row("weights", graph, "weights"))
    for name, width in (("fp32", 4), ("fp16", 2)):
        value = NOT_RUN if weights is MISSING else f"{megabytes(weights * width)} ({width} bytes each, computed)"
        rows.append(line(f"size {name}", value, origin(graph, "weights")))
    share = (
        NOT_RUN
        if size is MISSING
        else f"{megabytes(size)}, {100 * size / LIMIT_BYTES:.0f} % of the 2 GiB that Sentis reads"
    )
    rows.append(line("graph as exported", share, origin(graph, "bytes")))
    return [*HEADING, *rows]


def recipe_field(facts: Facts) -> list[str]:
    """Return field 2: where the recipe stands."""
    file = "recipe.json"
    rows = [
        facts.row("links", file, "links"),
        facts.row("template", file, "template.file", coded),
        facts.row("template, SHA-256", file, "template.sha256", short_hash),
        facts.row("stop tokens", file, "stop_tokens", coded),
        facts.row("stop ids", file, "stop_ids", coded),
        facts.row("begin token's id", file, "bos_id", coded),
        facts.row("padding", file, "padding", lambda found: f"id {found['value']}, {found['side']}"),
        facts.row("preprocessing", file, "preprocessing"),
    ]
    for who in ("vendor", "deviations"):
        found = facts.at(file, f"hyperparameters.{who}")
        for key in found if isinstance(found, dict) else ():
            rows.append(facts.row(f"{who}: {key.replace('_', ' ')}", file, f"hyperparameters.{who}.{key}"))
    if not facts.has(file, "hyperparameters.vendor"):
        rows.append(line("vendor's hyperparameters", "none found", origin(file, "hyperparameters")))
    notes = facts.at(file, "notes")
    where = facts.at(file, "sources")
    return [
        *HEADING,
        *rows,
        "",
        *(f"- {note}" for note in (notes if isinstance(notes, list) else [])),
        *([""] if notes else []),
        "Where each fact of the recipe stands:",
        "",
        *(f"- {key.replace('_', ' ')}: {text}" for key, text in (where if isinstance(where, dict) else {}).items()),
    ]


def data_field(facts: Facts) -> list[str]:
    """Return field 3: schema of the data, splits, classes, prompt contract."""
    file, prompt = "data/dataset.json", "prompt_contract.json"
    rows = [
        facts.row("data", file, "source"),
        facts.row("form", file, "format", lambda found: f"`{found['name']}` ({found['why']})"),
        facts.row("rows all begin with the same tokens", file, "shared_prefix_tokens"),
        facts.row("longest row, tokens", file, "longest_row_tokens"),
        facts.row("contradictions", file, "contradictions"),
        facts.row("near-duplicates", file, "near_duplicates"),
        facts.row("window", file, "window"),
        facts.row("seed of the split", file, "seed", str),
        facts.row("languages of the users' texts", file, "languages"),
        facts.row("prompt, SHA-256 of its bytes", prompt, "rendered_sha256", short_hash),
        facts.row("prompt, tokens", prompt, "tokens"),
        facts.row("tools are written as", prompt, "tool_serialisation.style"),
        facts.row("a call is written as", prompt, "tool_serialisation.call_template", coded),
        facts.row("no call is written as", prompt, "tool_serialisation.none", coded),
        facts.row("trained turns", prompt, "train_turns"),
    ]
    return [*HEADING, *rows, *_splits(facts)]


def _splits(facts: Facts) -> list[str]:
    file = "data/dataset.json"
    splits, classes = facts.at(file, "splits"), facts.at(file, "classes")
    if splits is MISSING:
        return []
    lines = ["", "| split | rows | tokens | trained tokens | classes | from |", "|---|---|---|---|---|---|"]
    for name, found in splits.items():
        counts = classes.get(name, {}) if isinstance(classes, dict) else {}
        figures = (plain(found[key]) for key in ("rows", "tokens", "trained_tokens"))
        where = f"`{file}: splits.{name}`, `classes.{name}`"
        lines.append(line(name, *figures, plain(counts) or "none", where))
    return lines


def run_command(facts: Facts) -> str:
    """Return the command that asks for what this run was asked for: its settings that are no defaults."""
    config = facts.at("config.toml")
    if config is MISSING:
        return NOT_RUN
    words = ["mlx-sentis run"]
    for section, values in config.items():
        words += [
            f"--set {section}.{key}={_flag_value(value)}"
            for key, (value, given_by) in values.items()
            if not given_by.startswith("default")
        ]
    return " ".join(words)


def _flag_value(value: Any) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else f"'{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "'[" + ", ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in value) + "]'"
    return str(value)


def training_field(facts: Facts) -> list[str]:
    """Return field 4: command, scale, settings, what it came to."""
    stage = "stages.train"
    file = "manifest.json"
    if not facts.has(file, stage):
        return [f"Fine-tune: {NOT_RUN} ({origin(file, stage)}). The would-be recipe is the vendor's, in field 2."]
    rows = [
        facts.row("updates", file, f"{stage}.facts.updates"),
        facts.row("best after update", file, f"{stage}.facts.best_step"),
        facts.row("loss of the first update", file, f"{stage}.facts.first_loss"),
        facts.row("loss of the last update", file, f"{stage}.facts.last_loss"),
        facts.row("validation loss, by epoch", file, f"{stage}.facts.valid_losses"),
        facts.row("time of the training", file, f"{stage}.facts.seconds", seconds),
        facts.row("peak memory of MLX", file, f"{stage}.facts.peak_gib", gib),
        facts.row("tokens computed", file, f"{stage}.facts.tokens_computed"),
        facts.row("tokens of the rows, padding not counted", file, f"{stage}.facts.tokens_plain"),
        facts.row("trained modules", file, f"{stage}.facts.trained"),
        facts.row("seed", file, f"{stage}.seed", str),
        facts.row("made with", file, f"{stage}.versions", versions_line),
    ]
    settings = ["", "| setting | value | given by | from |", "|---|---|---|---|"]
    for section in ("adapter", "train"):
        found = facts.at("config.toml", section)
        for key, (value, given_by) in (found if isinstance(found, dict) else {}).items():
            settings.append(
                line(f"{section}.{key}", _setting(value), given_by, origin("config.toml", f"{section}.{key}"))
            )
    return ["```sh", run_command(facts), "```", "", *HEADING, *rows, *settings]


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else _flag_value(value).strip("'")


def versions_line(found: Any) -> str:
    names = ("mlx-sentis", "mlx", "mlx-lm", "torch", "transformers", "onnx", "onnxruntime", "python", "system")
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)


def export_command(facts: Facts) -> str:
    """Return the export with every flag written out."""
    config = facts.at("config.toml", "export")
    if config is MISSING or not facts.has("onnx/contract.json"):
        return NOT_RUN
    flags = {key: value for key, (value, _) in config.items()}
    words = [f"--{key} {flags[key]}" for key in ("opset", "dtype", "batch", "sentis") if key in flags]
    words += ["--argmax"] if flags.get("argmax") else []
    return " ".join([f"mlx-sentis export {facts.at('recipe.json', 'model.name')} --out onnx", *words])


def export_rows(facts: Facts) -> list[str]:
    """Return what the export wrote and what `fix` did to it, without the heading."""
    contract = "onnx/contract.json"
    return [
        facts.row("opset written", contract, "opset", coded),
        facts.row("weights as", contract, "dtype"),
        facts.row("batch", contract, "batch"),
        facts.row("predicted for Sentis", contract, "sentis", coded),
        facts.row("inputs", contract, "inputs", signature),
        facts.row("outputs", contract, "outputs", signature),
        facts.row("masks", contract, "masks", lambda found: ", ".join(f"`{k}` {v}" for k, v in found.items())),
        facts.row("a masked place is", contract, "masked"),
        facts.row("topology, SHA-256", contract, "topology_sha256", short_hash),
        facts.row("base graph, SHA-256", "onnx/base.onnx", "sha256", short_hash),
        facts.row("tuned graph, SHA-256", "onnx/model.onnx", "sha256", short_hash),
        facts.row("passes that changed the graph", "fix.json", "passes", changed_passes),
        facts.row("time of the export", "manifest.json", "stages.export.seconds", seconds),
        facts.row("peak memory of the export", "manifest.json", "stages.export.peak_memory_gib", gib),
        facts.row("made with", "manifest.json", "stages.export.versions", versions_line),
    ]


def export_field(facts: Facts) -> list[str]:
    """Return field 5: the export's command and what it wrote."""
    return ["```sh", export_command(facts), "```", "", *HEADING, *export_rows(facts)]


def signature(found: Any) -> str:
    return ", ".join(f"`{name}`" + (f" × {count}" if count > 1 else "") for name, count in found.items())


def changed_passes(found: Any) -> str:
    changed = [f"`{row['name']}` × {row['changed']} ({row['proof']})" for row in found if row["changed"]]
    return ", ".join(changed) or f"none of {len(found)}"
