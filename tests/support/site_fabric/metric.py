"""A metric as another package declares it: its column, chart, live view and reference follow."""

from rollbook.metrics.metric import Metric

METRIC = Metric(
    "site_retries",
    "Fabric retries",
    "1/s",
    "Transfers that the fabric repeated",
    {"site_fabric": "retries"},
    bad="high",
    negligible=5.0,
    watch="retries",
)
