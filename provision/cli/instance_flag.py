"""``--instance``: one machine of the catalogue, as ``provision plan`` names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.errors import UnknownError, UsageError, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.planner.catalogue import Offer


def find_offer(text: str, matrix: Matrix) -> Offer:
    """Return the machine that ``PROVIDER/TYPE[/REGION]`` names.

    Raises:
        UsageError: It names none, or has a price for each of several regions.
        UnknownError: The catalogue does not have it.
    """
    from provision.planner.catalogue import find_provider, list_offers

    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError(
            f"--instance `{shown(text)}` names no machine", hints=("write it as in `aws/p4d.24xlarge/us-east-1`",)
        )
    provider = find_provider(matrix, parts[0])
    offers = [offer for offer in list_offers(matrix, providers=(provider.id,)) if offer.instance.type == parts[1]]
    regions = sorted(offer.instance.region for offer in offers)
    if len(parts) == 3:
        offers = [offer for offer in offers if offer.instance.region == parts[2]]
    if not offers:
        raise UnknownError(
            f"the catalogue has no {provider.id} `{shown(parts[1])}`"
            + (f" in `{shown(parts[2])}`" if len(parts) == 3 and regions else ""),
            hints=(
                *((f"it is there in {', '.join(regions)}",) if regions else ()),
                "`provision plan` lists machines; or give the price: `--price USD`",
            ),
        )
    if len(offers) > 1:
        raise UsageError(
            f"--instance `{shown(text)}` has a price for each of {len(offers)} regions",
            hints=(f"name the region, of {', '.join(regions)}",),
        )
    return offers[0]
