"""Health in PostgreSQL: readings, baselines, sweeps, and the evidence that the API shows."""
