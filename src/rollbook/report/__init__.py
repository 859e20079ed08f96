"""The page of a record: one HTML file that opens anywhere without a network."""

from rollbook.report.page import write_report

__all__ = ["write_report"]
