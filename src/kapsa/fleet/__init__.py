"""The fleet manager: planned, approved, staged roll-outs of operators over many clusters will live here."""
