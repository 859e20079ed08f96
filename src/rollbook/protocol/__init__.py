"""The wire protocol between agent and collector: orders, frames, readings, samples."""
