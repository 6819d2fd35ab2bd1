"""Bridges into other libraries."""
