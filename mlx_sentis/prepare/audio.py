"""A scan of audio rows: files that are missing, cannot be read, are empty or silent, and what differs from the rest."""

from __future__ import annotations

import wave
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.prepare.findings import Findings
from mlx_sentis.prepare.media import MediaRow, named_file
from weights_bridge.compare import Array
from weights_bridge.errors import counted

FRAMES_AT_ONCE = 1 << 16
SILENT_DBFS = -60.0  # the loudest sample, against full scale
WINDOW_SECONDS = 30.0  # what Whisper hears at once
FENCES = 3.0  # interquartile ranges beyond the quartiles (Tukey's outer fences), on a logarithmic scale
LEAST_RANGE = 0.5  # octaves; clips of nearly one length would make every other an outlier
CLIPS_FOR_OUTLIERS = 10
CHARACTERS_PER_SECOND = (0.5, 30.0)  # speech has about 15; for clips of two seconds and more
TRANSCRIPTS = ("text", "transcript", "transcription", "sentence")
BLOCKING = ("bad row", "missing file", "unreadable file", "empty file", "empty transcript")
MEANINGS = {
    "bad row": "the manifest's line cannot be used: mend it",
    "missing file": "the manifest names a file that is not there",
    "unreadable file": "whole-number WAV is read here (8 to 32 bits): convert the file",
    "empty file": "the file holds no samples: take the row out",
    "silent file": f"no sample reaches {SILENT_DBFS:g} dB of full scale: the recording failed, or the row is noise",
    "cut file": "the header promises more samples than there are: copy the file again",
    "empty transcript": "there is nothing to learn from the clip: write one, or take the row out",
    "file in several rows": "one clip has several rows: a held-out one may have been trained",
    "other sample rate": "it differs from the most: resample, the model hears it at the wrong speed otherwise",
    "other number of channels": "it differs from the most: mix it down",
    "duration outlier": "far shorter or longer than the rest: listen whether it is what it should be",
    "longer than the window": f"more than {WINDOW_SECONDS:g} s, what a Whisper model hears at once: cut the clip",
    "transcript does not fit": "far more or fewer characters a second than speech has: is it another clip's?",
}


@dataclass(frozen=True)
class Clip:
    """What a WAV file holds.

    Attributes:
        seconds: its length.
        rate: samples a second.
        channels: how many.
        peak: its loudest sample, as a share of full scale.
        missing_frames: how many the header promises beyond those that are there.
    """

    seconds: float
    rate: int
    channels: int
    peak: float
    missing_frames: int


