"""Two papers on classes that training never sees, which share their data, runs and tables.

Al-Kaabi, Monsefi & Zabihzadeh: A framework to enhance generalization of deep metric learning methods (class
adversaries, attended features). Chu, Li, Wang, Zhu & Wen (ICML 2020): Distance metric learning with joint
representation diversification.
"""
