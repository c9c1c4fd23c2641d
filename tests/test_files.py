"""Files from outside: what is no regular file is refused at once, what has no end too."""

import os

import pytest

from perseus_ds.files import open_text, read_json, read_text


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "file").write_text('{"a": [1]}', encoding="utf-8")
    assert read_text(tmp_path / "file") == '{"a": [1]}'
    assert read_json(tmp_path / "file") == {"a": [1]}
    with open_text(tmp_path / "file") as file:
        assert not os.get_inheritable(file.fileno())


@pytest.mark.parametrize("special", ["fifo", "directory", "/dev/zero"])
def test_a_special_file_is_refused_instead_of_waited_for(tmp_path, special):
    path = tmp_path / special
    if special == "fifo":
        os.mkfifo(path)
    elif special == "directory":
        path.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not a regular file"):
        read_text(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.fixture
def guarded(tmp_path):
    """A file in a directory: what it holds if it may be read, given their modes and the file's owner."""
    directory = tmp_path / "shared"
    directory.mkdir()
    file = directory / "file"
    file.write_text("{}")

    def read(directory_mode: int, mode: int, owner: int) -> str:
        directory.chmod(directory_mode)
        file.chmod(mode)
        if owner != os.getuid():
            os.chown(file, owner, -1)
        try:
            return read_text(file, guarded=True)
        except PermissionError as error:
            return error.strerror

    return read


@pytest.mark.parametrize(
    ("directory_mode", "mode", "others", "is_read"),
    [
        (0o755, 0o644, False, True),
        (0o775, 0o664, False, True),  # a group's directory
        (0o755, 0o666, False, False),
        (0o1777, 0o644, False, True),  # one's own file in /tmp
        (0o1777, 0o644, True, False),
        (0o777, 0o644, True, False),
        (0o755, 0o644, True, True),  # whoever may write the directory is trusted
    ],
)
def test_what_any_user_may_have_written_is_refused_where_it_counts(guarded, directory_mode, mode, others, is_read):
    if others and os.getuid() != 0:
        pytest.skip("only root can give a file away")
    owner = 12345 if others else os.getuid()
    assert guarded(directory_mode, mode, owner) == ("{}" if is_read else "any user of this host may write it")


def test_what_is_missing_is_said_to_be(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, f'{{"time_s": {"9" * 400}}}'])
def test_what_is_no_json_is_a_value_error(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=r"Expecting|nested too deeply|an integer of 400 digits"):
        read_json(tmp_path / "file")
