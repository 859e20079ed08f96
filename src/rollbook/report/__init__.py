"""The page: what to show of a record, who stands out, and one HTML file that opens anywhere without a network."""

from rollbook.report.page import write_report

__all__ = ["write_report"]
