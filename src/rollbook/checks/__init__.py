"""Rules over a record: are the hosts alike, is the run valid, would it count."""
