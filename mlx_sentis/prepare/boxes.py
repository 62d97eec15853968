"""A scan of rows with boxes: degenerate ones, ones outside of their image, labels that are missing, counts by class."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_args

from mlx_sentis.prepare.findings import Findings
from mlx_sentis.prepare.jsonl import name_of
from mlx_sentis.prepare.media import MediaRow, named_file
from weights_bridge.errors import counted

BoxForm = Literal["xyxy", "xywh", "cxcywh"]
FORMS: tuple[BoxForm, ...] = get_args(BoxForm)
BOXES_FOR_A_PATTERN = 5
SLACK = 1e-3  # of the image's side: rounding is no box outside
BOX_KEYS, LABEL_KEYS = ("box", "bbox"), ("label", "category", "class")
ROW_LABEL_KEYS = ("labels", "categories", "classes")
BLOCKING = ("bad row", "missing file", "unreadable file", "not four numbers", "no area")
MEANINGS = {
    "bad row": "the manifest's line cannot be used: mend it",
    "missing file": "the manifest names an image that is not there",
    "unreadable file": "the image's size cannot be read: convert the file, or give width and height",
    "not four numbers": "a box has four finite numbers",
    "no area": "a side is zero or negative: take the box out, or say with --box-form how the numbers are meant",
    "another form fits better": "most boxes are wrong as they were read, and right in another form: see --box-form",
    "outside of the image": "the box reaches over the edge: cut it off, or look at the image's size",
    "two units": "some boxes are shares of the image, some pixels: one of them is read wrongly",
    "label missing": "there are more boxes than labels, or a box without one",
    "repeated box": "one image has the same box with the same label twice",
    "image without a box": "fine as a background, if it is meant",
}


class BoxScan:
    """Looks at rows with boxes as they stream by.

    Args:
        form: what four numbers mean: two corners, corner and size, or centre and size.
    """

    def __init__(self, form: BoxForm = "xyxy") -> None:
        self.form: BoxForm = form
        self.findings = Findings(MEANINGS)
        self.rows = self.boxes = self.shares = 0
        self.classes: Counter[str] = Counter()
        self._flat: Counter[str] = Counter()  # form to boxes without area
        self._first_share = self._first_pixels = ""

    def add(self, row: MediaRow) -> None:
        """Look at one row."""
        self.rows += 1
        if isinstance(row.value, str):
            self.findings.note("bad row", row.source, row.value)
            return
        boxes = row.value.get("boxes")
        if not isinstance(boxes, list):
            self.findings.note("bad row", row.source, f"boxes: found {name_of(boxes)}, wanted an array")
            return
        if not boxes:
            self.findings.note("image without a box", row.source, str(row.value.get("image", "")))
        labels = _labels_of(row.value, boxes)
        size, seen = self._size_of(row), set()
        for at, box in enumerate(boxes):
            self._count_label(row.source, labels[at], at)
            numbers = _numbers_of(box)
            if numbers is None:
                self.findings.note("not four numbers", row.source, f"boxes[{at}]: {str(box)[:60]}")
                continue
            if (key := (*numbers, labels[at])) in seen:
                self.findings.note("repeated box", row.source, f"boxes[{at}]: {numbers}")
            seen.add(key)
            self._look_at(row.source, at, numbers, size)

    def _count_label(self, source: str, label: str | None, at: int) -> None:
        self.boxes += 1
        if label is None:
            self.findings.note("label missing", source, f"boxes[{at}]")
        else:
            self.classes[label] += 1

    def _look_at(
        self, source: str, at: int, numbers: tuple[float, float, float, float], size: tuple[float, float] | None
    ) -> None:
        for form in FORMS:
            left, top, right, bottom = corners(numbers, form)
            self._flat[form] += right <= left or bottom <= top
        left, top, right, bottom = corners(numbers, self.form)
        where = f"boxes[{at}]: {', '.join(f'{value:g}' for value in numbers)}"
        if right <= left or bottom <= top:
            self.findings.note("no area", source, where)
            return
        is_share = max(map(abs, numbers)) <= 1 + SLACK
        self.shares += is_share
        self._first_share = self._first_share or (f"{source} {where}" if is_share else "")
        self._first_pixels = self._first_pixels or ("" if is_share else f"{source} {where}")
        width, height = (1.0, 1.0) if is_share else size or (math.inf, math.inf)
        slack = SLACK if is_share else 1.0  # pixels are rounded
        if left < -slack or top < -slack or right > width + slack or bottom > height + slack:
            sides = "" if is_share or size is None else f" in an image of {width:g} × {height:g}"
            self.findings.note("outside of the image", source, where + sides)

    def _size_of(self, row: MediaRow) -> tuple[float, float] | None:
        """Return the image's width and height: what the row says, else what its file says."""
        value = row.value
        assert isinstance(value, dict)
        width, height = value.get("width"), value.get("height")
        path = named_file(row, "image") if "image" in value else ""
        if isinstance(path, Path) and not path.is_file():
            self.findings.note("missing file", row.source, str(path))
            path = ""
        if isinstance(width, int | float) and isinstance(height, int | float) and width > 0 and height > 0:
            return float(width), float(height)
        return self._size_in_file(row.source, path) if isinstance(path, Path) else None

    def _size_in_file(self, source: str, path: Path) -> tuple[float, float] | None:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                return float(image.width), float(image.height)
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            self.findings.note("unreadable file", source, f"{path.name}: {str(error).partition(' (')[0]}")
            return None

    def facts(self) -> dict[str, Any]:
        """Return what was found. To be asked once, behind the last row."""
        flat = self._flat[self.form]
        better = min(FORMS, key=lambda form: self._flat[form])
        if flat >= BOXES_FOR_A_PATTERN and 2 * flat > self.boxes and not self._flat[better]:
            seen = f"{counted(flat, 'box')} without area as {self.form}, none as {better}".replace("boxs", "boxes")
            self.findings.note("another form fits better", "all rows", seen, flat)
        if self._first_share and self._first_pixels:
            self.findings.note("two units", self._first_share, f"and {self._first_pixels}")
        return {
            "kind": "boxes",
            "rows": self.rows,
            "boxes": self.boxes,
            "box_form": self.form,
            "classes": dict(sorted(self.classes.items(), key=lambda item: (-item[1], item[0]))),
            "findings": [finding.as_json() for finding in self.findings.found()],
        }


