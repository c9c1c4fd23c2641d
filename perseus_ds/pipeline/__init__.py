"""Instructions, schedules and observed traces: the DAG of one pipeline iteration."""
