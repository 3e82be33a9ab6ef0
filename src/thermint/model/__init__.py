"""The question and the answer: a Model, what is known of it at a point, its prior, draws from it, and an Evidence."""

from thermint.model.evaluation import Evaluation, evaluate, score, tempered, usable
from thermint.model.model import Model

__all__ = ["Evaluation", "Model", "evaluate", "score", "tempered", "usable"]
