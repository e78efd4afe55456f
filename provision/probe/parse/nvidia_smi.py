"""``nvidia-smi -q -x`` and ``-q``, of drivers 418 to 615, and the table of ``nvidia-smi`` alone.

Element names moved over the years (``clocks_throttle_reasons`` became ``clocks_event_reasons``, absolute slowdown
temperatures became margins); both spellings are read into the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import record

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CHARACTERS_MAX: Final = 16 * 1024 * 1024
_ELEMENTS_MAX: Final = 400_000
"""A machine with 16 GPUs, all its supported clocks included, has a tenth of that."""
_DEPTH_MAX: Final = 12

_UNSUPPORTED: Final = frozenset({"n/a", "not supported", "none", "requested functionality has been deprecated"})
_ERRORS: Final = ("err!", "unknown error", "is lost", "requires reset", "insufficient permissions")
_ADDRESS: Final = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", re.ASCII)
_VERSION: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}", re.ASCII)
_NUMBER: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)(?: ?(?:MiB|MB|MHz|us|C|W|%|x))?", re.ASCII)
_KEY: Final = re.compile(r"[^a-z0-9]+", re.ASCII)

NOT_LISTED: Final = "not in this listing"
"""What ``unread`` says of what the table has no column for."""

_TABLE_CHARACTERS: Final = 400
_TABLE_HEADING: Final = re.compile(
    r"Driver Version: (?P<driver>[0-9]{1,4}(?:\.[0-9]{1,4}){1,3})(?: {1,40}CUDA Version: (?P<cuda>[0-9.]{1,20}|N/A))?",
    re.ASCII,
)
_TABLE_GPU: Final = re.compile(
    r"^\| {0,4}(?P<index>[0-9]{1,3})  (?P<name>[^|\n]{1,60}?) {1,60}"
    r"(?P<persistence>On|Off|WDDM|TCC|MCDM|N/A|ERR!) {1,8}"
    r"\| {1,8}(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) [^|\n]{1,20}"
    r"\| {1,40}(?P<ecc>[^ |\n]{1,20}) {0,8}\|",
    re.ASCII | re.MULTILINE,
)
_TABLE_READINGS: Final = re.compile(
    r"\| {0,4}[^ |]{1,6} {1,8}(?P<temperature_c>[^ |]{1,8}) {1,8}(?P<performance_state>[^ |]{1,8}) {1,30}"
    r"(?P<power_draw_w>[^ |]{1,10}) {0,4}/ {1,6}(?P<power_limit_w>[^ |]{1,10}) {0,4}"
    r"\| {1,30}(?P<memory_used_mib>[^ |]{1,16}) / {1,8}(?P<memory_total_mib>[^ |]{1,16}) {0,4}"
    r"\| {1,20}(?P<utilization_percent>[^ |]{1,8}) {1,20}(?P<compute_mode>[^|]{1,24}?) {0,4}\|",
    re.ASCII,
)
_TABLE_MIG: Final = re.compile(r"\|[ ]{1,60}\|[ ]{1,60}\| {1,60}(?P<mig>Enabled\*?|Disabled\*?|N/A) {0,4}\|", re.ASCII)
_TABLE_UNIT: Final = re.compile(r"(?<=[0-9])(?:MiB|W|C|%)$", re.ASCII)
_TABLE_SILENT: Final = ("fabric_health", "processes", "throttle")
_BROKEN: Final = object()
"""In place of a value: the tool answered with an error."""


class _Unread:
    """In place of a value: the tool said what no known driver says of this field."""

    def __init__(self, said: str) -> None:
        """Keep the words."""
        self.said = clean_line(said, 60)


@record
class SmiProcess:
    """A process on a GPU; ``kind`` is ``C``, ``G`` or ``C+G``."""

    pid: int
    kind: str
    name: str
    used_mib: int | None = None


@record
class SmiGpu:
    """One GPU as nvidia-smi sees it.

    A field is ``None`` for one of four reasons: the tool said ``N/A`` or ``[Not Supported]`` (its name is in
    ``unsupported``), the tool said ``ERR!``, ``Unknown Error`` or ``GPU is lost`` (it is in ``broken``), the tool said
    something that no known driver says of this field (it is in ``unread``, with those words), or this driver generation
    has no such field (it is in none of them).

    Attributes:
        pci: Address in sysfs' spelling, lower case (``0000:18:00.0``).
        minor: Number of its device node (``/dev/nvidia0``).
        throttle: Active clock event reasons, sorted: ``hw_slowdown``, ``hw_thermal_slowdown``,
            ``hw_power_brake_slowdown``, ``sw_power_cap``, ``sw_thermal_slowdown``, ``sync_boost``, ``gpu_idle``,
            ``applications_clocks_setting``, ``display_clocks_setting``. Empty also where the tool does not tell them;
            ``throttle`` is then in ``unsupported``, ``broken`` or ``unread``. Likewise ``processes``.
        temperature_slowdown_c: Absolute threshold, on drivers and GPUs that tell it.
        temperature_margin_c: Degrees left to the slowdown (``T.Limit``), where told.
        ecc_volatile_uncorrectable: Since the driver loaded, all kinds added.
        ecc_aggregate_correctable: Over the life of the board, all kinds added; likewise uncorrectable.
        retired_single: Pages retired for repeated single-bit errors; ``retired_double`` for double-bit ones.
        pcie_gen_current: Drops at idle: judge it under load only. ``pcie_gen_max`` is what device and host can both do.
        recovery_action: ``None`` (the word), ``Reset``, ``Reboot``, ``Drain P2P`` or ``Drain and Reset``. Before r570
            only the two resets are told, and nothing where none is needed.
        fabric_state: ``Completed``, ``In Progress``, ``Not Started``; ``fabric_status`` ``Success`` or an error.
        fabric_health: Health word or flag → value as printed (``incorrect_configuration`` → ``None``).
    """

    pci: str
    minor: int | None = None
    uuid: str | None = None
    name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    addressing_mode: str | None = None
    virtualization: str | None = None
    mig_current: bool | None = None
    mig_pending: bool | None = None
    mig_devices: int = 0
    gsp_firmware: str | None = None
    recovery_action: str | None = None
    ecc_current: bool | None = None
    ecc_pending: bool | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_correctable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_aggregate_sram_correctable: int | None = None
    sram_threshold_exceeded: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    retired_single: int | None = None
    retired_double: int | None = None
    retired_pending: bool | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_max_operating_c: int | None = None
    temperature_margin_c: int | None = None
    throttle: tuple[str, ...] = ()
    performance_state: str | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_max_w: float | None = None
    pcie_gen_current: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_gen_host_max: int | None = None
    pcie_width_current: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    bar1_total_mib: int | None = None
    utilization_percent: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: tuple[tuple[str, str], ...] = ()
    processes: tuple[SmiProcess, ...] = ()
    unsupported: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    unread: tuple[tuple[str, str], ...] = ()


@record
class Smi:
    """What ``nvidia-smi`` said; ``gpus`` in its order. ``cuda_version`` is the newest the driver knows.

    ``driver_version`` is ``None`` in a record that was cut down to a part without it.
    """

    driver_version: str | None = None
    cuda_version: str | None = None
    attached: int | None = None
    gpus: tuple[SmiGpu, ...] = ()


class _Field(NamedTuple):
    """Where a field stands: paths in the XML and headings of the listing, newest first.

    ``kind`` is ``text``, ``word`` (where the word None is a value), ``flag``, ``number`` or ``decimal``.
    """

    name: str
    kind: str
    elements: tuple[str, ...]
    headings: tuple[str, ...]


def _field(name: str, kind: str, elements: str, headings: str) -> _Field:
    return _Field(name, kind, tuple(elements.split()), tuple(headings.split("|")) if headings else ())


_FIELDS: Final = (
    _field("minor", "number", "minor_number", "Minor Number"),
    _field("uuid", "text", "uuid", "GPU UUID"),
    _field("name", "text", "product_name", "Product Name"),
    _field("brand", "text", "product_brand", "Product Brand"),
    _field("architecture", "text", "product_architecture", "Product Architecture"),
    _field("vbios", "text", "vbios_version", "VBIOS Version"),
    _field("persistence", "flag", "persistence_mode", "Persistence Mode"),
    _field("compute_mode", "text", "compute_mode", "Compute Mode"),
    _field("addressing_mode", "word", "addressing_mode", "Addressing Mode"),
    _field(
        "virtualization",
        "word",
        "gpu_virtualization_mode/virtualization_mode",
        "GPU Virtualization Mode/Virtualization Mode|GPU Virtualization Mode/Virtualization mode",
    ),
    _field("mig_current", "flag", "mig_mode/current_mig", "MIG Mode/Current"),
    _field("mig_pending", "flag", "mig_mode/pending_mig", "MIG Mode/Pending"),
    _field("gsp_firmware", "text", "gsp_firmware_version", "GSP Firmware Version"),
    _field("recovery_action", "word", "gpu_recovery_action", "GPU Recovery Action"),
    _field("ecc_current", "flag", "ecc_mode/current_ecc", "ECC Mode/Current|Ecc Mode/Current"),
    _field("ecc_pending", "flag", "ecc_mode/pending_ecc", "ECC Mode/Pending|Ecc Mode/Pending"),
    _field(
        "ecc_aggregate_sram_correctable",
        "number",
        "ecc_errors/aggregate/sram_correctable",
        "ECC Errors/Aggregate/SRAM Correctable",
    ),
    _field(
        "sram_threshold_exceeded",
        "flag",
        "ecc_errors/aggregate/sram_threshold_exceeded",
        "ECC Errors/Aggregate/SRAM Threshold Exceeded",
    ),
    _field(
        "channel_repair_pending",
        "flag",
        "ecc_errors/channel_repair_pending",
        "ECC Errors/Channel Repair Pending|ECC Errors/Aggregate Uncorrectable SRAM Sources/Channel Repair Pending",
    ),
    _field(
        "tpc_repair_pending",
        "flag",
        "ecc_errors/tpc_repair_pending",
        "ECC Errors/TPC Repair Pending|ECC Errors/Aggregate Uncorrectable SRAM Sources/TPC Repair Pending",
    ),
    _field("remapped_correctable", "number", "remapped_rows/remapped_row_corr", "Remapped Rows/Correctable Error"),
    _field("remapped_uncorrectable", "number", "remapped_rows/remapped_row_unc", "Remapped Rows/Uncorrectable Error"),
    _field("remap_pending", "flag", "remapped_rows/remapped_row_pending", "Remapped Rows/Pending"),
    _field("remap_failure", "flag", "remapped_rows/remapped_row_failure", "Remapped Rows/Remapping Failure Occurred"),
    _field(
        "retired_single",
        "number",
        "retired_pages/multiple_single_bit_retirement/retired_count",
        "Retired Pages/Single Bit ECC",
    ),
    _field(
        "retired_double",
        "number",
        "retired_pages/double_bit_retirement/retired_count",
        "Retired Pages/Double Bit ECC",
    ),
    _field(
        "retired_pending",
        "flag",
        "retired_pages/pending_retirement retired_pages/pending_blacklist",
        "Retired Pages/Pending|Retired Pages/Pending Page Blacklist",
    ),
    _field("temperature_c", "number", "temperature/gpu_temp", "Temperature/GPU Current Temp"),
    _field("temperature_slowdown_c", "number", "temperature/gpu_temp_slow_threshold", "Temperature/GPU Slowdown Temp"),
    _field(
        "temperature_max_operating_c",
        "number",
        "temperature/gpu_temp_max_gpu_threshold",
        "Temperature/GPU Max Operating Temp",
    ),
    _field("temperature_margin_c", "number", "temperature/gpu_temp_tlimit", "Temperature/GPU T.Limit Temp"),
    _field("performance_state", "text", "performance_state", "Performance State"),
    _field(
        "power_draw_w",
        "decimal",
        "gpu_power_readings/instant_power_draw gpu_power_readings/average_power_draw "
        "gpu_power_readings/power_draw power_readings/power_draw",
        "GPU Power Readings/Instantaneous Power Draw|GPU Power Readings/Average Power Draw|"
        "GPU Power Readings/Power Draw|Power Readings/Power Draw",
    ),
    _field(
        "power_limit_w",
        "decimal",
        "gpu_power_readings/current_power_limit power_readings/power_limit",
        "GPU Power Readings/Current Power Limit|Power Readings/Power Limit",
    ),
    _field(
        "power_default_w",
        "decimal",
        "gpu_power_readings/default_power_limit power_readings/default_power_limit",
        "GPU Power Readings/Default Power Limit|Power Readings/Default Power Limit",
    ),
    _field(
        "power_max_w",
        "decimal",
        "gpu_power_readings/max_power_limit power_readings/max_power_limit",
        "GPU Power Readings/Max Power Limit|Power Readings/Max Power Limit",
    ),
    _field(
        "pcie_gen_current",
        "number",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
        "PCI/GPU Link Info/PCIe Generation/Current",
    ),
    _field(
        "pcie_gen_max",
        "number",
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
        "PCI/GPU Link Info/PCIe Generation/Max",
    ),
    _field(
        "pcie_gen_device_max",
        "number",
        "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
        "PCI/GPU Link Info/PCIe Generation/Device Max",
    ),
    _field(
        "pcie_gen_host_max",
        "number",
        "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
        "PCI/GPU Link Info/PCIe Generation/Host Max",
    ),
    _field(
        "pcie_width_current",
        "number",
        "pci/pci_gpu_link_info/link_widths/current_link_width",
        "PCI/GPU Link Info/Link Width/Current",
    ),
    _field(
        "pcie_width_max",
        "number",
        "pci/pci_gpu_link_info/link_widths/max_link_width",
        "PCI/GPU Link Info/Link Width/Max",
    ),
    _field("pcie_replays", "number", "pci/replay_counter", "PCI/Replays Since Reset"),
    _field("memory_total_mib", "number", "fb_memory_usage/total", "FB Memory Usage/Total"),
    _field("memory_used_mib", "number", "fb_memory_usage/used", "FB Memory Usage/Used"),
    _field("bar1_total_mib", "number", "bar1_memory_usage/total", "BAR1 Memory Usage/Total"),
    _field("utilization_percent", "number", "utilization/gpu_util", "Utilization/GPU|Utilization/Gpu"),
    _field("sm_clock_mhz", "number", "clocks/sm_clock", "Clocks/SM"),
    _field("sm_clock_max_mhz", "number", "max_clocks/sm_clock", "Max Clocks/SM"),
    _field("fabric_state", "text", "fabric/state", "Fabric/State"),
    _field("fabric_status", "text", "fabric/status", "Fabric/Status"),
)

_SUMS: Final = (
    _field(
        "ecc_volatile_uncorrectable",
        "number",
        "ecc_errors/volatile/sram_uncorrectable ecc_errors/volatile/sram_uncorrectable_parity "
        "ecc_errors/volatile/sram_uncorrectable_secded ecc_errors/volatile/dram_uncorrectable "
        "ecc_errors/volatile/double_bit/total",
        "ECC Errors/Volatile/SRAM Uncorrectable|ECC Errors/Volatile/SRAM Uncorrectable Parity|"
        "ECC Errors/Volatile/SRAM Uncorrectable SEC-DED|ECC Errors/Volatile/DRAM Uncorrectable|"
        "ECC Errors/Volatile/Double Bit/Total",
    ),
    _field(
        "ecc_aggregate_uncorrectable",
        "number",
        "ecc_errors/aggregate/sram_uncorrectable ecc_errors/aggregate/sram_uncorrectable_parity "
        "ecc_errors/aggregate/sram_uncorrectable_secded ecc_errors/aggregate/dram_uncorrectable "
        "ecc_errors/aggregate/double_bit/total",
        "ECC Errors/Aggregate/SRAM Uncorrectable|ECC Errors/Aggregate/SRAM Uncorrectable Parity|"
        "ECC Errors/Aggregate/SRAM Uncorrectable SEC-DED|ECC Errors/Aggregate/DRAM Uncorrectable|"
        "ECC Errors/Aggregate/Double Bit/Total",
    ),
    _field(
        "ecc_aggregate_correctable",
        "number",
        "ecc_errors/aggregate/sram_correctable ecc_errors/aggregate/dram_correctable "
        "ecc_errors/aggregate/single_bit/total",
        "ECC Errors/Aggregate/SRAM Correctable|ECC Errors/Aggregate/DRAM Correctable|"
        "ECC Errors/Aggregate/Single Bit/Total",
    ),
)
"""Counters that stand in parts; no driver prints a part and the sum that it is in."""

_REASONS: Final = {
    "idle": "gpu_idle",
    "display_clock_setting": "display_clocks_setting",
}
"""Reasons that the listing spells otherwise than the XML."""


class _Process(NamedTuple):
    """A process as printed."""

    pid: str
    kind: str
    name: str
    used: str


class _Block(NamedTuple):
    """One GPU as printed: path → text, reasons and health by their own names, processes."""

    values: Mapping[str, str]
    reasons: Mapping[str, str]
    health: Mapping[str, str]
    processes: Sequence[_Process]
    mig_devices: int


def parse_nvidia_smi(text: str) -> Smi:
    """Read what ``nvidia-smi`` printed in any of its forms: ``-q -x``, ``-q``, or the table.

    Raises:
        Unreadable: It is none of them, or is not whole.
    """
    if "<nvidia_smi_log" in text or not ("NVSMI LOG" in text or _TABLE_GPU.search(text)):
        return parse_nvidia_smi_xml(text)
    return parse_nvidia_smi_text(text) if "NVSMI LOG" in text else parse_nvidia_smi_table(text)


def parse_nvidia_smi_xml(text: str) -> Smi:
    """Read ``nvidia-smi -q -x``.

    Args:
        text: What it printed; warnings around the document are ignored.

    Returns:
        The GPUs in the order of the document.

    Raises:
        Unreadable: It is not a whole XML document of nvidia-smi, or names neither a driver nor a GPU.
    """
    root = _read_document(text)
    gpus = root.findall("gpu")
    if any(gpu.find("uuid") is None for gpu in gpus):
        # A block without it says nothing, and nothing would read like a driver that is too old to tell.
        raise Unreadable("nvidia-smi lists a GPU and reports nothing about it")
    blocks = [(gpu.get("id", ""), _block_of_element(gpu)) for gpu in gpus]
    top = {name: clean_line(root.findtext(name) or "") for name in ("driver_version", "cuda_version", "attached_gpus")}
    return _make_smi(top["driver_version"], top["cuda_version"], top["attached_gpus"], blocks, use_elements=True)


def parse_nvidia_smi_text(text: str) -> Smi:
    """Read ``nvidia-smi -q``.

    Args:
        text: What it printed, with or without ``-d`` or ``-i``.

    Returns:
        The GPUs in the order of the listing.

    Raises:
        Unreadable: It is no such listing, or ends in the middle of one.
    """
    if len(text) > _CHARACTERS_MAX:
        raise Unreadable("nvidia-smi -q printed more than is read")
    lines = clean(text).split("\n")
    start = next((place for place, line in enumerate(lines) if line.startswith("====") and "NVSMI LOG" in line), None)
    if start is None:
        raise Unreadable(_say_what_came("nvidia-smi -q printed no listing", text))
    if lines[-1].strip():
        raise Unreadable("the listing of nvidia-smi -q ends in the middle of a line")
    top, found = _read_listing(lines[start + 1 :])
    blocks = [(address, _block_of_listing(rows)) for address, rows in found]
    sections = [{path.partition("/")[0] for path, _ in rows} for _, rows in found]
    if any("Product Name" in names and "Processes" not in names for names in sections):
        raise Unreadable("the listing of nvidia-smi -q ends in the middle of a GPU")
    if any(names != sections[0] for names in sections if "Product Name" not in names):
        raise Unreadable("the listing of nvidia-smi -q does not say the same of all GPUs")
    return _make_smi(
        top.get("Driver Version", ""),
        top.get("CUDA Version", ""),
        top.get("Attached GPUs", ""),
        blocks,
        use_elements=False,
    )


def parse_nvidia_smi_table(text: str) -> Smi:
    """Read the table of ``nvidia-smi``, whole or the rows of its GPUs alone; of several tables the first.

    What the table has no column for is ``unread``: it says nothing of throttling, processes or the fabric.

    Raises:
        Unreadable: No row of a GPU stands in it.
    """
    if len(text) > _CHARACTERS_MAX:
        raise Unreadable("nvidia-smi printed more than is read")
    lines = [line[:_TABLE_CHARACTERS] for line in clean(text).split("\n")]
    rows: dict[str, tuple[re.Match[str], str, str]] = {}
    heading: re.Match[str] | None = None
    for place, line in enumerate(lines):
        found = _TABLE_GPU.match(line)
        if found is None:
            heading = heading or _TABLE_HEADING.search(line)
            continue
        if found["index"] in rows:
            break
        below = [*lines[place + 1 : place + 3], "", ""]
        rows[found["index"]] = (found, below[0], below[1])
    if not rows:
        raise Unreadable(_say_what_came("nvidia-smi printed no table of GPUs", text))
    return Smi(
        driver_version=heading["driver"] if heading else None,
        cuda_version=heading["cuda"] if heading and _VERSION.fullmatch(heading["cuda"] or "") else None,
        gpus=tuple(_make_gpu_of_table(*row) for row in rows.values()),
    )


def _make_smi(
    driver: str, cuda: str, attached: str, blocks: Sequence[tuple[str, _Block]], *, use_elements: bool
) -> Smi:
    if not _VERSION.fullmatch(driver) and not blocks:
        raise Unreadable("nvidia-smi names neither a driver nor a GPU")
    count = _read_number(attached)
    return Smi(
        driver_version=driver if _VERSION.fullmatch(driver) else None,
        cuda_version=cuda if _VERSION.fullmatch(cuda) else None,
        attached=count if isinstance(count, int) else None,
        gpus=tuple(_make_gpu(address, block, use_elements=use_elements) for address, block in blocks),
    )


def _say_what_came(what: str, text: str) -> str:
    first = next((line for line in text[:4000].split("\n") if line.strip()), "")
    return f"{what}{': ' if first else ''}{clean_line(first, 120)}"


# From the table


def _make_gpu_of_table(row: re.Match[str], second: str, third: str) -> SmiGpu:
    """Return a GPU from its two or three lines of the table."""
    values: dict[str, Any] = {}
    marks: dict[str, set[str]] = {"unsupported": set(), "broken": set()}
    unread = dict.fromkeys(_TABLE_SILENT, NOT_LISTED)

    def keep(name: str, kind: str, said: str) -> None:
        value = _read(kind, _TABLE_UNIT.sub("", said))
        if value is _BROKEN:
            marks["broken"].add(name)
        elif isinstance(value, _Unread):
            unread[name] = value.said
        elif value is None:
            marks["unsupported"].add(name)
        else:
            values[name] = value

    if row["name"].endswith("..."):
        unread["name"] = row["name"]
    else:
        values["name"] = row["name"]
    if row["persistence"] in ("On", "Off"):
        values["persistence"] = row["persistence"] == "On"
    if row["ecc"] in ("Off", "N/A"):
        marks["unsupported"].add("ecc_volatile_uncorrectable")
    else:
        keep("ecc_volatile_uncorrectable", "number", row["ecc"])
    if row["ecc"] == "N/A":
        marks["unsupported"].add("ecc_current")
    elif row["ecc"] == "Off" or row["ecc"].isdecimal():
        values["ecc_current"] = row["ecc"] != "Off"
    if readings := _TABLE_READINGS.match(second):
        for name, said in readings.groupdict().items():
            is_text = name in ("performance_state", "compute_mode")
            keep(name, "text" if is_text else "decimal" if name.endswith("_w") else "number", said)
    if mig := _TABLE_MIG.match(third):
        keep("mig_current", "flag", mig["mig"].removesuffix("*"))
    domain, _, rest = row["pci"].partition(":")
    return SmiGpu(
        pci=f"{int(domain, 16):04x}:{rest}".lower(),
        unsupported=frozenset(marks["unsupported"]),
        broken=frozenset(marks["broken"]),
        unread=tuple(sorted(unread.items())),
        **values,
    )


# From the XML


def _read_document(text: str) -> Element:
    from xml.etree.ElementTree import ParseError, fromstring

    if len(text) > _CHARACTERS_MAX or text.count("<") > _ELEMENTS_MAX:
        raise Unreadable("nvidia-smi -q -x printed more than is read")
    if "<!ENTITY" in text:
        raise Unreadable("the document of nvidia-smi declares entities, which nvidia-smi never does")
    start, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if start < 0:
        raise Unreadable(_say_what_came("nvidia-smi -q -x printed no document", text))
    if end < start:
        raise Unreadable("the document of nvidia-smi -q -x is cut off")
    try:
        # The document type and all before it are left away: nothing in it is needed, and nothing outside is fetched.
        return fromstring(text[start : end + len("</nvidia_smi_log>")])  # noqa: S314 - no entity can be declared
    except (ParseError, ValueError) as error:
        raise Unreadable(f"the document of nvidia-smi -q -x is not well formed: {clean_line(str(error), 80)}") from None


def _block_of_element(gpu: Element) -> _Block:
    values: dict[str, str] = {}
    for field in (*_FIELDS, *_SUMS):
        for path in field.elements:
            value = _element_text(gpu, path)
            if value is not None:
                values[path] = value
    values["pci_bus_id"] = _element_text(gpu, "pci/pci_bus_id") or ""
    for path in ("gpu_reset_status/reset_required", "gpu_reset_status/drain_and_reset_recommended", "processes"):
        values[path] = _element_text(gpu, path) or ""
    reasons = {
        child.tag.partition("_reason_")[2]: clean_line(child.text or "")
        for section in ("clocks_event_reasons", "clocks_throttle_reasons")
        for child in gpu.iterfind(f"{section}/*")
        if "_reason_" in child.tag
    }
    health = {clean_line(child.tag, 60): clean_line(child.text or "") for child in gpu.iterfind("fabric/health/*")}
    processes = [
        _Process(*(clean_line(row.findtext(name) or "") for name in ("pid", "type", "process_name", "used_memory")))
        for row in gpu.iterfind("processes/process_info")
    ]
    return _Block(values, reasons, health, processes, len(gpu.findall("mig_devices/mig_device")))


def _element_text(gpu: Element, path: str) -> str | None:
    """Return what an element says, or what its parent says in place of it (``<remapped_rows>N/A</remapped_rows>``)."""
    node: Element | None = gpu
    for name in path.split("/"):
        inner = node.find(name) if node is not None else None
        if inner is None:
            said = clean_line(node.text or "") if node is not None and node is not gpu else ""
            return said or None
        node = inner
    return clean_line(node.text or "") if node is not None else None


# From the listing


def _read_listing(lines: Iterable[str]) -> tuple[dict[str, str], list[tuple[str, list[tuple[str, str]]]]]:
    top: dict[str, str] = {}
    blocks: list[tuple[str, list[tuple[str, str]]]] = []
    parents: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip(" "))
        key, colon, value = (part.strip() for part in line.partition(" : "))
        if depth == 0 and not colon and key.startswith("GPU "):
            blocks.append((key.removeprefix("GPU "), []))
            parents = []
        elif depth == 0:
            top[key] = clean_line(value)
        elif blocks:
            while parents and parents[-1][0] >= depth:
                parents.pop()
            parents.append((depth, clean_line(key, 80)))
            if len(parents) > _DEPTH_MAX:
                raise Unreadable("the listing of nvidia-smi -q is deeper than any nvidia-smi prints")
            blocks[-1][1].append(("/".join(name for _, name in parents), clean_line(value)))
    return top, blocks


def _block_of_listing(rows: Sequence[tuple[str, str]]) -> _Block:
    said: dict[str, str] = {}
    for path, value in rows:
        said.setdefault(path, value)
    values: dict[str, str] = {}
    for field in (*_FIELDS, *_SUMS):
        for path in field.headings:
            inherited = _inherit(said, path)
            if inherited is not None:
                values[path] = inherited
    values["pci_bus_id"] = said.get("PCI/Bus Id", "")
    values["gpu_reset_status/reset_required"] = said.get("GPU Reset Status/Reset Required", "")
    values["gpu_reset_status/drain_and_reset_recommended"] = said.get(
        "GPU Reset Status/Drain and Reset Recommended", ""
    )
    values["processes"] = said.get("Processes", "")
    reasons: dict[str, str] = {}
    for path, value in said.items():
        section, _, name = path.partition("/")
        if section in ("Clocks Event Reasons", "Clocks Throttle Reasons") and name:
            word = _snake(name.rpartition("/")[2])
            reasons[_REASONS.get(word, word)] = value
    health = {
        _snake(path.removeprefix("Fabric/Health/")): value
        for path, value in said.items()
        if path.startswith("Fabric/Health/")
    }
    mig_devices = sum(path in ("MIG Device", "MIG Devices/MIG Device") for path, _ in rows)
    return _Block(values, reasons, health, list(_listed_processes(rows)), mig_devices)


def _inherit(said: Mapping[str, str], path: str) -> str | None:
    if path in said:
        return said[path]
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in said:
            return said[path] or None
    return None


def _listed_processes(rows: Sequence[tuple[str, str]]) -> Iterator[_Process]:
    current: dict[str, str] = {}
    for path, value in rows:
        if not path.startswith("Processes/"):
            continue
        key = path.rpartition("/")[2]
        if key == "Process ID":
            if current:
                yield _listed_process(current)
            current = {}
        if key in ("Process ID", "Type", "Name", "Used GPU Memory"):
            current[key] = value
    if current:
        yield _listed_process(current)


def _listed_process(values: Mapping[str, str]) -> _Process:
    return _Process(*(values.get(key, "") for key in ("Process ID", "Type", "Name", "Used GPU Memory")))


def _snake(words: str) -> str:
    return _KEY.sub("_", words.lower()).strip("_")


# What was printed becomes values


def _make_gpu(address: str, block: _Block, *, use_elements: bool) -> SmiGpu:
    found = _ADDRESS.fullmatch(block.values["pci_bus_id"]) or _ADDRESS.fullmatch(address.strip())
    if found is None:
        raise Unreadable("nvidia-smi lists a GPU without its address")
    domain, bus, device, function = found.groups()
    values: dict[str, Any] = {}
    unsupported: set[str] = set()
    broken: set[str] = set()
    unread: dict[str, str] = {}

    def keep(name: str, value: object) -> None:
        if value is _BROKEN:
            broken.add(name)
        elif isinstance(value, _Unread):
            unread[name] = value.said
        elif value is None:
            unsupported.add(name)
        else:
            values[name] = value

    for field in _FIELDS:
        read = [_read(field.kind, said) for said in _said(field, block, use_elements=use_elements)]
        if read:
            keep(field.name, _first_fault(read) or next((one for one in read if one is not None), None))
    for field in _SUMS:
        read = [_read(field.kind, said) for said in _said(field, block, use_elements=use_elements)]
        parts = [one for one in read if one is not None]
        if read:
            keep(field.name, _first_fault(read) or (sum(parts) if parts else None))
    if "recovery_action" not in values.keys() | unsupported | broken | unread.keys():
        keep_reset = _read_reset(block.values)
        if keep_reset is not None:
            keep("recovery_action", keep_reset)
    keep("throttle", _read_reasons(block.reasons))
    keep("fabric_health", _read_health(block.health))
    keep("processes", _read_processes(block))
    return SmiGpu(
        pci=f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower(),
        mig_devices=block.mig_devices,
        unsupported=frozenset(unsupported),
        broken=frozenset(broken),
        unread=tuple(sorted(unread.items())),
        **values,
    )


def _said(field: _Field, block: _Block, *, use_elements: bool) -> list[str]:
    paths = field.elements if use_elements else field.headings
    return [block.values[path] for path in paths if path in block.values]


def _is_unsupported(said: str) -> bool:
    return said.strip("[]").lower() in _UNSUPPORTED


def _is_error(said: str) -> bool:
    low = said.strip("[]").lower()
    return not low or any(error in low for error in _ERRORS)


def _first_fault(read: Sequence[object]) -> object | None:
    """Return an error among some answers, else what could not be read, else ``None``."""
    return _BROKEN if _BROKEN in read else next((one for one in read if isinstance(one, _Unread)), None)


def _read(kind: str, said: str) -> Any:
    """Return a value, ``None`` where the GPU or the driver has none, ``_BROKEN`` or what could not be read."""
    if _is_error(said):
        return _BROKEN
    if kind == "word" and said == "None":
        return said
    if _is_unsupported(said):
        return None
    if kind == "flag":
        return {"enabled": True, "yes": True, "disabled": False, "no": False}.get(said.lower(), _Unread(said))
    if kind == "number":
        return _read_number(said)
    if kind == "decimal":
        found = _NUMBER.fullmatch(said)
        return float(found[1]) if found else _Unread(said)
    return said


def _read_number(said: str) -> Any:
    found = _NUMBER.fullmatch(said)
    return int(found[1].partition(".")[0]) if found else _Unread(said)


def _read_reset(values: Mapping[str, str]) -> Any:
    """Return the reset that drivers before r570 ask for in two flags, or ``None`` where they ask for none."""
    paths = {
        "Reset": "gpu_reset_status/reset_required",
        "Drain and Reset": "gpu_reset_status/drain_and_reset_recommended",
    }
    read = {action: _read("flag", values[path]) for action, path in paths.items() if values[path]}
    needed = [action for action, is_needed in read.items() if is_needed is True]
    return needed[0] if needed else _first_fault(list(read.values()))


def _read_reasons(reasons: Mapping[str, str]) -> Any:
    states = {"active": True, "not active": False}
    read = {
        name: _BROKEN if _is_error(said) else None if _is_unsupported(said) else states.get(said.lower(), _Unread(said))
        for name, said in reasons.items()
    }
    if (fault := _first_fault(list(read.values()))) is not None:
        return fault
    if all(is_active is None for is_active in read.values()):
        return None
    return tuple(sorted(clean_line(name, 60) for name, is_active in read.items() if is_active))


def _read_health(health: Mapping[str, str]) -> Any:
    told = {name: said for name, said in health.items() if said == "None" or not _is_unsupported(said)}
    if any(_is_error(said) for said in told.values()):
        return _BROKEN
    return tuple(told.items()) or None


def _read_processes(block: _Block) -> Any:
    listed = []
    for process in block.processes:
        pid, used = _read_number(process.pid), _read_number(process.used)
        if not isinstance(pid, int):
            return _BROKEN if _is_error(process.pid) else pid
        listed.append(
            SmiProcess(pid=pid, kind=process.kind, name=process.name, used_mib=used if isinstance(used, int) else None)
        )
    if not listed and block.values["processes"] and block.values["processes"] != "None":
        said = block.values["processes"]
        return None if _is_unsupported(said) else _BROKEN if _is_error(said) else _Unread(said)
    return tuple(listed)
