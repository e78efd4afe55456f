"""Answers that were wrong once: each text here was given a cause it does not have."""

from __future__ import annotations

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.matrix.load import Matrix
from provision.probe.output import Output
from provision.probe.parse.measurements import parse_nccl_tests
from provision.signals.expectation import Expectation
from provision.signals.nvlink import nvlink_active
from provision.signals.performance import perf_nccl_node

LIBRARY = (
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object"
)
LIMITED = (
    "[    1.1] pci 0000:17:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:16:00.0"
    " (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def said(text: str, matrix: Matrix) -> dict[str, str]:
    """Return what doctor finds in a text: diagnosis → its steps in one line."""
    report = diagnose(Case(matrix, None, (("log", text),)))
    found = list(report.causes) + list(report.notes)
    for finding in found:
        found += finding.consequences
    return {finding.diagnosis.id: " ".join(finding.fix) for finding in found}


@pytest.mark.parametrize(
    "line",
    [
        "[    2.{n}] ata{n}: SATA link down (SStatus 0 SControl 300)",
        "[    2.{n}] ata{n}: link down",
        "[   {n}0.1] pcieport 0000:00:1c.0: pciehp: Slot({n}): Link Down",
    ],
    ids=["sata", "ata", "slot"],
)
def test_empty_ports_of_disks_and_slots_are_no_network(line: str, matrix: Matrix) -> None:
    assert "rdma.flap" not in said("".join(f"{line.format(n=n)}\n" for n in range(1, 8)), matrix)


def test_a_network_link_that_goes_down_again_and_again_still_is_one(matrix: Matrix) -> None:
    text = "".join(f"[   {n}0.1] mlx5_core 0000:17:00.0 ens5np0: Link down\n" for n in range(1, 9))
    assert "rdma.flap" in said(text, matrix)


@pytest.mark.parametrize(
    "line",
    [
        "nouveau 0000:01:00.0: GPU has fallen off the bus",
        "nouveau 0000:01:00.0: bus: MMIO read of 00000000 FAULT at 022554 [ IBUS ]",
        "nouveau: probe of 0000:01:00.0 failed with error -12",
    ],
)
def test_what_nouveau_says_is_no_reason_to_replace_a_board(line: str, matrix: Matrix) -> None:
    found = said(f"[   30.1] {line}\n", matrix)
    assert "driver.nouveau" in found
    assert "board replaced" not in " ".join(found.values())


@pytest.mark.parametrize(
    "line",
    [
        "OSError: libcudnn.so.8: cannot open shared object file: No such file or directory",
        "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open",
        "Unable to load any of {libcudnn_cnn.so.9.1.0, libcudnn_cnn.so.9.1, libcudnn_cnn.so.9, libcudnn_cnn.so}",
    ],
)
def test_a_cudnn_that_is_missing_is_not_found_by_unsetting_the_path(line: str, matrix: Matrix) -> None:
    found = said(f"{line}\n", matrix)
    assert next(iter(found)) == "cudnn.missing"
    assert "unset LD_LIBRARY_PATH" not in " ".join(found.values())


def test_jax_without_its_plugin_is_no_reason_to_remove_torch(matrix: Matrix) -> None:
    found = said("WARNING:absl:No GPU/TPU found, falling back to CPU.\n", matrix)
    assert list(found) == ["jax.cpu-build"]
    assert "uninstall torch" not in " ".join(found.values())


@pytest.mark.parametrize(
    "line",
    [
        "DistNetworkError: The client socket has failed to connect to any network address of (172.17.0.1, 29500).",
        "The client socket has failed to connect to 172.17.0.1:29500 (errno: 111 - Connection refused).",
        "NCCL WARN Call to connect to 172.18.0.1<39401> failed : Connection refused",
    ],
)
def test_a_bridge_of_docker_is_the_wrong_interface_and_no_firewall(line: str, matrix: Matrix) -> None:
    found = said(f"{line}\n", matrix)
    assert "nccl.wrong-interface" in found
    assert "nccl.firewall" not in found


def test_another_private_address_may_be_behind_a_firewall(matrix: Matrix) -> None:
    line = "The client socket has failed to connect to 172.31.5.9:29500 (errno: 110 - Connection timed out)."
    assert "nccl.firewall" in said(f"{line}\n", matrix)


def test_the_drivers_root_is_offered_where_nothing_is_known_of_the_host(matrix: Matrix) -> None:
    fix = said(f"{LIBRARY}\n", matrix)["container.host-driver"]
    assert "`nvidia-smi`" in fix
    assert "config.toml" in fix
    assert "snap" in fix


def test_ecc_that_a_workstation_is_sold_without_is_not_missing(matrix: Matrix) -> None:
    assert "gpu.ecc-off" not in said("Product Name : NVIDIA RTX A6000\nECC mode is disabled\n", matrix)


@pytest.mark.parametrize(
    "text", ["row_remap_pending  Returns 1 if a row remap is pending", "whether page retirement is pending"]
)
def test_help_is_no_state(text: str, matrix: Matrix) -> None:
    assert "gpu.remap-pending" not in said(f"  {text}\n", matrix)


@pytest.mark.parametrize(
    "text",
    [
        LIMITED.replace("pci 0000", "mlx5_core 0000"),
        f"{LIMITED}[    5.0] mlx5_core 0000:17:00.0: firmware version: 20.31\n",
        f"{LIMITED}[    5.0] nvme nvme0: pci function 0000:17:00.0\n",
    ],
    ids=["own", "later", "nvme"],
)
def test_a_network_card_on_few_lanes_is_no_gpu(text: str, matrix: Matrix) -> None:
    assert "pci.width" not in said(text, matrix)


def test_a_gpu_on_few_lanes_is_one(matrix: Matrix) -> None:
    assert "pci.width" in said(f"{LIMITED}[    5.0] nvidia 0000:17:00.0: enabling device\n", matrix)


def test_links_of_gpus_that_were_not_listed_are_unknown_and_not_down(matrix: Matrix) -> None:
    outputs = machines.hgx_h100()
    first = outputs["nvlink-status"].text.partition("GPU 1:")[0]
    host = machines.snapshot(machines.replace_output(outputs, "nvlink-status", text=first))
    signal = nvlink_active(host, Expectation(gpus=8), matrix)
    assert signal.status == "unknown"
    assert "GPU 1" in signal.seen
    assert "GPU 0" not in signal.seen


def _run_over_hosts(rate: float) -> str:
    devices = "".join(
        f"#  Rank  {rank} Group  0 Pid {rank} on  node{rank} device  0 [0x18] NVIDIA H100 80GB HBM3\n"
        for rank in (0, 1)
    )
    return (
        f"# nThread 1 nGpus 1\n# Using devices\n{devices}"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        f"8589934592 2147483648 float sum -1 90000 95.00 {rate:.2f} 0 90000 95.00 {rate:.2f} 0\n"
        "# Out of bounds values : 0 OK\n"
    )


def test_a_run_over_two_hosts_is_not_judged_by_the_floor_of_one(matrix: Matrix) -> None:
    text = _run_over_hosts(48.0)
    assert parse_nccl_tests(text).hosts == ("node0", "node1")
    assert "nccl.slow" not in said(text, matrix)
    output = Output(probe="nccl-tests", status="ok", text=text)
    host = machines.snapshot({**machines.hgx_h100(), "nccl-tests": output})
    signal = perf_nccl_node(host, Expectation(gpus=2), matrix)
    assert signal.status == "unknown"
    assert "over 2 hosts" in signal.seen


def test_a_port_is_said_once(matrix: Matrix) -> None:
    outputs = machines.change(machines.hgx_h100(), "infiniband", "mlx5_0 1 state 4: ACTIVE", "mlx5_0 1 state 2: INIT")
    host = machines.snapshot(outputs)
    report = diagnose(Case(matrix, host, (("ibstat", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Initializing\n"),)))
    (finding,) = [row for row in report.causes if row.diagnosis.id == "rdma.port"]
    assert len(finding.sign.seen) == 1


def test_numpy_that_is_not_available_is_known(matrix: Matrix) -> None:
    assert "numpy.abi" in said("RuntimeError: Numpy is not available\n", matrix)


def test_an_nvjitlink_that_is_missing_is_installed_and_not_unset(matrix: Matrix) -> None:
    line = "ImportError: libnvJitLink.so.12: cannot open shared object file: No such file or directory"
    found = said(f"torch==2.4.1+cu121\n{line}\n", matrix)
    assert list(found) == ["cuda.library-missing"]
    assert "pip install 'nvidia-nvjitlink-cu12'" in found["cuda.library-missing"]


def test_a_toolkit_that_is_missing_is_that_of_the_torch_in_the_text(matrix: Matrix) -> None:
    text = "PyTorch version: 2.3.1+cu121\nOSError: CUDA_HOME environment variable is not set.\n"
    assert "cuda-toolkit-12-1" in said(text, matrix)["cuda.home-unset"]
    assert "cuda-toolkit-12-4" not in said(text, matrix)["cuda.home-unset"]


@pytest.mark.parametrize(
    ("line", "diagnosis", "package"),
    [
        (
            "[ 6.3] NVRM: The NVIDIA GPU 0000:01:00.0 requires use of the NVIDIA open kernel modules.",
            "driver.open-required",
            "nvidia-driver-570-server-open",
        ),
        ("Cannot load libnvidia-encode.so.1", "driver.partial-libraries", "libnvidia-encode-570"),
    ],
    ids=["open", "encode"],
)
def test_packages_are_of_the_branch_of_the_driver_in_the_text(
    line: str, diagnosis: str, package: str, matrix: Matrix
) -> None:
    heading = "| NVIDIA-SMI 570.195.03             Driver Version: 570.195.03     CUDA Version: 12.8     |"
    assert package in said(f"{heading}\n{line}\n", matrix)[diagnosis]


def test_a_device_plugin_without_the_drivers_libraries_lacks_the_runtime(matrix: Matrix) -> None:
    line = "could not load NVML library: libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
    assert next(iter(said(f"{line}\n", matrix))) == "k8s.no-nvidia-runtime"


@pytest.mark.parametrize(
    ("line", "diagnosis"),
    [
        (
            "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object "
            "file: No such file or directory",
            "tensorrt.missing",
        ),
        ('            "OOMKilled": false,', "host.out-of-memory"),
        ("Killed 3 stale workers", "host.out-of-memory"),
        ("exit code 1370", "host.out-of-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "host.out-of-memory"),
        ("ModuleNotFoundError: No module named 'triton'", "triton.mismatch"),
        ("ERROR: No matching distribution found for torchmetrics==99", "pip.no-wheel"),
        ("AttributeError: module 'numpy' has no attribute 'bool8x'", "numpy.removed-alias"),
        (
            "E: The repository 'https://mirror.example/debian buster Release' does not have a Release file.",
            "apt.moved-repository",
        ),
        ("mount: /mnt: Insufficient permissions", "nvml.permission"),
        ("RuntimeError: collective timed out and was terminated", "cuda.launch-timeout"),
        ("ImportError: x.so: undefined symbol: cublasLtCreate", "cuda.driver-too-old"),
        ("modprobe: ERROR: could not insert 'nvme': Required key not available", "driver.secure-boot"),
        ("RuntimeError: CUDA error: out of memory after waking up the engine", "cuda.uvm"),
        ("ptxas exited with non-zero error code 2, output: error : Entry function 'f' uses too much", "xla.ptxas-old"),
        ("INFO: ptxas not found; using triton's bundled ptxas", "xla.no-toolkit"),
        ("systemd[1]: foo.service: process terminated with signal 9", "host.out-of-memory"),
        ("NameError: name 'use_cuda' is not defined", "python.module-missing"),
        ("available devices are [CPU:0, CUDA:0]", "tensorflow.no-gpu"),
        ("gloo pair connected remote=127.0.0.1:4555", "nccl.wrong-interface"),
        ('avc:  denied  { read } for comm="nvidia-persiste" path="/x" permissive=0', "container.selinux"),
        ("  nvidia.com/gpu:     0", "k8s.no-gpu-capacity"),
        ("INFO NCCL timeout: 600s", "nccl.watchdog"),
        ("slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory", "driver.device-nodes"),
        ("ldconfig: /usr/lib/wsl/lib/libcuda.so.1 is not a symbolic link", "wsl.blocked"),
        ("misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22", "wsl.blocked"),
        (
            "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.",
            "library.system-missing",
        ),
        ("Loading checkpoint shards: exit code: 0", "host.out-of-memory"),
        ("NET/IB: ibgda enabled, 8 QPs", "nvshmem.ibgda"),
        ("Waiting for cache lock: released /var/lib/dpkg/lock-frontend", "apt.locked"),
        ("INFO: Converting SIF file to temporary sandbox in a user namespace", "container.user-namespace"),
        ("Warning: Permanently added 'gpu002' (ED25519) to the list of known hosts.", "mpi.remote-shell"),
        ("git@github.com: Permission denied (publickey).", "mpi.remote-shell"),
        ("MPI: Loading all types mpi/pmix_v4", "slurm.mpi"),
        ("Allocated all claims of pod default/train", "k8s.dra"),
        ("INFO NCCL_NVLS_ENABLE: no execution plan cached", "cudnn.conflict"),
        ("nvidia-dkms: Setting up linux-headers-6.8.0-45-generic", "driver.module-build"),
        ("Could not load config, using defaults for 'gpt2'", "hub.unreachable"),
        ("The tokenizer class was loaded from 'LlamaTokenizer'", "hub.unreachable"),
        ("RendezvousHandler configured: c10d", "torch.rendezvous"),
        ("ValueError: world size must be divisible by 2", "vllm.parallel-size"),
        ("INFO exit code 0", "host.out-of-memory"),
    ],
)
def test_a_line_that_only_resembles_a_message_is_not_taken_for_it(line: str, diagnosis: str, matrix: Matrix) -> None:
    assert diagnosis not in said(f"{line}\n", matrix)


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: 'NoneType' object has no attribute 'split'",
        "AttributeError: 'list' object has no attribute 'items'",
        "AttributeError: 'DistributedDataParallel' object has no attribute 'config'",
        "AttributeError: 'Namespace' object has no attribute 'batch_size'",
        "main.o: undefined reference to `curl_easy_init'",
        'net.cu(12): error: identifier "n_threads" is undefined',
        "KeyError: 'images'",
        "requests.get(url, timeout=10) took 3 s",
    ],
)
def test_a_fault_of_the_program_itself_is_no_other_release(line: str, matrix: Matrix) -> None:
    assert said(f"{line}\n", matrix) == {}


def test_bridges_among_the_interfaces_matter_only_where_nccl_failed(matrix: Matrix) -> None:
    text = "INFO NET/Socket : Using\n[0]bond0:10.0.0.5<0>\n[1]br-05ab815fa14e:172.19.0.1<0>\n"
    assert "nccl.wrong-interface" not in said(text, matrix)
    failed = f"{text}ncclSystemError: System call (socket, malloc, munmap, etc) failed\n"
    assert "nccl.wrong-interface" in said(failed, matrix)


def test_sockets_that_the_command_asks_for_are_no_missing_rdma(matrix: Matrix) -> None:
    line = "gpu1:14926:14926 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
    assert "nccl.no-rdma" in said(line, matrix)
    assert "nccl.no-rdma" not in said(f"mpirun -x NCCL_IB_DISABLE=1 ./all_reduce_perf\n{line}", matrix)


def test_a_pair_of_cudas_that_a_build_accepts_is_no_mismatch(matrix: Matrix) -> None:
    line = "Installed CUDA version 11.4 does not match the version torch was compiled with 11.5"
    assert "cuda.nvcc-mismatch" in said(f"{line}, unable to compile cuda/cpp extensions\n", matrix)
    accepted = f"{line} but since the APIs are compatible, accepting this combination\n"
    assert "cuda.nvcc-mismatch" not in said(accepted, matrix)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("mpi.remote-shell", "export OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"),
        ("tensorflow.protobuf", "WARN dataset: duplicate file name images/0001.jpg, skipped"),
        ("container.user-namespace", "INFO: user namespaces are not enabled, running without fakeroot"),
        ("python.version-mismatch", "jax.cloud_tpu_init was deprecated in JAX v0.8.1. You should remove imports of it"),
        (
            "python.version-mismatch",
            "ImportError: cannot import name 'Trainer' from partially initialized module 'myproj.train'",
        ),
        ("driver.gsp-firmware", "mwifiex mlan0: No firmware image found. Skipping download"),
        ("driver.gsp-firmware", "NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClient=0xc1d00008; status=0x0000004f"),
        (
            "k8s.operator-waits",
            "level=info msg=creating symlinks under /dev/char that correspond to NVIDIA character devices",
        ),
    ],
)
def test_words_that_others_use_too_are_no_message_of_it(wrong: str, line: str, matrix: Matrix) -> None:
    assert wrong not in said(f"{line}\n", matrix)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n"
            "GeForce RTX 3070 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n",
            "cuda.no-kernel-image",
        ),
        (
            "Assertion `srcIndex < srcSelectDimSize` failed.\nCUDA error: CUBLAS_STATUS_NOT_INITIALIZED\n",
            "cuda.device-assert",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
            "[rank1]:[E1128 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout: WorkNCCL\n",
            "cuda.out-of-memory",
        ),
    ],
)
def test_what_names_the_cause_comes_before_what_it_ends_in(text: str, first: str, matrix: Matrix) -> None:
    report = diagnose(Case(matrix, None, (("log", text),)))
    assert report.causes[0].diagnosis.id == first
    assert report.causes[0].fits == ()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "cublas.not-initialized"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cudnn.conflict"),
        ("XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed.", "jax.dnn-init"),
    ],
)
def test_one_message_of_several_causes_names_none_of_them_for_sure(line: str, name: str, matrix: Matrix) -> None:
    (cause,) = diagnose(Case(matrix, None, (("log", f"{line}\n"),))).causes
    assert (cause.diagnosis.id, cause.sign.confidence) == (name, "low")
    assert "cuda.out-of-memory" in {diagnosis.id for diagnosis in cause.fits}


