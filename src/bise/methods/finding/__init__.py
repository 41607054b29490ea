"""Groups of samples without bias labels: from features, from answers, from a table's columns."""
