"""What can be read on a host: one small module per source, and the catalogue of them."""