def corners(numbers: tuple[float, float, float, float], form: BoxForm) -> tuple[float, float, float, float]:
    """Return a box as left, top, right, bottom.

    Args:
        numbers: as the row has them.
        form: `xyxy` two corners, `xywh` a corner and the size, `cxcywh` the centre and the size.
    """
    a, b, c, d = numbers
    if form == "xyxy":
        return numbers
    if form == "xywh":
        return a, b, a + c, b + d
    return a - c / 2, b - d / 2, a + c / 2, b + d / 2


def _numbers_of(box: Any) -> tuple[float, float, float, float] | None:
    """Return a box's four numbers, None where it has others."""
    if isinstance(box, dict):
        box = next((box[key] for key in BOX_KEYS if key in box), None)
    if not isinstance(box, list) or len(box) != 4:
        return None
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in box
    ):
        return None
    a, b, c, d = map(float, box)
    return a, b, c, d


def _labels_of(value: dict[str, Any], boxes: list[Any]) -> list[str | None]:
    """Return each box's label: its own, else the row's list of labels; None where there is none."""
    given = next((value[key] for key in ROW_LABEL_KEYS if isinstance(value.get(key), list)), [])
    labels: list[str | None] = []
    for at, box in enumerate(boxes):
        own = next((box[key] for key in LABEL_KEYS if key in box), None) if isinstance(box, dict) else None
        label = own if own is not None else given[at] if at < len(given) else None
        labels.append(str(label) if isinstance(label, str | int) and str(label).strip() else None)
    return labels
