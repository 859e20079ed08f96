"""All hosts as they are now, or as a record says they were: a board of values, kept up to date, and ways to show it."""
