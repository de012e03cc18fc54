"""Controllers of the embedded control plane."""
