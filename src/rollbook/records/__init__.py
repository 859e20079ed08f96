"""Records on disk: models, layout, manifest, signature, and the documents that MLPerf Storage's tools read."""
