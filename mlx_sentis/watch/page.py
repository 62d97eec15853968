"""The page and the picture of a training, from its log. One HTML file with its plots inside: no network, no server."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

from mlx_sentis.watch.log import Log
from weights_bridge.files import write_text, written_whole

INK, GRID = "#1f2933", "#d9dee3"
COLOURS = {"train": "#2563a8", "valid": "#c2410c", "rate": "#2f7d4f", "norm": "#6b4fa0"}
THROUGHPUT = (("computed", "#2563a8"), ("real", "#2f7d4f"), ("trained", "#c2410c"))
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff; margin: 2rem auto; max-width: 72rem;
       padding: 0 1rem; }
h1 { font-size: 1.25rem; font-weight: 600; margin: 0; }
.state { color: #52606d; margin: .25rem 0 1rem; }
.bad { color: #b42318; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .75rem 1.5rem;
     margin: 0 0 1rem; }
dt { color: #52606d; font-size: .8rem; }
dd { margin: 0; font-variant-numeric: tabular-nums; font-size: 1.1rem; }
svg { width: 100%; height: auto; }
"""
REFRESH = '<meta http-equiv="refresh" content="5">'


def write_page(log: Log, title: str, path: Path) -> None:
    """Write the page, whole or not at all; while the training runs it reloads itself every 5 seconds."""
    write_text(path, page(log, title))


def write_picture(log: Log, title: str, path: Path) -> None:
    """Write the plots as PNG, with title and state above them."""
    with written_whole(path) as beside:
        figure = plots(log)
        figure.suptitle(f"{title}: {state(log)}", x=0.02, ha="left", fontsize=11, color=INK)
        figure.savefig(beside, format="png", dpi=120)


def page(log: Log, title: str) -> str:
    """Return the HTML document."""
    stream = io.StringIO()
    plots(log).savefig(stream, format="svg", metadata={"Date": None})
    svg = stream.getvalue()
    facts = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in figures(log))
    bad = ' class="state bad"' if log.end and log.end["event"] == "stopped" else ' class="state"'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{"" if log.end else REFRESH}'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{html.escape(title)}</h1><p{bad}>{html.escape(state(log))}</p>"
        f"<dl>{facts}</dl>\n{svg[svg.index('<svg') :]}</body></html>\n"
    )


def state(log: Log) -> str:
    """Return in words where the training stands."""
    if not log.steps:
        return "no update yet" if log.alive or log.end else "no update; no process trains here now"
    last, updates = log.steps[-1], log.started.get("updates", 0)
    where = f"update {last['step']} of {updates}, epoch {last['epoch']}"
    end = log.end or {}
    match end.get("event"):
        case "finished":
            return f"finished: {where}; best after update {end['best_step']}"
        case "stopped":
            return f"stopped at update {end['step']}: {end['reason']}"
        case "interrupted":
            return f"interrupted by {end['signal']} after update {end['step']} of {updates}"
    if not log.alive:
        return f"{where}; no process trains here now: killed, or on another machine"
    return f"{where}, {_duration(last.get('seconds_left') or 0)} left"


def figures(log: Log) -> list[tuple[str, str]]:
    """Return (name, value) of what stands above the plots."""
    if not log.steps:
        return []
    last = log.steps[-1]
    found = [("training loss", _number(last["train/loss"], ".4f"))]
    valid = [(e["valid_loss"], e["step"]) for e in log.epochs if e["valid_loss"] is not None]
    if valid:
        found.append(("lowest validation loss", f"{min(valid)[0]:.4f} (update {min(valid)[1]})"))
    found += [("learning rate", _number(last["train/lr"], ".3g"))]
    found += [("gradient norm", _number(last["train/grad_norm"], ".3g"))]
    names = {"computed": "computed", "real": "real", "trained": "supervised"}
    for kind, name in names.items():
        if f"{kind}_per_second" in last:
            found.append((f"{name} tokens/s", f"{last[f'{kind}_per_second']:,.0f}"))
    found.append(("seconds per update", f"{last['seconds']:.3g}"))
    if "peak_memory_gib" in last:
        found.append(("peak memory", f"{last['peak_memory_gib']:.3g} GiB"))
    if log.resumed:
        found.append(("resumed after", ", ".join(map(str, log.resumed))))
    return found


def plots(log: Log) -> Any:
    """Return a matplotlib figure: losses, learning rate, gradient norm, tokens per second, over updates."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 7), layout="constrained")
    loss, rate, norm, speed = figure.subplots(2, 2).flat
    steps = [step["step"] for step in log.steps]

    def line(axes: Any, key: str, colour: str, label: str = "") -> None:
        values = [step.get(key) for step in log.steps]
        axes.plot(steps, [float("nan") if v is None else v for v in values], color=colour, lw=1.2, label=label)

    line(loss, "train/loss", COLOURS["train"], "training")
    measured = [(e["step"], e["valid_loss"]) for e in log.epochs if e["valid_loss"] is not None]
    if measured:
        loss.plot(*zip(*measured, strict=True), "o-", color=COLOURS["valid"], lw=1.2, ms=4, label="validation")
    line(rate, "train/lr", COLOURS["rate"])
    line(norm, "train/grad_norm", COLOURS["norm"])
    for kind, colour in THROUGHPUT:
        line(speed, f"{kind}_per_second", colour, "supervised" if kind == "trained" else kind)
    titles = {loss: "loss, nats per supervised token", rate: "learning rate", norm: "gradient norm after clipping"}
    for axes, title in (titles | {speed: "tokens per second"}).items():
        _dress(axes, title, log)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no update 2.5
    loss.legend(frameon=False, fontsize=9)
    if log.steps and all(step.get(f"{kind}_per_second") for step in log.steps for kind, _ in THROUGHPUT):
        speed.set_yscale("log")  # a shared prompt sets them an order of magnitude apart
    norm.set_ylim(0, 1.1 * norm.get_ylim()[1])  # clipped to one value, the curve would lie on the edge
    speed.legend(frameon=False, fontsize=9)
    return figure


def _dress(axes: Any, title: str, log: Log) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel("update", fontsize=9, color=INK)
    axes.grid(color=GRID, lw=0.6)
    axes.tick_params(labelsize=9, colors=INK)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlim(0, 1.02 * max(1, log.started.get("updates", 0), *(step["step"] for step in log.steps)))
    for step in log.resumed:
        axes.axvline(step, color=INK, lw=0.8, ls=":")


def _number(value: float | None, form: str) -> str:
    return "not finite" if value is None else format(value, form)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
