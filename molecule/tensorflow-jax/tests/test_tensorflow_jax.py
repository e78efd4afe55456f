"""One environment with TensorFlow and JAX beside one with an older JAX: what is in them, and why they see no GPU."""

import hashlib
import json
import re
import subprocess
import sys

import nodes as machines
import pytest

testinfra_hosts = ["gpu_nodes"]
BASE = "/opt/provision/envs"
LISTS = "/opt/provision/etc/requirements"
BOTH, OWN = "tensorflow-jax", "jax"
INSTALLED = """
import importlib.metadata as metadata, json
print(json.dumps({row.metadata["Name"]: row.version for row in metadata.distributions()}))
"""
TENSORFLOW = """
import json, tensorflow as tf
build = tf.sysconfig.get_build_info()
with tf.GradientTape() as tape:
    x = tf.Variable(2.0)
    y = x ** 3
print(json.dumps({
    "version": tf.__version__, "is_cuda": tf.test.is_built_with_cuda(), "cuda": build["cuda_version"],
    "cudnn": build["cudnn_version"], "gpus": len(tf.config.list_physical_devices("GPU")),
    "product": int(tf.reduce_sum(tf.linalg.matmul(tf.ones((3, 3)), tf.ones((3, 3))))),
    "gradient": float(tape.gradient(y, x)),
}))
"""
JAX = """
import json, jax, jax.numpy as jnp
found = {
    "version": jax.__version__, "platforms": sorted({device.platform for device in jax.devices()}),
    "product": int(jax.jit(lambda x: (x @ x).sum())(jnp.ones((3, 3)))),
    "gradient": float(jax.grad(lambda x: x**3)(2.0)),
}
from jax._src.lib import cuda_versions
if cuda_versions is not None:
    found["cuda"], found["cudnn"] = cuda_versions.cuda_runtime_get_version(), cuda_versions.cudnn_get_version()
print(json.dumps(found))
"""
NOTHING_ELSE = re.compile(
    r"(?i)mismatch|too old|insufficient|cannot open shared object|dlopen|not found|Unable to load"
)
"""What a driver that does not fit, or a library that is not there, would make them say."""


def in_numbers(version):
    """CUDA's version as its libraries give it, and cuDNN's, which counts in tens."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 1000 + minor * 10, major * 10000 + minor * 100 + patch


def read_list(text):
    """Return project → version of a list of hashed requirements."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", text, re.MULTILINE))


@pytest.fixture
def lists(profile, scenario_folder):
    """What each environment is asked to hold: the lock's, and the user's own."""
    (wanted,) = profile["frameworks"]["environments"]
    assert wanted["name"] == BOTH
    own = (scenario_folder / "jax.lock.txt").read_text(encoding="utf-8")
    return {BOTH: read_list(wanted["requirements"]), OWN: read_list(own)}


@pytest.fixture
def say(node):
    """Run a program in an environment: its answer, and all that it said on the way there."""

    def run(name, program):
        done = node.run('"$1" -c "$2"', f"{BASE}/{name}/bin/python", program)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


