"""A version of Sentis as a user types it.

Facts are kept per minor version: what a patch changes is told by no source that was read. So `2.6.1` is read as `2.6`
wherever a version is taken, and a dump keeps the patch that it was measured with.
"""

from __future__ import annotations

import re

import click

FULL = re.compile(r"(\d+\.\d+)(?:\.\d+)?(?:-[0-9A-Za-z.-]+)?")  # Unity's own form; `-pre.2` behind the patch


def minor_version(text: str) -> str:
    """Return `2.6` of `2.6`, `2.6.0` and `2.6.1-pre.2`; what has no such form comes back as it is: nothing knows it."""
    found = FULL.fullmatch(text.strip())
    return found[1] if found else text


class SentisVersion(click.ParamType):
    """An option that takes a package version; whether there are facts about it is for the command to say."""

    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():  # a script's variable that is not set would be measured as another version
            self.fail("it is empty; leave the option away for what the command takes by itself", param, ctx)
        return minor_version(value)


SENTIS_VERSION = SentisVersion()
