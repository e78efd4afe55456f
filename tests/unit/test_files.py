import os
import stat

import pytest

from provision.files import replaced, try_lock, write_whole


def test_a_file_is_written_with_its_folder_and_nothing_beside_it(tmp_path):
    path = tmp_path / "new" / "file"
    write_whole(path, b"one", mode=0o600)
    write_whole(path, b"two", mode=0o600, is_synced=True)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fill(draft):
        draft.write_text("half of the ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"), replaced(path) as draft:
        fill(draft)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_free_again_when_its_holder_closes_it(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert try_lock(first)
    assert not try_lock(second)
    os.close(first)
    assert try_lock(second)
    os.close(second)
