"""The long-running service: the overlay's loop, the HTTP interface, the metrics and the KEDA scaler."""
