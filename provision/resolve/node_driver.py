"""Which packages bring the driver to one system: the way, the version, the flavours of the module."""

from __future__ import annotations

from collections.abc import Mapping

from provision.errors import DataError
from provision.matrix.model import DriverPackages, KnownBadModule
from provision.matrix.query import secure_minimums
from provision.records import replace
from provision.resolve.node_job import PACKAGES_FILE, Job, No, RefusedError, name_packages
from provision.resolve.node_options import AUTOMATIC_METHODS
from provision.resolve.options import fact_of
from provision.resolve.rules import end_warning
from provision.resolve.stack import NodeDriver, NodeFlavour, NodePackage, NodePin
from provision.versions import is_prefix_of, parse

_IN_WORDS = {
    "distro": "the system's own archive",
    "cuda_repo": "NVIDIA's repository",
    "precompiled": "the system's own compiled modules",
}


def choose_driver(job: Job, name: str) -> tuple[DriverPackages, str, list[str]]:
    """Return the row, the version and what to warn of: the first method whose newest version has all that is needed."""
    methods = AUTOMATIC_METHODS if job.options.method == "auto" else (job.options.method,)
    wish = job.request.driver
    needed = _needed_flavours(job)
    nos: list[No] = []
    for method in methods:
        row = next(
            (
                item
                for item in job.matrix.driver_packages
                if (item.os, item.method, item.branch) == (name, method, job.branch.branch)
            ),
            None,
        )
        flags = ("--method", method) if job.options.method != "auto" else ()
        if row is None:
            moved = _transition(job, name, method)
            if moved is not None:
                nos.append(replace(moved, flags=flags))
                continue
            because = f"{_IN_WORDS[method]} is not known to have branch {job.branch.branch} for {name}"
            nos.append(No(is_proved=False, because=because, flags=flags))
            continue
        found = _version_of(job, row, wish, needed)
        if isinstance(found, No):
            nos.append(replace(found, flags=(*found.flags, *flags)))
            continue
        return row, found, _driver_warnings(job, row, found, needed)
    first = next((no for no in nos if no.is_proved), nos[0])
    because = "; ".join(no.because for no in nos)
    # Another way might have it unless every way is excluded.
    is_proved = all(no.is_proved for no in nos)
    facts = tuple(fact for no in nos for fact in no.facts)
    raise RefusedError(No(is_proved=is_proved, because=because, facts=facts, flags=first.flags))


def _transition(job: Job, name: str, method: str) -> No | None:
    """Return why a branch cannot be had whose packages pull in another one, where the archive says so."""
    if method == "cuda_repo":
        return None
    rows = [
        row
        for row in job.matrix.distro_drivers
        if (row.os, row.branch) == (name, job.branch.branch) and row.transition_to is not None
    ]
    if not rows:
        return None
    because = f"the packages of branch {rows[0].branch} in the archive of {name} pull in branch {rows[0].transition_to}"
    fact = fact_of("distro-driver", f"{rows[0].os}-{rows[0].branch}-{rows[0].flavour}", rows[0])
    return No(is_proved=True, because=because, facts=(fact,))


def _needed_flavours(job: Job) -> tuple[str, ...]:
    if job.gpus:
        wanted = {job.modules[gpu.architecture] for gpu in job.gpus if gpu.architecture in job.modules}
    elif job.options.flavour != "auto":
        wanted = {job.options.flavour}
    else:
        wanted = set(job.modules.values())
    return tuple(sorted(wanted))


def _version_of(job: Job, row: DriverPackages, wish: str | None, needed: tuple[str, ...]) -> str | No:
    where = f"{_IN_WORDS[row.method]} for {row.os}"
    fact = fact_of("node-driver", row.id, row)
    flags = ("--driver", wish) if wish else ()
    versions = [text for text in sorted(row.versions, key=parse, reverse=True) if not wish or is_prefix_of(wish, text)]
    if not versions:
        known = ", ".join(sorted(row.versions, key=parse, reverse=True))
        because = f"{where} is not known to have driver {wish}, only {known}"
        return No(is_proved=False, because=because, facts=(fact,), flags=flags)
    minimum = job.stack.driver.minimum
    fitting = [text for text in versions if parse(text) >= parse(minimum)]
    if not fitting:
        because = f"{where} has driver {versions[0]}, and {minimum} is the least that will do"
        return No(is_proved=True, because=because, facts=(fact,), flags=flags)
    if job.request.require_secure:
        floor = secure_minimums(job.matrix).get(row.branch)
        fitting = [text for text in fitting if floor is not None and parse(text) >= parse(floor[0])]
        if not fitting:
            said = f"{floor[0]} is the least without a known vulnerability" if floor else "the branch gets no fixes"
            because = f"{where} has driver {versions[0]}, and {said}"
            return No(is_proved=True, because=because, facts=(fact,), flags=(*flags, "--require-secure"))
    complete = [text for text in fitting if all(text in _flavour_versions(row, flavour) for flavour in needed)]
    if complete:
        return complete[0]
    if not job.gpus and job.options.flavour == "auto":
        some = [text for text in fitting if any(text in _flavour_versions(row, flavour) for flavour in needed)]
        if some:
            return some[0]
    because = f"{where} has no {' and '.join(needed)} module of driver {fitting[0]}"
    return No(is_proved=True, because=because, facts=(fact,), flags=flags)


