"""What agent and collector say to each other: orders, frames, readings, samples."""
