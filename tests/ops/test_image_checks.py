"""Equal images with different labels, and blank images."""

import numpy as np

from fednoise_core.label_errors.image_checks import find_blank, find_contradictions


def test_all_equal_images_with_different_labels_are_found_and_no_others():
    images = np.random.default_rng(0).integers(0, 255, (40, 6, 6), dtype=np.uint8)
    labels = np.arange(40) % 4
    images[[5, 9, 30]] = images[1]  # 5, 9, 1 have the label 1; 30 has 2
    images[20], labels[20] = images[3], labels[3]  # equal and agreed
    images[11] = images[12]  # 3 and 0
    assert np.flatnonzero(find_contradictions(images, labels)).tolist() == [1, 5, 9, 11, 12, 30]
    vectors = images.reshape(40, 1, 1, 36).astype(np.float32)
    assert np.flatnonzero(find_contradictions(vectors, labels)).tolist() == [1, 5, 9, 11, 12, 30]


def test_blank_images():
    images = np.full((3, 4, 4), 100, np.uint8)
    images[1, 0, 0] = 116
    images[2, 0, 0] = 115
    assert find_blank(images).tolist() == [True, False, True]
    assert not find_blank(np.zeros((2, 1, 1, 3), np.float32)).any()
