"""A plan run over many hosts: bytes in, readings and per-host status out."""
