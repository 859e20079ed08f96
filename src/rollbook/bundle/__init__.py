"""Issue reports: diagnostic evidence from every node, collected within limits, without secrets, and analysed."""
