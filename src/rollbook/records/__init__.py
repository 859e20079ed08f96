"""A run on disk and back: models, layout, manifest, and the files that other tools of the field read."""
