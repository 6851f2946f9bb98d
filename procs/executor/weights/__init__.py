"""Weights from files into models."""
