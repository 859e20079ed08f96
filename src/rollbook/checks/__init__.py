"""Rules over a record: whether hosts are alike, whether the run is valid, and whether it counts for MLPerf Storage."""
