"""The reactive policies: live signals and state in, decision and state out. Pure; one array position is one lane."""
