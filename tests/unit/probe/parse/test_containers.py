"""How containers get at the GPUs: docker, containerd, the toolkit, CDI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse.containers import (
    CdiSpec,
    ContainerdConfig,
    DockerConfig,
    ToolkitConfig,
    parse_cdi,
    parse_cdi_file,
    parse_containerd_config,
    parse_docker_config,
    parse_toolkit_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DAEMON = """\
{
    "data-root": "/var/snap/docker/common/var-lib-docker",
    "default-runtime": "nvidia",
    "default-shm-size": "8G",
    "exec-opts": ["native.cgroupdriver=systemd"],
    "features": {"cdi": true, "buildkit": true, "later": false},
    "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}, "kata": {}}
}
"""
INFO = {
    "ServerVersion": "28.5.1",
    "DockerRootDir": "/var/lib/docker",
    "CgroupDriver": "systemd",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "DefaultRuntime": "runc",
    "Runtimes": {"io.containerd.runc.v2": {}, "nvidia": {"path": "nvidia-container-runtime"}, "runc": {}},
}
CONTAINERD_2 = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "/usr/bin/nvidia-container-runtime"
        SystemdCgroup = true
"""
CONTAINERD_3 = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
TOOLKIT = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
no-cgroups = true

[nvidia-container-runtime]
debug = "/var/log/nvidia-container-runtime.log"
mode = "cdi"
"""
YAML = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        hooks:
            - hookName: createContainer
    - name: GPU-00000000-0000-0000-0000-000000000001
    - name: all
containerEdits:
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05
          containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
        - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.104.05
        - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.0
"""
JSON = json.dumps(
    {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all"}],
        "containerEdits": {"mounts": [{"hostPath": "/usr/lib64/libcuda.so.580.105.08"}]},
    }
)
CDI = f"== /etc/cdi/nvidia.yaml 1790000000\n{YAML}== /var/run/cdi/with blank.json 1790000001\n{JSON}\n"
SAMPLES: dict[str, tuple[Callable[[str], object], str]] = {
    "daemon": (parse_docker_config, DAEMON),
    "info": (parse_docker_config, json.dumps(INFO)),
    "containerd-2": (parse_containerd_config, CONTAINERD_2),
    "containerd-3": (parse_containerd_config, CONTAINERD_3),
    "toolkit": (parse_toolkit_config, TOOLKIT),
    "cdi": (parse_cdi, CDI),
    "cdi-file": (parse_cdi_file, YAML),
}


def test_docker_daemon() -> None:
    assert parse_docker_config(DAEMON) == DockerConfig(
        runtimes=("kata", "nvidia"),
        default_runtime="nvidia",
        cgroup_driver="systemd",
        default_shm_size="8G",
        features=("buildkit", "cdi"),
        is_snap=True,
    )


@pytest.mark.parametrize(
    "text", ["{}", '{"runtimes": null, "features": null, "exec-opts": null}'], ids=["empty", "nulls"]
)
def test_docker_daemon_that_sets_nothing(text: str) -> None:
    assert parse_docker_config(text) == DockerConfig()


def test_sizes_may_be_numbers_and_the_last_option_wins() -> None:
    found = parse_docker_config(
        '{"default-shm-size": 67108864, "exec-opts": ["native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"]}'
    )

    assert (found.default_shm_size, found.cgroup_driver) == ("67108864", "cgroupfs")


def test_docker_info() -> None:
    assert parse_docker_config(json.dumps(INFO)) == DockerConfig(
        runtimes=("io.containerd.runc.v2", "nvidia", "runc"),
        default_runtime="runc",
        cgroup_driver="systemd",
        features=("cdi",),
        is_snap=False,
        version="28.5.1",
    )


def test_docker_info_without_cdi() -> None:
    assert parse_docker_config(json.dumps(INFO | {"CDISpecDirs": []})).features == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            CONTAINERD_2,
            ContainerdConfig(
                runtimes=("nvidia", "runc"), default_runtime="nvidia", has_systemd_cgroup=True, has_cdi=False
            ),
        ),
        (
            CONTAINERD_3,
            ContainerdConfig(runtimes=("runc",), default_runtime="runc", has_systemd_cgroup=True, has_cdi=True),
        ),
        ('disabled_plugins = ["cri"]\n', ContainerdConfig()),
        (
            '[plugins.cri.containerd.runtimes.nvidia]\nruntime_type = "x"\n'
            "[plugins.cri.containerd.runtimes.runc.options]\nSystemdCgroup = true\n",
            ContainerdConfig(runtimes=("nvidia", "runc")),
        ),
    ],
    ids=["version-2", "version-3", "default-of-docker", "version-1"],
)
def test_containerd(text: str, expected: ContainerdConfig) -> None:
    assert parse_containerd_config(text) == expected


