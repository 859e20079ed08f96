"""`rollbook watch`: all hosts live in the terminal."""
