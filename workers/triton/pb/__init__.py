"""Generated from proto/inference.proto by `make proto`; not to be edited."""
