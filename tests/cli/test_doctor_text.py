"""Logs as programs write them: packed, coloured, with broken bytes."""

from __future__ import annotations

import gzip
import tarfile

import pytest

NUMPY = b"RuntimeError: Numpy is not available\n"


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(NUMPY),
        b"\xff" + NUMPY,
        b"RuntimeError: Nu\x1b[1mmpy is\x1b[0m not available\n",
        b"0%\r50%\r" + NUMPY,
    ],
    ids=["gzip", "byte", "colour", "bar"],
)  # fmt: skip
def test_log_is_read(provision, tmp_path, content: bytes) -> None:
    file = tmp_path / "error.log"
    file.write_bytes(content)
    assert "numpy.abi" in provision("doctor", "--text", file).out


def test_damaged_gzip_and_what_is_no_text_are_refused(provision, tmp_path) -> None:
    file = tmp_path / "error.log"
    file.write_bytes(gzip.compress(NUMPY * 99)[:40])
    assert "is a damaged gzip file" in provision("doctor", "--text", file).err
    file.write_bytes(bytes(range(128, 256)) * 9)
    answer = provision("doctor", "--text", file)
    assert answer.code == 2
    assert "is not text" in answer.err


def test_unknown_text_shows_the_line_that_failed(provision, tmp_path) -> None:
    file = tmp_path / "error.log"
    file.write_text("Traceback (most recent call last):\nzork.MyError: it broke\n")
    answer = provision("doctor", "--text", file)
    assert answer.code == 4
    assert "line 2 most likely failed: zork.MyError: it broke" in answer.err


RANKS = {
    "rank_0.log": "[rank0]: NCCL INFO rank 0 nranks 3\n[rank0]: Watchdog caught collective operation timeout\n",
    "rank_1.log": (
        "[rank1]: NCCL INFO comm 0x1 rank 1 nranks 3\nTraceback (most recent call last):\n"
        "RuntimeError: Numpy is not available\n"
    ),
}


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_logs_of_ranks_tell_who_failed_first_and_who_is_missing(provision, tmp_path, is_packed: bool) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in RANKS.items():
        (folder / name).write_text(text)
    if is_packed:
        with tarfile.open(tmp_path / "logs.tar.xz", "w:xz") as archive:
            archive.add(folder, "logs")
    source = tmp_path / "logs.tar.xz" if is_packed else folder
    answer = provision("doctor", "--text", source)
    assert answer.code == 0
    assert "rank 1 failed first" in answer.out
    assert "rank 2 has no log here" in answer.out
    assert "numpy.abi" in answer.out
    assert "nccl.watchdog" not in answer.out
    ranks = provision("doctor", "--text", source, "--json").document["result"]["ranks"]
    assert (ranks["first"]["rank"], ranks["missing"], ranks["world"]) == (1, [2], 3)


def test_a_folder_without_a_log_is_refused(provision, tmp_path) -> None:
    answer = provision("doctor", "--text", tmp_path)
    assert answer.code == 2
    assert "holds no log" in answer.err


TABLE = """\
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:01:00.0 Off |                    3 |
| N/A   32C    P0              62W / 400W |      4MiB / 81920MiB |      0%      Default |
"""


class TestRecords:
    def test_doctor_and_verify_judge_a_record_as_a_machine(self, provision, tmp_path):
        (tmp_path / "smi").write_text(TABLE)
        answer = provision("doctor", "--from", tmp_path / "smi", "--json")
        assert answer.code == 6
        (target,) = answer.document["result"]["targets"]
        assert [row["diagnosis"] for row in target["causes"]] == ["xid.48"]
        assert target["unseen"] == []
        answer = provision("verify", "--from", tmp_path / "smi", "--gpus", "1")
        assert answer.code == 6
        assert "FAIL gpu.ecc.uncorrected" in answer.out

    def test_without_a_driver_it_is_a_machine_with_unknowns(self, provision, tmp_path):
        (tmp_path / "smi").write_text("\n".join(TABLE.splitlines()[1:]).replace("3 |\n", "0 |\n") + "\n")
        answer = provision("doctor", "--from", tmp_path / "smi")
        assert answer.code == 0
        assert "no known cause" in answer.out

    def test_distributions_alone_are_no_machine_without_a_gpu(self, provision, tmp_path):
        (tmp_path / "pip").write_text("Package Version\n------- -------\nnumpy   2.1.0\n")
        answer = provision("doctor", "--from", tmp_path / "pip")
        assert answer.code == 0
        assert "no NVIDIA GPU" not in answer.out

    def test_what_is_no_record_says_what_is_read(self, provision, tmp_path):
        (tmp_path / "x").write_text("hello\n")
        answer = provision("verify", "--from", tmp_path / "x")
        assert answer.code == 2
        assert "nvidia-bug-report.log.gz" in answer.err
        assert "provision doctor --text FILE" in answer.err


def test_a_version_at_the_end_of_a_sentence_is_one_that_pip_takes(provision, tmp_path):
    (tmp_path / "run.log").write_text(
        "E cuda_dnn.cc:417] Loaded runtime CuDNN library: 8.4.1 but source was compiled with: 8.6.0.  CuDNN library "
        "needs to have matching major version and equal or higher minor version.\n"
    )
    answer = provision("doctor", "--text", tmp_path / "run.log")
    assert "'nvidia-cudnn-cu12>=8.6.0,<9'" in answer.out
