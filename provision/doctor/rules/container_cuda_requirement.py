"""The image asks for a newer CUDA than the driver offers, and the toolkit refuses to start it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of, minimum_driver
from provision.versions import parse

SYMPTOMS = (
    r"unsatisfied condition: cuda\s?>=?\s?([0-9]{1,2}\.[0-9])",
    r"requirement error: unsatisfied condition",
    r"please update your driver to a newer version, or use an earlier cuda container",
)


def examine(case: Case) -> Sign | None:
    """Take the CUDA from the message and compare what it needs with the driver that is there."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    cuda = quote.match[1] if quote.match.re.groups else None
    needed = minimum_driver(case.matrix, cuda) if cuda else None
    branch = next((row for row in case.matrix.driver_branches if cuda and row.max_cuda == cuda), None)
    driver = driver_of(case)
    steps = [
        f"Upgrade the driver to branch {branch.branch} or newer: it is the first that offers CUDA {cuda}."
        if branch
        else "Upgrade the driver."
    ]
    steps.append(
        f"Or take an image of an older CUDA: `provision image --driver {driver}` writes one that this driver runs."
        if driver
        else "Or take an image of an older CUDA: `provision image --driver host` writes one that this driver runs."
    )
    if needed:
        steps.append(
            f"Where the driver is {needed} or newer, CUDA {cuda} itself runs on it and only the image's condition is"
            " in the way: at your own risk, `docker run -e NVIDIA_DISABLE_REQUIRE=1` skips it."
        )
    seen = (f"the driver is {driver}",) if driver else ()
    is_proved = bool(driver and branch and parse(driver).release[0] < branch.branch)
    return hint(
        quote,
        confidence="high" if is_proved else "medium",
        seen=seen,
        expected=f"a driver that offers CUDA {cuda}" if cuda else "a driver as new as the image's CUDA",
        fix=steps,
        unseen=() if driver else ("the host's driver: `nvidia-smi`",),
    )
