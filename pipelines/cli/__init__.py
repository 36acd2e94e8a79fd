"""The command line. Heavy imports happen inside the commands, so that `--help` answers at once."""
