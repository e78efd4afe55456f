"""A chosen row as the files that other tools begin with: an inventory, SkyPilot, dstack, Terraform."""

from __future__ import annotations

import json
from typing import Any

from provision.planner.plan import Row

_NAME = "gpu-plan"


def inventory_text(row: Row) -> str:
    """Return the skeleton of an Ansible inventory: the names are there, the addresses come with the machines."""
    hosts = {f"{_NAME}-{number:02}": {"ansible_host": _address(number)} for number in range(1, row.nodes + 1)}
    head = f"# {row.nodes} × {_machine(row)}; put the addresses of the machines in\n"
    return head + _yaml({"gpu_nodes": {"hosts": hosts}})


def _address(number: int) -> str:
    # Documentation addresses (RFC 5737), so that nothing is reached before somebody puts the real ones in.
    return f"192.0.2.{number}" if number < 255 else f"node-{number}.invalid"


def skypilot_text(row: Row, fallbacks: tuple[Row, ...]) -> str | None:
    """Return a SkyPilot task, the fall-backs in their order; ``None`` where SkyPilot does not know the provider."""
    ordered = [_skypilot(each) for each in (row, *fallbacks) if each.nodes == row.nodes or each is row]
    found = [resources for resources in ordered if resources is not None]
    if not found or _skypilot(row) is None:
        return None
    document: dict[str, Any] = {"name": _NAME, "num_nodes": row.nodes}
    document["resources"] = found[0] if len(found) == 1 else {"ordered": found}
    return _yaml(document)


def _skypilot(row: Row) -> dict[str, Any] | None:
    cloud = row.offer.provider.skypilot
    if cloud is None:
        return None
    instance = row.offer.instance
    resources = {"infra": f"{cloud}/{instance.region}", "instance_type": instance.type}
    return {**resources, "use_spot": row.purchase == "spot"}


def dstack_text(row: Row) -> str | None:
    """Return a dstack fleet; ``None`` where dstack does not know the provider."""
    backend = row.offer.provider.dstack
    if backend is None:
        return None
    document: dict[str, Any] = {"type": "fleet", "name": _NAME, "nodes": row.nodes}
    if row.nodes > 1:
        document["placement"] = "cluster"
    return _yaml(
        {
            **document,
            "backends": [backend],
            "regions": [row.offer.instance.region],
            "instance_types": [row.offer.instance.type],
            "spot_policy": "spot" if row.purchase == "spot" else "on-demand",
        }
    )


def terraform_text(row: Row) -> str:
    """Return the variables of a Terraform module as ``terraform.tfvars.json``."""
    instance = row.offer.instance
    document = {
        "provider_name": row.offer.provider.terraform or instance.provider,
        "region": instance.region,
        "instance_type": instance.type,
        "node_count": row.nodes,
        "gpu": row.offer.gpu.name,
        "gpus_per_node": instance.gpu_count,
        "use_spot": row.purchase == "spot",
        "purchase": row.purchase,
        "max_usd_per_hour": round(row.price.usd, 6),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _machine(row: Row) -> str:
    instance = row.offer.instance
    return f"{instance.provider} {instance.type} in {instance.region}, {row.purchase}"


def _yaml(document: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text
