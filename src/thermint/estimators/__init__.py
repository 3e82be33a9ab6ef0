"""From controlled means to log evidence. Estimators know nothing of kernels: draws from any sampler will do."""
