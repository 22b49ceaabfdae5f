"""Labelled data: batches of sequences, images, readers, samplers, episodes and augmentations.

Example:
    >>> walks = Dataset(Batch.from_list([[1.0, 2.0], [3.0]]), ["walk", "run"])
    >>> len(walks)
    2
"""

from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.audio import read_audio_folder
from likewise.data.augment import Augmentation, Augmented, RandomBlur, RandomBlurOrMerge, RandomMerge
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.episodes import Episodes
from likewise.data.files import FileSet, open_image_folder, open_sequence_folder
from likewise.data.har import read_har
from likewise.data.image_folders import read_cars, read_cub, read_flowers, read_image_folder, read_online_products
from likewise.data.image_transforms import center_crops, random_crops
from likewise.data.images import ImageSet
from likewise.data.japanese_vowels import load_japanese_vowels
from likewise.data.loading import Loader
from likewise.data.npz import read_npz, write_npz
from likewise.data.samplers import BatchSampler, ClassBalanced, HardBatch, MPerClass, Shuffled
from likewise.data.shl import read_shl, shl_features, standardize
from likewise.data.split import HeldOutClasses
from likewise.data.standardization import Standardization
from likewise.data.summary import Summary, summarize
from likewise.data.tables import read_table, read_wide
from likewise.data.ts import read_ts, write_ts

__all__ = [
    "Augmentation",
    "Augmented",
    "Batch",
    "BatchSampler",
    "ClassBalanced",
    "Dataset",
    "Episodes",
    "FileSet",
    "HardBatch",
    "HeldOutClasses",
    "ImageSet",
    "Loader",
    "MPerClass",
    "RandomBlur",
    "RandomBlurOrMerge",
    "RandomMerge",
    "Shuffled",
    "Standardization",
    "Summary",
    "center_crops",
    "load_japanese_vowels",
    "open_image_folder",
    "open_sequence_folder",
    "random_crops",
    "read_arabic_digits",
    "read_audio_folder",
    "read_cars",
    "read_cub",
    "read_flowers",
    "read_har",
    "read_image_folder",
    "read_npz",
    "read_online_products",
    "read_shl",
    "read_table",
    "read_ts",
    "read_wide",
    "shl_features",
    "standardize",
    "summarize",
    "write_npz",
    "write_ts",
]
