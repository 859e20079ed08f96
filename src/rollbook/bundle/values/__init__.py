"""Functions of rules that compare values: each takes a report and yields what it found. They are pure."""
