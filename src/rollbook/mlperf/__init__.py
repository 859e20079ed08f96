"""MLPerf Storage's files over a record: the system description and the result directory."""
