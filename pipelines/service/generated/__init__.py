"""Made by `make proto` from the .proto beside it. Change that, not these."""
