"""Nsight Systems' sqlite exports (`nsys export --type sqlite`) into timelines."""
