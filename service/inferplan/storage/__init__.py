"""Deployments and plans in SQLite or PostgreSQL: tables, migrations, transactions, one store a resource."""
