"""Training: ``fit``, on Lightning, which is imported when fit is called, and the scikit-learn estimator around it."""
