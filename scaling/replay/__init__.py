"""What a pool would have done under a policy: recorded demand, queues, startups and draining, simulated."""
