"""The tests of Rollbook."""
