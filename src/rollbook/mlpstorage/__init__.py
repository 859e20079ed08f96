"""MLPerf Storage's own classes, files and descriptions, thin over Rollbook's core."""
