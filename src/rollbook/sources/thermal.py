"""/sys/class/thermal and /sys/class/hwmon: temperatures (driver-api/thermal, hwmon/sysfs-interface)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, gauge, info, key
from rollbook.sources.text import celsius, devices, last_part, optional

ZONES, CHIPS = "/sys/class/thermal", "/sys/class/hwmon"


class Sensor(Facts):
    """One sensor: `thermal_zone0` or `hwmon3/temp1`. The numbers may change at boot, chip and label do not."""

    sensor: Annotated[str, key()]
    chip: Annotated[str | None, info()] = None
    label: Annotated[str | None, info()] = None
    temperature: Annotated[float | None, gauge("°C")] = None


def parse(pages: Pages) -> list[Sensor]:
    """Thousandths of a degree. Disabled zones are unreadable. NVMe drives are in `nvme_thermal`."""
    rows = [
        Sensor(zone, found.get("type") or None, None, optional(found.get("temp"), celsius))
        for zone, found in devices(pages, f"{ZONES}/")
    ]
    for chip, found in devices(pages, f"{CHIPS}/"):
        name = found.get("name") or found.get("device/name") or None
        inputs = [path for path in found if path.endswith("_input")] if name != "nvme" else []
        rows.extend(
            Sensor(
                f"{chip}/{last_part(path).removesuffix('_input')}",
                name,
                found.get(path.removesuffix("_input") + "_label") or None,
                optional(found[path], celsius),
            )
            for path in inputs
        )
    return rows


# In 3.x kernels the files of a chip are one level deeper.
SOURCE = Glob(
    [
        *(f"{ZONES}/thermal_zone[0-9]*/{name}" for name in ("type", "temp")),
        *(f"{CHIPS}/*/{where}{name}" for where in ("", "device/") for name in ("name", "temp*_input", "temp*_label")),
    ],
    parse,
    every=10,
)