def _flavour_versions(row: DriverPackages, flavour: str) -> Mapping[str, str]:
    return row.open if flavour == "open" else row.proprietary


def _driver_warnings(job: Job, row: DriverPackages, version: str, needed: tuple[str, ...]) -> list[str]:
    warnings = []
    secure = secure_minimums(job.matrix).get(row.branch)
    if secure is not None and parse(version) < parse(secure[0]):
        warnings.append(
            f"driver {version} has known vulnerabilities; {secure[0]} is the first without (bulletin {secure[1]})"
        )
    if said := end_warning(job.matrix, job.branch):
        warnings.append(said)
    newer = [text for text in row.versions if parse(text) > parse(version)]
    if newer and job.request.driver is not None and is_prefix_of(job.request.driver, max(newer, key=parse)):
        newest = max(newer, key=parse)
        missing = [name for name in needed if newest not in _flavour_versions(row, name)]
        warnings.append(f"{newest} is newer and has no {' and no '.join(missing)} module")
    absent = [name for name in needed if version not in _flavour_versions(row, name)]
    if absent:
        warnings.append(f"driver {version} has no {' and no '.join(absent)} module here")
    if row.method != "precompiled":
        warnings += [
            f"the {bad.flavour} module of driver {version} does not build on kernels {_kernels(bad)}: {bad.symptom}"
            + (f" ({bad.reference})" if bad.reference else "")
            for bad in job.matrix.known_bad_modules
            if bad.driver == version and bad.flavour in needed and version in _flavour_versions(row, bad.flavour)
        ]
    return warnings


def _kernels(bad: KnownBadModule) -> str:
    """Return the kernels on which a module does not build, in words."""
    if bad.kernel_first is None:
        return f"up to {bad.kernel_last}" if bad.kernel_last else "of any version"
    return f"{bad.kernel_first} to {bad.kernel_last}" if bad.kernel_last else f"{bad.kernel_first} and newer"


def describe_driver(job: Job, row: DriverPackages, version: str) -> tuple[NodeDriver, list[NodePin]]:
    """Return a driver with its packages, and what apt must hold.

    Args:
        job: What is decided from.
        row: Where the driver comes from.
        version: Which of its drivers.

    Raises:
        DataError: The row has packages of a flavour and not the module's name.
    """
    licenses = job.matrix.setting(PACKAGES_FILE, "licenses").entries
    companions = row.companions.get(version, {})
    package_version = row.versions[version]
    wanted = _first_flavour(job)
    offered = (
        [job.options.flavour]
        if job.options.flavour != "auto"
        else sorted(("open", "proprietary"), key=lambda name: (name != wanted, name))
    )
    flavours = []
    for name in offered:
        of_version = _flavour_versions(row, name).get(version)
        if of_version is None:
            continue
        is_open = name == "open"
        module = row.open_module if is_open else row.proprietary_module
        if module is None:
            raise DataError(f"{PACKAGES_FILE}: {row.id} names no module of the {name} flavour")
        dkms = row.open_dkms if is_open else row.proprietary_dkms
        names = row.open_packages if is_open else row.proprietary_packages
        flavours.append(
            NodeFlavour(
                name=name,
                packages=tuple(
                    NodePackage(name=item, version=None if item in row.kernel_packages else of_version)
                    for item in names
                ),
                module=module,
                dkms_package=dkms,
                dkms_name=row.open_name if is_open else row.proprietary_name,
                license=licenses[name],
                stream=row.open_stream if is_open else row.proprietary_stream,
            )
        )
    driver = NodeDriver(
        branch=row.branch,
        version=version,
        package_version=package_version,
        flavours=tuple(flavours),
        compute=name_packages(row.compute, package_version, companions),
        full=name_packages(row.full, package_version, companions),
        default_profile=job.options.profile,
        services=row.services,
    )
    pins = [NodePin(packages=name, version=package_version) for name in row.pins]
    if version in row.open:
        pins += [NodePin(packages=name, version=row.open[version]) for name in row.open_pins]
    pins += [NodePin(packages=name, version=text) for name, text in sorted(companions.items())]
    return driver, pins


def _first_flavour(job: Job) -> str:
    needed = _needed_flavours(job)
    if len(needed) == 1:
        return needed[0]
    return next(iter(job.modules.values()), "proprietary")
