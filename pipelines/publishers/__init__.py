"""What leaves floorcast: the JSON schedule and Kubernetes manifests. Nothing here talks to a cluster."""
