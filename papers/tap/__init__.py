"""Su & Wen (ICLR 2022): Temporal alignment prediction for supervised representation learning and few-shot learning."""
