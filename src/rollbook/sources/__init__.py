"""Sources: what Rollbook can read on a host, one small module each, and their catalogue."""