def test_every_package_is_one_of_the_list_and_none_is_missing(say, lists):
    for name, wanted in lists.items():
        found = {re.sub(r"[-_.]+", "-", key).lower(): value for key, value in say(name, INSTALLED)[0].items()}
        # What a new environment has of its own, unless its list says otherwise.
        own = {key: value for key, value in found.items() if key not in ("pip", "setuptools") or key in wanted}
        assert own == wanted, name
    assert {"tensorflow", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt"} <= lists[BOTH].keys()


def test_a_name_leads_to_a_folder_that_is_named_after_its_content(node, profile):
    for name in (BOTH, OWN):
        target = node.say('readlink "$1"', f"{BASE}/{name}")
        assert re.fullmatch(rf"{name}-[0-9a-f]{{12}}", target), "it would lead elsewhere from another root"
        # `jax` is the end of `tensorflow-jax` too: neither takes the other's folder.
        basis = {"python": profile["frameworks"]["python"], "requirements": node.read(f"{LISTS}/{target}.txt")}
        text = json.dumps(basis, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest()[:12] == target[-12:]
        assert json.loads(node.read(f"{BASE}/{target}/.provision-complete"))["digest"] == target[-12:]


def test_nobody_but_root_writes_to_anything_in_them(node):
    assert int(node.say('find "$1" | wc -l', BASE)) > 1000, "something was looked at"
    assert node.say('find "$@" ! -user root -o ! -type l -perm /022', BASE, LISTS) == ""


def test_tensorflow_is_that_of_the_lock_for_cuda_and_computes_without_a_gpu(say, lists, node_lock):
    found, said = say(BOTH, TENSORFLOW)
    assert found["version"] == lists[BOTH]["tensorflow"] == node_lock["stack"]["frameworks"]["tensorflow"]
    assert found["is_cuda"] is True
    assert found["cuda"].startswith(node_lock["stack"]["cuda"] + ".")
    assert found["cudnn"].split(".")[0] == node_lock["stack"]["cudnn"].split(".")[0]
    assert (found["gpus"], found["product"], found["gradient"]) == (0, 27, 12.0)
    # Its libraries and the driver's agree; a missing or older driver would be what it complains of instead.
    assert "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected" in said, said
    assert not NOTHING_ELSE.search(said), said


def test_tensorflow_looks_for_its_libraries_where_the_lock_has_put_them(node):
    # Without a GPU it opens none of them, and would not miss one that is not there.
    folder = node.say('echo "$1"/bin/../lib/python3*/site-packages/tensorflow', f"{BASE}/{BOTH}")
    read = node.say('readelf -d "$1/libtensorflow_cc.so.2" "$1/libtensorflow_framework.so.2"', folder)
    sought = set(re.findall(r"\$ORIGIN/\.\./nvidia/(\w+)/lib", read))
    assert {"cublas", "cuda_runtime", "cudnn", "cufft", "cusolver", "cusparse", "nccl"} <= sought, read
    for name in sought:
        assert node.say('ls "$1"', f"{folder}/../nvidia/{name}/lib").count(".so."), name


def test_jax_falls_back_to_the_processor_and_its_plugin_misses_nothing_but_the_gpu(say, lists, node_lock):
    found, said = say(BOTH, JAX)
    assert found["version"] == lists[BOTH]["jax"] == node_lock["stack"]["frameworks"]["jax"]
    assert (found["platforms"], found["product"], found["gradient"]) == (["cpu"], 27, 12.0)
    assert "operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE" in said, said
    assert not NOTHING_ELSE.search(said), said


def test_jax_has_loaded_the_libraries_of_the_lock(say, lists):
    found, _said = say(BOTH, JAX)
    assert found["cuda"] == in_numbers(lists[BOTH]["nvidia-cuda-runtime-cu12"])[0]
    assert found["cudnn"] == in_numbers(lists[BOTH]["nvidia-cudnn-cu12"])[1]


def test_both_work_in_one_process(say):
    found, _said = say(BOTH, TENSORFLOW + JAX)
    assert (found["platforms"], found["product"]) == (["cpu"], 27)


def test_an_older_jax_beside_it_is_its_own(say, lists):
    found, said = say(OWN, JAX)
    assert found["version"] == lists[OWN]["jax"] != lists[BOTH]["jax"]
    assert (found["platforms"], found["product"], found["gradient"]) == (["cpu"], 27, 12.0)
    assert "cuda" not in found
    assert said == "", "without a plugin there is nothing to complain of"


def test_what_a_build_shows_of_the_gpu_is_the_reason(node):
    program = (machines.SHARED.parents[1] / "playbooks/roles/gpu_frameworks/files/environments.py").read_text()
    imports = {BOTH: ["tensorflow", "jax"], OWN: ["jax"]}
    rows = [{"name": name, "path": f"{BASE}/{name}", "imports": imports[name], "versions": {}} for name in imports]
    ask = f"print(json.dumps([look(row, dict(os.environ))['accelerator'] for row in json.loads({json.dumps(rows)!r})]))"
    done = node.run("python3 -", input=f"{program}\n{ask}\n")
    assert done.returncode == 0, done.stderr
    both, own = json.loads(done.stdout.splitlines()[-1])
    assert "CUDA_ERROR_NO_DEVICE" in both["tensorflow"]["reason"]
    assert "CUDA_ERROR_NO_DEVICE" in both["jax"]["reason"]
    assert own == {"jax": {"is_available": False, "reason": "no CUDA plugin is installed"}}


def verify(node, *flags):
    """Return exit status and id → check of `provision verify` over ssh, as users run it."""
    at = node.instance
    target = f"ssh://{at['user']}@{at['address']}:{at['port']}"
    words = [sys.executable, "-m", "provision", "verify", target, "--identity", at["identity_file"], "--json"]
    words += ["--lock", str(machines.ephemeral() / "provision.lock"), "--python", f"{BASE}/{BOTH}/bin/python", *flags]
    config = machines.ephemeral() / "ssh_config"
    config.write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n", encoding="utf-8")
    done = subprocess.run([*words, "--ssh-config", str(config)], check=False, capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert "result" in document, document
    return done.returncode, {check["id"]: check for check in document["result"]["targets"][0]["checks"]}


CHECKS = ("env.packages", "cuda.cudnn", "cuda.nccl", "fw.tf.devices", "fw.jax.devices")


def test_provision_verify_finds_what_the_lock_says(node):
    status, checks = verify(node, "--gpus", "0", *(word for name in CHECKS for word in ("--only", name)))
    assert {name: checks[name]["status"] for name in CHECKS} == dict.fromkeys(CHECKS, "pass"), checks
    assert status == 0


def test_provision_verify_says_why_they_see_no_gpu_where_one_should_be(node):
    names = ("fw.tf.devices", "fw.jax.devices")
    status, checks = verify(node, "--gpus", "1", *(word for name in names for word in ("--only", name)))
    assert status == 6
    for name in names:
        assert checks[name]["status"] == "fail"
        assert "CUDA_ERROR_NO_DEVICE" in checks[name]["seen"], checks[name]


def test_the_proof_of_the_play_asks_the_environment_of_the_lock_and_not_the_first_by_name(play, node_lock):
    expected = {"frameworks": node_lock["stack"]["frameworks"]}
    play("gpu-node-verify.yml", gpu_verify_level="node", gpu_verify_expect=expected).expect_success()


def test_a_changed_list_builds_its_environment_alone_and_the_way_back_builds_nothing(
    node, play, site_vars, profile, scenario_folder
):
    def look():
        folder = node.say('readlink "$1"', f"{BASE}/{BOTH}")
        return folder, node.say('stat -c "%i %Y %Z" "$1"', f"{BASE}/{folder}/.provision-complete")

    before, old = look(), node.say('readlink "$1"', f"{BASE}/{OWN}")
    (extra,) = site_vars["gpu_frameworks_extra"]
    requirements = profile["frameworks"]["environments"][0]["requirements"].replace("\\\n", " ")
    (line,) = (line for line in requirements.splitlines() if line.startswith("idna=="))
    text = (scenario_folder / "jax.lock.txt").read_text(encoding="utf-8") + line + "\n"
    outcome = play("gpu-node.yml", gpu_frameworks_extra=[{**extra, "requirements": text}]).expect_success()
    new = node.say('readlink "$1"', f"{BASE}/{OWN}")
    assert new != old
    assert node.say('"$1" -c "import idna, jax; print(jax.__version__)"', f"{BASE}/{OWN}/bin/python") == "0.9.2"
    assert re.findall(r'"built": \[\s*([^\]]*?)\s*\]', outcome.output) == [f'"{new}"']
    assert look() == before

    back = play("gpu-node.yml").expect_success()
    assert re.findall(r'"built": \[([^\]]*)\]', back.output) == [""]
    assert node.say('readlink "$1"', f"{BASE}/{OWN}") == old
    assert look() == before
