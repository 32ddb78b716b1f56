"""DDTREE for SGLang: a DFlash drafter, a best-first draft tree, one verify pass.

The algorithm is DDTree (arXiv 2604.12989) on SGLang's own DFLASH: its drafter, draft KV cache and
draft graph stay as they are. `registration` is the entry point; SGLang imports it by itself.
"""
