"""From a model to an answer: evidence, estimate, compare, replicate, anneal."""
