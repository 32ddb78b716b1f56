"""Stands in for a package that SGLang imports on platforms it does not know; nothing calls it."""
