"""The verbs of the command line as functions; the commands are built on them."""
