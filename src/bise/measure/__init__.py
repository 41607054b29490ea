"""What is measured on predictions and features: groups, information, fairness, calibration, probes."""
