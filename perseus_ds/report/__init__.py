"""Output for people and monitoring: the HTML report, the plots and the metrics."""
