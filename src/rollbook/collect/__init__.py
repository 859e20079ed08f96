"""Reads many hosts: sessions with agents, snapshots, recordings, the wrapped command."""
