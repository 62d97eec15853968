"""The `watch` command. It parses, calls and prints."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mlx_sentis.watch.log import Log, read_log
from weights_bridge.console import FiniteFloat, Output, command
from weights_bridge.lock import is_held

PATH = click.Path(path_type=Path)


@command("watch", examples=("watch runs/npc", "watch runs/npc --once loss.png"))
@click.argument("folder", metavar="RUN", type=PATH)
@click.option("--out", type=PATH, default=None, help="Page to write; RUN/watch.html by default.")
@click.option("--once", type=PATH, default=None, metavar="FILE", help="One .png or .html of now, then end.")
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option("--every", type=FiniteFloat(min=0.2), default=5.0, show_default=True, help="Seconds between looks.")
def watch(output: Output, folder: Path, out: Path | None, once: Path | None, show: bool, every: float) -> None:
    """Show losses, learning rate, gradient norm and tokens per second of a training, while it runs or after."""
    from mlx_sentis.watch.page import state, write_page, write_picture

    source = folder / "log.jsonl" if folder.is_dir() or not folder.suffix else folder
    title = folder.resolve().name if source.name == "log.jsonl" and source != folder else source.name
    if once is not None and once.suffix.lower() not in (".png", ".html"):
        raise click.UsageError(f"--once {once}: wanted a name that ends in .png or .html")
    log, page = look(source), once or out or source.with_name("watch.html")
    if once is not None and once.suffix.lower() == ".png":
        write_picture(log, title, once)
    else:
        write_page(log, title, page)
    if show:
        click.launch(str(page))
    if once is None and log.end is None:
        output.story(f"{page}: renewed every {every:g} s while the training runs; Ctrl-C ends watching")
        log = keep_up(log, source, title, page, every)
    answer = {"page": str(page), "updates": len(log.steps), "state": state(log)}
    output.answer("watch", answer, f"{page}: {state(log)}")


def look(source: Path) -> Log:
    """Read a log, and whether a process still writes it."""
    log = read_log(source)
    log.alive = log.end is not None or is_held(source.parent)
    return log


def keep_up(log: Log, source: Path, title: str, page: Path, every: float) -> Log:
    """Write the page again whenever the log has grown, until the training or the watcher ends it."""
    from mlx_sentis.watch.page import write_page

    seen: tuple[int, bool] | None = None
    try:
        while log.end is None:
            time.sleep(every)
            if not source.is_file():  # a training that starts over sets its log aside for a moment
                continue
            if (now := (source.stat().st_size, is_held(source.parent))) != seen:
                log, seen = look(source), now
                write_page(log, title, page)
    except KeyboardInterrupt:
        pass
    return log
