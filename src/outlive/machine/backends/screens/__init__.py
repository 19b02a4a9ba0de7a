"""Engines of screen models: ghostty (native, the usual one) and bittty (pure Python)."""
