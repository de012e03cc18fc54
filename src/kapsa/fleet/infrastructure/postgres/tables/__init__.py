"""The tables of the PostgreSQL schema `fleet`, one module for each area."""
