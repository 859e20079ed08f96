"""/sys/class/nvme/nvme*/hwmon*: drive temperatures (drivers/nvme/host/hwmon.c, since 5.5)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, columns, gauge, key
from rollbook.sources.text import celsius, devices

ROOT = "/sys/class/nvme"


class DriveTemperature(Facts):
    """Sensors of one controller by label; drives throttle by "Composite"."""

    controller: Annotated[str, key()]
    sensors: Annotated[dict[str, float], columns(gauge("°C"))]


def parse(pages: Pages) -> list[DriveTemperature]:
    """`temp1_input` in thousandths of a degree, named by `temp1_label`."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        sensors = {}
        for path, text in found.items():
            sensor = re.search(r"(temp\d+)_input$", path)
            if sensor and text:
                label = found.get(path.removesuffix("_input") + "_label") or sensor[1]
                sensors[label] = celsius(text)
        rows.append(DriveTemperature(name, sensors))
    return rows


# The sensors belong to the controller since 5.12, before that to its PCI device.
SOURCE = Glob(
    [
        f"{ROOT}/nvme[0-9]*/{where}/temp*_{what}"
        for where in ("hwmon[0-9]*", "device/hwmon/hwmon[0-9]*")
        for what in ("input", "label")
    ],
    parse,
    every=10,
)
