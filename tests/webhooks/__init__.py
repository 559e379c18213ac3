"""Webhooks, from the step that ends a job to the receiver."""
