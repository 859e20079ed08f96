"""Series as OpenMetrics text."""
