"""What floors and lookahead save beside the overlay alone, on production traffic."""