def test_toolkit_configuration() -> None:
    assert parse_toolkit_config(TOOLKIT) == ToolkitConfig(
        has_no_cgroups=True, mode="cdi", debug="/var/log/nvidia-container-runtime.log"
    )


def test_toolkit_version() -> None:
    text = "NVIDIA Container Toolkit CLI version 1.17.8-rc.1\ncommit: f8d7a4c\n"

    assert parse_toolkit_config(text) == ToolkitConfig(version="1.17.8-rc.1")


def test_cdi_of_the_collector() -> None:
    assert parse_cdi(CDI) == (
        CdiSpec(
            path="/etc/cdi/nvidia.yaml",
            kind="nvidia.com/gpu",
            devices=("0", "GPU-00000000-0000-0000-0000-000000000001", "all"),
            driver_versions=("535.104.05",),
            modified=1790000000,
        ),
        CdiSpec(
            path="/var/run/cdi/with blank.json",
            kind="nvidia.com/gpu",
            devices=("all",),
            driver_versions=("580.105.08",),
            modified=1790000001,
        ),
    )
    assert parse_cdi("") == ()


@pytest.mark.parametrize("text", [JSON, json.dumps(json.loads(JSON), indent=2)], ids=["one-line", "indented"])
def test_one_specification_as_it_lies_in_its_folder(text: str) -> None:
    assert parse_cdi_file(text) == (
        CdiSpec(path="", kind="nvidia.com/gpu", devices=("all",), driver_versions=("580.105.08",)),
    )


def test_specifications_with_headings_are_files_too() -> None:
    assert parse_cdi_file(CDI) == parse_cdi(CDI)


REFUSED = [
    (parse_docker_config, "", "is not JSON"),
    (parse_docker_config, "[]", "not a table"),
    (parse_docker_config, DAEMON[:-5], "is not JSON"),
    (parse_docker_config, '{"runtimes": ["nvidia"]}', "runtimes is not a table"),
    (parse_docker_config, '{"features": {"cdi": "yes"}}', "neither true nor false"),
    (parse_docker_config, '{"exec-opts": "native.cgroupdriver=systemd"}', "not a list"),
    (parse_docker_config, '{"default-runtime": 1}', "not text"),
    (parse_docker_config, '{"default-shm-size": true}', "not text"),
    (parse_docker_config, json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon"]}), "Cannot connect"),
    (parse_docker_config, json.dumps(INFO | {"ServerVersion": ""}), "reached no daemon"),
    (parse_containerd_config, "", "says nothing"),
    (parse_containerd_config, "# comments only\n", "says nothing"),
    (parse_containerd_config, "version = \n", "is not TOML: .*line 1"),
    (parse_containerd_config, "plugins = 3\n", "not a table"),
    (parse_containerd_config, CONTAINERD_2.replace("true", '"true"'), "neither true nor false"),
    (parse_toolkit_config, "", "none of the toolkit's settings"),
    (parse_toolkit_config, "[plugins]\n", "none of the toolkit's settings"),
    (parse_toolkit_config, "nvidia-ctk: command not found\n", "is not TOML"),
    (parse_toolkit_config, TOOLKIT.replace("true", "1"), "neither true nor false"),
    (parse_cdi, YAML, "something else than a heading"),
    (parse_cdi, "== nvidia.yaml 1\n", "another form"),
    (parse_cdi, "== /etc/cdi/nvidia.yaml\n", "another form"),
    (parse_cdi, "== /etc/cdi/nvidia.yaml now\n", "not a whole number"),
    (parse_cdi_file, "", "no kind of device"),
    (parse_cdi_file, "cdiVersion: 0.5.0\n", "no kind of device"),
    (parse_cdi_file, "\0", "is binary"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize("sample", SAMPLES)
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(sample: str, data: st.DataObject) -> None:
    parse, text = SAMPLES[sample]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from("\x1b\0\n\t {}[]=:,\"'"), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())
    expected = machines.EXPECTED[name]
    if not (expected.has_containers and expected.gpus):
        assert not host.has("cdi")
        return

    assert host.docker.cgroup_driver == host.docker_info.cgroup_driver == "systemd"
    assert set(host.docker.runtimes) < set(host.docker_info.runtimes)
    assert "nvidia" in host.docker.runtimes
    assert host.containerd.default_runtime in host.containerd.runtimes
    assert host.toolkit.version
    assert host.toolkit_config.mode == "auto"
    (spec,) = host.cdi
    assert spec.devices == (*(str(index) for index in range(expected.gpus)), "all")
    assert spec.driver_versions == (host.driver.version,)
