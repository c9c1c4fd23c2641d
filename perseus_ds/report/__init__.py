"""What people and monitoring see of a run: the HTML report, the plots and the metrics."""
