"""The demo history: a believable LLM fleet of six workload classes, generated, with its configuration."""