def test_a_driver_that_does_not_answer_yields_to_an_error_that_needs_one(matrix: Matrix) -> None:
    text = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    report = diagnose(Case(matrix, None, (("log", text),)))
    assert [finding.diagnosis.id for finding in report.causes] == ["cuda.no-kernel-image"]
    assert [finding.diagnosis.id for finding in report.notes] == ["driver.not-built"]


def test_a_package_that_is_verified_is_not_missing(matrix: Matrix) -> None:
    name = "nvidia-535.129.03-6.1.63-Unraid-1.txz"
    assert "apt.no-candidate" not in said(f"Verifying package {name}.\nPackage {name} installed.\n", matrix)
    assert "apt.no-candidate" in said("E: Package 'nvidia-driver-580' has no installation candidate\n", matrix)


@pytest.mark.parametrize(
    ("text", "diagnosis"),
    [
        ("mpirun -x UCX_TLS=rc,cuda_copy,gdr_copy ./solver", "mpi.gpu-memory"),
        (
            "nvidia.com/gpu: 1\n0/3 nodes are available: 2 Insufficient cpu, 1 Insufficient nvidia.com/gpu.",
            "k8s.no-room",
        ),
        ("onnxruntime==1.22.0\nnumpy==2.1.0", "onnxruntime.two-packages"),
        ("Minimum required driver version: 525.60.13", "cuda.driver-too-old"),
        ("OSError: [Errno 28] No space left on device: '/data/psm_1'", "container.shm"),
        ("insmod: ERROR: could not insert module nvidia.ko: No such device", "driver.not-built"),
        ("cannot open file: couldn't communicate with the NVIDIA driver on a Tesla V100", "driver.open-unsupported"),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0", "driver.module-refused"),
    ],
)
def test_what_is_near_another_cause_is_not_taken_for_it(text: str, diagnosis: str, matrix: Matrix) -> None:
    assert diagnosis not in said(f"{text}\n", matrix)
