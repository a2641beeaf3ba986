"""One module for each rule: files in, files out."""
