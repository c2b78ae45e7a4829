"""How an exported plan is started on a cluster: files for schedulers, around the command of a format."""
