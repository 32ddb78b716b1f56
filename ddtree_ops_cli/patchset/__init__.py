"""The patch set: what it changes in an installed SGLang, and doing it safely.

manifest.py    what the set is: patches, new modules, hashes before and after
hunks.py       exact application of one unified diff
target.py      where SGLang is, and which version
verify.py      what state a target is in
apply.py       apply and revert, all or nothing
journal.py     what makes an interrupted run recoverable
record.py      the installer's list of files, kept right
difference.py  the set, or what was edited, as one unified diff
"""
