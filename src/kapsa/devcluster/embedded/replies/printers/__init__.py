"""Printers: the columns and cells that kubectl prints for built-in kinds.

Each module holds a family of kinds; `catalog` maps a resource to its printer. A kind without a printer is
shown with its name and its time of creation.
"""
