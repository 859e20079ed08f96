"""The verbs of the command line as functions: what the commands themselves are made of."""
