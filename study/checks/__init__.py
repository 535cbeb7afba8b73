"""What the documentation says about accuracy and statistics, measured.

``python -m study.checks NAME`` measures and prints tables; ``--record FILE.json`` keeps the numbers
in a file as they come, and ``--table FILE.json`` prints the tables of such a file again. A check
is a module with ``measure``, which yields its record as it grows, and ``table``, which writes the
Markdown of a record. Speed, memory, and the default on real tables are measured in ``benchmarks/``.
"""
