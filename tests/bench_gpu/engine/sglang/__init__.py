"""Stands where SGLang would: its command line, and behind it the scripted engine of the tests."""
