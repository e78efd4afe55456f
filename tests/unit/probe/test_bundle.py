"""Bundles: the same bytes for the same snapshots, nothing secret in them, and no trust in one that is read."""

import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.errors import ActionFailedError, UsageError
from provision.probe import bundle
from provision.probe.bundle import read_bundle, write_bundle
from provision.probe.output import Output
from provision.probe.snapshot import Snapshot

UUID = "GPU-3f1e8d6a-0000-1111-2222-333344445555"


def _snapshot(target: str = "node1", text: str = "Linux 6.1.0 x86_64\n", **more: Output) -> Snapshot:
    outputs = {
        "uname": Output(probe="uname", status="ok", code=0, seconds=0.02, text=text),
        "nvidia-smi-xml": Output(probe="nvidia-smi-xml", status="hung", seconds=20.0, error="it did not end"),
        "lspci": Output(probe="lspci", status="ok", code=0, text=""),
    }
    return Snapshot(target, outputs | more, collected="2026-11-21T10:00:00+00:00")


def _archive(path, members, *, compress=gzip.compress):
    """Write an archive by hand: name → bytes, or a TarInfo of any kind."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    path.write_bytes(compress(stream.getvalue()))
    return path


def _members(path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}


def _refused(path) -> str:
    with pytest.raises(UsageError) as caught:
        read_bundle(path)
    assert caught.value.hints
    return " ".join((caught.value.message, *caught.value.because))


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "whole.tar.gz"
    write_bundle(path, [_snapshot()], {"report.json": "{}"}, facts_date="2026-11-21", unreachable={"node9": "refused"})
    return path


class TestRoundTrip:
    def test_what_was_written_is_read(self, whole):
        (read,) = read_bundle(whole)
        assert read.target == "node1"
        assert read.outputs == _snapshot().outputs
        assert read.collected == "2026-11-21T10:00:00+00:00"

    def test_a_list_and_a_mapping_of_snapshots_give_the_same_bytes_in_any_order(self, tmp_path):
        first, second = _snapshot("a"), _snapshot("b")
        write_bundle(tmp_path / "1", [second, first])
        write_bundle(tmp_path / "2", {"a": first, "b": second})
        assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()

    def test_an_unpacked_folder_is_read_too(self, whole, tmp_path):
        folder = tmp_path / "folder"
        for name, content in _members(whole).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        assert read_bundle(folder)[0].outputs == _snapshot().outputs

    def test_the_manifest_says_what_it_is(self, whole):
        manifest = json.loads(_members(whole)["manifest.json"])
        assert manifest["facts"] == "2026-11-21"
        assert manifest["unreachable"] == {"node9": "refused"}
        assert manifest["extra"] == ["report.json"]
        assert [probe["probe"] for probe in manifest["targets"][0]["probes"]] == ["lspci", "nvidia-smi-xml", "uname"]

    def test_only_the_owner_may_read_the_file(self, whole):
        assert whole.stat().st_mode & 0o777 == 0o600

    def test_a_folder_that_is_not_there_leaves_nothing(self, tmp_path):
        with pytest.raises(ActionFailedError):
            write_bundle(tmp_path / "no" / "b.tar.gz", [_snapshot()])

    def test_a_failure_half_way_leaves_the_old_file(self, whole, monkeypatch):
        before = whole.read_bytes()
        monkeypatch.setattr(bundle, "_pack", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ActionFailedError, match="cannot write"):
            write_bundle(whole, [_snapshot("other")])
        assert whole.read_bytes() == before
        assert [path.name for path in whole.parent.iterdir()] == [whole.name]

    def test_an_extra_file_cannot_leave_the_bundle(self, tmp_path):
        with pytest.raises(UsageError):
            write_bundle(tmp_path / "b", [], {"../x": ""})


class TestSecrets:
    def test_they_are_taken_out_of_everything(self, tmp_path):
        text = "HF_TOKEN=hf_" + "a" * 30
        path = tmp_path / "b"
        write_bundle(path, [_snapshot(text=text)], {"report.txt": text}, unreachable={"x": "password=hunter2"})
        everything = b"".join(_members(path).values())
        assert b"hf_" not in everything
        assert b"hunter2" not in everything
        assert everything.count(b"<redacted>") == 3

    def test_they_are_taken_out_again_where_somebody_else_left_them(self, whole, tmp_path):
        members = _members(whole)
        evil = b"HF_TOKEN=hf_" + b"a" * 30 + b" \x1b]0;x\x07"
        manifest = json.loads(members["manifest.json"])
        for probe in manifest["targets"][0]["probes"]:
            if probe["probe"] == "uname":
                probe["digest"] = bundle._digest(evil, b"")
        members |= {"targets/00/uname.out": evil, "manifest.json": json.dumps(manifest).encode()}
        (read,) = read_bundle(_archive(tmp_path / "evil", members.items()))
        assert read.output("uname").text == "HF_TOKEN=<redacted>"


class TestMask:
    def test_machines_are_hidden_and_stay_told_apart(self, tmp_path):
        path = tmp_path / "b"
        one = _snapshot("ssh://me@node1.corp:22", f"{UUID} node1 to node2 10.1.2.3")
        two = _snapshot("node2", f"{UUID} node2 10.1.2.3")
        write_bundle(
            path, [one, two], {"doctor.json": "node1 10.1.2.3"}, unreachable={"node3": "node3?"}, is_masked=True
        )
        everything = b"".join(_members(path).values()).decode()
        for secret in ("node1", "node2", "node3", "corp", "10.1.2.3", UUID, "me@"):
            assert secret not in everything
        texts = {read.target: read.output("uname").text for read in read_bundle(path)}
        assert texts == {"host-1": "GPU-uuid-1 host-1 to host-2 ip-1", "host-2": "GPU-uuid-1 host-2 ip-1"} or texts == {
            "host-2": "GPU-uuid-1 host-2 to host-1 ip-1",
            "host-1": "GPU-uuid-1 host-1 ip-1",
        }

    def test_this_machine_keeps_its_name(self, tmp_path):
        write_bundle(tmp_path / "b", [_snapshot("local", "local time")], is_masked=True)
        (read,) = read_bundle(tmp_path / "b")
        assert (read.target, read.output("uname").text) == ("local", "local time")


def _link(kind: bytes, name: str = "targets/00/uname.out") -> tuple[str, tarfile.TarInfo]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd"
    return name, entry


class TestHostile:
    @pytest.mark.parametrize(
        "members",
        [
            pytest.param([("../../etc/cron.d/x", b"")], id="traversal"),
            pytest.param([("/etc/passwd", b"")], id="absolute"),
            pytest.param([("targets/00/../../x.out", b"")], id="inner-traversal"),
            pytest.param([("other.txt", b"")], id="stranger"),
            pytest.param([("targets/00/a.out", b""), ("targets/00/a.out", b"")], id="twice"),
            pytest.param([_link(tarfile.SYMTYPE)], id="symlink"),
            pytest.param([_link(tarfile.LNKTYPE)], id="hardlink"),
            pytest.param([_link(tarfile.CHRTYPE)], id="device"),
            pytest.param([_link(tarfile.FIFOTYPE)], id="fifo"),
            pytest.param([], id="no-manifest"),
            pytest.param([("manifest.json", b"{")], id="half-manifest"),
            pytest.param([("manifest.json", b"\xff")], id="binary-manifest"),
            pytest.param([("manifest.json", b"[]")], id="list"),
            pytest.param([("manifest.json", b"[" * 200_000)], id="deep"),
            pytest.param([("manifest.json", b'{"format": 1}')], id="no-targets"),
            pytest.param([("manifest.json", b'{"format": 1, "targets": [1]}')], id="target-number"),
            pytest.param([("manifest.json", b'{"format": 1, "targets": [{"folder": 1}]}')], id="target-empty"),
            pytest.param([("manifest.json", b'{"format": 1' + b"0" * 5000 + b"}")], id="huge-number"),
        ],
    )
    def test_what_no_bundle_holds_is_refused(self, tmp_path, members):
        _refused(_archive(tmp_path / "b.tar.gz", members))

    def test_an_unknown_format_names_the_way_out(self, tmp_path):
        path = _archive(tmp_path / "b", [("manifest.json", b'{"format": 99, "targets": []}')])
        assert "format 99" in _refused(path)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"status": "fine"}, id="status"),
            pytest.param({"seconds": float("nan")}, id="nan"),
            pytest.param({"seconds": "1"}, id="seconds-text"),
            pytest.param({"code": "0"}, id="code-text"),
            pytest.param({"probe": "../x"}, id="probe-name"),
            pytest.param({"digest": "0"}, id="digest"),
            pytest.param({"status": []}, id="status-list"),
        ],
    )
    def test_a_changed_manifest_is_refused(self, whole, tmp_path, change):
        members = _members(whole)
        manifest = json.loads(members["manifest.json"])
        manifest["targets"][0]["probes"][-1] |= change
        members["manifest.json"] = json.dumps(manifest).encode()
        _refused(_archive(tmp_path / "b", members.items()))

    def test_a_changed_output_is_refused(self, whole, tmp_path):
        members = _members(whole) | {"targets/00/uname.out": b"Linux 9"}
        assert "was changed" in _refused(_archive(tmp_path / "b", members.items()))

    def test_a_file_that_is_missing_is_noticed(self, whole, tmp_path):
        members = _members(whole)
        del members["targets/00/uname.out"]
        assert "was changed" in _refused(_archive(tmp_path / "b", members.items()))

    def test_every_cut_is_refused(self, whole, tmp_path):
        content = whole.read_bytes()
        for length in range(0, len(content), 7):
            path = tmp_path / "cut"
            path.write_bytes(content[:length])
            _refused(path)

    @given(st.data())
    @settings(max_examples=150)
    def test_no_damage_gives_a_traceback(self, tmp_path_factory, data):
        folder = tmp_path_factory.getbasetemp()
        write_bundle(folder / "good", [_snapshot()])
        raw = bytearray(gzip.decompress((folder / "good").read_bytes()))
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        (folder / "bad").write_bytes(gzip.compress(bytes(raw)))
        try:
            read_bundle(folder / "bad")
        except UsageError as error:
            assert error.because or error.hints

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"hello", id="text"),
            pytest.param(gzip.compress(b""), id="empty-gzip"),
            pytest.param(gzip.compress(b"x" * 2000), id="no-tar"),
            pytest.param(b"\x1f\x8b" + b"\x00" * 50, id="no-gzip"),
        ],
    )
    def test_what_is_no_archive_is_refused(self, tmp_path, content):
        path = tmp_path / "b"
        path.write_bytes(content)
        _refused(path)

    def test_a_bomb_is_refused_before_it_fills_the_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bundle, "_TOTAL_BYTES_MAX", 1 << 20)
        members = [(f"targets/00/a{number}.out", bytes(400_000)) for number in range(5)]
        path = _archive(tmp_path / "b", members)
        assert path.stat().st_size < 20_000
        assert "unpacks to more than 1 MiB" in _refused(path)

    def test_zeros_behind_the_archive_are_counted_too(self, whole, tmp_path, monkeypatch):
        monkeypatch.setattr(bundle, "_TOTAL_BYTES_MAX", 1 << 20)
        path = tmp_path / "b"
        path.write_bytes(gzip.compress(gzip.decompress(whole.read_bytes()) + bytes(4 << 20)))
        assert "unpacks to more than 1 MiB" in _refused(path)

    def test_one_large_file_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bundle, "_MEMBER_BYTES_MAX", 1000)
        assert "larger than" in _refused(_archive(tmp_path / "b", [("targets/00/a.out", bytes(2000))]))

    def test_too_many_files_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bundle, "_MEMBERS_MAX", 10)
        members = [(f"targets/00/a{number}.out", b"") for number in range(20)]
        assert "more than 10 files" in _refused(_archive(tmp_path / "b", members))

    def test_a_file_that_is_too_large_is_not_opened(self, whole, monkeypatch):
        monkeypatch.setattr(bundle, "_FILE_BYTES_MAX", 10)
        assert "larger than" in _refused(whole)

    def test_a_path_that_is_not_there_is_refused(self, tmp_path):
        assert "No such file" in _refused(tmp_path / "none")

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        import os

        os.mkfifo(tmp_path / "pipe")
        assert "neither a file nor a folder" in _refused(tmp_path / "pipe")

    def test_a_link_in_a_folder_is_refused(self, whole, tmp_path):
        folder = tmp_path / "folder"
        (folder / "targets/00").mkdir(parents=True)
        (folder / "manifest.json").write_bytes(_members(whole)["manifest.json"])
        (folder / "targets/00/uname.out").symlink_to("/etc/passwd")
        assert "not a plain file" in _refused(folder)
