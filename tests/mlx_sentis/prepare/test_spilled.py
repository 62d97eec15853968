"""Records on disk: what is written comes back, in any order, and nothing stays behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mlx_sentis.prepare.spilled import Spilled


@given(st.lists(st.binary(max_size=50), max_size=30), st.data())
def test_records_come_back_in_any_order_also_while_others_are_added(records: list[bytes], data: st.DataObject) -> None:
    with Spilled(Path(tempfile.gettempdir())) as spilled:
        for number, record in enumerate(records):
            spilled.append(record)
            asked = data.draw(st.integers(0, number))
            assert spilled[asked] == records[asked]
        assert len(spilled) == len(records)


def test_the_file_has_no_name_so_a_kill_leaves_nothing(tmp_path: Path) -> None:
    with Spilled(tmp_path) as spilled:
        spilled.append(b"x" * 3_000_000)
        assert spilled[0] == b"x" * 3_000_000
        assert list(tmp_path.iterdir()) == []
        assert spilled.bytes_in_memory == 16