def read_clip(path: Path) -> Clip:
    """Read a WAV file, a second or so at a time.

    Raises:
        ValueError: why it cannot be read.
    """
    try:
        with path.open("rb") as file, wave.open(file) as wav:
            channels, width, rate, promised = wav.getparams()[:4]
            if not rate or not channels or width not in (1, 2, 3, 4):
                raise ValueError(f"{rate} samples a second of {8 * width} bits in {counted(channels, 'channel')}")
            peak, frames = 0.0, 0
            while data := wav.readframes(FRAMES_AT_ONCE):
                samples = _samples(data[: len(data) // (width * channels) * width * channels], width)
                frames += len(samples) // channels
                peak = max(peak, float(np.abs(samples).max(initial=0.0)))
    except EOFError:
        raise ValueError("it ends within its header") from None
    except RuntimeError:  # what `wave` says of a piece that is longer than the file
        raise ValueError("its pieces do not fit into each other") from None
    except wave.Error as error:
        raise ValueError(f"{error} (it begins with {_beginning(path)!r})") from None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    return Clip(frames / rate, rate, channels, peak, max(0, promised - frames))


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _samples(data: bytes, width: int) -> Array:
    """Return samples in [−1, 1) of whole numbers of 1 (unsigned), 2, 3 or 4 bytes."""
    if width == 1:
        return np.frombuffer(data, np.uint8) / np.float32(128) - np.float32(1)
    if width == 3:
        bytes_ = np.frombuffer(data, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(bytes_), 4), np.uint8)
        wide[:, 1:] = bytes_  # the highest three of four bytes keep the sign
        return wide.view("<i4").ravel() / np.float32(2**31)
    return np.frombuffer(data, f"<i{width}") / np.float32(2 ** (8 * width - 1))


class AudioScan:
    """Looks at audio rows as they stream by."""

    def __init__(self) -> None:
        self.findings = Findings(MEANINGS)
        self.rows = 0
        self._clips: list[tuple[str, Clip, int]] = []  # source, clip, characters of the transcript
        self._paths: Counter[Path] = Counter()

    def add(self, row: MediaRow) -> None:
        """Look at one row and the file it names."""
        self.rows += 1
        path = named_file(row, "audio")
        if isinstance(path, str):
            self.findings.note("bad row", row.source, path)
            return
        text = self._transcript(row)
        self._paths[path] += 1
        if self._paths[path] == 2:
            self.findings.note("file in several rows", row.source, path.name)
        if not path.is_file():
            self.findings.note("missing file", row.source, str(path))
            return
        try:
            clip = read_clip(path)
        except ValueError as error:
            self.findings.note("unreadable file", row.source, f"{path.name}: {error}")
            return
        self._look_at(row.source, path.name, clip)
        if clip.seconds:
            self._clips.append((row.source, clip, len(text)))

    def _transcript(self, row: MediaRow) -> str:
        assert isinstance(row.value, dict)
        found = next((row.value[key] for key in TRANSCRIPTS if key in row.value), None)
        text = found.strip() if isinstance(found, str) else ""
        if not text:
            self.findings.note("empty transcript", row.source, f"none of {', '.join(TRANSCRIPTS)} has a text")
        return text

    def _look_at(self, source: str, name: str, clip: Clip) -> None:
        if clip.missing_frames:
            self.findings.note("cut file", source, f"{name}: {clip.missing_frames} samples are missing")
        if not clip.seconds:
            self.findings.note("empty file", source, name)
        elif clip.peak < 10 ** (SILENT_DBFS / 20):
            level = f"{20 * np.log10(clip.peak):.0f} dB" if clip.peak else "nothing but zeros"
            self.findings.note("silent file", source, f"{name}: {level}")
        if clip.seconds > WINDOW_SECONDS:
            self.findings.note("longer than the window", source, f"{name}: {clip.seconds:.1f} s")

    def facts(self) -> dict[str, Any]:
        """Return what was found. To be asked once, behind the last row."""
        self._look_for_outliers()
        seconds = np.array([clip.seconds for _, clip, _ in self._clips])
        facts: dict[str, Any] = {"kind": "audio", "rows": self.rows, "files_read": len(self._clips)}
        facts["seconds"] = {"in all": round(float(seconds.sum()), 3)} | (_quantiles(seconds) if len(seconds) else {})
        for name, attribute in (("sample_rates", "rate"), ("channels", "channels")):
            counts = Counter(getattr(clip, attribute) for _, clip, _ in self._clips)
            facts[name] = {str(value): count for value, count in counts.most_common()}
        facts["findings"] = [finding.as_json() for finding in self.findings.found()]
        return facts

    def _look_for_outliers(self) -> None:
        for name, attribute, unit in (
            ("other sample rate", "rate", "Hz"),
            ("other number of channels", "channels", "channels"),
        ):
            counts = Counter(getattr(clip, attribute) for _, clip, _ in self._clips)
            usual = counts.most_common(1)[0][0] if counts else None
            for source, clip, _ in self._clips:
                if (value := getattr(clip, attribute)) != usual:
                    self.findings.note(name, source, f"{value} {unit}, the most have {usual}")
        low, high = duration_fences([clip.seconds for _, clip, _ in self._clips])
        slow, fast = CHARACTERS_PER_SECOND
        for source, clip, characters in self._clips:
            if not low <= clip.seconds <= high:
                self.findings.note(
                    "duration outlier", source, f"{clip.seconds:.2f} s, usual are {low:.2f} to {high:.2f}"
                )
            if characters and clip.seconds >= 2 and not slow <= characters / clip.seconds <= fast:
                seen = f"{counted(characters, 'character')} in {clip.seconds:.1f} s"
                self.findings.note("transcript does not fit", source, seen)


def duration_fences(seconds: Iterable[float]) -> tuple[float, float]:
    """Return the durations between which a clip is usual; everything is where there are too few to tell.

    The fences are Tukey's: quartile ∓ 3 interquartile ranges, of the logarithm, since durations are skewed.
    """
    octaves = np.log2([value for value in seconds if value > 0])
    if len(octaves) < CLIPS_FOR_OUTLIERS:
        return 0.0, float("inf")
    first, third = np.quantile(octaves, (0.25, 0.75))
    reach = FENCES * max(third - first, LEAST_RANGE)
    return float(2 ** (first - reach)), float(2 ** (third + reach))


def _quantiles(seconds: Array) -> dict[str, float]:
    return {
        name: round(float(value), 3)
        for name, value in zip(("least", "median", "most"), np.quantile(seconds, (0, 0.5, 1)), strict=True)
    }
