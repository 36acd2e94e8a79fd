"""Made from the .proto beside it, by the command that `tests/pipelines/service/test_external_scaler.py` names."""
