"""The image: its build context, its way to other hosts, and what is locked of it."""
