"""One measure a file: what is done in one slice, and its command."""
