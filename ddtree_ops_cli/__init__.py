"""Operator toolkit for tree-verified speculative decoding with SGLang."""
