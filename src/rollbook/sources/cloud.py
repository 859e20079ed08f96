"""/sys/class/dmi/id: cloud provider and hypervisor, derived from firmware strings."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same, unique

ROOT = "/sys/class/dmi/id"
NAMES = ("sys_vendor", "product_name", "bios_version", "board_asset_tag", "chassis_asset_tag")

# The first match wins. If vendor and product name the hypervisor, only an asset tag names the provider.
PROVIDERS = (
    ("aws", "sys_vendor", r"Amazon EC2"),
    ("aws", "bios_version", r".*amazon"),  # the Xen generation: its vendor is "Xen"
    ("gcp", "product_name", r"Google Compute Engine|Google"),
    ("azure", "chassis_asset_tag", r"7783-7084-3265-9085-8269-3286-77"),
    ("oci", "chassis_asset_tag", r"OracleCloud\.com"),
    ("alibaba", "sys_vendor", r"Alibaba Cloud"),
    ("tencent", "sys_vendor", r"Tencent Cloud"),
    ("huawei", "chassis_asset_tag", r"HUAWEICLOUD"),
    ("digitalocean", "sys_vendor", r"DigitalOcean"),
    ("hetzner", "sys_vendor", r"Hetzner"),
    ("scaleway", "sys_vendor", r"Scaleway"),
    ("vultr", "sys_vendor", r"Vultr"),
    ("openstack", "product_name", r"OpenStack (Nova|Compute)"),
    ("openstack", "chassis_asset_tag", r"OpenStack (Nova|Compute)|OpenTelekomCloud|SAP CCloud VM"),
)
HYPERVISORS = (
    ("vmware", "sys_vendor", r"VMware, Inc\."),
    ("hyperv", "sys_vendor+product_name", r"Microsoft Corporation\+Virtual Machine"),
    ("virtualbox", "product_name", r"VirtualBox"),
    ("nutanix", "sys_vendor+product_name", r"Nutanix\+AHV"),
    ("xen", "product_name", r"HVM domU"),
    ("kvm", "sys_vendor", r"QEMU"),
    ("kvm", "product_name", r"KVM( Virtual Machine)?|RHEV Hypervisor|oVirt Node|OpenStack (Nova|Compute)"),
)


class Cloud(Facts):
    """Provider and hypervisor, if recognised. A host with neither is most likely bare metal."""

    provider: Annotated[str | None, same()] = None
    hypervisor: Annotated[str | None, same()] = None
    instance_type: Annotated[str | None, same()] = None
    instance_id: Annotated[str | None, unique()] = None


def first(rules: tuple[tuple[str, str, str], ...], pages: Pages) -> str | None:
    """The name in the first rule that matches."""
    for name, fields, pattern in rules:
        if re.fullmatch(pattern, "+".join(pages.get(field, "") for field in fields.split("+"))):
            return name
    return None


def parse(pages: Pages) -> Cloud:
    """EC2 Nitro also has the instance type as the product name and the instance id as the board's asset tag."""
    nitro = pages.get("sys_vendor") == "Amazon EC2"
    tag = pages.get("board_asset_tag", "")
    return Cloud(
        provider=first(PROVIDERS, pages),
        hypervisor=first(HYPERVISORS, pages),
        instance_type=pages.get("product_name") if nitro else None,
        instance_id=tag if nitro and re.fullmatch(r"i-[0-9a-f]{8,17}", tag) else None,
    )


SOURCE = Files({name: f"{ROOT}/{name}" for name in NAMES}, parse)
